"""All rules of a step, for one launch or for the launches of a layer.

Cheap enough for every step while debugging: a few comparisons of [S, 640] integers, and a look at one record.
On a GPU every rule waits for its values, so a serving process asks once a case, not once a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from ..plan import KernelPlan, LayerPlan
from .caches import caches_of
from .findings import StepError, StepFinding
from .given import Given
from .keys import key_faults
from .numbers import rank_faults, scale_faults, zero_record_faults
from .rows import position_faults, slot_faults, window_faults
from .selection import selection_faults

LOOKED_AT = (
    "pos", "cos_sin", "slot", "swa", "swa_stride", "swa_block", "comp", "comp_stride", "comp_block",
    "swa_idx", "swa_lens", "t2r", "topk", "comp_bt", "bt_stride", "kt", "klen", "qk_scale", "zrec", "rank",
    "sym", "peers",
)  # fmt: skip
"""Arguments that a step decides, and the runner's that must agree with them; not weights."""


Launches = KernelPlan | LayerPlan | Sequence[KernelPlan]
"""One launch, a layer's, or any launches of one step in order that share what `arguments` holds."""


def step_findings(launch: Launches, arguments: Mapping[str, Tensor | int]) -> tuple[StepFinding, ...]:
    """Everything that is wrong with `arguments` (by ABI name) for `launch`; empty if it may be launched.

    Of a layer, what one launch makes for a later one (the key table) is not asked for; of an index layer the
    top-k lists are, so such a layer is checked launch by launch, or once the indexer has run. A cache that a
    launch has no argument for (K1 and the compressed one) is used where `arguments` has it.
    """
    given = Given(plans_of(launch), arguments)
    given.admit(LOOKED_AT)
    caches, found = caches_of(given)
    return (
        *given.findings, *found, *position_faults(given), *slot_faults(given, caches),
        *window_faults(given, caches), *selection_faults(given, caches), *key_faults(given, caches),
        *scale_faults(given), *zero_record_faults(given), *rank_faults(given),
    )  # fmt: skip


def check_step(launch: Launches, arguments: Mapping[str, Tensor | int]) -> None:
    """Raise StepError with every finding of `step_findings`."""
    findings = step_findings(launch, arguments)
    if findings:
        raise StepError(name_of(launch), findings)


def plans_of(launch: Launches) -> tuple[KernelPlan, ...]:
    """The plans of what would be launched, in order."""
    if isinstance(launch, LayerPlan):
        return launch.plans
    return (launch,) if isinstance(launch, KernelPlan) else tuple(launch)


def name_of(launch: Launches) -> str:
    """How an error calls what would have been launched."""
    ids = ", ".join(p.key.id for p in plans_of(launch))
    return f"layer {launch.kind.layer} ({ids})" if isinstance(launch, LayerPlan) else ids
