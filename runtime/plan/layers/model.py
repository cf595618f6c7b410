"""`model_plan`: a path for each layer of a model on a server, with every reason.

Invariants
 - A layer that is not whole has a reason; all reasons are there, and not the first alone.
 - The plan depends on what `Host` and `HostLayer`s say and on nothing else (no order, no time, no rank), so
   ranks that say the same have the same `digest`.
 - A consumer of a whole index source is whole. vLLM's attention packs the selected keys once a source and
   drops the pack only where the source itself runs that attention (runtime.md 2.5): beside a whole source
   it would read the pack of an earlier step. So the source of a consumer that cannot be whole runs the
   host's attention too (FFN launch). The other consumers stay whole: kernels read the selection and not the
   pack.
 - Class semantics: `unsupported.Class`. STOP puts every layer on the host's path; whether the server starts
   then is `ModelPlan.starts`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ....specs.schema import ArchSpec, ModelSpec
from ..arith import cdiv
from ..keys import BuildKey
from ..layer import LayerKind, kind_of
from ..support import SpecSet, key_reasons, model_of
from ..unsupported import Class, Code, Reason, ReasonCode, Unsupported
from .builds import Builds, builds_of, width_reason
from .codes import ServeCode, listed, reason
from .host import Host, HostLayer, Path, drafts_of, layer_reasons, server_reasons, unknown_layer


@dataclass(frozen=True)
class LayerPath:
    """The path of a layer: `reasons` are all that keep it from being whole, the server's among them;
    `source` is the index source whose selection it reads; `kind` is None for a layer that the model spec
    has not."""

    layer: int
    path: Path
    reasons: tuple[Reason, ...]
    kind: LayerKind | None
    source: int | None = None

    @property
    def draft(self) -> bool:
        """Whether it is a layer of the draft."""
        return self.kind is not None and self.kind.draft

    def data(self) -> dict[str, object]:
        """For JSON and for the digest: number, path, why it is what it is, reasons by code."""
        what = self.kind.why if self.kind is not None else "unknown"
        reasons = [reason_data(r) for r in self.reasons]
        return {
            "layer": self.layer,
            "path": str(self.path),
            "what": what,
            "source": self.source,
            "reasons": reasons,
        }


@dataclass(frozen=True)
class ModelPlan:
    """A path for every layer, by number. `reasons` are the server's own; `limit` the widest step; `widths`
    and `draft_widths` the rows that the bundle has all builds of (None: every width up to the limit);
    `notes` what costs steps and no layer."""

    host: Host
    strict: bool
    layers: tuple[LayerPath, ...]
    reasons: tuple[Reason, ...]
    limit: int
    limit_why: str
    windows: tuple[int, int]  # of the target's and the draft's builds
    widths: tuple[int, ...] | None
    draft_widths: tuple[int, ...] | None
    notes: tuple[Reason, ...]

    def __getitem__(self, number: int) -> LayerPath:
        """The layer of this number; KeyError if the plan has none."""
        for one in self.layers:
            if one.layer == number:
                return one
        raise KeyError(number)

    @property
    def stops(self) -> tuple[Reason, ...]:
        """Reasons why a strict server does not start."""
        every = (*self.reasons, *(r for one in self.layers for r in one.reasons))
        return tuple(dict.fromkeys(r for r in every if r.code.klass is Class.STOP))

    @property
    def starts(self) -> bool:
        """Whether the server starts: a lenient one always does."""
        return not (self.strict and self.stops)

    def count(self, path: Path) -> int:
        """Layers of that path."""
        return sum(one.path is path for one in self.layers)

    @property
    def digest(self) -> str:
        """What ranks compare: layers with paths and codes, limit, widths, windows. Sizes that only texts
        carry (a rank's own compute units) are no part of it."""
        layers = [(o.layer, str(o.path), sorted({str(r.code) for r in o.reasons})) for o in self.layers]
        rest = (self.host.model, self.host.arch, self.host.tp, self.limit, self.windows)
        said = json.dumps([layers, rest, self.widths, self.draft_widths, self.strict])
        return hashlib.sha256(said.encode()).hexdigest()

    def data(self) -> dict[str, object]:
        """The plan as JSON values."""
        return {
            "model": self.host.model, "arch": self.host.arch, "tp": self.host.tp, "strict": self.strict,
            "starts": self.starts, "limit": self.limit, "limit_why": self.limit_why, "digest": self.digest,
            "counts": {str(path): self.count(path) for path in Path},
            "widths": None if self.widths is None else list(self.widths),
            "draft_widths": None if self.draft_widths is None else list(self.draft_widths),
            "reasons": [reason_data(r) for r in self.reasons],
            "notes": [reason_data(r) for r in self.notes],
            "layers": [one.data() for one in self.layers],
        }  # fmt: skip


def reason_data(one: Reason) -> dict[str, str]:
    """A reason with what its catalogue says of the code."""
    code = one.code
    return {
        "code": str(code),
        "phase": str(code.phase),
        "class": str(code.klass),
        "text": one.text,
        "fix": one.fix,
    }


def model_plan(
    specs: SpecSet,
    host: Host,
    layers: Iterable[HostLayer] | None = None,
    *,
    faults: Iterable[Reason] = (),
    strict: bool = True,
) -> ModelPlan:
    """The plan of a server. Layers that `layers` leaves out are what the model spec says (draft layers only
    where the host drafts), as a host builds them. `faults` are reasons against the whole server that were
    found elsewhere: its bundle, memory, peers, a switch.

    Raises Unsupported for a model without a spec (its layers are unknown), UserError for an unknown
    feature.
    """
    model, arch = model_of(specs, host.model), specs.arch.get(host.arch)
    if model is None:
        raise Unsupported(
            host.model, tuple(key_reasons(specs, BuildKey("k1", host.arch, host.tp, 1, model=host.model)))
        )
    said = {one.number: one for one in (HostLayer(n) for n in _numbers(model, host))}
    said |= {one.number: one for one in (layers or ())}
    found_elsewhere = sorted(faults, key=str)
    if arch is None:
        return _without_arch(specs, host, model, sorted(said), found_elsewhere, strict)
    builds = builds_of(specs, model, arch, host.tp)
    server = _unique([*server_reasons(host, model, arch), *found_elsewhere, *builds.everywhere])
    found = [_own(host, model, arch, builds, said[n], server) for n in sorted(said)]
    planned = _never_mixed(found, said)
    return _finished(host, model, builds, planned, server, strict)


def _numbers(model: ModelSpec, host: Host) -> range:
    top = model.topology
    return range(len(top.compress_ratios) if drafts_of(host, model) else top.layers)


def _without_arch(
    specs: SpecSet, host: Host, model: ModelSpec, numbers: list[int], faults: list[Reason], strict: bool
) -> ModelPlan:
    """Nothing can be planned for a GPU that no spec describes."""
    key = BuildKey("k1", host.arch, host.tp, 1, model=model.prefix)
    unknown = [r for r in key_reasons(specs, key) if r.code is Code.ARCH_UNKNOWN]
    server = _unique([*unknown, *faults])
    kinds = {n: kind_of(model, n) if n < len(model.topology.compress_ratios) else None for n in numbers}
    layers = tuple(LayerPath(n, Path.STOCK, server, kind) for n, kind in kinds.items())
    windows = (model.attention.window, max(model.windows))
    return ModelPlan(host, strict, layers, server, 0, "no arch spec", windows, None, None, ())


def _own(
    host: Host, model: ModelSpec, arch: ArchSpec, builds: Builds, layer: HostLayer, server: tuple[Reason, ...]
) -> LayerPath:
    """A layer by itself: the server's reasons, its own, and those of the builds that it would launch."""
    try:
        kind = kind_of(model, layer.number)
    except Unsupported:
        return LayerPath(layer.number, Path.STOCK, (*server, unknown_layer(model, layer.number)), None)
    found = [*server, *layer_reasons(host, model, arch, kind, layer)]
    found += [r for key in builds.whole(kind.layer) for r in builds.reasons(key)]
    path = path_of(r.code for r in found)
    if path is Path.FFN:  # admitted on its own account
        found += builds.reasons(builds.ffn(kind.draft))
        path = path_of(r.code for r in found)
    return LayerPath(kind.layer, path, _unique(found), kind, index_source(model, kind))


def path_of(codes: Iterable[ReasonCode]) -> Path:
    """The best path that reasons of these codes leave to a layer; reasons of a step leave all."""
    classes = {code.klass for code in codes}
    if classes & {Class.STOP, Class.STOCK}:
        return Path.STOCK
    return Path.FFN if Class.FFN in classes else Path.WHOLE


def index_source(model: ModelSpec, kind: LayerKind) -> int | None:
    """The layer whose selection a layer reads, its own if it selects; None if it reads no compressed
    cache."""
    before = [n for n in model.topology.index_source_layers if n <= kind.layer]
    return before[-1] if kind.ratio and not kind.draft and before else None


def _never_mixed(found: list[LayerPath], said: Mapping[int, HostLayer]) -> tuple[LayerPath, ...]:
    """The layers with sources taken off K1 and K2 where a consumer is not whole.

    A host's object that was made for another path runs the host's own; consumers are settled before their
    sources, and no source is a consumer, so one pass each is enough.
    """
    done = {one.layer: _as_made(one, said[one.layer].made) for one in found if one.source != one.layer}
    for one in found:
        if one.source != one.layer:
            continue
        mixed = [o.layer for o in done.values() if o.source == one.layer and o.path is not Path.WHOLE]
        if one.path is Path.WHOLE and mixed:
            why = reason(ServeCode.CONSUMER_ON_HOST, consumers=listed(mixed))
            one = replace(one, path=Path.FFN, reasons=(*one.reasons, why))
        done[one.layer] = _as_made(one, said[one.layer].made)
    return tuple(done[n] for n in sorted(done))


def _as_made(one: LayerPath, made: Path | None) -> LayerPath:
    if made in (None, one.path) or one.path is Path.STOCK:
        return one
    why = reason(ServeCode.MADE_OTHERWISE, made=made, planned=one.path)
    return replace(one, path=Path.STOCK, reasons=(*one.reasons, why))


def _finished(
    host: Host,
    model: ModelSpec,
    builds: Builds,
    layers: tuple[LayerPath, ...],
    server: tuple[Reason, ...],
    strict: bool,
) -> ModelPlan:
    """The plan with the widths of its bundle and the captured widths that it lacks."""
    named = [(o.layer, o.path, o.draft) for o in layers if o.kind is not None]
    target = builds.widths([one for one in named if not one[2]], host.builds)
    draft = builds.widths([one for one in named if one[2]], host.builds)
    windows = (model.attention.window, max(model.windows))
    plan = ModelPlan(host, strict, layers, server, builds.limit, builds.limit_why, windows, target, draft, ())
    return replace(plan, notes=_gaps(plan, drafts_of(host, model)))


def _gaps(plan: ModelPlan, drafts: int) -> tuple[Reason, ...]:
    """A reason for captured widths that the bundle has no builds of: such steps run the host's path."""
    rows = {s for s in plan.host.capture if 1 <= s <= plan.limit}
    blocks = {cdiv(s, drafts + 1) * drafts for s in rows} if drafts else set()
    found = []
    for wanted, built, draft in ((rows, plan.widths, False), (blocks, plan.draft_widths, True)):
        kernels = any(o.path is not Path.STOCK for o in plan.layers if o.draft is draft)
        missing = sorted(s for s in wanted if s <= plan.limit and built is not None and s not in built)
        if missing and kernels:
            found.append(width_reason(plan.host, missing, built, plan.limit, draft=draft))
    return tuple(found)


def _unique(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Each reason once, as found."""
    return tuple(dict.fromkeys(reasons))
