"""A bundle that is not whole is refused: each artefact by name, all at once, with its command."""

from __future__ import annotations

import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from flymono.runtime.bundle import Bundle, BundleCode, BundleError
from flymono.runtime.bundle.manifest import seal_of

from .conftest import COMMAND, IDS, ORDER, WHEEL, Said

PARTS = {"code": f"code/{IDS[0]}.hsaco", "abi": f"abi/{IDS[0]}.json", "manifest": "manifest.json"}
FOUND = {"code": BundleCode.ALTERED, "abi": BundleCode.ALTERED, "manifest": BundleCode.MANIFEST}


def flip(path: Path, at: int | None = None) -> None:
    """Change one bit in the middle of a file, or at a place."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def refusal(use: Callable[[], object]) -> BundleError:
    with pytest.raises(BundleError) as error:
        use()
    assert pickle.loads(pickle.dumps(error.value)).findings == error.value.findings
    return error.value


def test_what_is_whole_is_handed_out(bundle: Bundle) -> None:
    bundle.verify()
    codes = bundle.load(IDS)
    assert {id: code[:4] for id, code in codes.items()} == dict.fromkeys(IDS, b"\x7fELF")
    assert bundle.code(IDS[0]) == codes[IDS[0]]
    assert bundle.builds[IDS[0]].kernel == IDS[0].replace("-", "_")
    assert bundle.abi(IDS[0]).kernarg_bytes == bundle.builds[IDS[0]].resources["kernarg_bytes"]


@pytest.mark.parametrize("damage", [flip, truncate, Path.unlink])
@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_part_is_refused_by_name(
    folder: Path, part: str, damage: Callable[[Path], None], flymono: Callable[..., Said]
) -> None:
    damage(folder / PARTS[part])
    error = refusal(lambda: Bundle.open(folder).code(IDS[0]))
    (finding,) = error.findings
    gone = damage is Path.unlink and part != "manifest"
    assert finding.code is (BundleCode.MISSING if gone else FOUND[part])
    assert finding.where == f"{folder}/{PARTS[part]}"
    assert finding.fix.startswith("flymono bundle --arch ") and finding.fix.endswith(" -o PATH")
    assert part == "manifest" or finding.fix == COMMAND

    said = flymono("bundle", "verify", folder)
    assert said.code == 2
    assert PARTS[part] in said.err
    assert finding.fix in said.err


@pytest.mark.parametrize("at", range(0, 3000, 97))
def test_any_byte_of_the_manifest(folder: Path, at: int) -> None:
    flip(folder / "manifest.json", at)
    assert refusal(lambda: Bundle.open(folder)).findings[0].code is BundleCode.MANIFEST


def test_an_altered_manifest_still_names_its_command(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"tp": 4', '"tp": 2'))
    assert refusal(lambda: Bundle.open(folder)).findings[0].fix == COMMAND


def test_everything_at_once(folder: Path) -> None:
    flip(folder / f"code/{IDS[0]}.hsaco")
    truncate(folder / f"code/{IDS[1]}.hsaco")
    (folder / f"abi/{IDS[2]}.json").unlink()
    error = refusal(lambda: Bundle.open(folder).load([*IDS, "dsv41_k2-gfx942-tp4-s7-r2"]))
    assert sorted((f.code, Path(f.where).name) for f in error.findings) == [
        (BundleCode.ALTERED, f"{IDS[0]}.hsaco"),
        (BundleCode.ALTERED, f"{IDS[1]}.hsaco"),
        (BundleCode.MISSING, f"{IDS[2]}.json"),
        (BundleCode.NO_BUILD, "dsv41_k2-gfx942-tp4-s7-r2"),
    ]
    assert error.render().endswith("error: 4 findings in the bundle")


def test_a_damaged_build_costs_no_other(folder: Path) -> None:
    flip(folder / f"code/{IDS[0]}.hsaco")
    assert Bundle.open(folder).code(IDS[1])


def test_another_format_is_said_so(folder: Path) -> None:
    content = json.loads((folder / "manifest.json").read_text()) | {"format": 99}
    (folder / "manifest.json").write_text(json.dumps(content | {"seal": seal_of(content)}))
    (finding,) = refusal(lambda: Bundle.open(folder)).findings
    assert finding.code is BundleCode.FORMAT
    assert "99" in finding.message


def test_a_sealed_manifest_that_makes_no_sense(folder: Path) -> None:
    content = json.loads((folder / "manifest.json").read_text())
    del content["builds"][IDS[0]]["code"]["size"]
    (folder / "manifest.json").write_text(json.dumps(content | {"seal": seal_of(content)}))
    assert refusal(lambda: Bundle.open(folder)).findings[0].code is BundleCode.MANIFEST


def test_no_bundle_there(tmp_path: Path) -> None:
    assert refusal(lambda: Bundle.open(tmp_path / "none")).findings[0].code is BundleCode.NOT_FOUND
    assert refusal(lambda: Bundle.open(tmp_path)).findings[0].code is BundleCode.MANIFEST
    (tmp_path / "text.whl").write_text("no archive")
    assert refusal(lambda: Bundle.open(tmp_path / "text.whl")).findings[0].code is BundleCode.ALTERED
    with zipfile.ZipFile(tmp_path / "empty.whl", "w") as archive:
        archive.writestr("x/y", b"")
    assert refusal(lambda: Bundle.open(tmp_path / "empty.whl")).findings[0].code is BundleCode.MANIFEST


def test_a_wheel_is_verified_like_a_folder(tmp_path: Path, flymono: Callable[..., Said]) -> None:
    wheel = tmp_path / WHEEL
    assert flymono(*ORDER, "--only", IDS[1], "--only", IDS[2], "-o", wheel).code == 0
    assert flymono("bundle", "verify", wheel).code == 0
    damaged = tmp_path / "damaged" / WHEEL
    damaged.parent.mkdir()
    shutil.copy(wheel, damaged)
    flip(damaged, wheel.read_bytes().index(b"\x7fELF") + 100)
    said = flymono("bundle", "verify", damaged)
    assert said.code == 2
    assert f"code/{IDS[1]}.hsaco" in said.err
    truncate(damaged)
    said = flymono("bundle", "verify", damaged)
    assert said.code == 2
    assert "truncated" in said.err
