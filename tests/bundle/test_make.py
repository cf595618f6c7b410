"""`flymono bundle`: what it compiles, that it goes on where it was, and that nothing half-made is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flymono.gen.build import Outcome
from flymono.gen.findings import CompileError, Finding
from flymono.runtime.bundle import Bundle, BundleError
from flymono.runtime.bundle.make import Order, outlook, part_of
from flymono.runtime.plan import BuildKey
from flymono.specs import Specs

from .conftest import ARCH, COMMAND, IDS, ONLY, ORDER, TP, WHEEL, Said

LISTS = [word for id in IDS[1:] for word in ("--only", id)]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


COMMAND_LINE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background ignores it
from flymono.cli.main import main
main()
"""


def start(cache: Path, *args: object) -> subprocess.Popen[str]:
    """`flymono bundle ...` in a process of its own."""
    src = str(Path(__file__).resolve().parents[2] / "src")
    path = os.pathsep.join([src, os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    env = {**os.environ, "FLYMONO_CACHE": str(cache), "PYTHONPATH": path}
    call = [sys.executable, "-c", COMMAND_LINE, *map(str, args)]
    return subprocess.Popen(call, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_bundle_is_what_was_ordered(original: Path) -> None:
    bundle = Bundle.open(original)
    listed = {f.name for build in bundle.builds.values() for f in build.files}
    assert set(contents(original)) == {*listed, "manifest.json"}
    assert tuple(bundle.builds) == IDS
    assert (bundle.arch, bundle.tp, bundle.manifest.command) == (ARCH, TP, COMMAND)
    assert set(bundle.manifest.versions) == {"flymono", "flydsl", "linker"}
    assert set(bundle.manifest.specs) == {"arch/gfx942", "model/deepseek_v41_flash"}
    assert [p.name for p in original.parent.iterdir()] == ["bundle"]  # no lock, no scratch folder


def test_nothing_of_the_place_is_in_it(original: Path, cache: Path) -> None:
    assert not [name for name, data in contents(original).items() if str(cache).encode() in data]


def test_again_gives_the_same_bytes(original: Path, tmp_path: Path, flymono: Callable[..., Said]) -> None:
    said = flymono(*ORDER, *ONLY, "-o", tmp_path / "again")
    assert said.code == 0
    assert "3 builds (3 in the store), about 0.1 MB, about 0 s to compile" in said.err
    assert contents(tmp_path / "again") == contents(original)
    for place in ("a", "b"):
        assert flymono(*ORDER, *LISTS, "-o", tmp_path / place / WHEEL).code == 0
    assert (tmp_path / "a" / WHEEL).read_bytes() == (tmp_path / "b" / WHEEL).read_bytes()


def test_a_bundle_is_replaced_whole(folder: Path, flymono: Callable[..., Said]) -> None:
    assert flymono(*ORDER, *LISTS, "-o", folder).code == 0
    assert tuple(Bundle.open(folder).builds) == IDS[1:]
    assert sorted(p.name for p in (folder / "code").iterdir()) == [f"{id}.hsaco" for id in IDS[1:]]
    assert [p.name for p in folder.parent.iterdir()] == ["bundle"]


def test_a_failed_build_leaves_the_old_bundle(
    folder: Path, flymono: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    from flymono.gen import build as build_module

    def fail(units: Any, settings: Any, on_done: Any) -> list[Outcome]:
        error = CompileError([Finding("GEN_CRASH", "somewhere", "it crashed", "")])
        return [Outcome(unit, None, error, False, 0.0) for unit in units]

    monkeypatch.setattr(build_module, "build_all", fail)
    before = contents(folder)
    said = flymono(*ORDER, *LISTS, "-o", folder)
    assert said.code == 1
    assert "2 of 2 builds failed" in said.err
    assert contents(folder) == before


REFUSED = {
    "no place": ([*ORDER], "-o PATH"),
    "no arch": (["bundle", "--tp", "4", "-o", "x"], "flymono bundle --arch gfx950 --tp 2 -o PATH"),
    "an arch that is none": (["bundle", "--arch", "gfx943", "--tp", "4", "-o", "x"], "did you mean `gfx942`"),
    "TP3": (["bundle", "--arch", "gfx950", "--tp", "3", "-o", "x"], "use --tp 2 or --tp 4"),
    "no such part": ([*ORDER, "--part", "3/2"], "--part 1/4"),
    "no numbers": ([*ORDER, "--widths", "6-7", "-o", "x"], "--widths 7,9"),
    "too many rows": ([*ORDER, "--widths", "43", "-o", "x"], "42"),
    "nothing matches": ([*ORDER, "--only", "k7", "-o", "x"], "no build matches 'k7'"),
    "a wheel's name": ([*ORDER, "-o", "my.whl"], WHEEL),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_made_is_said_at_once(
    name: str, flymono: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    args, text = REFUSED[name]
    said = flymono(*args)
    assert said.code == 2
    assert text in said.err
    assert "Traceback" not in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, flymono: Callable[..., Said]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    said = flymono(*ORDER, *LISTS, "-o", tmp_path)
    assert said.code == 2
    assert "notes.txt" in said.err
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_order_is_the_matrix_and_further_widths(specs: Specs) -> None:
    every = Order(ARCH, TP).keys(specs)
    assert len(every) == 200
    wider = Order(ARCH, TP, widths=(6, 7), draft_widths=(12,)).keys(specs)
    further = set(wider) - set(every)
    assert {(k.rows, k.draft or k.window == 192) for k in further} == {(7, False), (12, True)}
    assert len(further) == 6 + 3 + 1 + 2 + (
        2 + 1 + 1
    )  # K1, K2, FFN, key lists at 7; K1, K2, FFN of the draft at 12
    halves = [Order(ARCH, TP, only=(word,)).keys(specs) for word in ("target", "draft")]
    assert sorted(halves[0] + halves[1]) == sorted(every)
    assert [k.id for k in Order(ARCH, TP, only=(IDS[0],)).keys(specs)] == [IDS[0]]
    with pytest.raises(BundleError, match="'draft'"):
        Order(ARCH, 2, only=("draft",)).keys(specs)


def test_parts_are_all_of_it() -> None:
    keys = [BuildKey("k1", ARCH, TP, n) for n in range(1, 12)]
    assert sorted(k for n in (1, 2, 3) for k in part_of(keys, n, 3)) == keys


def test_the_outlook_counts_what_is_missing(tmp_path: Path) -> None:
    keys = [BuildKey("k2", ARCH, TP, n) for n in range(1, 11)]
    assert "10 builds (0 in the store)" in str(outlook(keys, tmp_path, 1))
    (tmp_path / f"{keys[0].id}.0123456789ab").mkdir()
    one, two = outlook(keys, tmp_path, 1), outlook(keys, tmp_path, 2)
    assert (one.there, one.seconds) == (1, 2 * two.seconds)


def test_a_part_fills_the_store_and_writes_no_bundle(tmp_path: Path, flymono: Callable[..., Said]) -> None:
    said = flymono(*ORDER, *LISTS, "--part", "1/2")
    assert said.code == 0
    assert "1 builds are in" in said.err


def test_two_processes_make_one_bundle(original: Path, cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "both"
    running = [start(cache, *ORDER, *ONLY, "-o", out) for _ in range(2)]
    ended = [process.communicate(timeout=300) for process in running]
    assert [process.returncode for process in running] == [0, 0], ended
    assert contents(out) == contents(original)
    assert [p.name for p in tmp_path.iterdir()] == ["both"]


@pytest.mark.slow
def test_two_processes_share_the_compilations(tmp_path: Path) -> None:
    """From an empty store: each build is compiled by one of them, and both bundles are the same."""
    cache = tmp_path / "store"
    running = [start(cache, *ORDER, *LISTS, "-o", tmp_path / name) for name in ("a", "b")]
    ended = [process.communicate(timeout=500) for process in running]
    assert [process.returncode for process in running] == [0, 0], ended
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.slow
def test_what_was_interrupted_goes_on(tmp_path: Path) -> None:
    """Ctrl-C after the first artefact: no bundle, no scratch; the next run compiles the rest only."""
    cache, out = tmp_path / "store", tmp_path / "bundle"
    process = start(cache, *ORDER, *LISTS, "--jobs", 1, "-o", out)
    first = _wait_for_artefact(cache, process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert not out.exists()
    made = (first / "manifest.json").stat().st_mtime_ns

    again = start(cache, *ORDER, *LISTS, "--jobs", 1, "-o", out)
    _, err = again.communicate(timeout=500)
    assert again.returncode == 0, err
    assert "2 builds (1 in the store)" in err
    assert (first / "manifest.json").stat().st_mtime_ns == made
    assert tuple(Bundle.open(out).builds) == IDS[1:]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bundle", "store"]


def _wait_for_artefact(cache: Path, process: subprocess.Popen[str]) -> Path:
    end = time.monotonic() + 400
    while time.monotonic() < end and process.poll() is None:
        if found := list(cache.glob("dsv41_*/manifest.json")):
            return found[0].parent
        time.sleep(0.02)
    raise AssertionError(f"no artefact came: {process.communicate()}")
