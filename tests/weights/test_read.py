"""Reading a layer: by file, by folder, by slice; and every fault listed at once."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from flymono.runtime.weights import WeightsError, make_seeded_file, read_k1_weights
from flymono.runtime.weights.published import k1_tensors
from flymono.specs.schema import ModelSpec

Tensors = dict[str, torch.Tensor]


def tensors_of(path: Path) -> Tensors:
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def octets(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


@pytest.fixture
def damaged(layer_file: Path, tmp_path: Path) -> Callable[[Callable[[Tensors], Any]], Path]:
    """A copy of the layer's file after `change` was applied to its tensors."""

    def make(change: Callable[[Tensors], Any]) -> Path:
        tensors = tensors_of(layer_file)
        change(tensors)
        save_file(tensors, tmp_path / "damaged.safetensors")
        return tmp_path / "damaged.safetensors"

    return make


def faults(path: Path, model: ModelSpec, layer: int = 5) -> list[tuple[str, str]]:
    with pytest.raises(WeightsError) as caught:
        read_k1_weights(path, model, layer, tp=2)
    assert caught.value.exit_code == 2
    assert all(f.fix for f in caught.value.findings)
    rendered = caught.value.render()
    assert all(str(f) in rendered for f in caught.value.findings)
    return [(f.tensor.removeprefix(f"layers.{layer}."), f.what) for f in caught.value.findings]


def test_a_file_gives_what_it_holds(layer_file: Path, model: ModelSpec) -> None:
    stored, got = tensors_of(layer_file), read_k1_weights(layer_file, model, 5, tp=1)
    at = "layers.5."
    assert torch.equal(got.hc_fn, stored[f"{at}hc_attn_fn"]) and got.hc_fn.dtype == torch.float32
    assert torch.equal(got.attn_w, stored[f"{at}attn_norm.weight"]) and got.attn_w.dtype == torch.bfloat16
    fused = torch.cat([octets(stored[f"{at}attn.wq_a.weight"]), octets(stored[f"{at}attn.wkv.weight"])])
    assert torch.equal(got.wqkv, fused)
    scales = torch.cat([octets(stored[f"{at}attn.wq_a.scale"]), octets(stored[f"{at}attn.wkv.scale"])])
    assert torch.equal(got.wqkv_s, scales)
    assert torch.equal(got.wqb, octets(stored[f"{at}attn.wq_b.weight"]))


@pytest.mark.parametrize("tp", [2, 4])
def test_ranks_read_their_rows(layer_file: Path, model: ModelSpec, tp: int) -> None:
    whole = read_k1_weights(layer_file, model, 5, tp=1)
    parts = [read_k1_weights(layer_file, model, 5, tp=tp, rank=rank) for rank in range(tp)]
    assert torch.equal(torch.cat([p.wqb for p in parts]), whole.wqb)
    assert torch.equal(torch.cat([p.wqb_s for p in parts]), whole.wqb_s)
    assert all(torch.equal(p.wqkv, whole.wqkv) for p in parts)


def shards(layer_file: Path, folder: Path, index: bool) -> Path:
    """The layer's tensors over two shards."""
    tensors = tensors_of(layer_file)
    names = sorted(tensors)
    split = {"model-a.safetensors": names[::2], "model-b.safetensors": names[1::2]}
    for file, own in split.items():
        save_file({n: tensors[n] for n in own}, folder / file)
    if index:
        weight_map = {name: file for file, own in split.items() for name in own}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


@pytest.mark.parametrize("index", [True, False])
def test_a_folder_of_shards(layer_file: Path, model: ModelSpec, tmp_path: Path, index: bool) -> None:
    got = read_k1_weights(shards(layer_file, tmp_path, index), model, 5, tp=2, rank=1)
    want = read_k1_weights(layer_file, model, 5, tp=2, rank=1)
    assert all(
        torch.equal(a, b) for a, b in zip(got.tensors().values(), want.tensors().values(), strict=True)
    )


def test_a_shard_without_the_index_alone_is_not_opened(
    layer_file: Path, model: ModelSpec, tmp_path: Path
) -> None:
    shards(layer_file, tmp_path, index=True)
    (tmp_path / "model-c.safetensors").write_bytes(b"not a safetensors file at all")
    read_k1_weights(tmp_path, model, 5, tp=1)  # the index does not name model-c


def test_all_faults_are_listed(damaged: Any, model: ModelSpec) -> None:
    def change(tensors: Tensors) -> None:
        del tensors["layers.5.attn.kv_norm.weight"]
        del tensors["layers.5.hc_attn_scale"]
        tensors["layers.5.attn.q_norm.weight"] = tensors["layers.5.attn.q_norm.weight"].to(torch.float32)
        tensors["layers.5.attn.wkv.scale"] = tensors["layers.5.attn.wkv.scale"][:, :-1].contiguous()
        tensors["layers.5.attn.wq_b.weight"] = octets(tensors["layers.5.attn.wq_b.weight"])[:-16].contiguous()

    found = faults(damaged(change), model)
    assert sorted(found) == [
        ("attn.kv_norm.weight", "missing (BF16 [512])"),
        ("attn.q_norm.weight", "dtype F32, expected BF16"),
        ("attn.wkv.scale", "shape [16, 15], expected [16, 16]"),
        ("attn.wq_b.weight", "dtype U8, expected F8_E4M3"),
        ("attn.wq_b.weight", "shape [2032, 256], expected [2048, 256]"),
        ("hc_attn_scale", "missing (F32 [3])"),
    ]


def test_another_layer_is_missing_whole(layer_file: Path, model: ModelSpec) -> None:
    found = faults(layer_file, model, layer=6)
    assert len(found) == len(k1_tensors(model, 6))
    assert all("missing" in what for _, what in found)


@pytest.mark.parametrize("keep", [0, 5, 100, -1, -700_000])
def test_a_file_that_ends_early(layer_file: Path, model: ModelSpec, tmp_path: Path, keep: int) -> None:
    whole = layer_file.read_bytes()
    short = tmp_path / "short.safetensors"
    short.write_bytes(whole[:keep])
    found = faults(short, model)
    if keep < 0:
        assert all("cut short: data ends at byte" in what for _, what in found)
        assert (len(found) > 1) == (keep < -1)
    else:
        assert "safetensors" in found[0][1] or "cut short" in found[0][1]


def header_of(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def entry_of(shape: str = "[1]", offsets: str = "[0, 4]") -> bytes:
    return f'{{"a": {{"dtype": "F32", "shape": {shape}, "data_offsets": {offsets}}}}}'.encode()


def test_a_header_that_is_no_header(model: ModelSpec, tmp_path: Path) -> None:
    cases = {
        b"\xff" * 64: "ask for a header",
        struct.pack("<Q", 4) + b"[1]\n": "not a JSON object",
        struct.pack("<Q", 4) + b"oops": "not JSON",
        struct.pack("<Q", 15) + b'{"a": {"b": 1}}': "malformed",
        header_of(b"[" * 100_000): "not JSON",  # deeper than a parser can go
        header_of(entry_of(shape="[Infinity]")): "malformed",
        header_of(entry_of(offsets="[-8, -4]")): "malformed",
    }
    for blob, said in cases.items():
        path = tmp_path / "odd.safetensors"
        path.write_bytes(blob)
        found = faults(path, model)
        assert said in found[0][1], said
        assert len(found) == 1, "what cannot be read is one fault, and not a list of missing tensors"


def test_data_that_does_not_fit_its_shape(layer_file: Path, model: ModelSpec, tmp_path: Path) -> None:
    whole = layer_file.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    begin, end = header["layers.5.hc_attn_base"]["data_offsets"]
    header["layers.5.hc_attn_base"]["data_offsets"] = [begin, end - 4]
    text = json.dumps(header).encode()
    path = tmp_path / "offsets.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])
    assert faults(path, model) == [("hc_attn_base", "its data has 92 bytes, its shape needs 96")]


def test_the_same_tensor_twice(layer_file: Path, model: ModelSpec, tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        (tmp_path / name).write_bytes(layer_file.read_bytes())
    found = faults(tmp_path, model)
    assert all(what == "in more than one file: a.safetensors, b.safetensors" for _, what in found)


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": 3}', "[" * 100_000])
def test_a_broken_index(model: ModelSpec, tmp_path: Path, text: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    ((_, what),) = faults(tmp_path, model)
    assert "not an index" in what


def test_an_index_stays_in_its_folder(layer_file: Path, model: ModelSpec, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    weight_map = {t.name: f"../{layer_file.name}" for t in k1_tensors(model, 5).values()}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert faults(folder, model) == [("", f"shard '../{layer_file.name}' is no name of a file beside it")]


def test_one_lost_shard_is_one_fault(layer_file: Path, model: ModelSpec, tmp_path: Path) -> None:
    (shards(layer_file, tmp_path, index=True) / "model-b.safetensors").unlink()
    assert faults(tmp_path, model) == [("", "it cannot be read: No such file or directory")]


def test_a_pipe_is_not_waited_for(model: ModelSpec, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert faults(tmp_path / "pipe", model) == [("", "it is not a regular file")]


def test_the_last_line_counts(layer_file: Path, model: ModelSpec) -> None:
    with pytest.raises(WeightsError) as caught:
        read_k1_weights(layer_file, model, 6, tp=1)
    assert caught.value.render().splitlines()[-1] == "error: 12 findings in the weights"


def test_paths_that_lead_nowhere(model: ModelSpec, tmp_path: Path) -> None:
    assert faults(tmp_path / "gone", model) == [("", "no such file or folder")]
    assert "no .safetensors file" in faults(tmp_path, model)[0][1]


def test_layers_and_ranks_that_do_not_exist(layer_file: Path, model: ModelSpec) -> None:
    with pytest.raises(ValueError, match=r"layers 0 .. 42"):
        read_k1_weights(layer_file, model, 43, tp=1)
    with pytest.raises(ValueError, match="rank 2 of TP2"):
        read_k1_weights(layer_file, model, 5, tp=2, rank=2)
    with pytest.raises(ValueError, match="TP3"):
        read_k1_weights(layer_file, model, 5, tp=3)


def test_draft_layers_have_their_own_prefix(model: ModelSpec, tmp_path: Path) -> None:
    path = make_seeded_file(tmp_path / "draft.safetensors", model, layer=41, seed=0)
    assert all(name.startswith("mtp.1.") for name in tensors_of(path))
    read_k1_weights(path, model, 41, tp=2)
