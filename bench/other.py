"""Another implementation of K2 or the FFN launch, bound here: our launch arguments, but no bounded waits.

Nothing of it is kept in this project: a code object is a file that the caller names, a compiler a command.
What differs from ours and has to be known is the byte order of the routed experts' codes where an arch reads
copies of its own, and how much room its scratch, peer and epoch buffers take at most.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import ranks
import torch
from torch import Tensor

from flymono.emulator.codeobject import CodeObject

ROOM = ranks.Buffers(scratch=32 << 20, peer=32 << 20, epoch=1 << 10)
CODE_ROUND = 8  # blocks of a row whose codes it holds together in w13_s


def recoded(step: ranks.Step) -> ranks.Recode | None:
    """Our copies of codes -> its order; None where both read what the serving framework holds.

    We keep the 16 codes of a tile's block together. It keeps, for a tile, rounds of eight blocks row by row
    in w13_s, and plain rows in w2_s.
    """
    if step.plan.strategy.weight_layout != "tile_major":
        return None
    selected = sorted(set(step.ids.flatten().tolist()))

    def recode(name: str, weight: Tensor) -> Tensor:
        if name not in ("w13_s", "w2_s"):
            return weight
        out = torch.from_numpy(np.zeros(tuple(weight.shape), np.uint8))
        for expert in selected:
            rows, columns = weight[expert].shape
            tiles = weight[expert].reshape(rows // 16, columns, 16)
            if name == "w13_s":
                made = tiles.reshape(rows // 16, columns // CODE_ROUND, CODE_ROUND, 16).transpose(2, 3)
            else:
                made = tiles.transpose(1, 2)
            out[expert] = made.reshape(rows, columns)
        return out

    return recode


def run(step: ranks.Step, hsaco: bytes) -> ranks.Ran:
    """Launch it on the step's inputs. What it does is its own affair: only faults are findings."""
    kernel = next(iter(CodeObject(hsaco).kernels))
    return ranks.run(step, hsaco, kernel, ROOM, recoded(step), without=("fault", "bound"), check=False)


def named(pattern: str, names: Mapping[str, object]) -> str:
    """`pattern` with {arch}, {kind}, {tp}, {rows}, {ratio}, {out} filled in."""
    return pattern.format(**names)


def cpu_seconds() -> float:
    """Processor time of this process and of all children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def compile_seconds(command: Sequence[str], names: Mapping[str, object]) -> float:
    """Processor time of a compile command, a new process. Raises CalledProcessError if it fails."""
    words = [named(word, names) for word in command]
    start = cpu_seconds()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return cpu_seconds() - start


def code_object(pattern: str, names: Mapping[str, object]) -> bytes | None:
    """The code object at a path pattern, None if there is none."""
    path = Path(named(pattern, names))
    return path.read_bytes() if path.is_file() else None
