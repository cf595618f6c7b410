"""What making and loading bundles costs, in ratios of one run: `python bench/bundle.py`.

Making: the same builds from an empty store with one job and with two. Two must keep both cores busy: at
least 1.7 x. CPU seconds of the children are printed too, since another load on the machine lowers the ratio
but not these. Loading: a bundle of 100 builds opened and read (every byte verified), beside reading the
same files and nothing else. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from flymono.gen.build import Settings, build_all
from flymono.gen.store import Artefact, Store
from flymono.gen.units import unit_of
from flymono.runtime.bundle import Bundle
from flymono.runtime.bundle.entry import Listed
from flymono.runtime.bundle.make import Order, files_of
from flymono.runtime.bundle.manifest import NAME
from flymono.specs import Specs, load

ARCH, TP = "gfx950", 4
ROWS = 1
"""All variants of one width are built: K1, K2 and the FFN launch."""
LOADED = 100


def compiled(specs: Specs, jobs: int, folder: Path) -> tuple[dict[str, float], list[Artefact]]:
    """Wall and CPU seconds of compiling a width into an empty store."""
    settings = Settings(Store(folder), jobs=jobs)
    units = [unit_of(specs, key) for key in Order(ARCH, TP).keys(specs) if key.rows == ROWS]
    settings.linker()
    before, start = cpu_seconds(), time.perf_counter()
    outcomes = build_all(units, settings)
    wall, after = time.perf_counter() - start, cpu_seconds()
    made = [o.artefact for o in outcomes if o.artefact is not None]
    if len(made) != len(units):
        raise SystemExit("\n".join(str(o.error) for o in outcomes if o.error))
    parent, children = (round(b - a, 1) for a, b in zip(before, after, strict=True))
    return {"jobs": jobs, "wall_s": round(wall, 1), "parent_cpu_s": parent, "children_cpu_s": children}, made


def cpu_seconds() -> tuple[float, float]:
    """CPU seconds of this process, whose threads take turns, and of the children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own, children = (u.ru_utime + u.ru_stime for u in used)
    return own, children


def hundred(specs: Specs, artefacts: Sequence[Artefact], folder: Path) -> Bundle:
    """A bundle of LOADED builds: the compiled ones, and their bytes again under further names."""
    files = files_of(Order(ARCH, TP), specs, artefacts)
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    bundle = Bundle.open(folder)
    builds = dict(bundle.builds)
    for n, build in zip(
        range(len(builds), LOADED), (b for _ in range(LOADED) for b in artefacts), strict=False
    ):
        listed = bundle.builds[build.id]
        code, abi = (Listed(f.name.replace(build.id, f"again-{n}"), f.size, f.sha256) for f in listed.files)
        for new, old in zip((code, abi), listed.files, strict=True):
            (folder / new.name).write_bytes((folder / old.name).read_bytes())
        builds[f"again-{n}"] = replace(listed, id=f"again-{n}", code=code, abi=abi)
    (folder / NAME).write_bytes(replace(bundle.manifest, builds=builds).to_bytes())
    return Bundle.open(folder)


def loaded(folder: Path) -> dict[str, float]:
    """Milliseconds of opening and reading the bundle, and of reading its files; the best of five."""

    def best(use: object) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            use()  # type: ignore[operator]
            times.append((time.perf_counter() - start) * 1e3)
        return min(times)

    def whole() -> None:
        bundle = Bundle.open(folder)
        bundle.load(bundle.builds)

    paths = [p for p in folder.rglob("*") if p.is_file()]
    verified, plain = best(whole), best(lambda: [p.read_bytes() for p in paths])
    return {
        "builds": LOADED,
        "bytes": sum(p.stat().st_size for p in paths),
        "open_and_load_ms": round(verified, 2),
        "read_files_ms": round(plain, 2),
        "ratio": round(verified / plain, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="pairs of one job and two jobs")
    specs, figures, made = load(), [], list[Artefact]()
    with tempfile.TemporaryDirectory() as scratch:
        for n in range(parser.parse_args().rounds):
            pair = []
            for jobs in (1, 2):
                figure, made = compiled(specs, jobs, Path(scratch) / f"{n}-{jobs}")
                pair.append(figure)
            figures.append({"runs": pair, "two_jobs": round(pair[0]["wall_s"] / pair[1]["wall_s"], 2)})
        folder = Path(scratch) / "bundle"
        folder.mkdir()
        bundle = hundred(specs, made, folder)
        assert len(bundle.builds) == LOADED
        print(json.dumps({"make": figures, "builds": len(made), "load": loaded(folder)}, indent=1))


if __name__ == "__main__":
    main()
