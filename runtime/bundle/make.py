"""Make a bundle: compile what is missing through gen, then write a folder or a wheel, whole or not at all.

Only the command line imports this module: it needs the compiler (extra `gen`). Finished builds are in the
artefact store, so what was interrupted goes on where it was, and several machines that share a store share
the work (`part`).
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ... import __version__
from ...gen.compiler import remove_folder, scratch_folder
from ...gen.store import Artefact
from ...specs.loader import Specs
from ..files import WriteError, check_writable, write_atomically
from ..plan import BadBuildId, BuildKey, at_widths, is_draft, plan_of, shipped
from .agree import host_digest
from .codes import BundleCode
from .entry import Build, Listed, abi_bytes
from .errors import BundleError, BundleFinding
from .manifest import NAME, Manifest, command_of
from .opened import Bundle
from .wheel import wheel_bytes, wheel_name

TYPICAL = {"k1": (28_000, 2), "k2": (66_000, 6), "ffn": (46_000, 4), "keylist": (6_400, 1)}
"""Bytes of a code object and CPU seconds of its compilation, by kind, as measured at 6 rows."""
_TABLES = 12_000
"""Bytes of a build's ABI table and of its part of the manifest."""
WORDS = ("target", "draft")
_ATTEMPTS = 100


@dataclass(frozen=True)
class Order:
    """What a bundle shall hold: the shipped builds of `arch` and `tp`; `widths` and `draft_widths` are
    further row counts; `only` keeps what one of its words names (target, draft, a kind, a part of an id, a
    glob)."""

    arch: str
    tp: int
    widths: tuple[int, ...] = ()
    draft_widths: tuple[int, ...] = ()
    only: tuple[str, ...] = ()

    def keys(self, specs: Specs) -> tuple[BuildKey, ...]:
        """The builds, in the order of the matrix. Raises BundleError if there is none."""
        every = [k for k in shipped(specs) if (k.arch, k.tp) == (self.arch, self.tp)]
        target = [k for k in every if not is_draft(specs, k)]
        draft = [k for k in every if is_draft(specs, k)]
        further = [*at_widths(target, self.widths), *at_widths(draft, self.draft_widths)]
        found = [k for k in dict.fromkeys([*every, *further]) if self._wanted(specs, k)]
        if unused := [word for word in self.only if not any(_matches(specs, word, k) for k in found)]:
            raise self._empty(f"no build matches {', '.join(map(repr, unused))}")
        if not found:
            raise self._empty("the shipped matrix has no build for it")
        return tuple(found)

    def _wanted(self, specs: Specs, key: BuildKey) -> bool:
        return not self.only or any(_matches(specs, word, key) for word in self.only)

    def _empty(self, text: str) -> BundleError:
        fix = "`flymono build --list` prints ids; --only takes target, draft, a kind, a part of an id, a glob"
        return BundleError([BundleFinding(BundleCode.EMPTY, f"{self.arch} TP{self.tp}", text, fix)])

    @property
    def command(self) -> str:
        """The command that makes this bundle, but for its place."""
        rest = [f"--widths {_joined(self.widths)}"] if self.widths else []
        rest += [f"--draft-widths {_joined(self.draft_widths)}"] if self.draft_widths else []
        rest += [f"--only '{word}'" if set(word) & set("*?[") else f"--only {word}" for word in self.only]
        return command_of(self.arch, self.tp, " ".join(rest))


def _joined(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _matches(specs: Specs, word: str, key: BuildKey) -> bool:
    if word in WORDS:
        return is_draft(specs, key) == (word == "draft")
    with contextlib.suppress(BadBuildId):
        return BuildKey.parse(word) == key  # a whole id is one build, although it is a part of others
    return word == key.kind or word in key.id or fnmatch.fnmatchcase(key.id, word)


@dataclass(frozen=True)
class Outlook:
    """What making a bundle will cost, roughly; `there` builds may be in the store already."""

    count: int
    there: int
    bytes: int
    seconds: float

    def __str__(self) -> str:
        left = self.seconds / 60
        time = f"about {left:.0f} min" if left >= 1.5 else f"about {self.seconds:.0f} s"
        size = f"about {self.bytes / 1e6:.1f} MB"
        return f"{self.count} builds ({self.there} in the store), {size}, {time} to compile"


def outlook(keys: Sequence[BuildKey], root: Path, jobs: int) -> Outlook:
    """The cost of `keys`. Whether a build in the store is current is only known when it is rendered."""
    there = {k for k in keys if any(root.glob(f"{k.id}.[0-9a-f]*"))}
    size = sum(TYPICAL[k.kind][0] + _TABLES for k in keys)
    return Outlook(
        len(keys), len(there), size, sum(TYPICAL[k.kind][1] for k in keys if k not in there) / jobs
    )


def part_of(keys: Sequence[BuildKey], part: int, parts: int) -> tuple[BuildKey, ...]:
    """Every `parts`-th build from `part` (1 ..): kinds of all costs fall to each machine."""
    return tuple(keys[part - 1 :: parts])


def check_place(order: Order, out: Path) -> None:
    """Before the long work: can the bundle be written to `out`? Raises BundleError or WriteError."""
    if out.suffix == ".whl":
        _check_wheel(order, out)
    elif out.is_dir() and any(out.iterdir()) and not (out / NAME).is_file():
        text = f"it is a folder with other files ({next(out.iterdir()).name}, ...)"
        finding = BundleFinding(
            BundleCode.PLACE, str(out), text, "name a new folder, or the folder of a bundle"
        )
        raise BundleError([finding])
    check_writable(out.absolute() / NAME if out.suffix != ".whl" else out)


def _check_wheel(order: Order, out: Path) -> None:
    if out.name != (name := wheel_name(order.arch, order.tp)):
        finding = BundleFinding(
            BundleCode.NAME, str(out), "pip finds out what a wheel is by its name", f"-o {out.parent / name}"
        )
        raise BundleError([finding])


def write(order: Order, specs: Specs, artefacts: Sequence[Artefact], out: Path) -> Bundle:
    """Write the bundle to `out` (a folder or a .whl) in one step, and open it. BundleError or WriteError."""
    files = files_of(order, specs, artefacts)
    if out.suffix == ".whl":
        write_atomically(out, wheel_bytes(order.arch, order.tp, files))
    else:
        _write_folder(files, out)
    bundle = Bundle.open(out)
    bundle.verify()
    return bundle


def files_of(order: Order, specs: Specs, artefacts: Sequence[Artefact]) -> dict[str, bytes]:
    """Every file of the bundle by its name, the manifest last."""
    files: dict[str, bytes] = {}
    builds: dict[str, Build] = {}
    for artefact in artefacts:
        builds[artefact.id], held = _build_of(specs, artefact)
        files |= held
    models = {m.name for m in specs.model.values() if any(b.of.model == m.prefix for b in builds.values())}
    named = (f"arch/{order.arch}", *(f"model/{name}" for name in sorted(models)))
    linkers = {str(a.manifest["linker"]) for a in artefacts}
    manifest = Manifest(
        arch=order.arch,
        tp=order.tp,
        command=order.command,
        versions={
            "flymono": __version__,
            "flydsl": importlib.metadata.version("flydsl"),
            "linker": "; ".join(sorted(linkers)),
        },
        specs={name: specs.digest(name) for name in named},
        builds=builds,
    )
    return {**files, NAME: manifest.to_bytes()}


def _build_of(specs: Specs, artefact: Artefact) -> tuple[Build, Mapping[str, bytes]]:
    plan, hsaco = plan_of(specs, BuildKey.parse(artefact.id)), artefact.hsaco
    code, abi = f"code/{artefact.id}.hsaco", f"abi/{artefact.id}.json"
    files = {code: hsaco, abi: abi_bytes(plan)}
    build = Build(
        id=artefact.id,
        kernel=artefact.kernel,
        code=Listed.of(code, files[code]),
        abi=Listed.of(abi, files[abi]),
        resources=artefact.manifest["resources"],
        stage_ranges=artefact.stage_ranges,
        host=host_digest(plan),
        key=artefact.key,
    )
    return build, files


def _write_folder(files: Mapping[str, bytes], out: Path) -> None:
    """A fresh folder beside `out` takes its place: a reader sees the old bundle or the new one, whole."""
    out = out.absolute()
    with _fresh_beside(out) as fresh:
        for name, data in files.items():
            (fresh / name).parent.mkdir(exist_ok=True)
            (fresh / name).write_bytes(data)
        _replace(fresh, out)


@contextmanager
def _fresh_beside(out: Path) -> Iterator[Path]:
    try:
        fresh = scratch_folder(out.parent)
    except OSError as error:
        raise WriteError(out, error) from error
    try:
        yield fresh
    except OSError as error:
        raise WriteError(out, error) from error
    finally:
        remove_folder(fresh)


def _replace(fresh: Path, out: Path) -> None:
    """Put `fresh` in the place of `out`. Another process may do the same: whoever comes last stays, whole."""
    aside = scratch_folder(out.parent)
    try:
        for attempt in range(_ATTEMPTS):
            old = aside / str(attempt)
            with contextlib.suppress(FileNotFoundError):
                out.rename(old)
            try:
                fresh.rename(out)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # not another process's: undo
                    with contextlib.suppress(FileNotFoundError):
                        old.rename(out)
                    raise
        raise WriteError(out, "other processes write it all the time")
    finally:
        remove_folder(aside)
