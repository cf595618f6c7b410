"""What a cross-check may look up in other files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..findings import Code, Finding, near
from ..schema import ArchSpec, ModelSpec
from ..source import Source
from ..tree import Step


@dataclass(frozen=True)
class Context:
    """All validated sources by `kind/name`, and the keys of every file, refused ones included."""

    sources: Mapping[str, Source]
    known: Collection[str]

    def arch(self, name: str) -> ArchSpec | None:
        """The arch, or None if it is unknown or was refused."""
        source = self.sources.get(f"arch/{name}")
        return source.spec if source and isinstance(source.spec, ArchSpec) else None

    def model(self, name: str) -> ModelSpec | None:
        """The model, or None if it is unknown or was refused."""
        source = self.sources.get(f"model/{name}")
        return source.spec if source and isinstance(source.spec, ModelSpec) else None

    def unknown(self, source: Source, code: Code, kind: str, name: str, *path: Step) -> Iterator[Finding]:
        """A finding if no file, valid or not, has this name."""
        if f"{kind}/{name}" not in self.known:
            names = [key.partition("/")[2] for key in self.known if key.startswith(kind + "/")]
            yield source.finding(code, *path, name=name, hint=near(name, names))


def repeats(source: Source, what: str, values: Sequence[object], *path: Step) -> Iterator[Finding]:
    """A finding for each value of a list that it has stated before."""
    for index, value in enumerate(values):
        if value in values[:index]:
            yield source.finding(Code.REPEATED, *path, index, what=what, value=value)
