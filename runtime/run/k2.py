"""K2 on all ranks of a group: what K1, a case and the weights give to each, and how results are judged."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from flymono.reference.compare_k2 import K2Comparison
from flymono.reference.k2 import K2, K2Case
from flymono.reference.layer_sizes import LayerSizes
from flymono.reference.layer_weights import BackWeights, FfnWeights
from flymono.reference.router import Routing
from flymono.reference.verdict import Verdict
from flymono.runtime.plan import K2Plan
from flymono.runtime.run.ffn import judged, order_of, same_bits
from flymono.runtime.run.group import Launched
from flymono.runtime.weights import back_copies
from flymono.specs import Specs

HANDED_ON = {
    "q": "q", "swa": "swa", "kt": "kt", "klen": "klen", "res_in": "res_out", "post_in": "post_out",
    "comb_in": "comb_out", "pre_in": "pre_out",
}  # fmt: skip
"""K2's argument -> K1's output that it is (attention sheet 6)."""


def routes(
    plan: K2Plan, case: K2Case, back: Sequence[BackWeights], ffn: Sequence[FfnWeights], sizes: LayerSizes
) -> Routing:
    """The experts that the step selects, in the order that the kernel promises: which ones must be in place
    has to be known before a launch."""
    return K2(case, back, ffn, sizes, order_of(plan)).routes()


def arguments_of(
    plan: K2Plan, case: K2Case, rank: int, back: BackWeights, ffn: dict[str, Tensor], sizes: LayerSizes,
    handed: dict[str, Tensor],
) -> dict[str, Tensor | int]:  # fmt: skip
    """Every argument of a rank's launch that is not the runner's. `ffn` are the FFN half's weights,
    `handed` the rank's own buffers as K1 left them, under K2's names: they are given as they are."""
    how = plan.strategy
    read = {a.name for a in plan.abi.arguments if not a.written}
    inputs = {n: v for n, v in case.arguments(rank, sizes).items() if n in read and n not in handed}
    copies = back_copies(back, how.fp8, how.weight_layout)
    given: dict[str, Tensor | int] = {
        n: v.clone() if isinstance(v, Tensor) else v for n, v in {**inputs, **copies}.items()
    }
    return given | ffn | handed


def judge(
    plan: K2Plan, case: K2Case, back: Sequence[BackWeights], ffn: Sequence[FfnWeights], sizes: LayerSizes,
    specs: Specs, done: Sequence[Launched],
) -> tuple[Verdict, ...]:  # fmt: skip
    """Verdicts of every stage on all ranks, then end to end, then that all ranks ended alike."""
    order, left = order_of(plan), judged(plan, done)
    compare = K2Comparison(case, back, ffn, sizes, order, specs.numerics, left)
    return (*compare.stages(), *compare.end_to_end(), *same_bits(plan, done))
