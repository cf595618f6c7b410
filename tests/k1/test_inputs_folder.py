"""A folder of --save: what is read back is what was written; a damaged or foreign one is refused whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from running import build_id, options, specs
from safetensors import safe_open
from safetensors.torch import save_file

from flymono.runtime.run import case_file, folder, k1
from flymono.runtime.run.command import Prepared, prepare
from flymono.runtime.step import StepError
from flymono.specs.findings import UserError

ID = build_id("gfx942", 4, 2)


@pytest.fixture(scope="module")
def ready() -> Prepared:
    return prepare(options(ID), specs())


@pytest.fixture(scope="module")
def saved(ready: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved")
    given = k1.arguments_of(ready.plan, ready.case, ready.weights)
    case_file.save_inputs(path, ready.plan, ready.case, ready.weights, given)
    return path


@pytest.fixture
def changed(
    saved: Path, tmp_path: Path
) -> Callable[[Callable[[dict[str, Any], dict[str, Any]], None]], Path]:
    """A copy of the folder after `change(tensors, metadata)`."""

    def make(change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
        with safe_open(saved / "inputs.safetensors", "pt") as file:
            tensors, meta = {n: file.get_tensor(n) for n in file.keys()}, file.metadata()  # noqa: SIM118
        change(tensors, meta)
        save_file(tensors, tmp_path / "inputs.safetensors", metadata=meta)
        return tmp_path

    return make


def refused(path: Path, ready: Prepared) -> str:
    with pytest.raises(UserError) as caught:
        prepare(
            options(ID, inputs=path, tp=None, rows=None, ratio=None, fold=None, index=None, window=None),
            specs(),
        )
    assert caught.value.exit_code == 2
    assert "fix: " in caught.value.render()
    return str(caught.value)


def test_what_was_saved_comes_back(saved: Path, ready: Prepared) -> None:
    case, weights = case_file.restore(ready.plan, folder.load(saved))
    for got, want in ((case.tensors(), ready.case.tensors()), (weights.tensors(), ready.weights.tensors())):
        assert got.keys() == want.keys()
        assert all(torch.equal(got[n], want[n]) for n in want)
    assert (saved / "inputs.safetensors").stat().st_mode & 0o044, "it is to be handed on"


@pytest.mark.parametrize("text", [None, "{", "[1]", '{"seed": "x"}', '{"seed": 1.5}', "[" * 100_000])
@pytest.mark.parametrize("name", ["scalars", "facts"])
def test_metadata_that_is_no_numbers(changed: Any, ready: Prepared, name: str, text: str | None) -> None:
    def change(tensors: dict[str, Any], meta: dict[str, Any]) -> None:
        meta.pop(name)
        meta.update({} if text is None else {name: text})

    assert f"its metadata has no readable {name}" in refused(changed(change), ready)


@pytest.mark.parametrize("build", [None, "hello", "dsv41_k1-gfx942-tp4-s43-r2", "dsv41_k1-gfx950-tp2-s2-r2"])
def test_another_build(changed: Any, ready: Prepared, build: str | None) -> None:
    refused(changed(lambda tensors, meta: meta.update(build=build) if build else meta.pop("build")), ready)


def test_every_tensor_that_does_not_fit_is_listed(changed: Any, ready: Prepared) -> None:
    def change(tensors: dict[str, Any], meta: dict[str, Any]) -> None:
        del tensors["attn_w"], tensors["published.wqb"], tensors["wqb"]
        tensors["pos"] = tensors["pos"].to(torch.int32)
        tensors["published.wqkv"] = tensors["published.wqkv"][:-1].clone()
        tensors["cos_sin"] = tensors["cos_sin"][:, 1:].clone()
        tensors["res_in"] = tensors["res_in"].flatten()

    said = refused(changed(change), ready)
    for part in ("attn_w is missing", "wqb is missing", "pos: torch.int32, the ABI says i64",
                 "published.wqkv: [1791, 5120], the ABI says [1792, 5120]", "cos_sin: [4096, 63]",
                 "res_in: [40960]"):  # fmt: skip
        assert part in said, part


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("swa_stride", 0, "swa_stride 0 does not hold"),
        ("swa_stride", -19008, "does not hold"),
        ("swa_stride", 19009, "no multiple"),
        ("swa_block", 0, "swa_block 0"),
        ("bt_stride", 1, "bt_stride is 1"),
        ("comp_block", 0, "comp_block is 0"),
    ],
)
def test_numbers_that_do_not_fit_together(
    changed: Any, ready: Prepared, name: str, value: int, said: str
) -> None:
    def change(tensors: dict[str, Any], meta: dict[str, Any]) -> None:
        meta["scalars"] = json.dumps({**json.loads(meta["scalars"]), name: value})

    assert said in refused(changed(change), ready)


@pytest.mark.parametrize(("name", "value"), [
    ("pos", 10**7), ("pos", -1), ("topk", 10**6), ("comp_bt", -7), ("t2r", 99), ("swa_lens", 641),
    ("swa_idx", 10**6),
])  # fmt: skip
def test_a_step_that_would_be_read_out_of_bounds(
    changed: Any, ready: Prepared, name: str, value: int
) -> None:
    """Told where the folder is read, before anything is compiled."""
    path = changed(lambda tensors, meta: tensors[name].fill_(value))
    with pytest.raises(StepError) as caught:
        case_file.restore(ready.plan, folder.load(path))
    assert caught.value.exit_code == 2
    assert f": {name}, row 0" in caught.value.render()


def test_files_that_are_none(saved: Path, ready: Prepared, tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path, ready)
    (tmp_path / "inputs.safetensors").write_bytes((saved / "inputs.safetensors").read_bytes()[:5000])
    assert "damaged" in refused(tmp_path, ready)
    (tmp_path / "inputs.safetensors").unlink()
    (tmp_path / "inputs.safetensors").mkdir()
    assert refused(tmp_path, ready)


def test_options_that_the_folder_holds(saved: Path) -> None:
    with pytest.raises(UserError, match=r"--ratio, --weights beside --inputs"):
        wanted = options(
            ID, inputs=saved, tp=None, rows=None, fold=None, index=None, window=None, weights=saved
        )
        prepare(wanted, specs())
