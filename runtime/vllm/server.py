"""A process's server: its plan, its layers, its runners, and what was decided in each step.

Life of a server: the first layer's `create` plans for all layers and agrees with the other ranks; further
layers join; the first forward after loading (vLLM's profile run, at the same layer on every rank) makes
runners, so that their memory is measured; steps are decided at their first layer, for all layers of a step.

Invariants
 - A reason of class STOP ends start-up with a ValueError, as vLLM's own check does; FLYMONO_STRICT=0 makes it
   vLLM's path for all layers.
 - Whatever takes the kernels away takes them from all layers on all ranks, and frees copies and runners.
 - There is no way back after a fault of a launch: it is raised, and the engine ends.
"""

from __future__ import annotations

import logging
import os
import weakref
from typing import TYPE_CHECKING, Any

from ...reference.layer_sizes import LayerSizes
from ...specs import Specs, load
from ..bundle import BundleCode, BundleError, BundleFinding
from ..plan.layer import kind_of
from ..plan.layers import (
    Counts,
    Decision,
    Host,
    HostLayer,
    ModelPlan,
    Path,
    ServeCode,
    decide,
    differences,
    model_plan,
    reason,
    startup_lines,
    vote_of,
)
from ..plan.layers.host import layer_reasons
from ..plan.strategy import strategy_of
from ..plan.support import model_of
from ..plan.unsupported import Class, Reason, Unsupported
from ..runner import Doing, LayerWeights, Place, Ranks, RanksError, Runner, RunnerError
from . import log, resources
from .host import host_of, layer_of
from .loading import Copies
from .step import facts_of, forward_context

if TYPE_CHECKING:
    from .layer import MonoLayer
    from .resources import Kernels

STRICT = "FLYMONO_STRICT"
SECONDS = 60


class Refused(ValueError):
    """Why a server does not start: every reason, each with its fix."""


class Server:
    """The one server of a process; `server_of` finds it."""

    def __init__(self, layer: Any, config: Any) -> None:
        self.specs: Specs = load()
        self.resources = resources.current()
        self.ranks: Ranks = self.resources.ranks()
        self.strict = os.environ.get(STRICT, "1") != "0"
        self.config, self.tp = config, _tp()
        self.faults: tuple[Reason, ...] = ()
        self.kernels: Kernels | None = None
        self.host: Host = host_of(layer, config, tp=self.tp)
        self.host = self._with_kernels(self.host)
        self.said: dict[int, HostLayer] = {}
        self.layers: dict[int, MonoLayer] = {}
        self.runners: dict[bool, Runner] = {}
        self.counts = {False: Counts(), True: Counts()}
        self.epoch_steps = 0
        self._decided: dict[bool, tuple[weakref.ref[Any], Decision]] = {}
        self.plan: ModelPlan = self._planned()
        self._agree()
        self._settle()

    # ------------------------------------------------------------------ planning

    def _with_kernels(self, host: Host) -> Host:
        """The host with what its bundle holds; without one, a reason more."""
        try:
            self.kernels = found = self.resources.kernels(self.specs, host.arch, self.tp)
        except BundleError as error:
            self.faults += tuple(_bundle_reason(one, host.arch, self.tp) for one in error.findings)
            return host
        return Host(**(vars(host) | {"builds": found.builds, "bundle_arch": found.arch}))

    def _planned(self) -> ModelPlan:
        return model_plan(self.specs, self.host, self.said.values(), strict=self.strict)

    def _agree(self) -> None:
        """One plan on all ranks, or vLLM's path on all."""
        vote = vote_of(self.plan, self.faults)
        try:
            votes = self.ranks.all_gather(vote, SECONDS)
        except RanksError as error:
            votes = [None if rank in error.absent else vote for rank in range(self.ranks.size)]
        self.faults += differences(votes, SECONDS)

    def _settle(self) -> None:
        """Refuse to start, or go on; each reason of class STOP with its fix."""
        stops = [*self.plan.stops, *(r for r in self.faults if r.code.klass is Class.STOP)]
        if stops and self.strict:
            lines = "".join(f"\n  {r.code}: {r.text} (fix: {r.fix})" for r in dict.fromkeys(stops))
            raise Refused(f"--monokernel cannot run here (FLYMONO_STRICT=0 runs vLLM's path instead):{lines}")
        for one in self.faults:
            self._off(one)

    @property
    def on(self) -> bool:
        """Whether any layer may run on kernels."""
        return not self.faults

    def admit(self, layer: Any) -> MonoLayer | None:
        """The docking object of a layer that is being made; None for a layer that is vLLM's own."""
        from .layer import MonoLayer

        number = int(layer.attn.layer_id)
        self.said[number] = said = layer_of(layer)
        if self._deviates(said):
            self.plan = self._planned()
            self._settle()
        path = self.plan[number].path if self.on else Path.STOCK
        self._log_layer(number)
        if path is Path.STOCK:
            return None
        made = self.layers[number] = MonoLayer(self, layer, path, draft=self.plan[number].draft)
        self.said[number] = layer_of(layer, made=path)
        made.copies.hook()
        return made

    def _deviates(self, said: HostLayer) -> bool:
        """Whether what a layer says speaks against it in another way than the plan expected."""
        model, arch = model_of(self.specs, self.host.model), self.specs.arch.get(self.host.arch)
        if model is None or arch is None:
            return False
        try:
            kind = kind_of(model, said.number)
        except Unsupported:
            return True
        expected = layer_reasons(self.host, model, arch, kind, HostLayer(said.number))
        return layer_reasons(self.host, model, arch, kind, said) != expected

    def _log_layer(self, number: int) -> None:
        for one in (*self.plan[number].reasons, *self.faults):
            log.once(logging.INFO, f"{one.code}: {one.text} (fix: {one.fix})")

    def copies_of(self, layer: Any, *, attention: bool, draft: bool) -> Copies:
        """The (empty) weights of a layer."""
        model, arch = model_of(self.specs, self.host.model), self.specs.arch[self.host.arch]
        assert model is not None
        sizes = LayerSizes.of(model, self.tp, draft=draft)
        return Copies(layer, sizes, strategy_of(arch), attention=attention, where=(arch.name, self.tp))

    # ------------------------------------------------------------------ runners

    def runner(self, draft: bool) -> Runner | None:
        """The target's or the draft's runner; None until `prepare` made it."""
        return self.runners.get(draft)

    def prepare(self, draft: bool) -> None:
        """Make the runner of the target's layers (and of any FFN launches), or of the draft's whole ones.

        Called at the first forward of either, on every rank at the same layer. Raises WeightsError,
        RunnerError.
        """
        if draft in self.runners or not self.on:
            return
        self.plan = self._planned()
        mine = {n: one for n, one in self.layers.items() if self._runs_on(one) is draft}
        for one in mine.values():
            one.weights = self._weights(one)
        if mine:
            mine[max(mine)].last = True
        whole = [n for n, one in mine.items() if one.path is Path.WHOLE]
        ffn = [n for n, one in mine.items() if one.path is Path.FFN]
        widths = self._widths(draft)
        gpu = self.resources.gpu(self.specs)
        assert self.kernels is not None
        try:
            self.runners[draft] = Runner.create(
                gpu, self.specs, Place(self.host.arch, self.tp), self.ranks, self.kernels, draft, widths,
                whole, ffn, seconds=SECONDS,
            )  # fmt: skip
        except RunnerError as error:
            if self.strict and any(r.doing is Doing.LOADING for r in error.reasons):
                raise Refused(str(error)) from error  # a bundle's artefact, by name and command
            first = error.reasons[0] if error.reasons else None
            what, rank = (
                (f"{first.what}: {first.text}", first.rank) if first else (str(error), self.ranks.rank)
            )
            self._off(reason(ServeCode.PEER_MEMORY, rank=rank, what=what))
            return
        self._summary(draft)

    def _runs_on(self, one: MonoLayer) -> bool:
        """True for the draft's runner: whole draft layers; FFN launches are the target's."""
        return one.draft and one.path is Path.WHOLE

    def _weights(self, one: MonoLayer) -> LayerWeights:
        return one.copies.weights()

    def _widths(self, draft: bool) -> tuple[int, ...]:
        """Rows of the steps to come: what is captured, as far as kernels have it."""
        built = self.plan.draft_widths if draft else self.plan.widths
        rows = {s for s in self.host.capture if 1 <= s <= self.plan.limit}
        if draft and self.host.drafts:
            block = self.host.drafts
            rows = {-(-s // (block + 1)) * block for s in rows}
        return tuple(sorted(s for s in rows if s <= self.plan.limit and (built is None or s in built)))

    def _summary(self, draft: bool) -> None:
        runner = self.runners[draft]
        own = sum(one.copies.nbytes for one in self.layers.values() if self._runs_on(one) is draft)
        name = "draft" if draft else "target"
        bundle = self.kernels.id if self.kernels is not None else "none"
        text = (
            f"rank {self.ranks.rank}, {name}: {runner.nbytes >> 20} MiB of buffers, {own >> 20} MiB of weight"
        )
        log.once(logging.INFO, f"{text} copies, bundle {bundle}, plan {self.plan.digest[:12]}")
        if not draft:
            for line in startup_lines(self.plan):
                (log.once if line.warning else log.once_a_node)(
                    logging.WARNING if line.warning else logging.INFO, line.text
                )

    def _off(self, why: Reason) -> None:
        """vLLM's path for every layer from here on; copies and runners are given back."""
        if why not in self.faults:
            self.faults += (why,)
        text = f"no layer runs on the kernels: {why.code}: {why.text} (fix: {why.fix})"
        log.once(logging.WARNING, f"rank {self.ranks.rank}, {text}")
        for runner in getattr(self, "runners", {}).values():
            runner.close()
        self.runners = {}
        for one in getattr(self, "layers", {}).values():
            one.weights = None
            one.copies.release()

    # ------------------------------------------------------------------ steps

    def decision(self, rows: int, *, draft: bool, entry_dims: int | None) -> Decision:
        """The decision of the step that runs, made at its first layer. Refused after a broken reload."""
        context = forward_context()
        known = self._decided.get(draft)
        if known is not None and context is not None and known[0]() is context and known[1].rows == rows:
            return known[1]
        self._refuse_broken()
        attns = [one.attn for one in self.layers.values() if one.draft is draft]
        facts = facts_of(context, rows, attns, draft=draft, entry_dims=entry_dims)
        made = self.counts[draft].add(decide(self.plan, facts))
        if made.line:
            log.once(logging.DEBUG, made.line)
        if context is not None:
            self._decided[draft] = weakref.ref(context), made
        return made

    def _refuse_broken(self) -> None:
        broken = [r for one in self.layers.values() for r in one.copies.broken.values()]
        if broken:
            raise Refused("; ".join(f"{r.code}: {r.text} (fix: {r.fix})" for r in broken[:4]))

    def after_step(self) -> None:
        """Once a step, outside captures, before its tokens are sampled: raise what a launch of an earlier
        step left behind (FaultError), and look after the epochs."""
        for runner in self.runners.values():
            if not runner.gpu.is_capturing():
                runner.health()
                runner.guard()
        self.epoch_steps += 1

    def close(self) -> None:
        """Give everything back."""
        for runner in self.runners.values():
            runner.close()
        self.runners.clear()


_server: Server | None = None


def server_of(layer: Any, config: Any) -> Server:
    """The process's server; a new one where a model is built again."""
    global _server
    if _server is None or int(layer.attn.layer_id) in _server.said:
        _server = Server(layer, config)
    return _server


def running() -> Server | None:
    """The process's server, if a model with kernels was built."""
    return _server


def forget() -> None:
    """Close and drop it (tests)."""
    global _server
    if _server is not None:
        _server.close()
    _server = None


def _bundle_reason(one: BundleFinding, arch: str, tp: int) -> Reason:
    """What a bundle is refused for, in the catalogue's words."""
    said: dict[str, object] = {"arch": arch, "tp": tp}
    if one.code in (BundleCode.STALE_SPEC, BundleCode.STALE_PLAN):
        return reason(ServeCode.BUNDLE_STALE, what=one.message, **said)
    if one.code in (BundleCode.ALTERED, BundleCode.MANIFEST, BundleCode.FORMAT, BundleCode.MISSING):
        return reason(ServeCode.BUNDLE_ALTERED, artefact=one.where, what=one.message, **said)
    return reason(ServeCode.BUNDLE_MISSING, where=one.message, **said)


def _tp() -> int:
    from vllm.distributed import get_tensor_model_parallel_world_size

    return int(get_tensor_model_parallel_world_size())
