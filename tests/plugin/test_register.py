"""Registering the plugin, without vLLM: what it imports, how it is switched off, which vLLM it takes."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from flymono.runtime.vllm import fit, log, plugin

HEAVY = (
    "torch",
    "numpy",
    "pydantic",
    "yaml",
    "vllm",
    "flydsl",
    "jinja2",
    "safetensors",
    "importlib.metadata",
)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("FLYMONO", "FLYMONO_ANY_VLLM"):
        monkeypatch.delenv(name, raising=False)
    log.forget()
    yield
    plugin.unregister()


def hooks() -> int:
    return sum(isinstance(finder, plugin.Finder) for finder in sys.meta_path)


def test_registering_imports_nothing_heavy(repo: Path) -> None:
    """Each process of a server registers: front end, engine core, workers, the registry's subprocess."""
    script = (
        f"import sys; sys.path.insert(0, {str(repo / 'src')!r})\n"
        "from flymono.runtime.vllm.plugin import register\nregister()\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_registering_again_changes_nothing() -> None:
    plugin.register()
    plugin.register()
    assert hooks() == 1 and isinstance(sys.meta_path[0], plugin.Finder)


def test_the_entry_point_is_the_one_that_vllm_loads(repo: Path) -> None:
    import tomllib

    declared = tomllib.loads((repo / "pyproject.toml").read_text())["project"]["entry-points"]
    assert declared["vllm.general_plugins"] == {"flymono": "flymono.runtime.vllm.plugin:register"}
    for point in entry_points(group="vllm.general_plugins", name="flymono"):
        assert point.load() is plugin.register


def test_off_installs_nothing_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FLYMONO", "0")
    with caplog.at_level("INFO", "vllm.flymono"):
        plugin.register()
        plugin.register()
    assert hooks() == 0
    assert [r.getMessage() for r in caplog.records] == [
        "flymono: FLYMONO=0: not loaded, vLLM runs its own decode"
    ]


def test_an_unknown_value_is_on_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FLYMONO", "yes")
    assert plugin.mode() == "on" and "'yes' is none of 0, 1, stock" in caplog.text


def test_only_one_module_is_looked_at() -> None:
    plugin.register()
    finder = next(f for f in sys.meta_path if isinstance(f, plugin.Finder))
    assert finder.find_spec("vllm.models.deepseek_v41.amd.rocm", None) is None


@pytest.mark.parametrize(
    ("found", "release"),
    [
        ("0.33.0", (0, 33, 0)),
        ("0.33.1+rocm700", (0, 33, 1)),
        ("0.33.0.dev12+g1234567", (0, 33, 0)),
        ("0.33.0rc1", (0, 33, 0)),
        ("1!0.33", (0, 33)),
        ("dev", ()),
    ],
)
def test_the_release_of_a_version(found: str, release: tuple[int, ...]) -> None:
    assert fit.release_of(found) == release


@pytest.mark.parametrize(
    ("found", "taken"), [("0.33.0", True), ("0.33.2+rocm710", True), ("0.34.0", False), ("0.3.3", False)]
)
def test_another_release_is_refused(found: str, taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "version", lambda _: found)
    why = fit.version_reason()
    assert (why is None) is taken
    if why is not None:
        assert found in why.text and "FLYMONO_ANY_VLLM=1" in why.fix
        monkeypatch.setenv("FLYMONO_ANY_VLLM", "1")
        assert fit.version_reason() is None


class _MonoDecodeLayer:
    @staticmethod
    def create(layer, vllm_config):  # type: ignore[no-untyped-def]
        ...

    def __call__(self, layer, x, positions, residual, post_mix, res_mix, pre_mix, hashes=None):  # type: ignore[no-untyped-def]
        ...


def test_another_shape_is_refused_by_its_first_difference(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fit, "version", lambda _: "0.33.0")
    module = types.ModuleType(plugin.TARGET)
    module.MonoDecodeLayer = _MonoDecodeLayer  # type: ignore[attr-defined]
    assert fit.fit(module) is False
    assert module.MonoDecodeLayer is _MonoDecodeLayer  # type: ignore[attr-defined]
    assert "MonoDecodeLayer.__call__ takes (self, layer, x" in caplog.text
    assert caplog.text.count("left alone") == 1


def test_a_module_that_is_imported_already_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[object]()
    monkeypatch.setattr(fit, "fit", seen.append)
    module = types.ModuleType(plugin.TARGET)
    module.MonoDecodeLayer = object()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, plugin.TARGET, module)
    plugin.register()
    assert seen == [module]


def test_the_module_is_fitted_when_it_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the import system, with packages of vLLM's names and nothing in them."""
    home = tmp_path / "vllm" / "models" / "deepseek_v41" / "amd"
    home.mkdir(parents=True)
    for folder in (home, *list(home.parents)[:3]):
        (folder / "__init__.py").write_text("")
    (home / "model.py").write_text("MonoDecodeLayer = 1\n")
    seen = list[object]()
    monkeypatch.setattr(fit, "fit", seen.append)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = {name: m for name, m in sys.modules.items() if name == "vllm" or name.startswith("vllm.")}
    for name in before:
        monkeypatch.delitem(sys.modules, name)
    plugin.register()
    module = __import__(plugin.TARGET, fromlist=["x"])
    assert seen == [module] and module.MonoDecodeLayer == 1
    for name in [n for n in sys.modules if n == "vllm" or n.startswith("vllm.")]:
        monkeypatch.delitem(sys.modules, name)
