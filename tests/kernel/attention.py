"""K2's attention half alone: its template with an empty FFN half, run on a reference case, stage by stage.

One rank of a group runs, or all do; the peer table names one buffer a rank, so pushes are seen either way.
Stages are compared from the kernel's own hand-offs with the reference in the promised order, which the
emulator's exact MFMA reproduces bit for bit.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import small
import torch

from flymono.emulator.codeobject import CodeObject
from flymono.emulator.device import Emulator, Job, LaunchResult
from flymono.gen.build import Settings, build
from flymono.gen.compiler import Compiler
from flymono.gen.render import TEMPLATES
from flymono.gen.store import Artefact, Store
from flymono.gen.unit import Unit
from flymono.gen.units import unit_of
from flymono.reference import attention_back as back
from flymono.reference.k2 import K2, K2Case
from flymono.reference.layer_sizes import LayerSizes
from flymono.reference.layer_weights import BackWeights
from flymono.reference.quant import Blocks
from flymono.runtime.plan import BuildKey, K2Plan, plan_k2
from flymono.runtime.plan.faults import BOUND
from flymono.runtime.run.ffn import order_of
from flymono.runtime.weights.layer_copies import back_copies

STAGES = ("mark", "kt", "split", "combine", "wo_a", "wo_b")
FFN_STAGES = "ffn_stages.j2"
UNWRITTEN = -0x34343435
EPOCH = 3
MODEL = next(iter(small.SPECS.model.values()))


def templates(folder: Path) -> Path:
    """A folder with K2's templates whose FFN half runs no stage."""
    for path in TEMPLATES.glob("*.j2"):
        shutil.copy(path, folder / path.name)
    (folder / FFN_STAGES).write_text('    stage("end")\n    finish(c)\n')
    return folder


def back_unit(key: BuildKey) -> tuple[K2Plan, Unit]:
    """The attention half of a build, with what the plan promises of it."""
    plan, unit = plan_k2(small.SPECS, key), unit_of(small.SPECS, key)
    mfma = {name: n for name, n in (unit.expect.mfma or {}).items() if name in STAGES}
    stages = tuple(s for s in unit.expect.stages if s in STAGES)
    return plan, replace(unit, id=f"{unit.id}-back", expect=replace(unit.expect, mfma=mfma, stages=stages))


def artefact(key: BuildKey, store: Store, compiler: Compiler, folder: Path) -> tuple[K2Plan, Artefact]:
    plan, unit = back_unit(key)
    return plan, build(unit, Settings(store, templates=templates(folder)), compiler)[0]


def random_weights(sizes: LayerSizes, seed: int) -> BackWeights:
    """Every byte but OCP's NaN, codes as the checkpoint has them."""
    generator = torch.Generator().manual_seed(seed)

    def octets(rows: int, columns: int) -> torch.Tensor:
        drawn = torch.randint(0, 256, (rows, columns), generator=generator, dtype=torch.uint8)
        return torch.where((drawn & 0x7F) == 0x7F, 0x31, drawn)

    def codes(rows: int, columns: int) -> torch.Tensor:
        return torch.randint(109, 122, (rows // 32, columns // 32), generator=generator, dtype=torch.uint8)

    woa, wob = (sizes.o_rows, sizes.group_k), (sizes.hidden, sizes.o_rows)
    sink = torch.randn(sizes.heads, generator=generator)
    return BackWeights(octets(*woa), codes(*woa), octets(*wob), codes(*wob), sink)


@dataclass(frozen=True)
class Done:
    """A launch that was made: its buffers after it, by argument name, and the peer buffers by rank."""

    plan: K2Plan
    result: LaunchResult
    given: dict[str, Any]
    peers: list[torch.Tensor]

    def region(self, name: str, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        region, scratch = self.plan.scratch[name], self.given["scratch"]
        assert isinstance(scratch, torch.Tensor)
        return scratch[region.offset : region.end].view(dtype).reshape(*shape)

    def blocks(self, data: str, codes: str, like: Blocks) -> Blocks:
        """MXFP8 rows of the scratch as the reference holds them."""
        octets = self.region(data, torch.uint8, *like.data.shape).view(like.data.dtype)
        return replace(
            like, data=octets, codes=self.region(codes, torch.int32, *like.codes.shape).to(like.codes.dtype)
        )

    def pushed(self, rank: int) -> torch.Tensor:
        """int32 [ranks, rows, hidden / 2, 2]: the pairs of this epoch's half of ``rank``'s buffer."""
        peer = self.plan.peer
        at = peer.half_at(EPOCH) + peer["attn"].offset
        words = self.peers[rank][at : at + peer["attn"].bytes].view(torch.int32)
        return words.reshape(self.plan.key.tp, self.plan.key.rows, -1, 2)


def used_scratch(plan: K2Plan) -> torch.Tensor:
    """Noise under the tags of the epoch before."""
    scratch = torch.zeros(plan.scratch.total, dtype=torch.uint8)
    words, generator = scratch.view(torch.int32), torch.Generator().manual_seed(5)
    words.copy_(torch.randint(-(2**31), 2**31 - 1, words.shape, generator=generator, dtype=torch.int64))
    for region in plan.scratch.regions:
        if region.kind != "data":
            words[region.offset // 4 + 1 : region.end // 4 : 2] = plan.tag.at(EPOCH - 1)
    return scratch


def _arguments(
    device: Emulator, plan: K2Plan, case: K2Case, weights: BackWeights, rank: int, table: list[int]
) -> tuple[dict[str, Any], list[Any]]:
    """(buffers by argument name, launch values) of a rank; ``table``: addresses of the peer buffers."""
    key, sizes = plan.key, LayerSizes.of(MODEL, plan.key.tp)
    epoch = torch.zeros(plan.epoch.words, dtype=torch.int32)
    epoch[plan.epoch.epoch] = EPOCH
    inputs = case.arguments(rank, sizes)
    given = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
    copies = back_copies(weights, plan.strategy.fp8, plan.strategy.weight_layout)
    given |= {name: v.contiguous().clone() for name, v in copies.items()}
    given |= {"scratch": used_scratch(plan), "epoch": epoch, "peers": torch.tensor(table)}
    given |= {"sym": table[rank], "rank": rank}
    given |= {"fault": torch.zeros(plan.fault.words, dtype=torch.int32), "bound": BOUND}
    if key.index:
        unwritten = {name: torch.full_like(getattr(case, name), UNWRITTEN) for name in ("kt", "klen")}
        given |= unwritten
    values = []
    for a in plan.abi.arguments:
        absent = 0 if a.type != "ptr" or a.name == "tl" else torch.zeros(4, dtype=torch.int32)
        value = given.setdefault(a.name, absent)
        name = a.name if rank == 0 else f"{a.name} of rank {rank}"
        is_buffer = isinstance(value, torch.Tensor)
        values.append(device.register(name, value, writable=a.written) if is_buffer else value)
    return given, values


def launch(
    plan: K2Plan, made: Artefact, case: K2Case, weights: BackWeights, grid: int = 0, **options: Any
) -> Done:
    """Rank 0's launch on a fresh emulator."""
    device = Emulator(plan.key.arch, **options)
    peers = [torch.zeros(plan.peer.total, dtype=torch.uint8) for _ in range(plan.key.tp)]
    table = [device.register(f"peer{r}", b) for r, b in enumerate(peers)]
    given, values = _arguments(device, plan, case, weights, 0, table)
    result = device.launch(CodeObject(made.hsaco), made.kernel, grid or plan.grid, values)
    return Done(plan, result, given, peers)


def launch_all(
    plan: K2Plan, made: Artefact, case: K2Case, weights: Sequence[BackWeights], **options: Any
) -> list[Done]:
    """All ranks side by side, with their own queries and weights, on shared peer buffers."""
    device = Emulator(plan.key.arch, **options)
    peers = [torch.zeros(plan.peer.total, dtype=torch.uint8) for _ in weights]
    table = [device.register(f"peer{r}", b) for r, b in enumerate(peers)]
    ready = [_arguments(device, plan, case, w, rank, table) for rank, w in enumerate(weights)]
    code = CodeObject(made.hsaco)
    results = device.launch_ranks([[Job(code, made.kernel, plan.grid, values)] for _, values in ready])
    return [Done(plan, one[0], given, peers) for one, (given, _) in zip(results, ready, strict=True)]


class Judge:
    """The reference beside a launch: each stage from the kernel's own inputs of that stage."""

    def __init__(self, done: Done, case: K2Case, weights: BackWeights, rank: int) -> None:
        self.done, self.case, self.rank, plan = done, case, rank, done.plan
        self.sizes = LayerSizes.of(MODEL, plan.key.tp)
        self.order = order_of(plan)
        self.k2 = K2(case, [weights] * plan.key.tp, [None] * plan.key.tp, self.sizes, self.order)  # type: ignore[list-item]
        self.kt, self.klen = self.k2.keys()
        self.live = back.live_chunks(self.klen[: case.rows], self.order, self.sizes)

    def check(self) -> torch.Tensor:
        """Every stage, and the rank's partial; AssertionError names the stage that differs."""
        self.keys()
        self.split()
        xo = self.combine()
        x8b = self.wo_a(xo)
        part = self.k2.part(self.rank, x8b)
        self.push(part)
        return part

    def keys(self) -> None:
        assert torch.equal(self.done.given["kt"].reshape(self.kt.shape), self.kt), "kt"
        assert torch.equal(self.done.given["klen"], self.klen), "klen"

    def _split(self) -> back.Split:
        s, n, h = self.case.rows, self.order.chunks(self.sizes), self.sizes.heads
        statistics = self.done.region("pstat", torch.float32, s, n, h, 2)
        part = self.done.region("part", torch.bfloat16, s, n, h, self.sizes.head_dim)
        alive = self.live[..., None]
        top, total = (torch.where(alive, statistics[..., k], 0.0) for k in range(2))
        return back.Split(top, total, torch.where(alive[..., None], part, torch.zeros_like(part)))

    def split(self) -> None:
        want, got = self.k2.split(self.rank, self.kt, self.klen), self._split()
        for name in ("top", "total", "part"):
            assert torch.equal(getattr(got, name), getattr(want, name)), f"split {name}"

    def combine(self) -> Blocks:
        o = self.k2.combined(self.rank, self._split(), self.klen)
        return self._same("combine", self.k2.xo(self.k2.rotated_back(o)), "xo", "xos")

    def wo_a(self, xo: Blocks) -> Blocks:
        return self._same("wo_a", self.k2.x8b(self.k2.z(self.rank, xo)), "x8b", "x8bs")

    def _same(self, stage: str, want: Blocks, data: str, codes: str) -> Blocks:
        got = self.done.blocks(data, codes, want)
        assert torch.equal(got.codes, want.codes), f"{stage} codes"
        assert torch.equal(got.data.view(torch.uint8), want.data.view(torch.uint8)), f"{stage} bytes"
        return got

    def push(self, part: torch.Tensor) -> None:
        """Every rank has this rank's partial under this launch's tag."""
        tag = self.done.plan.tag.at(EPOCH)
        for rank in range(len(self.done.peers)):
            pairs = self.done.pushed(rank)[self.rank]
            got = pairs[..., 0].contiguous().view(torch.bfloat16)
            assert torch.equal(got.reshape(part.shape), part), f"partial on rank {rank}"
            assert (pairs[..., 1] == tag).all(), f"tags on rank {rank}"

    def nothing_else_is_pushed(self) -> None:
        """Of a rank that ran alone: other ranks' parts and the other half of every buffer are untouched."""
        for rank, buffer in enumerate(self.done.peers):
            own = self.done.pushed(rank)[self.rank].contiguous().view(torch.uint8)
            assert buffer.count_nonzero() == own.count_nonzero()
