"""What all tests share: goldens with an update flag, deterministic property tests, a compile server."""

from __future__ import annotations

import difflib
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from flymono.runtime.heap import give_back, keep_heap

if TYPE_CHECKING:
    from flymono.gen.compiler import Compiler
    from flymono.gen.store import Store

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
LARGE_BYTES = 3 << 29
"""What a test process grows by before it gives free memory back: 1.5 GB."""
_used = [0]  # bytes held when that was last done, or less

settings.register_profile(
    "flymono", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("flymono")


def pytest_configure() -> None:
    """Half of the processor time of the layers' tests was the kernel's, clearing pages."""
    keep_heap()


def pytest_runtest_logfinish() -> None:
    """Free memory of a layer's test is not kept beside the next one's: two processes had grown to 20 GB.

    It is growth that counts: done after every test above a fixed size it took 152 s of 325 s in two folders.
    """
    if _held() > _used[0] + LARGE_BYTES:
        give_back()
        _used[0] = _held()
    _used[0] = min(_used[0], _held())


def _held() -> int:
    """Bytes of memory that this process occupies (0 where that cannot be read)."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * resource.getpagesize() if statm.is_file() else 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens",
        action="store_true",
        help="rewrite the files of tests/golden with what is computed now",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--update-goldens`, run only the tests that have a golden."""
    if config.getoption("--update-goldens"):
        chosen = [item for item in items if "golden" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("specs/messages.txt", text)`: equal to that file of tests/golden, or fail with a diff."""
    update = bool(request.config.getoption("--update-goldens"))

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        old = path.read_text() if path.is_file() else ""
        if old == text:
            return
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        diff = difflib.unified_diff(
            old.splitlines(), text.splitlines(), f"tests/golden/{name}", "computed now", lineterm="", n=2
        )
        pytest.fail("\n".join([*diff, "if this is meant: make goldens"]), pytrace=False)

    return check


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    """One compile server a test process."""
    from flymono.gen.compiler import Compiler
    from flymono.gen.linker import find_linker

    with Compiler(find_linker(tmp_path_factory.mktemp("linker")), seconds=300) as server:
        yield server


@pytest.fixture(scope="session")
def store() -> Store:
    """The artefact store, keyed by sources: test processes share it, so that no kernel is compiled twice."""
    from flymono.gen.store import Store

    return Store()
