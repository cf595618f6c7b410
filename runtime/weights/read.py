"""Read one layer's K1 weights from a safetensors file, or from a folder of shards.

Invariants
 - Nothing is read but headers, the folder's index, and the bytes of the tensors (of wq_b the rank's rows).
 - Every fault is found before any data is read: unreadable or cut files, missing tensors, dtypes, shapes.
   A tensor is called missing where every file that could hold it was read.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...reference.sizes import K1Sizes
from ...reference.weights import K1Weights
from ...specs.schema import ModelSpec
from .errors import WeightFinding, WeightsError
from .header import ITEM_BYTES, Header, extent_fault, read_header
from .published import Published, k1_tensors

INDEX = "model.safetensors.index.json"
_AGAIN = "download it again, or remove it: headers are then scanned"
VIEWS = {
    "F8_E4M3": torch.uint8,
    "F8_E8M0": torch.uint8,
    "I8": torch.uint8,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
}


def _index(folder: Path) -> tuple[dict[str, str], list[WeightFinding]]:
    """The folder's tensor -> file map."""
    path = folder / INDEX
    try:
        weight_map = json.loads(path.read_bytes())["weight_map"]
        named = {str(k): str(v) for k, v in weight_map.items()}
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        what = f"it is not an index of safetensors shards ({type(error).__name__}: {error})"
        return {}, [WeightFinding(str(path), "", what, _AGAIN)]
    outside = sorted({f for f in named.values() if Path(f).name != f})
    return named, [
        WeightFinding(str(path), "", f"shard {f!r} is no name of a file beside it", _AGAIN) for f in outside
    ]


def _files(source: Path, names: list[str]) -> tuple[list[Path], list[WeightFinding]]:
    """The files that may hold `names`."""
    if not source.is_dir():
        return [source], []
    if (source / INDEX).exists():
        weight_map, findings = _index(source)
        return [source / f for f in sorted({weight_map[n] for n in names if n in weight_map})], findings
    files = sorted(source.glob("*.safetensors"))
    none = WeightFinding(
        str(source), "", "no .safetensors file and no index in this folder", "give the shards' folder"
    )
    return files, [] if files else [none]


def _where(headers: list[Header], source: Path, tensor: Published) -> Header | WeightFinding:
    """The one file that holds a tensor."""
    holders = [h for h in headers if tensor.name in h.entries]
    if len(holders) == 1:
        return holders[0]
    if not holders:
        layer = "give the shard that holds this layer (layer N is in shard N + 3), or another --layer"
        return WeightFinding(
            str(source), tensor.name, f"missing ({tensor.dtype} {list(tensor.shape)})", layer
        )
    files = ", ".join(h.path.name for h in holders)
    return WeightFinding(
        str(source), tensor.name, f"in more than one file: {files}", "remove all but one of them"
    )


def _faults(header: Header, tensor: Published) -> list[WeightFinding]:
    """What is wrong with a tensor that is there."""
    entry, where = header.entries[tensor.name], str(header.path)
    found = []
    published = "take the file of the published checkpoint (revision with MXFP8 dense weights)"
    if entry.dtype != tensor.dtype:
        found.append(
            WeightFinding(where, tensor.name, f"dtype {entry.dtype}, expected {tensor.dtype}", published)
        )
    if entry.shape != tensor.shape:
        what = f"shape {list(entry.shape)}, expected {list(tensor.shape)}"
        found.append(WeightFinding(where, tensor.name, what, published))
    extent = extent_fault(entry, header.size)
    return found + ([WeightFinding(where, tensor.name, *extent)] if extent else [])


def locate(source: Path, tensors: dict[str, Published], *, some: bool = False) -> dict[str, Header]:
    """Key -> file; WeightsError with everything that is wrong. With `some`, tensors may be absent."""
    if not source.exists():
        raise WeightsError([WeightFinding(str(source), "", "no such file or folder", "check the path")])
    files, findings = _files(source, [t.name for t in tensors.values()])
    if findings:
        raise WeightsError(findings)
    headers = [read_header(path) for path in files]
    findings += [f for header in headers for f in header.findings]
    unread = any(not header.entries and header.findings for header in headers)
    homes: dict[str, Header] = {}
    there = {name for header in headers for name in header.entries}
    for key, tensor in tensors.items():
        if some and tensor.name not in there:
            continue
        home = _where(headers, source, tensor)
        if isinstance(home, WeightFinding):
            lost = unread and not any(tensor.name in header.entries for header in headers)
            findings += [] if lost else [home]  # it may well stand in the file that cannot be read
            continue
        homes[key] = home
        findings += _faults(home, tensor)
    if findings:
        raise WeightsError(findings)
    return homes


def read_rows(header: Header, tensor: Published, first: int = 0, rows: int | None = None) -> Tensor:
    """Rows first .. first + rows of a tensor (all of it by default)."""
    entry = header.entries[tensor.name]
    row = prod(entry.shape[1:]) * ITEM_BYTES[entry.dtype]
    count = entry.shape[0] if rows is None else rows
    try:
        data = np.fromfile(header.path, np.uint8, count * row, offset=entry.begin + first * row)
    except OSError as error:
        what = f"it cannot be read: {error.strerror}"
        raise WeightsError([WeightFinding(str(header.path), tensor.name, what, "check the disk")]) from error
    if data.size != count * row:
        what = f"{data.size} bytes came back instead of {count * row}: the file changed while it was read"
        raise WeightsError([WeightFinding(str(header.path), tensor.name, what, "run again")])
    shape = (count, *entry.shape[1:])
    return torch.from_numpy(data).view(VIEWS[entry.dtype]).reshape(shape)


def check_k1_weights(source: Path, model: ModelSpec, layer: int) -> None:
    """WeightsError with every finding about `layer` in `source`; only headers are read."""
    locate(Path(source), k1_tensors(model, layer))


def read_k1_weights(source: Path, model: ModelSpec, layer: int, tp: int, rank: int = 0) -> K1Weights:
    """K1's weights of `layer` for one rank, in the published encoding.

    `source` is a safetensors file or a folder of shards (with or without their index). Raises WeightsError
    with every finding; ValueError for a layer, TP size or rank that the model does not have.
    """
    sizes, tensors = K1Sizes.of(model, tp), k1_tensors(model, layer)
    if not 0 <= rank < tp:
        raise ValueError(f"rank {rank} of TP{tp}: ranks are 0 .. {tp - 1}")
    homes = locate(Path(source), tensors)
    rows = {"wqb": sizes.q_rows, "wqb_s": sizes.q_rows // sizes.weight_block}
    got = {k: read_rows(homes[k], t, rank * rows.get(k, 0), rows.get(k)) for k, t in tensors.items()}
    return K1Weights(
        hc_fn=got["hc_fn"], hc_scale=got["hc_scale"], hc_base=got["hc_base"], attn_w=got["attn_w"],
        wqkv=torch.cat([got["wq_a"], got["wkv"]]), wqkv_s=torch.cat([got["wq_a_s"], got["wkv_s"]]),
        qn_w=got["qn_w"], kvn_w=got["kvn_w"], wqb=got["wqb"], wqb_s=got["wqb_s"], block=sizes.weight_block,
    )  # fmt: skip
