"""Load a folder of specs: read, inherit, validate, cross-check; all findings at once, or frozen specs.

Invariants
 - A root holds `arch/`, `model/`, `build/` and `numerics/`, one spec a file, the file named after its spec.
 - The root is an argument, else `FLYMONO_SPECS`, else the folder that this package was installed with.
 - A file that is refused does not hide what is wrong with another one; a check that needs a refused file
   is skipped, so nothing is reported that only follows from an earlier finding.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from . import inherit, tree
from .checks import check_all
from .findings import Code, Finding, SpecError, UserError, Where, near
from .schema import ArchSpec, BuildSpec, ModelSpec, NumericsSpec, Spec
from .source import Source
from .tree import Document, Entry, Leaf, Map
from .validate import validate

S = TypeVar("S", bound=Spec)

KINDS: Mapping[str, type[Spec]] = MappingProxyType(
    {"arch": ArchSpec, "model": ModelSpec, "build": BuildSpec, "numerics": NumericsSpec}
)
REQUIRED = ("arch", "model")
ROOT_VARIABLE = "FLYMONO_SPECS"


class UnknownSpec(UserError, KeyError):
    """No spec has this name."""

    __str__ = UserError.__str__


class Table(dict[str, S], Generic[S]):
    """Specs of one kind by name; an unknown name is a `UserError` that lists the known ones."""

    def __init__(self, kind: str, specs: Iterable[tuple[str, S]] = ()) -> None:
        super().__init__(specs)
        self.kind = kind

    def __missing__(self, name: str) -> S:
        raise UnknownSpec(f"no {self.kind} spec is named `{name}`", fix=near(name, self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self.kind, list(self.items()))


@dataclass(frozen=True)
class Origin:
    """Where a resolved value was written, and how it got into the spec."""

    where: Where
    how: str  # "stated", "inherited from X", "override", "default", "given"

    def __str__(self) -> str:
        return f"{self.where} ({self.how})"


@dataclass(frozen=True)
class Specs:
    """Everything that was loaded; frozen, and safe to pickle into a child process."""

    root: Path
    arch: Table[ArchSpec]
    model: Table[ModelSpec]
    numerics: Table[NumericsSpec]
    builds: tuple[BuildSpec, ...]
    sources: Mapping[str, Source] = field(repr=False)  # "arch/gfx942" -> where its values stand

    def spec(self, name: str) -> Spec:
        """The spec `name`: `gfx942`, or `arch/gfx942` where a bare name is used by two kinds."""
        return self._source(name).spec

    def key(self, name: str) -> str:
        """`kind/name` of the spec that `name` stands for."""
        return self._source(name).key

    def resolved(self, name: str) -> Map:
        """All values with their places; a default's place is the start of the file."""
        source = self._source(name)
        values = source.spec.model_dump(exclude={"inherits"}, exclude_none=True)
        return cast(Map, _filled(source.tree, tree.graft(values, source.tree.where)))

    def where(self, name: str, *path: str | int) -> Where:
        """The place of a value, for findings about it that other folders make."""
        return self._source(name).at(*path)

    def origin(self, name: str, *path: str | int) -> Origin:
        """Where the value at `path` of spec `name` was written; a default's place is its mapping's."""
        source = self._source(name)
        found = tree.follow(source.tree, path)
        return Origin(found.key, source.how(found.key) if found.depth == len(path) else "default")

    def digest(self, name: str) -> str:
        """sha256 of the resolved content: the same for a spec in full and one that inherits."""
        spec = self.spec(name)
        content = spec.model_dump(mode="json", exclude={"inherits"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def names(self) -> tuple[str, ...]:
        """All specs as `kind/name`."""
        return tuple(self.sources)

    def _source(self, name: str) -> Source:
        if name in self.sources:
            return self.sources[name]
        same = [key for key in self.sources if key.partition("/")[2] == name]
        if len(same) == 1:
            return self.sources[same[0]]
        if same:
            raise UnknownSpec(f"`{name}` names several specs", fix="use one of " + ", ".join(same))
        raise UnknownSpec(
            f"no spec is named `{name}`", fix=near(name, {k.partition("/")[2] for k in self.sources})
        )


def _filled(stated: tree.Tree, full: tree.Tree) -> tree.Tree:
    """The tree `full` with the places of those values that `stated` has too."""
    if isinstance(stated, Map) and isinstance(full, Map):
        return Map(stated.where, {k: _filled_entry(stated, k, e) for k, e in full.entries.items()})
    if isinstance(stated, tree.Seq) and isinstance(full, tree.Seq):
        pairs = zip(stated.items, full.items, strict=True)
        return tree.Seq(stated.where, tuple(_filled(a, b) for a, b in pairs))
    return Leaf(stated.where, full.value) if isinstance(full, Leaf) else full


def _filled_entry(stated: Map, key: str, entry: Entry) -> Entry:
    mine = stated.entries.get(key)
    return Entry(mine.where, _filled(mine.value, entry.value)) if mine else entry


def default_root() -> Path:
    """`FLYMONO_SPECS` if set, else the shipped specs."""
    return Path(os.environ.get(ROOT_VARIABLE) or Path(__file__).resolve().parent)


def load(root: Path | str | None = None, overrides: Mapping[str, object] | None = None) -> Specs:
    """Load every spec under `root`.

    `overrides` maps `"<spec name>.<key>.<key>"` to a value that takes the place of the file's, for example
    `{"gfx950.workgroup.lds_bytes": 131072}`; they pass the same checks as a file.

    Raises SpecError with all findings of all files.
    """
    specs, findings = inspect(root, overrides)
    if findings or specs is None:
        raise SpecError(findings)
    return specs


def inspect(
    root: Path | str | None = None, overrides: Mapping[str, object] | None = None
) -> tuple[Specs | None, list[Finding]]:
    """Like `load`, but returns the findings instead of raising; specs are None if there are any."""
    base = Path(root) if root is not None else default_root()
    findings: list[Finding] = []
    documents = _read_root(base.absolute(), findings)
    _apply(overrides or {}, documents, findings)
    sources = _validate_all(documents)
    findings += [f for document in documents.values() for f in document.findings]
    findings += check_all(sources, known=set(documents))
    return (None if findings else _specs(base, sources)), findings


def _read_root(root: Path, findings: list[Finding]) -> dict[str, Document]:
    """Documents by `kind/stem`, in a fixed order."""
    if not root.is_dir():
        findings.append(Code.MISSING_ROOT.at(Where(str(root)), path=root))
        return {}
    documents: dict[str, Document] = {}
    for kind in KINDS:
        paths = sorted(p for p in (root / kind).glob("*") if not p.name.startswith("."))
        for path in paths:
            if path.suffix == ".yaml":
                documents[f"{kind}/{path.stem}"] = tree.read(path)
            else:
                findings.append(Code.STRAY_FILE.at(Where(str(path)), name=path.name, stem=path.stem))
        if kind in REQUIRED and not any(key.startswith(kind + "/") for key in documents):
            findings.append(Code.MISSING_FILES.at(Where(str(root / kind)), kind=kind, path=root / kind))
    return documents


def _apply(overrides: Mapping[str, object], documents: dict[str, Document], findings: list[Finding]) -> None:
    for key, value in overrides.items():
        name, *path = key.split(".")
        document = next((d for k, d in documents.items() if name in (k, k.partition("/")[2])), None)
        where = Where(f"<override {key}>")
        if document is None or not path:
            names = {k.partition("/")[2] for k in documents}
            findings.append(
                Code.OVERRIDE_UNKNOWN.at(where, key=key, parent="the specs", hint=near(name, names))
            )
        elif isinstance(document.tree, Map):
            inherits = document.tree.entries.get("inherits") is not None
            document.tree = _patched(document.tree, ["override", *path] if inherits else path, value, where)


def _patched(base: tree.Tree | None, path: list[str], value: object, where: Where) -> Map:
    old = dict(base.entries) if isinstance(base, Map) else {}
    head, *rest = path
    below = old[head].value if head in old else None
    old[head] = Entry(where, _patched(below, rest, value, where) if rest else tree.graft(value, where))
    return Map(base.where if base is not None else where, old)


def _validate_all(documents: Mapping[str, Document]) -> dict[str, Source]:
    own_trees = {key: document.tree for key, document in documents.items()}
    inherit.resolve({k.partition("/")[2]: d for k, d in documents.items() if k.startswith("arch/")})
    sources: dict[str, Source] = {}
    for key, document in documents.items():
        kind, _, stem = key.partition("/")
        if not isinstance(document.tree, Map) or not _is_kind(document, kind):
            continue
        spec = validate(KINDS[kind], document)
        if spec is None:
            continue
        source = Source(key, spec, document.tree, document.file, parents=_parents(key, own_trees))
        sources[key] = source
        name = str(cast(Any, spec).name)
        if name != stem:
            document.refuse(Code.WRONG_NAME, source.at("name"), name=name, file=f"{stem}.yaml")
    return sources


def _is_kind(document: Document, folder: str) -> bool:
    """False, with a finding, if the file states another kind: its schema findings would mislead."""
    kind = tree.follow(cast(Map, document.tree), ["kind"])
    if (
        kind.depth
        and isinstance(kind.value, Leaf)
        and kind.value.value in KINDS
        and kind.value.value != folder
    ):
        document.refuse(Code.WRONG_KIND, kind.value.where, kind=kind.value.value, folder=folder)
        return False
    return True


def _parents(key: str, trees: Mapping[str, tree.Tree | None]) -> Mapping[str, str]:
    """File -> arch name, for every ancestor of an arch spec."""
    found: dict[str, str] = {}
    for ancestor in _ancestors(key, trees):
        root = trees[ancestor]
        if root is not None:
            found[root.where.file] = ancestor.partition("/")[2]
    return found


def _ancestors(key: str, trees: Mapping[str, tree.Tree | None]) -> Iterator[str]:
    seen = {key}
    while isinstance(root := trees.get(key), Map) and "inherits" in root.entries:
        parent = root.entries["inherits"].value
        key = f"arch/{parent.value}" if isinstance(parent, Leaf) else ""
        if key in seen or key not in trees:
            return
        seen.add(key)
        yield key


def _specs(root: Path, sources: dict[str, Source]) -> Specs:
    def table(kind: str, model: type[S]) -> Table[S]:
        chosen = ((k.partition("/")[2], s.spec) for k, s in sources.items() if k.startswith(kind + "/"))
        return Table(kind, ((name, spec) for name, spec in chosen if isinstance(spec, model)))

    builds = tuple(s.spec for s in sources.values() if isinstance(s.spec, BuildSpec))
    return Specs(
        root=root,
        arch=table("arch", ArchSpec),
        model=table("model", ModelSpec),
        numerics=table("numerics", NumericsSpec),
        builds=builds,
        sources=sources,
    )
