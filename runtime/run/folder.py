"""A case as a folder: every launch argument and output as safetensors under its ABI name.

`inputs.safetensors` holds the arguments before the launch, `outputs.safetensors` the buffers that
the kernel writes, after it. Scalars and the build id stand in the files' metadata, so that a
failing case can be handed on and run anywhere with `--inputs`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from flymono.runtime.files import save_tensors
from flymono.specs.findings import UserError

WEIGHTS = "weights.safetensors"
"""A layer's weights in a folder of `run layer` or `run ffn`: a shard with the published names."""
_KIND = "flymono.launch"
_AGAIN = "write the folder again with --save"


class FolderError(UserError):
    """A case folder that cannot be read."""


@dataclass(frozen=True)
class Saved:
    """The inputs of a saved launch."""

    build: str
    values: dict[str, torch.Tensor | int]
    facts: dict[str, int]  # what the reference needs beside the arguments: seed, rank, epoch


def save(
    path: Path, name: str, build: str, values: Mapping[str, torch.Tensor | int], facts: Mapping[str, int]
) -> None:
    """Write `path/name.safetensors`, whole or not at all."""
    tensors = {k: v.contiguous() for k, v in values.items() if isinstance(v, torch.Tensor)}
    scalars = {k: v for k, v in values.items() if isinstance(v, int)}
    meta = {"kind": _KIND, "build": build, "scalars": json.dumps(scalars), "facts": json.dumps(dict(facts))}
    save_tensors(tensors, path / f"{name}.safetensors", meta)


def load(path: Path) -> Saved:
    """Read `path/inputs.safetensors`; FolderError says what is wrong with it."""
    file = path / "inputs.safetensors"
    try:
        with safe_open(file, framework="pt") as handle:
            meta = handle.metadata() or {}
            if meta.get("kind") != _KIND:
                raise FolderError(f"{file} was not written by --save (no {_KIND} metadata)")
            values: dict[str, torch.Tensor | int] = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
    except FileNotFoundError:
        fix = "--inputs takes a folder that --save wrote"
        raise FolderError(f"{file} does not exist", fix=fix) from None
    except OSError as error:
        raise FolderError(f"{file} cannot be read: {error.strerror or error}", fix="check the path") from None
    except SafetensorError as error:
        raise FolderError(f"{file} is damaged: {error}", fix=_AGAIN) from error
    scalars, facts = _numbers(meta, "scalars"), _numbers(meta, "facts")
    lost = [n for n, v in (("build", meta.get("build")), ("scalars", scalars), ("facts", facts)) if v is None]
    if scalars is None or facts is None or lost:
        what = f"{file} is damaged: its metadata has no readable {', '.join(lost)}"
        raise FolderError(what, fix=_AGAIN)
    return Saved(meta["build"], {**values, **scalars}, facts)


def check_kind(path: Path, saved: str, wanted: str) -> None:
    """Raise FolderError where a folder was saved by a run of another kind of kernel."""
    if saved != wanted:
        does = {"k1": "run k1` or `flymono run layer", "ffn": "run ffn"}.get(saved, f"run {saved}")
        fix = f"run it with `flymono {does}`"
        raise FolderError(f"{path} was saved for the kernel {saved}, this command runs {wanted}", fix=fix)


def _numbers(meta: Mapping[str, str], name: str) -> dict[str, int] | None:
    """Whole numbers by name out of the metadata; None if they are not that."""
    try:
        found = json.loads(meta[name])
    except (KeyError, ValueError, RecursionError):
        return None
    whole = isinstance(found, dict) and all(type(v) is int for v in found.values())
    return found if whole else None
