"""The header of a safetensors file, read without its data.

A file is an 8-byte little-endian length, that many bytes of JSON, and the data. Only what this project needs
is checked, but a fault never hides another: a file that ends early still has its header read.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from .errors import WeightFinding

LARGEST_HEADER = 100_000_000
ITEM_BYTES = {
    "F8_E4M3": 1,
    "F8_E8M0": 1,
    "U8": 1,
    "I8": 1,
    "BF16": 2,
    "F16": 2,
    "F32": 4,
    "I32": 4,
    "I64": 8,
    "F64": 8,
}
NOT_SAFETENSORS = "give a .safetensors file of the published checkpoint, or download this one again"


@dataclass(frozen=True)
class Entry:
    """One tensor of a file: dtype as stored, shape, and byte range counted from the file's start."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """Tensors of one file; `size` is its length in bytes, `findings` what is wrong with the file itself."""

    path: Path
    size: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    findings: tuple[WeightFinding, ...] = ()


def _broken(path: Path, what: str, fix: str = NOT_SAFETENSORS, size: int = 0) -> Header:
    return Header(path, size, findings=(WeightFinding(str(path), "", what, fix),))


def _entry(value: Any, base: int) -> Entry | None:
    """A header value as an Entry, None if it is not one."""
    try:
        begin, end = (int(offset) for offset in value["data_offsets"])
        shape = tuple(int(n) for n in value["shape"])
    except (TypeError, KeyError, ValueError, OverflowError):
        return None
    if begin < 0 or any(n < 0 for n in shape):
        return None
    return Entry(str(value["dtype"]), shape, base + begin, base + end)


def _entries(path: Path, size: int, base: int, text: bytes) -> Header:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):  # the second: brackets in brackets without end
        return _broken(path, "its header is not JSON", size=size)
    if not isinstance(tree, dict):
        return _broken(path, "its header is not a JSON object", size=size)
    entries: dict[str, Entry] = {}
    findings: list[WeightFinding] = []
    for name, value in tree.items():
        if name == "__metadata__":
            continue
        entry = _entry(value, base)
        if entry is None:
            findings.append(WeightFinding(str(path), name, "its header entry is malformed", NOT_SAFETENSORS))
        else:
            entries[name] = entry
    return Header(path, size, entries, tuple(findings))


def read_header(path: Path) -> Header:
    """The header of `path`; faults are findings of the result and not exceptions."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe would be waited for, for ever
            return _broken(path, "it is not a regular file", "save it to a file first")
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            if len(start) < 8:
                return _broken(path, f"it has {size} bytes and cannot be a safetensors file", size=size)
            (length,) = struct.unpack("<Q", start)
            if length > LARGEST_HEADER:
                return _broken(path, f"its first 8 bytes ask for a header of {length} bytes", size=size)
            text = file.read(length)
    except OSError as error:
        return _broken(path, f"it cannot be read: {error.strerror}", "check the path and its permissions")
    if len(text) < length:
        what = f"it is cut short: its header should have {length} bytes and {len(text)} are there"
        return _broken(path, what, "download the file again", size)
    return _entries(path, size, 8 + length, text)


def extent_fault(entry: Entry, size: int) -> tuple[str, str] | None:
    """What is wrong with a tensor's byte range (what, fix), or None."""
    want = prod(entry.shape) * ITEM_BYTES.get(entry.dtype, 0)
    if entry.dtype in ITEM_BYTES and entry.end - entry.begin != want:
        return f"its data has {entry.end - entry.begin} bytes, its shape needs {want}", NOT_SAFETENSORS
    if entry.end > size:
        return (
            f"the file is cut short: data ends at byte {entry.end}, the file at {size}",
            "download the file again",
        )
    return None
