"""The artefact store: a plain directory of finished builds.

    <root>/<build id>.<12 digits of the key>/     module, MLIR, ISA text, code object, manifest.json
    <root>/.locks/                                one lock file for each artefact
    <root>/.tmp-<pid>-.../                        a build under way, or left behind by a process that died

Invariants
 - A folder with a manifest is complete: everything is written to a scratch folder on the same file system,
   the manifest last, and the folder then renamed into place.
 - The key is a digest of everything that decides the bytes: the module's text, the device library, the
   modules that drive the compiler, FlyDSL's version, the target and its options. No environment variable,
   date or path.
 - Nothing is believed that was not checked: `load` verifies the digest of every file and of the manifest.
 - A damaged artefact is reported once and set aside (`.damaged`), so that the next run builds it again.
"""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import filelock
import platformdirs

from .compiler import FILES, remove_folder, scratch_folder
from .findings import Finding, StoreError
from .isa import Instruction, Resources, locate
from .render import Rendered
from .unit import Unit, canonical, digest

FORMAT = 1
MANIFEST = "manifest.json"
LOCK_SECONDS = 900.0
_PACKAGE = Path(__file__).resolve().parent.parent
_IMPORTS_PLAN = re.compile(r"^\s*(from|import)\s+\S*\bruntime\b", re.M)
# The modules that decide what is compiled and what is checked; the rest of gen cannot change an artefact.
_COMPILE_PATH = ("flydsl_backend", "worker", "checks_mlir", "checks_isa", "checks_abi", "isa", "store")


def default_root() -> Path:
    """$FLYMONO_CACHE, else the user's cache folder of this platform."""
    return Path(os.environ.get("FLYMONO_CACHE") or platformdirs.user_cache_dir("flymono"))


def sources_digest(paths: list[Path], root: Path = _PACKAGE) -> str:
    """Digest of source files by name and content."""
    return digest(
        canonical([[p.relative_to(root).as_posix(), digest(p.read_bytes())] for p in sorted(paths)])
    )


def device_library() -> list[Path]:
    """Every source that a generated module can run: mono/, and runtime/plan/ if mono/ imports it."""
    mono = list((_PACKAGE / "mono").rglob("*.py"))
    uses_plan = any(_IMPORTS_PLAN.search(path.read_text()) for path in mono)
    return mono + (list((_PACKAGE / "runtime" / "plan").rglob("*.py")) if uses_plan else [])


def key_parts(unit: Unit, rendered: Rendered) -> dict[str, object]:
    """What the key of an artefact is the digest of."""
    return {
        "format": FORMAT,
        "source": rendered.digest,
        "device_library": sources_digest(device_library()),
        "compile_path": sources_digest([_PACKAGE / "gen" / f"{m}.py" for m in _COMPILE_PATH]),
        "flydsl": importlib.metadata.version("flydsl"),
        "target": unit.target,
        "hints": dict(unit.hints),
        "features": unit.features,
        "expect": unit.expect.to_json(),
    }


def key_of(unit: Unit, rendered: Rendered) -> str:
    """The key of an artefact, 64 hex digits."""
    return digest(canonical(key_parts(unit, rendered)))


@dataclass(frozen=True)
class Artefact:
    """One finished build on disk; its files were verified when it was loaded."""

    folder: Path
    manifest: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The build id."""
        return str(self.manifest["id"])

    @property
    def key(self) -> str:
        """Digest of everything that decided the bytes."""
        return str(self.manifest["key"])

    @property
    def hsaco(self) -> bytes:
        """The linked code object, an AMDGPU ELF."""
        return (self.folder / FILES["hsaco"]).read_bytes()

    @property
    def isa(self) -> str:
        """The compiler's assembly text with `.loc` lines."""
        return (self.folder / FILES["isa"]).read_text()

    @property
    def source(self) -> str:
        """The generated module."""
        return (self.folder / str(self.manifest["module"])).read_text()

    @property
    def kernel(self) -> str:
        """Symbol of the kernel in the code object."""
        return str(self.manifest["resources"]["name"])

    @property
    def resources(self) -> Resources:
        """Registers, LDS, scratch, instructions."""
        return Resources(**self.manifest["resources"])

    @property
    def stage_ranges(self) -> tuple[tuple[str, int, int], ...]:
        """(stage, first PC, PC behind); a PC counts bytes from the kernel's entry, as in the emulator."""
        return tuple((str(n), int(a), int(b)) for n, a, b in self.manifest["stage_ranges"])

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """Every instruction with PC, text, source line and stage."""
        return tuple(locate(self.isa, self.hsaco))

    def template_line(self, generated_line: int) -> str | None:
        """`templates/k1.py.j2:12` for a line of the generated module (from 1)."""
        lines = self.manifest["line_map"]
        return lines[generated_line - 1] if 0 < generated_line <= len(lines) else None


class Store:
    """Artefacts below `root`; the directory is made when something is first written."""

    def __init__(self, root: Path | None = None, lock_seconds: float = LOCK_SECONDS) -> None:
        self.root, self.lock_seconds = (root or default_root()).absolute(), lock_seconds

    def folder(self, build: str, key: str) -> Path:
        """Where the artefact of a build lies, whether it is there or not."""
        return self.root / f"{build}.{key[:12]}"

    def find(self, build: str, key: str) -> Artefact | None:
        """The artefact, verified; None if it was not built.

        A damaged one raises StoreError and is moved aside, so that the next run builds it again.
        """
        folder = self.folder(build, key)
        if not folder.is_dir():
            return None
        try:
            return load(folder)
        except StoreError as error:
            aside = set_aside(folder)
            fix = f"it was moved to {aside.name}; run the command again to build it anew"
            raise StoreError([Finding(f.code, f.where, f.message, fix) for f in error.findings]) from None

    @contextmanager
    def lock(self, build: str, key: str) -> Iterator[None]:
        """Hold the artefact's lock. Whoever gets it looks a second time before building."""
        with disk_errors(self.root):
            (self.root / ".locks").mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(self.root / ".locks" / f"{build}.{key[:12]}.lock", timeout=self.lock_seconds)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise StoreError(
                [
                    Finding(
                        "GEN_LOCK",
                        lock.lock_file,
                        f"another process has been building {build} for more than {self.lock_seconds:g} s",
                        "wait for it, or end it",
                    )
                ]
            ) from None
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for a build under way, removed whatever happens."""
        with disk_errors(self.root):
            self._sweep()
            folder = scratch_folder(self.root)
        try:
            yield folder
        finally:
            remove_folder(folder)

    def _sweep(self) -> None:
        """Remove scratch folders of processes that are gone."""
        for left in self.root.glob(".tmp-*"):
            pid = left.name.split("-")[1]
            if pid.isdigit() and not _alive(int(pid)):
                remove_folder(left)

    def put(self, folder: Path, manifest: Mapping[str, Any]) -> Artefact:
        """Seal a scratch folder (every file of it enters the manifest) and move it into place."""
        sealed = {**manifest, "files": {p.name: digest(p.read_bytes()) for p in sorted(folder.iterdir())}}
        sealed["seal"] = digest(canonical(sealed))
        text = json.dumps(sealed, indent=1, sort_keys=True) + "\n"
        (folder / MANIFEST).write_text(text)
        target = self.folder(str(manifest["id"]), str(manifest["key"]))
        if target.exists():  # --force: the old one goes when the new one is there
            old = target.rename(scratch_folder(self.root) / "old")
            folder.replace(target)
            remove_folder(old.parent)
        else:
            folder.replace(target)
        return Artefact(target, json.loads(text))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def load(folder: Path) -> Artefact:
    """Read and verify one artefact folder. Raises StoreError with everything that is damaged."""
    if problems := _problems(folder):
        fix = "flymono build ID --force builds it again"
        raise StoreError([Finding("GEN_DAMAGED", str(folder), text, fix) for text in problems])
    return Artefact(folder, json.loads((folder / MANIFEST).read_text()))


def _problems(folder: Path) -> list[str]:
    """Everything that is wrong with an artefact's files."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        seal = manifest.pop("seal")
        files: dict[str, str] = manifest["files"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ["the manifest is missing or not readable"]
    if digest(canonical(manifest)) != seal:
        return ["the manifest was altered"]
    out = []
    for name, want in files.items():
        path = folder / name
        if not path.is_file():
            out.append(f"{name} is missing")
        elif (got := digest(path.read_bytes())) != want:
            out.append(f"{name} has digest {got[:12]}, the manifest says {want[:12]}")
    return out


def set_aside(folder: Path) -> Path:
    """Rename a folder to the first free `<name>.damaged[-N]`."""
    for number in range(1000):
        target = folder.with_name(f"{folder.name}.damaged" + (f"-{number}" if number else ""))
        if not target.exists():
            return folder.rename(target)
    raise StoreError(
        [
            Finding(
                "GEN_DAMAGED",
                str(folder),
                "it is damaged, and 1000 damaged copies lie beside it",
                "remove them",
            )
        ]
    )


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Turn failures of the file system into findings that say what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        text = "the disk is full" if full else f"cannot write: {error.strerror or error}"
        fix = (
            "free some space; nothing half-written was kept"
            if full
            else "choose another place: --out DIR or FLYMONO_CACHE"
        )
        raise StoreError([Finding("GEN_DISK", str(error.filename or where), text, fix)]) from None


def manifest_of(
    unit: Unit,
    rendered: Rendered,
    figures: Resources,
    code: list[Instruction],
    ranges: tuple[tuple[str, int, int], ...],
    facts: Mapping[str, Any],
    linker: str,
) -> dict[str, Any]:
    """Everything a reader of the folder wants to know; `files` and the seal are added by `Store.put`."""
    promised = unit.expect.to_json()
    return {
        "format": FORMAT,
        "id": unit.id,
        "key": key_of(unit, rendered),
        "key_parts": key_parts(unit, rendered),
        "module": rendered.filename,
        "template": unit.template,
        "command": unit.command,
        "linker": linker,
        "specs": dict(unit.specs),
        "costs": dict(unit.costs),
        "abi": [dict(a) for a in unit.abi],
        "resources": {**asdict(figures), "instructions": len(code)},
        "stage_ranges": [list(r) for r in ranges],
        "line_map": [str(place) if place else None for place in rendered.line_map],
        "mfma_by_stage": facts["mfma_by_stage"],
        "unchecked": sorted(k for k, v in promised.items() if v is None),
        "atomics": sorted(
            {f"{a['name']} {a['scope'] or 'system'} space {a['space']}" for a in facts["atomics"]}
        ),
    }
