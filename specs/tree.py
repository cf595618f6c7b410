"""One YAML file as a tree that knows where every key and value stands.

Invariants
 - The text is first walked as a flat stream of parser events: limits, anchors, tags and second documents
   are decided there, before anything is composed, so no input can make this recurse deeply or expand.
 - Then PyYAML composes nodes, and nodes become `Leaf`, `Seq` and `Map`; PyYAML's own idea of what a plain
   scalar means is never asked for (see `scalars`).
 - Reading goes on after a finding wherever the rest still makes sense; a refused value stays in the tree
   as its text and its place is in `Document.refused`, so that later checks do not report it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from .findings import Code, Finding, Where
from .scalars import Scalar, Trap, describe, read_plain

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16
MAX_NODES = 20_000

# libyaml is ten times faster; what it refuses is read again by the slow parser, whose messages are clearer
_FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Step = str | int
PlainValue = Scalar | dict[str, "PlainValue"] | tuple["PlainValue", ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A scalar."""

    where: Where
    value: Scalar


@dataclass(frozen=True, slots=True)
class Seq:
    """A list."""

    where: Where
    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its own place, and its value."""

    where: Where
    value: Tree


@dataclass(frozen=True, slots=True)
class Map:
    """A mapping, keys in file order."""

    where: Where
    entries: Mapping[str, Entry]


Tree = Leaf | Seq | Map


@dataclass
class Document:
    """One file: its tree (None if nothing could be read), its findings, and the places already refused."""

    file: str
    tree: Tree | None = None
    findings: list[Finding] = field(default_factory=list)
    refused: set[Where] = field(default_factory=set)

    def refuse(self, code: Code, where: Where, /, **values: object) -> None:
        """Record a finding, and that the value at `where` needs no second one."""
        self.findings.append(code.at(where, **values))
        self.refused.add(where)


def plain(tree: Tree) -> PlainValue:
    """The tree as dict, tuple and scalars."""
    if isinstance(tree, Map):
        return {key: plain(entry.value) for key, entry in tree.entries.items()}
    if isinstance(tree, Seq):
        return tuple(plain(item) for item in tree.items)
    return tree.value


def graft(value: object, where: Where) -> Tree:
    """A tree of Python values, all of whose parts stand at `where`."""
    if isinstance(value, Mapping):
        return Map(where, {str(key): Entry(where, graft(item, where)) for key, item in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return Seq(where, tuple(graft(item, where) for item in value))
    if isinstance(value, bool | int | float | str):
        return Leaf(where, value)
    raise TypeError(f"a spec holds no {type(value).__name__}")


@dataclass(frozen=True, slots=True)
class Found:
    """How far a path leads: `depth` steps, the key's place and the value there."""

    depth: int
    key: Where
    value: Tree


def follow(tree: Tree, path: Sequence[Step]) -> Found:
    """Walk `path` as far as the tree has it. The root's key place is its value's."""
    key, depth = tree.where, 0
    for step in path:
        if isinstance(tree, Map) and isinstance(step, str) and step in tree.entries:
            key, tree = tree.entries[step].where, tree.entries[step].value
        elif isinstance(tree, Seq) and isinstance(step, int) and step < len(tree.items):
            tree = tree.items[step]
            key = tree.where
        else:
            break
        depth += 1
    return Found(depth, key, tree)


def leaves(tree: Tree, path: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], Leaf]]:
    """Every scalar with its path, in order."""
    if isinstance(tree, Map):
        for key, entry in tree.entries.items():
            yield from leaves(entry.value, (*path, key))
    elif isinstance(tree, Seq):
        for index, item in enumerate(tree.items):
            yield from leaves(item, (*path, index))
    else:
        yield path, tree


# ---------------------------------------------------------------- reading


def read(path: Path) -> Document:
    """Read one file; whatever is wrong with it is in the document's findings, nothing is raised."""
    document = Document(str(path))
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # reading a pipe would never end
            raise OSError("it is not a regular file")
        raw = path.read_bytes()
    except OSError as error:
        document.refuse(Code.UNREADABLE, Where(str(path)), reason=error.strerror or str(error))
        return document
    text = _decode(document, raw)
    if text is not None:
        _read_text(document, text)
    return document


def read_text(text: str, file: str) -> Document:
    """Like `read`, of a text."""
    document = Document(file)
    _read_text(document, text)
    return document


def _decode(document: Document, raw: bytes) -> str | None:
    here = Where(document.file)
    if len(raw) > MAX_BYTES:
        document.refuse(Code.TOO_LARGE, here, bytes=len(raw), limit=MAX_BYTES)
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode()
        line = before.count("\n") + 1
        col = len(before) - (before.rfind("\n") + 1) + 1
        document.refuse(Code.NOT_UTF8, Where(document.file, line, col), byte=raw[error.start])
        return None


def _read_text(document: Document, text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if "\t" in line:
            document.refuse(Code.TAB, Where(document.file, number, line.index("\t") + 1))
    if document.findings:
        return
    for loader in (_FAST, yaml.SafeLoader):
        document.findings.clear()
        try:
            if _admitted(document, text, loader):
                _plant(document, yaml.compose(text, Loader=loader))
            return
        except (yaml.YAMLError, UnicodeError) as error:
            if loader is yaml.SafeLoader:
                _syntax(document, error, text)


def _plant(document: Document, root: yaml.Node | None) -> None:
    if isinstance(root, yaml.MappingNode):
        document.tree = _tree(document, root)
    elif isinstance(root, yaml.ScalarNode) and not root.value:
        document.refuse(Code.EMPTY_FILE, Where(document.file))
    elif root is not None:
        got = "a list" if isinstance(root, yaml.SequenceNode) else describe(root.value)
        document.refuse(Code.WRONG_TYPE, _place(document, root.start_mark), got=got, want="a mapping")


def _admitted(document: Document, text: str, loader: Any) -> bool:
    """Walk the event stream; False if the text must not be composed."""
    depth = nodes = documents = anchors = aliases = 0
    first: Where | None = None
    here = Where(document.file)
    for event in yaml.parse(text, Loader=loader):
        here = _place(document, event.start_mark)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents == 2:
                document.refuse(Code.SEVERAL_DOCUMENTS, here)
        elif isinstance(event, yaml.NodeEvent):
            nodes += 1
            aliases += isinstance(event, yaml.AliasEvent)
            anchors += event.anchor is not None and not isinstance(event, yaml.AliasEvent)
            first = first or (here if event.anchor is not None else None)
            _check_tag(document, event, here)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            code, limit = (
                (Code.TOO_DEEP, MAX_DEPTH) if depth > MAX_DEPTH else (Code.TOO_MANY_NODES, MAX_NODES)
            )
            document.refuse(code, here, limit=limit)
            break
    if first is not None:
        document.refuse(Code.ANCHORS, first, anchors=anchors, aliases=aliases)
    if documents == 0:
        document.refuse(Code.EMPTY_FILE, Where(document.file))
    return not document.findings


def _check_tag(document: Document, event: yaml.NodeEvent, here: Where) -> None:
    tag = getattr(event, "tag", None)
    if tag not in (None, "!"):
        document.refuse(Code.TAG, here, tag=tag.replace("tag:yaml.org,2002:", "!!"))


def _place(document: Document, mark: Any) -> Where:
    return Where(document.file, mark.line + 1, mark.column + 1)


_HINTS = (
    (r"mapping values are not allowed", "quote text that holds `: `, and align keys of one mapping"),
    (r"expected <block end>", "align the keys of one mapping, and the dashes of one list"),
    (r"could not find expected ':'", "write `key: value`"),
    (r"expected ',' or '[\]}]'", "close the bracket, and separate with commas"),
    (r"while scanning a quoted scalar|found unexpected end of stream", "close the quote"),
    (r"cannot start any token", "quote text that starts with a special character"),
)


def _syntax(document: Document, error: Exception, text: str) -> None:
    problem = re.sub(
        r"\s+", " ", str(getattr(error, "problem", None) or getattr(error, "reason", "") or error)
    )
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = Where(document.file)
    if mark is not None:
        where = _place(document, mark)
    elif isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        where = Where(document.file, before.count("\n") + 1, error.position - before.rfind("\n"))
        problem = (
            f"character U+{int(error.character):04X} is not allowed" if error.character != "" else problem
        )
    hint = next(
        (h for pattern, h in _HINTS if re.search(pattern, str(error))), "correct the syntax at this place"
    )
    document.refuse(Code.YAML_SYNTAX, where, problem=problem, hint=hint)


# ---------------------------------------------------------------- nodes to tree


def _tree(document: Document, node: yaml.Node, key: str = "") -> Tree:
    where = _place(document, node.start_mark)
    if isinstance(node, yaml.MappingNode):
        return Map(where, _entries(document, node))
    if isinstance(node, yaml.SequenceNode):
        return Seq(where, tuple(_tree(document, item, f"{key}[{i}]") for i, item in enumerate(node.value)))
    return Leaf(where, _scalar(document, cast(yaml.ScalarNode, node), where, key))


def _entries(document: Document, node: yaml.MappingNode) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for key_node, value_node in node.value:
        where = _place(document, key_node.start_mark)
        key = _key(document, key_node, where)
        value = _tree(document, value_node, key or "?")
        if key is None:
            continue
        if key in entries:
            document.refuse(Code.DUPLICATE_KEY, where, key=key, first=entries[key].where.line)
        else:
            entries[key] = Entry(where, value)
    return entries


def _key(document: Document, node: yaml.Node, where: Where) -> str | None:
    """The key's name, or None if it is none (a finding says so)."""
    if not isinstance(node, yaml.ScalarNode):
        document.refuse(Code.BAD_KEY, where, key="that is a list or a mapping")
        return None
    if node.style:  # "" or None is plain
        document.refuse(Code.BAD_KEY, where, key=f"`{node.value}` in quotes")
        return None
    if node.value == "<<":
        document.refuse(Code.MERGE_KEY, where)
        return None
    if node.value in ("n", "y"):  # a boolean in the letter of YAML 1.1 only; matrix shapes have a key `n`
        return str(node.value)
    value = read_plain(node.value) if node.value else ""
    if isinstance(value, Trap):
        document.refuse(
            Code.AMBIGUOUS, where, text=node.value, trap=value.trap, hint="use another word as key"
        )
        return None
    if not isinstance(value, str) or not value:
        document.refuse(Code.BAD_KEY, where, key=f"`{node.value}`")
        return None
    return value


def _scalar(document: Document, node: yaml.ScalarNode, where: Where, key: str) -> Scalar:
    if node.style:  # "" or None is plain
        return str(node.value)
    if not node.value:
        document.refuse(Code.EMPTY_VALUE, where, key=key)
        return ""
    value = read_plain(node.value)
    if isinstance(value, Trap):
        document.refuse(Code.AMBIGUOUS, where, text=value.text, trap=value.trap, hint=value.hint)
        return value.text
    return value
