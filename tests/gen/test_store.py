"""The store: complete or absent, verified, locked, and usable again after every kind of accident."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import pytest
from toys import TEMPLATES, promise, unit

from flymono.gen import build as build_module
from flymono.gen import store as store_module
from flymono.gen.build import Settings, build, build_all
from flymono.gen.compiler import Answer, Compiler
from flymono.gen.findings import CompileError, StoreError
from flymono.gen.linker import Linker
from flymono.gen.render import render
from flymono.gen.store import Artefact, Store, key_of, load


@pytest.fixture
def artefact(settings: Settings, compiler: Compiler) -> Artefact:
    return build(unit(), settings, compiler)[0]


def test_the_manifest_says_what_is_there(artefact: Artefact) -> None:
    listed = set(artefact.manifest["files"])

    assert listed | {"manifest.json"} == {p.name for p in artefact.folder.iterdir()}
    assert {"kernel.hsaco", "kernel.s", "source.mlir", "lowered.mlir", artefact.manifest["module"]} == listed
    assert artefact.manifest["specs"] == {"arch/gfx942": "0123456789ab"}
    assert (
        artefact.template_line(artefact.source.splitlines().index('    stage("load")') + 1)
        == "templates/good.py.j2:7"
    )
    assert load(artefact.folder).manifest == artefact.manifest


def test_the_key_follows_what_decides_the_bytes_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    base = unit()
    key = key_of(base, render(base, TEMPLATES))
    monkeypatch.setenv("ARCH", "gfx90a")
    monkeypatch.setenv("FLYDSL_COMPILE_OPT_LEVEL", "0")

    assert key_of(base, render(base, TEMPLATES)) == key
    for other in (
        unit(grid=8),
        unit(target="gfx950"),
        replace(base, hints={"waves_per_eu": 2}),
        promise(base, lds_bytes=4),
    ):
        assert key_of(other, render(other, TEMPLATES)) != key


def test_a_change_of_the_device_library_changes_the_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    base = unit()
    key = key_of(base, render(base, TEMPLATES))
    extra = tmp_path / "extra.py"
    extra.write_text("x = 1\n")
    files = store_module.device_library()
    monkeypatch.setattr(store_module, "device_library", lambda: files)
    monkeypatch.setattr(
        store_module, "sources_digest", lambda paths, root=None: f"{len(list(paths))} changed"
    )

    assert key_of(base, render(base, TEMPLATES)) != key


@pytest.mark.parametrize("name", ["kernel.hsaco", "kernel.s", "manifest.json"])
def test_an_altered_file_is_reported_set_aside_and_rebuilt(
    name: str, artefact: Artefact, settings: Settings, compiler: Compiler
) -> None:
    path = artefact.folder / name
    text = path.read_bytes()
    path.write_bytes(text.replace(b"0", b"1", 1))

    with pytest.raises(StoreError, match="GEN_DAMAGED") as caught:
        build(unit(), settings, compiler)
    assert "run the command again" in str(caught.value)
    assert (artefact.folder.with_name(artefact.folder.name + ".damaged") / name).exists()
    again, cached = build(unit(), settings, compiler)
    assert not cached
    assert again.hsaco == (text if name == "kernel.hsaco" else again.hsaco)


def test_all_damage_is_listed(artefact: Artefact) -> None:
    (artefact.folder / "kernel.s").unlink()
    (artefact.folder / "source.mlir").write_text("")

    with pytest.raises(StoreError) as caught:
        load(artefact.folder)
    assert len(caught.value.findings) == 2
    assert "kernel.s is missing" in str(caught.value)


def test_loading_a_damaged_folder_by_its_path_moves_nothing(artefact: Artefact) -> None:
    (artefact.folder / "kernel.s").write_text("")

    with pytest.raises(StoreError, match="--force builds it again"):
        load(artefact.folder)
    assert artefact.folder.is_dir()


def test_force_builds_again_and_leaves_one_folder(
    artefact: Artefact, settings: Settings, compiler: Compiler
) -> None:
    (artefact.folder / "kernel.s").write_text("")
    settings.force = True
    again, cached = build(unit(), settings, compiler)

    assert not cached
    assert load(again.folder).manifest == artefact.manifest
    assert [p.name for p in settings.store.root.iterdir() if not p.name.startswith(".")] == [
        again.folder.name
    ]


def test_folders_follow_the_umask(settings: Settings, compiler: Compiler) -> None:
    old = os.umask(0o027)
    try:
        folder = build(unit(), settings, compiler)[0].folder
    finally:
        os.umask(old)

    assert folder.stat().st_mode & 0o777 == 0o750


def test_a_folder_without_a_manifest_is_no_artefact(artefact: Artefact) -> None:
    (artefact.folder / "manifest.json").unlink()

    with pytest.raises(StoreError, match="the manifest is missing"):
        load(artefact.folder)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_so_and_nothing_is_kept(
    number: int, settings: Settings, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, *args: Any, **kwargs: Any) -> int:
        raise OSError(number, os.strerror(number), str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with pytest.raises(StoreError, match="GEN_DISK the disk is full"):
            build(unit(), settings, compiler)
    assert not list(settings.store.root.glob("toy*")) + list(settings.store.root.glob(".tmp*"))
    assert build(unit(), settings, compiler)[0].kernel == "toy"


def test_a_full_disk_in_the_child_is_said_so(settings: Settings, compiler: Compiler) -> None:
    class Full(Compiler):
        def __init__(self) -> None:
            super().__init__(compiler.linker)

        def run(self, task: str, folder: Path, **job: Any) -> Any:
            (folder / "source.mlir").symlink_to("/dev/full")
            return compiler.run(task, folder, **job)

    with pytest.raises(StoreError, match="GEN_DISK the disk is full"):
        build(unit(), settings, Full())


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path: Path, compiler: Compiler) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match=r"GEN_DISK cannot write: .*\n.*choose another place"):
        build(unit(), Settings(Store(tmp_path / "file"), templates=TEMPLATES), compiler)


def test_a_lock_that_is_held_ends_in_a_message(settings: Settings, compiler: Compiler) -> None:
    impatient = Settings(Store(settings.store.root, lock_seconds=0.05), templates=TEMPLATES)
    key = key_of(unit(), render(unit(), TEMPLATES))
    with (
        settings.store.lock("toy-good-gfx942", key),
        pytest.raises(StoreError, match="GEN_LOCK another process"),
    ):
        build(unit(), impatient, compiler)


def test_who_waited_for_the_lock_finds_the_artefact(
    artefact: Artefact, settings: Settings, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([None])  # the first look misses; the second one, under the lock, is real
    real = settings.store.find
    monkeypatch.setattr(
        settings.store, "find", lambda *a: next(looks) if looks.__length_hint__() else real(*a)
    )

    assert build(unit(), settings, compiler) == (artefact, True)


def test_left_overs_of_dead_processes_are_swept(settings: Settings, compiler: Compiler) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = settings.store.root / f".tmp-{dead.pid}-abc"
    mine = settings.store.root / f".tmp-{os.getpid()}-def"
    left.mkdir(parents=True)
    mine.mkdir()
    build(unit(), settings, compiler)

    assert not left.exists()
    assert mine.exists()


def test_many_units_are_built_in_order_and_one_failure_stops_nothing(settings: Settings) -> None:
    units = [unit(), unit("syntax.py.j2"), unit(target="gfx950"), unit("lacks_op.py.j2")]
    settings.jobs = 2
    seen: list[str] = []
    outcomes = build_all(units, settings, lambda o: seen.append(o.unit.id))

    assert [o.unit.id for o in outcomes] == [u.id for u in units]
    assert [o.error is None for o in outcomes] == [True, False, True, False]
    assert sorted(seen) == sorted(u.id for u in units)
    assert [o.cached for o in build_all(units[:1], settings)] == [True]


_INTERRUPTED = """
import signal, sys, toys
from pathlib import Path
from flymono.gen.build import Settings, build_all
from flymono.gen.store import Store
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background ignores it
settings = Settings(Store(Path(sys.argv[1])), templates=toys.TEMPLATES)
try:
    build_all([toys.unit(), toys.unit("hang.py.j2")], settings, lambda o: print("done", flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_leaves_finished_builds_and_nothing_half_done(tmp_path: Path, settings: Settings) -> None:
    root = settings.store.root
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    child = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED, str(root)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "done\n"
    deadline = time.monotonic() + 60
    while not list(root.glob(".tmp-*/*hang*.py")) and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)

    assert child.communicate(timeout=60)[0] == "interrupted\n"
    assert not list(root.glob(".tmp-*"))
    assert [o.cached for o in build_all([unit()], settings)] == [True]
    for lock in (root / ".locks").iterdir():
        with filelock.FileLock(lock, timeout=0.1):
            pass


def test_a_server_that_outlives_its_parent_would_be_a_leak(settings: Settings) -> None:
    build_all([unit()], settings)
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    if not children.exists():
        pytest.skip("no /proc/self/task/*/children here")
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children.read_text().split()]

    assert len([c for c in commands if b"flymono.gen.worker" in c]) <= 1, "only the session's own server"


def test_a_compiler_that_was_ended_does_not_start_again(linker: Linker, settings: Settings) -> None:
    server = Compiler(linker)
    server.end()

    with pytest.raises(CompileError, match="GEN_INTERRUPTED"):
        build(unit(), settings, server)
    assert server.process is None


def test_the_default_root_is_the_environment_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLYMONO_CACHE", str(tmp_path))

    assert store_module.default_root() == tmp_path
    assert json.dumps(build_module.Settings(Store()).store.root.as_posix()) == json.dumps(tmp_path.as_posix())


def test_a_child_that_died_on_a_full_disk_is_no_crash(settings: Settings, compiler: Compiler) -> None:
    """It cannot write why, so the file system is asked: here a link that no byte fits behind."""

    class Full(Compiler):
        def __init__(self) -> None:
            super().__init__(compiler.linker)

        def run(self, task: str, folder: Path, **job: Any) -> Any:
            (folder / "room").symlink_to("/dev/full")
            return Answer({"status": "exit", "code": 1}, {}, "")

    with pytest.raises(StoreError, match="GEN_DISK the disk is full"):
        build(unit(), settings, Full())
