"""A validated spec together with the places of its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .findings import Code, Finding, Where
from .schema import Spec
from .tree import Step, Tree, follow


@dataclass(frozen=True)
class Source:
    """`key` is `kind/name`; `parents` maps the file of each ancestor to its arch name."""

    key: str
    spec: Spec
    tree: Tree
    file: str
    parents: Mapping[str, str] = field(default_factory=dict)

    def at(self, *path: Step) -> Where:
        """The place of the value at `path`, or of the nearest thing around it that was written."""
        found = follow(self.tree, path)
        return found.value.where if found.depth == len(path) else found.key

    def key_at(self, *path: Step) -> Where:
        """The place of the key at `path`."""
        return follow(self.tree, path).key

    def finding(self, code: Code, /, *path: Step, **values: object) -> Finding:
        """`code` at the value of `path`."""
        return code.at(self.at(*path), **values)

    def how(self, where: Where) -> str:
        """How the value written at `where` came into this spec."""
        if where.file in self.parents:
            return f"inherited from {self.parents[where.file]}"
        if where.file != self.file:
            return "given"
        return "override" if self.parents else "stated"
