"""Properties over the shipped specs: deleting or changing anything never escapes the loader."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from flymono.specs import default_root, inspect
from flymono.specs.emit import emit
from flymono.specs.findings import Where
from flymono.specs.loader import KINDS
from flymono.specs.scalars import read_plain
from flymono.specs.tree import Leaf, graft, leaves, plain, read, read_text

from .folder import SpecFolder

FILES = sorted(
    str(p.relative_to(default_root())) for kind in KINDS for p in (default_root() / kind).glob("*.yaml")
)


def required_keys(file: str) -> Iterator[tuple[str, int, str, str]]:
    """(file, line of the key, key, parent's key) of block-style keys that the schema requires."""
    text = (default_root() / file).read_text()
    root = yaml.compose(text)
    yield from _keys(file, root, KINDS[file.partition("/")[0]], "")


def _keys(
    file: str, node: yaml.Node, model: type[BaseModel], parent: str
) -> Iterator[tuple[str, int, str, str]]:
    assert isinstance(node, yaml.MappingNode)
    for key, value in node.value:
        field = model.model_fields.get(key.value)
        if field is None or not field.is_required() or key.start_mark.line in parent_lines(node, key):
            continue
        yield file, key.start_mark.line + 1, key.value, parent
        if (
            isinstance(value, yaml.MappingNode)
            and not value.flow_style
            and isinstance(field.annotation, type)
        ):
            yield from _keys(file, value, field.annotation, key.value)


def parent_lines(node: yaml.MappingNode, key: yaml.Node) -> set[int]:
    """Lines that hold more than one key of `node`: such a key cannot be deleted by its lines."""
    lines = [k.start_mark.line for k, _ in node.value if k is not key]
    return set(lines)


CASES = [case for file in FILES for case in required_keys(file)]


def without(text: str, line: int) -> str:
    """The text without the key that starts at `line`: that line and all deeper or continued ones."""
    lines = text.splitlines(keepends=True)
    indent = len(lines[line - 1]) - len(lines[line - 1].lstrip())
    end = line
    while end < len(lines) and (
        len(lines[end]) - len(lines[end].lstrip()) > indent or lines[end].strip() == ""
    ):
        end += 1
    return "".join(lines[: line - 1] + lines[end:])


@pytest.mark.parametrize(
    ("file", "line", "key", "parent"), CASES, ids=[f"{c[0]}:{c[3]}.{c[2]}" for c in CASES]
)
def test_deleting_a_required_key_is_found_where_it_belongs(
    folder: SpecFolder, file: str, line: int, key: str, parent: str
) -> None:
    text = (folder.root / file).read_text()
    folder.write(file, without(text, line))
    missing = [f for f in folder.findings() if f.code.name in ("MISSING_KEY", "WRONG_TYPE", "EMPTY_VALUE")]
    assert len(missing) == 1
    assert missing[0].code.name != "MISSING_KEY" or f"`{key}`" in missing[0].text
    lines = (folder.root / file).read_text().splitlines()
    if parent:
        assert lines[missing[0].where.line - 1].lstrip().startswith(f"{parent}:")


SCALARS = st.one_of(
    st.sampled_from(["no", "08", "1e5", "", "~", "[]", "{}", '""', "-1", "0", "1.5", "true", "auto",
                     "{a: 1}", "[1, x]", "&a 1", "*a",
                     "!!int 1", "|", ">", "'", "99999999999999999", "0x7fffffff", "gfx950"]),
    st.text(alphabet="abc019.-_ :#[]{}\"'&*!", max_size=8),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False).map(repr),
)  # fmt: skip


@st.composite
def mutations(draw: st.DrawFn) -> tuple[str, int, int, str]:
    """One scalar of one file, replaced by another text: (file, line, column, new file text)."""
    file = draw(st.sampled_from(FILES))
    text = (default_root() / file).read_text()
    scalars = [n for n in _scalars(yaml.compose(text)) if n.start_mark.line == n.end_mark.line]
    node = draw(st.sampled_from(scalars))
    new = text[: node.start_mark.index] + draw(SCALARS) + text[node.end_mark.index :]
    return file, node.start_mark.line + 1, node.start_mark.column + 1, new


def _scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    for item in node.value if isinstance(node, yaml.SequenceNode) else ():
        yield from _scalars(item)
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        yield key
        yield from _scalars(value)


@given(mutations())
def test_any_changed_scalar_is_accepted_or_found(mutation: tuple[str, int, int, str]) -> None:
    file, _, _, text = mutation
    with tempfile.TemporaryDirectory() as name:
        folder = SpecFolder(Path(name) / "specs")
        folder.write(file, text)
        specs, findings = inspect(folder.root)
        lines = text.count("\n") + 2
        for finding in findings:
            str(finding)
            assert not finding.where.file.endswith(file) or 1 <= finding.where.line <= lines
            assert "{" not in finding.code.value.text or finding.text != finding.code.value.text
        assert (specs is None) == bool(findings)


@given(mutations())
def test_a_refused_scalar_is_found_on_its_own_line(mutation: tuple[str, int, int, str]) -> None:
    """If the file still has the same keys and values, what is wrong is shown on the changed line."""
    file, line, _, text = mutation
    before = read(default_root() / file)
    after = read_text(text, file)
    assert before.tree is not None
    if after.tree is None or [p for p, _ in leaves(after.tree)] != [p for p, _ in leaves(before.tree)]:
        return
    for finding in after.findings:
        assert finding.where.line == line


@pytest.mark.parametrize("file", FILES)
def test_emitted_specs_read_back_to_the_same_values(file: str) -> None:
    tree = read(default_root() / file).tree
    assert tree is not None
    again = read_text(emit(tree), file)
    assert again.findings == []
    assert again.tree is not None
    assert plain(again.tree) == plain(tree)


KEYS = st.from_regex(r"[a-z_]{4,9}", fullmatch=True).filter(lambda k: read_plain(k) == k)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff"))
VALUES = st.recursive(
    st.booleans() | st.integers(-(10**17), 10**17) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=5))
def test_any_value_survives_emit_and_read(values: dict[str, object]) -> None:
    tree = graft(values, Where("f"))
    again = read_text(emit(tree), "f")
    assert again.findings == []
    assert again.tree is not None
    assert repr(plain(again.tree)) == repr(plain(tree))


def test_leaf_places_are_where_the_text_is() -> None:
    for file in FILES:
        text = (default_root() / file).read_text().splitlines()
        tree = read(default_root() / file).tree
        assert tree is not None
        for _, leaf in leaves(tree):
            assert isinstance(leaf, Leaf)
            rest = text[leaf.where.line - 1][leaf.where.col - 1 :]
            if isinstance(leaf.value, str) and not rest.startswith((">", "|")):
                assert rest.lstrip("\"'").startswith(leaf.value.split()[0])
