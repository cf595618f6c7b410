"""A copy of the shipped specs that a test may edit."""

from __future__ import annotations

import shutil
from pathlib import Path

from flymono.specs import Finding, default_root, inspect
from flymono.specs.loader import KINDS

SHIPPED = default_root()


class SpecFolder:
    """A folder of specs; edits are exact text replacements, so a test shows what a user would write."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for kind in KINDS:
            if (SHIPPED / kind).is_dir():
                shutil.copytree(SHIPPED / kind, root / kind)

    def edit(self, file: str, old: str, new: str) -> int:
        """Replace the one occurrence of `old`; returns the line on which it starts."""
        path = self.root / file
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {file}"
        path.write_text(text.replace(old, new))
        return text[: text.index(old)].count("\n") + 1

    def write(self, file: str, text: str | bytes) -> None:
        """Write a whole file."""
        path = self.root / file
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def findings(self) -> list[Finding]:
        """All findings of the folder, in file order."""
        return sorted(inspect(self.root)[1], key=lambda f: f.where)

    def shown(self) -> list[str]:
        """Findings as `arch/gfx942.yaml:9:14 CODE`."""
        return [
            f"{Path(f.where.file).relative_to(self.root)}:{f.where.line}:{f.where.col} {f.code.name}"
            for f in self.findings()
        ]

    def take_mark(self, file: str) -> str | None:
        """Remove the mark `«` from a file; returns its place as `file:line:col`, None if there is none."""
        path = self.root / file
        before, mark, after = path.read_text().partition("«")
        path.write_text(before + after)
        return f"{file}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}" if mark else None

    def of_kind(self, kind: str, code: str) -> list[str]:
        """The finding `code` at the model of each file in the folder `kind`."""
        found = [line for line in self.shown() if line.startswith(f"{kind}/") and line.endswith(code)]
        assert len(found) == len(list((self.root / kind).glob("*.yaml")))
        return found
