"""What a change does to every build: this tree against another revision of its repository.

The other revision is unpacked (git archive) into a temporary folder and asked, in a child process, to build
with its own code and specs through `flymono build --json`, the one interface that both sides must share.
Nothing in the working tree or in git's state is touched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .findings import Finding, GenError
from .isa import machine_code
from .text import changed, unified
from .unit import digest

FIGURES = (
    "vgprs",
    "agprs",
    "sgprs",
    "vgpr_spills",
    "sgpr_spills",
    "lds_bytes",
    "scratch_bytes",
    "kernarg_bytes",
    "instructions",
)


@dataclass(frozen=True)
class Side:
    """One build on one side: its figures (empty if it failed), its source, a digest of its machine code."""

    figures: Mapping[str, Any]
    source: str
    code: str
    error: str = ""


@dataclass(frozen=True)
class Change:
    """One build on both sides; `before` or `after` is None where the build does not exist."""

    id: str
    before: Side | None
    after: Side | None
    figures: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """added, removed, failed, fixed, same, source (same machine code) or code."""
        if self.before is None or self.after is None:
            return "added" if self.before is None else "removed"
        if self.after.error or self.before.error:
            return "failed" if self.after.error else "fixed"
        if self.before.code != self.after.code:
            return "code"
        return "source" if self.before.source != self.after.source else "same"

    def source_diff(self) -> str:
        """Unified diff of the generated modules, headers included."""
        if self.before is None or self.after is None:
            return ""
        return unified(self.before.source, self.after.source, f"before/{self.id}.py", f"after/{self.id}.py")


def read_builds(listed: Sequence[Mapping[str, Any]]) -> dict[str, Side]:
    """Sides by build id out of what `flymono build --json` printed; artefacts must still be in place."""
    out = {}
    for entry in listed:
        if not entry["ok"]:
            out[entry["id"]] = Side(
                {}, "", "", "\n".join(f"{f['code']} {f['message']}" for f in entry["findings"])
            )
            continue
        folder = Path(entry["folder"])
        source = next(iter(sorted(folder.glob("*.py"))))
        code = machine_code((folder / "kernel.hsaco").read_bytes())
        text = digest("".join(digest(body) for _, body in code.values()))
        out[entry["id"]] = Side({k: entry.get(k) for k in FIGURES}, source.read_text(), text)
    return out


def compare(before: Mapping[str, Side], after: Mapping[str, Side]) -> list[Change]:
    """A Change for every build of either side, in the order of `after`, then what is gone."""
    out = []
    for build in dict.fromkeys([*after, *before]):
        old, new = before.get(build), after.get(build)
        both = old and new and not old.error and not new.error
        out.append(Change(build, old, new, changed(old.figures, new.figures) if both and old and new else {}))
    return out


@contextmanager
def revision(rev: str, repository: Path) -> Iterator[Path]:
    """The files of `rev` in a temporary folder. Raises GenError for an unknown revision or no repository."""
    with tempfile.TemporaryDirectory(prefix="flymono-diff-") as name:
        archive = Path(name, "tree.tar")
        if rev.startswith("-"):  # git would take it for an option
            raise GenError(
                [Finding("GEN_REVISION", rev, "no revision begins with `-`", "name one: HEAD, main")]
            )
        run = subprocess.run(
            ["git", "-C", str(repository), "archive", "--format=tar", "-o", str(archive), rev],
            capture_output=True,
            text=True,
        )
        if run.returncode:
            said = run.stderr.strip().splitlines()
            raise GenError(
                [
                    Finding(
                        "GEN_REVISION",
                        rev,
                        said[-1] if said else "git archive failed",
                        "name a revision of the checkout that flymono runs from",
                    )
                ]
            )
        tree = Path(name, "tree")
        with tarfile.open(archive) as packed:
            packed.extractall(tree, filter="data")
        archive.unlink()
        yield tree


_OWN_CODE = '''"""Import hooks of an editable installation come before PYTHONPATH: drop them."""
import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if "flymono" not in type(finder).__module__]
'''


def path_of(tree: Path) -> str:
    """PYTHONPATH under which a child process runs the code of `tree`, however flymono is installed here."""
    hook = tree / ".path"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(_OWN_CODE)
    return os.pathsep.join((str(hook), str(tree / "src")))


def build_revision(tree: Path, filters: Sequence[str], jobs: int) -> dict[str, Side]:
    """Build in `tree` with its own code. Raises GenError if that revision cannot list builds."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FLYMONO_")}
    environ["PYTHONPATH"] = path_of(tree)
    command = [
        sys.executable,
        "-m",
        "flymono.cli.main",
        "build",
        "--json",
        "--out",
        str(tree / ".artefacts"),
        "--jobs",
        str(jobs),
    ]
    run = subprocess.run([*command, *filters], capture_output=True, text=True, env=environ, cwd=tree)
    try:
        listed = json.loads(run.stdout)
    except ValueError:
        said = run.stderr.strip().splitlines()
        raise GenError(
            [
                Finding(
                    "GEN_REVISION",
                    "",
                    f"the other revision could not build: {said[-1] if said else 'it said nothing'}",
                    "take a revision whose `flymono build --json` works",
                )
            ]
        ) from None
    return read_builds(listed)
