"""The runner of one rank: what a host calls in every step.

Invariants
 - Every rank makes the same launches in the same order; kernels wait for peers, so a rank that launched alone
   would wait for nothing. Whatever can refuse is therefore asked on all ranks before the first launch: a
   runner
   exists on every rank or on none.
 - Nothing is allocated, mapped or loaded inside a graph capture; an attempt names the width.
 - Addresses of everything that a runner owns stay until `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

from flymono import __version__
from flymono.runtime.devices.gpu import Gpu
from flymono.runtime.plan import SpecSet
from flymono.runtime.plan.faults import BOUND, FIRST_BOUND, HEAD_BYTES, fault_words
from flymono.runtime.plan.tags import DRAIN_EPOCH, epoch_words
from flymono.runtime.runner.agree import SECONDS, same, together
from flymono.runtime.runner.bound import Bound
from flymono.runtime.runner.buffers import OF_KIND, Buffers, qk_scale
from flymono.runtime.runner.calls import Call, Held
from flymono.runtime.runner.epochs import EVERY, Guard
from flymono.runtime.runner.errors import Doing, InputError, RunnerError
from flymono.runtime.runner.faults import FaultError, fault_report
from flymono.runtime.runner.inputs import LayerWeights, Seam, Step, weight_faults
from flymono.runtime.runner.modules import Builds, Built, Modules
from flymono.runtime.runner.peers import Peers
from flymono.runtime.runner.ranks import Ranks
from flymono.runtime.runner.sizes import Place, Sizes

Select = Callable[[Tensor, Tensor], object]
"""What an index layer's host does between K1 and K2 with bf16 [S, D] (normed input) and [S, q_rank]: its
step's
selection, into the tensor that `Step.topk` is."""
Key = tuple[str, int, int, bool | None]


class Runner:
    """Buffers, peer memory and launches of the target's layers, or of the draft's (`draft`)."""

    def __init__(self, gpu: Gpu, sizes: Sizes, group: Ranks, builds: Builds, seconds: float) -> None:
        """Numbers only: `create` makes runners."""
        self.gpu, self.sizes, self.group, self.guarding = gpu, sizes, group, Guard()
        self.buffers = Buffers(gpu, sizes.dims, sizes.limit, sizes.grid)
        self.peers = Peers(gpu, group.rank, sizes.peer_bytes)
        self._builds, self._seconds = builds, seconds
        self.bound = FIRST_BOUND
        """Ticks of the 100 MHz clock that a wait may last: long while ranks may still compile, from the first
        capture on the bound of service."""
        self._bound = dict[Key, Bound]()
        self._open = False

    @classmethod
    def create(
        cls, gpu: Gpu, specs: SpecSet, place: Place, group: Ranks, modules: Modules, draft: bool = False,
        widths: Iterable[int] = (), whole: Iterable[int] = (), ffn: Iterable[int] = (), *,
        seconds: float = SECONDS, epoch_limit: int = DRAIN_EPOCH, look_every: int = EVERY,
    ) -> Runner:  # fmt: skip
        """A runner on every rank of `group`, or RunnerError with the same reasons on every rank.

        `widths`: rows of the steps to come, whose scratch is allocated now; another width is made ready, by
        all
        ranks together, when it is first met outside a capture. `whole` and `ffn`: layers whose launches at
        these
        widths are loaded now. `seconds`: how long a rank waits for the others. `epoch_limit`, `look_every`:
        see
        `guard`.
        """
        asked = tuple(widths), tuple(whole), tuple(ffn)
        facts = dict(zip(("widths", "whole layers", "FFN layers"), asked, strict=True))

        def plan() -> tuple[Runner, dict[str, object]]:
            sizes = Sizes.of(specs, place, draft)
            _check_gpu(gpu, sizes, group)
            sizes.check_widths(asked[0])
            runner = cls(gpu, sizes, group, Builds(gpu, specs, modules), seconds)
            runner.guarding = Guard(epoch_limit, look_every)
            own = {
                "flymono": __version__,
                "place": str(place),
                "draft": draft,
                "peer bytes": sizes.peer_bytes,
            }
            own |= {"scratch bytes": [sizes.layout(rows).total for rows in asked[0]]}
            own |= {"arch spec": sizes.arch.model_dump_json(), "model spec": sizes.model.model_dump_json()}
            return runner, own | {"epoch limit": epoch_limit, "look every": look_every, **facts}

        made = list[tuple[Runner, dict[str, object]]]()
        together(group, Doing.PLANNING, lambda: made.append(plan()), seconds)
        (runner, own), *_ = made
        try:
            same(group, Doing.PLANNING, own, seconds)
            runner._make(*asked)
        except BaseException:
            runner.close()
            raise
        return runner

    def _make(self, widths: tuple[int, ...], whole: tuple[int, ...], ffn: tuple[int, ...]) -> None:
        def allocate() -> bytes:
            self.buffers.allocate()
            return self.peers.allocate()

        handles = together(self.group, Doing.ALLOCATING, allocate, self._seconds)
        opening = partial(self.peers.open, handles, self.buffers.named["peers"])
        together(self.group, Doing.OPENING, opening, self._seconds)
        self._open = True
        if widths:
            self.prepare(widths, whole, ffn)

    def prepare(self, widths: Iterable[int], whole: Iterable[int] = (), ffn: Iterable[int] = ()) -> None:
        """Scratch of `widths` and the builds of layers at them, on all ranks together. Raises RunnerError,
        with
        the same reasons on every rank; inside a capture at once, with the widths."""
        self._refuse_closed()
        rows = tuple(widths)
        layers = [("layer", n) for n in whole] + [("ffn", n) for n in ffn]
        named = f"{', '.join(map(str, rows))} rows"
        if self.gpu.is_capturing():
            text = f"scratch and kernels of steps of {named} would be made ready inside a graph capture"
            raise RunnerError(text, fix="run a step of that width eagerly before it is captured")
        self.sizes.check_widths(rows)

        def scratch() -> None:
            for width in rows:
                self.buffers.add_width(width, self.sizes.layout(width))

        def load() -> None:
            for width in rows:
                for kind, layer in layers:
                    self._built(kind, layer, width, None)

        together(self.group, Doing.SCRATCH, scratch, self._seconds, named)
        if layers:
            together(self.group, Doing.LOADING, load, self._seconds, named)

    # ------------------------------------------------------------------ launching

    def layer(
        self, weights: LayerWeights, step: Step, given: Seam, *, fold: bool | None = None,
        select: Select | None = None, outs: Seam | None = None,
    ) -> Seam:  # fmt: skip
        """Launch a whole layer: K1, an index layer's `select` and key list, K2.

        `fold`: whether K1 folds the previous layer's output in; None: as the layer's place in the model says
        (an engram layer folds when it is given no hashes). Returns before the kernels end, with tensors of
        torch's allocator or the caller's `outs`. Raises InputError, RunnerError, or what the GPU raises.
        """
        bound = self._bound_of(("layer", weights.layer, given.residual.shape[0], fold), weights)
        selected = bound.selected
        if selected is not None and select is None:
            raise RunnerError(f"layer {weights.layer} selects between K1 and K2: give `select`")
        values, tensors = bound.read(given, step)
        values["bound"] = self._bound_now()
        made = bound.outputs(outs, values, tensors)
        gpu, (first, *others) = self.gpu, bound.calls
        stream = gpu.current_stream()
        first.launch(gpu, stream, values, tensors)
        if selected is not None and select is not None:
            gpu.in_order(partial(select, *selected))
        for call in others:
            call.launch(gpu, stream, values, tensors)
        return made

    def ffn(self, weights: LayerWeights, given: Seam, *, outs: Seam | None = None) -> Seam:
        """Launch the FFN half alone; `given.x` is this rank's unreduced attention output. As `layer`. Draft
        layers'
        run on the target's runner."""
        bound = self._bound_of(("ffn", weights.layer, given.residual.shape[0], None), weights)
        values, tensors = bound.read(given, None)
        values["bound"] = self._bound_now()
        made = bound.outputs(outs, values, tensors)
        bound.calls[0].launch(self.gpu, self.gpu.current_stream(), values, tensors)
        return made

    def _bound_now(self) -> int:
        if self.bound == FIRST_BOUND and self.gpu.is_capturing():
            self.bound = BOUND
        return self.bound

    def _bound_of(self, key: Key, weights: LayerWeights) -> Bound:
        bound = self._bound.get(key)
        if bound is None or bound.weights is not weights:
            self._refuse_closed()
            bound = self._bound[key] = self._bind(key, weights)
        return bound

    def _bind(self, key: Key, weights: LayerWeights) -> Bound:
        """Load, check weights, pack what no step changes."""
        kind, layer, rows, fold = key
        if rows not in self.buffers.widths:
            self.prepare([rows])
        built = self._built(kind, layer, rows, fold)
        device, faults = self.gpu.torch_device, list[str]()
        for b in built:
            own = weight_faults(weights.of(b.plan.key.kind), b.plan.abi.arguments, device)
            faults += [f"{b.plan.key.id}: {fault}" for fault in own]
        if faults:
            raise InputError(f"weights of layer {layer} are not what the kernels read", faults)
        first, d = built[0].plan.key, self.sizes.dims
        selected = (
            self.buffers.tensor("normed", (rows, d.hidden), torch.bfloat16),
            self.buffers.tensor("qr", (rows, d.q_rank), torch.bfloat16),
        )
        calls = [self._call(b, weights, rows) for b in built]
        first_pre = self.buffers.tensor("first_pre", (rows, d.streams), torch.float32)
        return Bound(weights, calls, d, rows, device, first_pre, selected if first.index else None)

    def _built(self, kind: str, layer: int, rows: int, fold: bool | None) -> list[Built]:
        layout = self.buffers.widths[rows].layout
        return [self._builds.get(k, layout) for k in self.sizes.keys(kind, layer, rows, fold)]

    def _call(self, built: Built, weights: LayerWeights, rows: int) -> Call:
        """A launch with everything that is the runner's or the layer's."""
        kind, arguments = built.plan.key.kind, built.plan.abi.arguments
        held: dict[str, Held] = {a: self.buffers.named[b] for a, b in OF_KIND[kind].items()}
        held |= {"scratch": self.buffers.widths[rows].memory, **weights.of(kind)}
        used = {a.name for a in arguments if a.used}
        held = {n: m for n, m in held.items() if n in used}
        constants = {n: m.data_ptr() if isinstance(m, Tensor) else m.address for n, m in held.items()}
        pushes = "peers" in used
        if pushes and self.peers.own is not None:
            constants |= {"sym": self.peers.own.address, "rank": self.group.rank}
        constants |= {"qk_scale": qk_scale(self.sizes.dims)} if kind == "k2" else {}
        stand_in = self.buffers.named["stand_in"].address
        return Call(built, constants, held, stand_in, self.peers.all if pushes else ())

    # ------------------------------------------------------------------ a server's life

    @property
    def nbytes(self) -> int:
        """Bytes that the runner holds on its GPU."""
        return self.buffers.nbytes + (self.peers.nbytes if self.peers.own is not None else 0)

    def epoch(self) -> int:
        """The epoch that the next launch takes; waits for the launches before."""
        self.gpu.synchronise()
        return int(self.buffers.epoch[0])

    def health(self, *, settled: bool = False) -> None:
        """FaultError if a wait of any rank has given up, as far as this one has heard.

        Reads host memory alone: it neither waits for launches nor needs a GPU that works, and hears of
        another
        rank's fault with the next launch that has peers. `settled` waits for the launches and looks at the
        mark
        that other ranks leave, too. A fault is for good: later launches return at once, and what they should
        have
        written means nothing.
        """
        if not self._open:
            return
        if settled:
            self.gpu.synchronise()
        words = self.buffers.fault
        mark = self._mark().tolist() if settled else [0]
        if mark[0] or words.any():
            read, at = words.tolist(), fault_words().mark
            if mark[0] and not read[at]:
                read[at : at + len(mark)] = mark
            report = fault_report(self.group.rank, read, self._builds.plans)
            if report is not None:
                raise FaultError([report], self.bound)

    def sound(self) -> Tensor:
        """bool [] on the GPU: no launch so far has been stopped. It is made by torch operations on the
        current
        stream, also inside a capture: behind a step's last launch it is what `torch._assert_async` takes. (An
        emulated GPU has to be synchronised first, or asked `in_order`.)"""
        stop = self.buffers.epoch[epoch_words(self.sizes.grid).stop]
        return (stop | self._mark()[0]) == 0

    def _mark(self) -> Tensor:
        """int32 [4]: what the rank whose wait gave up first has left in this rank's peer buffer."""
        assert self.peers.own is not None
        return self.peers.own.tensor[:HEAD_BYTES].view(torch.int32)

    def guard(self) -> bool:
        """Call it once a step, outside captures, on every rank. Every `look_every` steps it reads the epoch;
        from
        `epoch_limit` on all ranks come to rest and start anew from epoch 0, which it says by True. What is
        captured stays valid. Raises RunnerError with the same reasons on every rank."""
        if not self.guarding.due():
            return False
        self._refuse_closed()
        epoch = self.epoch()
        self.health(settled=True)
        if epoch < self.guarding.limit:
            return False
        epochs = together(self.group, Doing.RESTING, self.epoch, self._seconds)
        same(self.group, Doing.RESTING, {"epoch": epochs[self.group.rank]}, self._seconds)

        def start_anew() -> None:
            self.buffers.forget_tags()
            self.peers.forget_tags()
            self.gpu.synchronise()

        together(self.group, Doing.STARTING_ANEW, start_anew, self._seconds)
        return True

    def _refuse_closed(self) -> None:
        if not self._open:
            raise RunnerError("this runner is closed", fix="create another one, on all ranks")

    def close(self) -> None:
        """Give back all memory; may be called again. The caller has made sure that no rank launches any
        more."""
        self._open = False
        self._bound.clear()
        self._builds.clear()
        self.peers.release()
        self.buffers.release()


def _check_gpu(gpu: Gpu, sizes: Sizes, group: Ranks) -> None:
    """RunnerError if the group or the GPU is not what the kernels were planned for."""
    place = sizes.place
    if group.size != place.tp:
        raise RunnerError(f"a group of {group.size} ranks for kernels of TP{place.tp}")
    if gpu.arch != place.arch:
        raise RunnerError(f"kernels for {place.arch} on a GPU that is {gpu.arch}")
    if gpu.compute_units < sizes.grid:
        text = f"{gpu.compute_units} compute units for {sizes.grid} workgroups, which must all be resident"
        raise RunnerError(text, fix="serve on a GPU that is not partitioned")
