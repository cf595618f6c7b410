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
from safetensors.torch import save_file

from flymono.runtime.files import atomic_path
from flymono.specs.findings import UserError

_KIND = "flymono.launch"


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
    with atomic_path(path / f"{name}.safetensors") as temporary:
        save_file(tensors, temporary, metadata=meta)


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
        raise FolderError(f"{file} does not exist; --inputs takes a folder that --save wrote") from None
    except SafetensorError as error:
        raise FolderError(f"{file} is damaged: {error}") from error
    values.update(json.loads(meta["scalars"]))
    return Saved(meta["build"], values, json.loads(meta["facts"]))
