"""The FFN launch on all ranks of a group: what a case and the weights give to each, how results are judged.

What is true of both halves' launches is here (orders of sums, a step's routes, bits that ranks share); K2
adds its attention half in k2.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from flymono.reference.compare import Launch as Judged
from flymono.reference.compare_ffn import FfnComparison
from flymono.reference.ffn import FfnCase
from flymono.reference.layer_sizes import LayerOrder, LayerSizes
from flymono.reference.layer_weights import FfnWeights, WholeLayer
from flymono.reference.router import Routing
from flymono.reference.verdict import Verdict
from flymono.runtime.plan import FfnPlan, K2Plan, KernelPlan
from flymono.runtime.run.group import Launched
from flymono.runtime.weights import WeightsError, ffn_copies_of_ranks
from flymono.runtime.weights.fp4_copies import NAMES as ROUTED
from flymono.specs import Specs


def order_of(plan: K2Plan | FfnPlan) -> LayerOrder:
    """How the build splits its sums and lays out its regions."""
    f = plan.ffn
    return LayerOrder.of(
        plan.strategy.gemv, chunk=plan.attention.split.chunk if isinstance(plan, K2Plan) else 64,
        pick_tile=f.pick_width, up_groups=f.groups_per_task, up_slices=f.k_slices, mids_row=f.mids_row,
    )  # fmt: skip


def weights_given(
    plan: K2Plan | FfnPlan, ranks: Sequence[FfnWeights], selected: Iterable[int], sizes: LayerSizes
) -> tuple[dict[str, Tensor], ...]:
    """The FFN half's weights as each rank's device reads them, the selected experts in place.

    Tensors are the rank's own (ranks share no memory but peer buffers). Raises WeightsError.
    """
    how = plan.strategy
    copies = ffn_copies_of_ranks(ranks, selected, sizes, how.fp8, how.weight_layout)
    return tuple({n: v if n in ROUTED else v.clone() for n, v in own.items()} for own in copies)


def selected(routing: Routing, picks: int, weights: WholeLayer) -> tuple[int, ...]:
    """Experts to put in place, of rows that name one more than their `picks`: the step's, and of the next
    best those that the weights have (the step's are refused later if they have them not)."""
    own = set(routing.ids[:, :picks].flatten().tolist())
    spare = set(routing.ids[:, picks:].flatten().tolist()) - own
    return tuple(sorted(own | {e for e in spare if _there(weights, e)}))


def _there(weights: WholeLayer, expert: int) -> bool:
    try:
        weights.expert(expert)
    except WeightsError:
        return False
    return True


def arguments_of(
    plan: FfnPlan, case: FfnCase, ranks: Sequence[FfnWeights], selected: Iterable[int], sizes: LayerSizes
) -> tuple[dict[str, Tensor | int], ...]:
    """Every argument of each rank's FFN launch that a case and a layer's weights give."""
    weights = weights_given(plan, ranks, selected, sizes)
    inputs = [{name: v.clone() for name, v in case.arguments(r).items()} for r in range(len(ranks))]
    return tuple({**own, **copies} for own, copies in zip(inputs, weights, strict=True))


def judged(plan: KernelPlan, done: Sequence[Launched]) -> list[Judged]:
    """What a launch left behind on every rank, as the comparisons take it."""
    return [Judged(d.outputs(plan), d.regions(plan), d.tag) for d in done]


def judge(
    plan: FfnPlan, case: FfnCase, weights: Sequence[FfnWeights], sizes: LayerSizes, specs: Specs,
    done: Sequence[Launched],
) -> tuple[Verdict, ...]:  # fmt: skip
    """Verdicts of every stage on all ranks, then end to end, then that all ranks ended alike."""
    compare = FfnComparison(case, weights, sizes, order_of(plan), specs.numerics, judged(plan, done))
    return (*compare.stages(), *compare.end_to_end(), *same_bits(plan, done))


def same_bits(plan: KernelPlan, done: Sequence[Launched], apart: Iterable[str] = ()) -> list[Verdict]:
    """One verdict an output that must be the same on all ranks (`apart`: a rank's own)."""
    first, own = done[0].outputs(plan), set(apart)
    found = []
    for name in (n for n in first if n not in own):
        want = _bytes(first[name])
        off = [int((_bytes(d.outputs(plan)[name]) != want).sum()) for d in done]
        worst = max(off)
        where = f"rank {off.index(worst)} differs from rank 0" if worst else ""
        split = (("equal", len(want) * len(done) - sum(off)), ("different", sum(off)))
        shape = (len(done), *first[name].shape)
        found.append(Verdict("ranks", name, shape, worst, 0.0, not worst, "bytes", where, split))
    return found


def _bytes(value: Tensor) -> Tensor:
    return value.contiguous().reshape(-1).view(torch.uint8)
