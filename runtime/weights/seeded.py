"""A weights file from a seed: the published names, dtypes, shapes and statistics of one layer's K1 tensors.

Codes lie in the range seen in the release and bytes cover every finite e4m3 value, so a run on such a file
meets what a run on the checkpoint meets. The same seed gives the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ...reference.draws import Draws
from ...reference.sizes import K1Sizes
from ...reference.weights import random_gate, random_linear, random_norm
from ...specs.schema import ModelSpec
from ..files import WriteError, save_tensors
from .errors import WeightFinding, WeightsError
from .published import Published, k1_tensors
from .read import read_k1_weights

RECIPE = "1"  # part of a cached file's name: a change of the statistics below is a new file
STORED = {"F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.float8_e8m0fnu, "I8": torch.int8}


def _values(model: ModelSpec, layer: int, seed: int) -> dict[str, Tensor]:
    """Key -> tensor (bytes and codes as uint8)."""
    sizes, codes = K1Sizes.of(model, 1), model.quantisation.dense_code_range
    block = sizes.weight_block

    def draws(key: str) -> Draws:
        return Draws(seed, f"layer{layer}/{key}")

    out: dict[str, Tensor] = {}
    shapes = {"wq_a": (sizes.q_rank, sizes.hidden), "wkv": (sizes.kv_dim, sizes.hidden)}
    shapes["wqb"] = (sizes.q_rows, sizes.q_rank)
    for key, (rows, columns) in shapes.items():
        out[key], out[f"{key}_s"] = random_linear(draws(key), rows, columns, block, codes)
    out["hc_fn"], out["hc_scale"], out["hc_base"] = random_gate(draws("hc"), sizes)
    for key, width in (("attn_w", sizes.hidden), ("qn_w", sizes.q_rank), ("kvn_w", sizes.kv_dim)):
        out[key] = random_norm(draws(key), width)
    return out


def make_seeded_file(path: Path, model: ModelSpec, layer: int, seed: int = 0) -> Path:
    """Write the file and return its path; it appears whole or not at all. Raises WeightsError."""
    fix = "free some space (a layer's K1 part has about 53 MB) or choose another folder"
    stored = as_stored(k1_tensors(model, layer), _values(model, layer, seed))
    return write_whole(path, stored, f"seed {seed}, layer {layer}, recipe {RECIPE}", fix)


def as_stored(published: Mapping[str, Published], values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Published name -> tensor viewed in its published dtype."""
    return {
        tensor.name: values[key].contiguous().view(STORED.get(tensor.dtype, values[key].dtype))
        for key, tensor in published.items()
    }


def write_whole(path: Path, stored: dict[str, Tensor], made: str, fix: str) -> Path:
    """Write a safetensors file that appears whole or not at all. Raises WeightsError."""
    try:
        # One key only: the library writes several in an order that differs from run to run.
        save_tensors(stored, path, {"made": made})
    except WriteError as error:
        raise WeightsError([WeightFinding(str(path), "", str(error), fix)]) from error
    return path


def _usable(path: Path, model: ModelSpec, layer: int) -> bool:
    try:
        read_k1_weights(path, model, layer, tp=model.attention.heads, rank=0)
    except WeightsError:
        return False
    return True


def seeded_file(model: ModelSpec, layer: int, seed: int = 0, cache: Path | None = None) -> Path:
    """The cached file of (model, layer, seed), made on first use; a damaged one is made again.

    `cache` defaults to the user's cache folder. Several processes may ask at once.
    """
    from filelock import FileLock  # a server, which makes no weights, has neither
    from platformdirs import user_cache_path

    digest = hashlib.sha256(f"{RECIPE}/{model.model_dump_json()}".encode()).hexdigest()[:12]
    folder = cache or user_cache_path("flymono") / "weights"
    path = folder / f"{model.prefix}-layer{layer}-seed{seed}-{digest}.safetensors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            return path if _usable(path, model, layer) else make_seeded_file(path, model, layer, seed)
    except OSError as error:
        fix = "make the folder writable, set XDG_CACHE_HOME, or pass --weights"
        raise WeightsError(
            [WeightFinding(str(folder), "", f"cannot be used as cache: {error}", fix)]
        ) from error
