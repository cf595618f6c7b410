"""A launch whose arguments are packed: constants once, a step's pointers written over them.

Invariant: a kernarg segment is laid out by the plan's ABI table alone. An argument that is neither constant
nor
a step's is an error when it is packed, never a zero that a kernel follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from flymono.runtime.devices.base import Touched
from flymono.runtime.devices.gpu import Gpu, Memory
from flymono.runtime.plan.abi import Argument
from flymono.runtime.runner.errors import RunnerError
from flymono.runtime.runner.inputs import span
from flymono.runtime.runner.modules import Built

Held = Tensor | Memory
EVERY_STEP = frozenset({"bound"})
"""Arguments of the runner that are written at every launch."""


class Call:
    """One launch of a layer at a width. `constants` are the values of arguments that no step changes, `held`
    the memory that they point to, `peers` every rank's peer buffer if the launch reaches them."""

    def __init__(
        self, built: Built, constants: Mapping[str, int], held: Mapping[str, Held], stand_in: int,
        peers: Sequence[Memory] = (),
    ) -> None:  # fmt: skip
        plan = built.plan
        self.plan, self.peers, self._held = plan, tuple(peers), dict(held)
        self._function, self._grid, self._block = built.function, plan.grid, plan.block
        self._kernarg = bytearray(plan.abi.kernarg_bytes)
        self._words = memoryview(self._kernarg).cast("Q")
        self._halves = memoryview(self._kernarg).cast("i")
        wide, narrow, missing = list[tuple[int, str]](), list[tuple[int, str]](), list[str]()
        for a in plan.abi.arguments:
            if a.name in constants:
                self._put(a, constants[a.name])
            elif not a.used:
                self._put(a, stand_in if a.type == "ptr" and a.name != "tl" else 0)
            elif a.owner == "vllm" or a.name in EVERY_STEP:
                (narrow if a.type == "int32" else wide).append(
                    (a.offset // (4 if a.type == "int32" else 8), a.name)
                )
            else:
                missing.append(f"{a.name} ({a.owner}: {a.doc})")
        if missing:
            text = f"{plan.key.id}: the runner has nothing for " + ", ".join(missing)
            raise RunnerError(text, fix="take kernels and runner of one version of flymono")
        self._wide, self._narrow = tuple(wide), tuple(narrow)

    def _put(self, argument: Argument, value: int) -> None:
        if argument.type == "int32":
            self._halves[argument.offset // 4] = value
        else:
            self._words[argument.offset // 8] = value

    def launch(self, gpu: Gpu, stream: int, values: Mapping[str, int], tensors: Mapping[str, Held]) -> None:
        """Queue it; `values` are the step's arguments, `tensors` what they point to."""
        words, halves = self._words, self._halves
        for at, name in self._wide:
            words[at] = values[name]
        for at, name in self._narrow:
            halves[at] = values[name]
        gpu.launch(
            self._function,
            self._grid,
            self._block,
            self._kernarg,
            stream,
            lambda: self.touched(values, tensors),
        )

    def touched(self, values: Mapping[str, int], tensors: Mapping[str, Held]) -> list[Touched]:
        """What the kernel may touch, by argument; peer buffers are shared with other ranks."""
        found = []
        for a in self.plan.abi.arguments:
            if a.type != "ptr" or not a.used:
                continue
            memory = self._held[a.name] if a.name in self._held else tensors[a.name]
            address = memory.data_ptr() if isinstance(memory, Tensor) else memory.address
            size = a.bytes
            if size is None:
                size = span(memory) if isinstance(memory, Tensor) else memory.nbytes
            regions = self._regions() if a.name == "scratch" else ()
            found.append(Touched(a.name, address, size, a.written, regions=regions, keep=memory))
        found += [
            Touched(f"peer buffer of rank {rank}", m.address, m.nbytes, True, shared=True, keep=m)
            for rank, m in enumerate(self.peers)
        ]
        return found

    def _regions(self) -> tuple[tuple[str, int, int], ...]:
        return tuple((r.name, r.offset, r.bytes) for r in self.plan.scratch.regions)

    def constant(self, name: str) -> Held:
        """The memory of a constant argument."""
        return self._held[name]
