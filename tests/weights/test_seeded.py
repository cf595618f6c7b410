"""Seeded files: names, dtypes, shapes and statistics of the release, the same bytes for the same seed."""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from flymono.runtime.files import WriteError
from flymono.runtime.run import folder
from flymono.runtime.weights import WeightsError, make_seeded_file, read_k1_weights, seeded_file
from flymono.specs.schema import ModelSpec


def test_names_dtypes_and_shapes_are_the_published_ones(full: ModelSpec, tmp_path: Path) -> None:
    path = make_seeded_file(tmp_path / "layer.safetensors", full, layer=2)
    with safe_open(path, "np") as file:
        got = {n: (file.get_slice(n).get_dtype(), tuple(file.get_slice(n).get_shape())) for n in file.keys()}  # noqa: SIM118
    assert got == {
        "layers.2.attn_norm.weight": ("BF16", (5120,)),
        "layers.2.hc_attn_fn": ("F32", (24, 20480)),
        "layers.2.hc_attn_base": ("F32", (24,)),
        "layers.2.hc_attn_scale": ("F32", (3,)),
        "layers.2.attn.wq_a.weight": ("F8_E4M3", (1280, 5120)),
        "layers.2.attn.wq_a.scale": ("F8_E8M0", (40, 160)),
        "layers.2.attn.wkv.weight": ("F8_E4M3", (512, 5120)),
        "layers.2.attn.wkv.scale": ("F8_E8M0", (16, 160)),
        "layers.2.attn.q_norm.weight": ("BF16", (1280,)),
        "layers.2.attn.kv_norm.weight": ("BF16", (512,)),
        "layers.2.attn.wq_b.weight": ("F8_E4M3", (32768, 1280)),
        "layers.2.attn.wq_b.scale": ("F8_E8M0", (1024, 40)),
    }
    weights = read_k1_weights(path, full, 2, tp=4, rank=3)
    assert weights.wqb.shape == (8192, 1280)
    codes = torch.cat([weights.wqkv_s.flatten(), weights.wqb_s.flatten()]).unique().tolist()
    assert codes == list(range(109, 122))
    every = weights.wqkv.flatten().unique().tolist()
    assert every == [b for b in range(256) if b & 0x7F != 0x7F]


def test_bytes_follow_the_seed(model: ModelSpec, tmp_path: Path) -> None:
    def digest(name: str, layer: int, seed: int) -> str:
        path = make_seeded_file(tmp_path / name, model, layer, seed)
        weights = read_k1_weights(path, model, layer, tp=1)
        blob = b"".join(t.view(torch.uint8).numpy().tobytes() for t in weights.tensors().values())
        return hashlib.sha256(blob).hexdigest()

    first = digest("a", 0, 1)
    assert digest("b", 0, 1) == first
    assert len({first, digest("c", 0, 2), digest("d", 1, 1)}) == 3


def test_the_cache_is_used_and_repaired(model: ModelSpec, tmp_path: Path) -> None:
    path = seeded_file(model, 5, 0, tmp_path)
    made = path.stat().st_mtime_ns
    assert seeded_file(model, 5, 0, tmp_path).stat().st_mtime_ns == made
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    assert seeded_file(model, 5, 0, tmp_path).read_bytes() == whole
    assert seeded_file(model, 5, 1, tmp_path) != path


def test_another_model_is_another_file(model: ModelSpec, full: ModelSpec, tmp_path: Path) -> None:
    wider = model.model_copy(update={"hidden": 1024})
    assert seeded_file(model, 5, 0, tmp_path) != seeded_file(wider, 5, 0, tmp_path)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes: what a full disk does, without one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_takes_no_more_leaves_nothing(model: ModelSpec, tmp_path: Path) -> None:
    with files_of_at_most(4096), pytest.raises(WeightsError, match="File too large") as caught:
        make_seeded_file(tmp_path / "layer.safetensors", model, 5)
    assert "53 MB" in caught.value.render()
    assert list(tmp_path.iterdir()) == []


def test_a_case_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    with files_of_at_most(4096), pytest.raises(WriteError, match="File too large"):
        folder.save(tmp_path, "inputs", "a build", {"a": torch.zeros(4096), "b": 1}, {})
    assert list(tmp_path.iterdir()) == []
    folder.save(tmp_path, "inputs", "a build", {"a": torch.zeros(4096), "b": 1}, {})
    assert folder.load(tmp_path).values["b"] == 1


def test_a_cache_that_cannot_be_made(model: ModelSpec, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="cannot be used as cache"):
        seeded_file(model, 5, 0, tmp_path / "file" / "below")
