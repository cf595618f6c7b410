"""Which bundle a server takes: its argument, FLYMONO_BUNDLE, or the installed package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flymono.runtime.bundle import Bundle, BundleCode, BundleError, find_bundle

from .conftest import ARCH, IDS, ORDER, TP, WHEEL, Said


@pytest.fixture
def installed(tmp_path: Path, flymono: Callable[..., Said]) -> Path:
    """A folder into which pip installed a bundle wheel."""
    assert flymono(*ORDER, "--only", IDS[1], "--only", IDS[2], "-o", tmp_path / WHEEL).code == 0
    target = tmp_path / "site"
    options = ["--no-deps", "--no-index", "--disable-pip-version-check", "--quiet", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(tmp_path / WHEEL)], check=True)
    return target


def code_of(use: Callable[[], Bundle]) -> BundleCode:
    with pytest.raises(BundleError) as error:
        use()
    (finding,) = error.value.findings
    return finding.code


def test_the_argument_then_the_variable(
    original: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLYMONO_BUNDLE", str(tmp_path / "none"))
    assert find_bundle(ARCH, TP, original).path == original
    assert code_of(lambda: find_bundle(ARCH, TP)) is BundleCode.NOT_FOUND
    monkeypatch.setenv("FLYMONO_BUNDLE", str(original))
    assert find_bundle(ARCH, TP).path == original


def test_a_bundle_of_something_else(original: Path) -> None:
    assert code_of(lambda: find_bundle("gfx950", 2, original)) is BundleCode.OTHER


def test_none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLYMONO_BUNDLE", raising=False)
    with pytest.raises(BundleError) as error:
        find_bundle(ARCH, TP)
    assert "flymono bundle --arch gfx942 --tp 4 -o PATH, then pip install it" in error.value.render()


def test_an_installed_wheel(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(installed))
    bundle = find_bundle(ARCH, TP)
    assert bundle.path == installed / "flymono_bundle_gfx942_tp4"
    assert set(bundle.load(IDS[1:])) == set(IDS[1:])
    assert "flymono_bundle_gfx942_tp4" not in sys.modules  # no code of it runs
    assert code_of(lambda: find_bundle("gfx950", 2)) is BundleCode.NOT_FOUND


def test_an_installed_wheel_with_a_flipped_byte(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(installed))
    path = installed / "flymono_bundle_gfx942_tp4" / "code" / f"{IDS[1]}.hsaco"
    data = bytearray(path.read_bytes())
    data[99] ^= 1
    path.write_bytes(data)
    with pytest.raises(BundleError, match=IDS[1]):
        find_bundle(ARCH, TP).code(IDS[1])


def test_two_packages_for_one_gpu(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = installed / "other-1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (other / "entry_points.txt").write_text("[flymono.bundles]\ngfx942-tp4 = other\n")
    monkeypatch.syspath_prepend(str(installed))
    with pytest.raises(BundleError, match="flymono-bundle-gfx942-tp4, other"):
        find_bundle(ARCH, TP)


def test_an_entry_point_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "gone-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gone\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[flymono.bundles]\ngfx942-tp4 = gone\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert code_of(lambda: find_bundle(ARCH, TP)) is BundleCode.NOT_FOUND
