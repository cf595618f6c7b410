"""Findings about specs that only the plan or the compiler can tell.

`specs/` itself imports nothing, so what needs the plan's arithmetic (does every stage of a layer fit the LDS
budget) or a compiler (does LLVM accept what the arch claims) is asked here and placed in the spec's file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..specs.findings import Code, Finding
from ..specs.loader import Specs


def plan_findings(specs: Specs) -> Iterator[Finding]:
    """Why an arch has no plan at all for a model: one finding a reason."""
    from ..runtime.plan.unsupported import Unsupported
    from ..runtime.plan.width import width_report

    for arch in specs.arch.values():
        for model in specs.model.values():
            try:
                width_report(model, arch)
            except Unsupported as error:
                for reason in error.reasons:
                    where = specs.where(f"arch/{arch.name}", *_place(reason.code))
                    what = f"{arch.name} with {model.name}: {reason.text}"
                    yield Code.PLAN_REFUSES.at(where, what=what, hint=reason.fix)


_PLACES: dict[str, tuple[str, ...]] = {
    "lds-too-small": ("workgroup", "lds_bytes"),
    "pass-width-too-wide": ("gemv", "pass_width"),
    "k-block-unfit": ("gemv", "expert_k_block"),
    "rows-limit-too-high": ("rows", "limit"),
    "mfma-missing": ("mfma",),
    "grid-too-small": ("machine", "compute_units"),
    "workgroup-shape": ("workgroup",),
    "tp-not-offered": ("tp",),
}


def _place(code: str) -> tuple[str, ...]:
    """The key of an arch spec that a refusal of the plan is about."""
    return _PLACES.get(str(code), ("name",))


def probe_findings(specs: Specs) -> Iterator[Finding]:
    """Claims that the compiler refuses, and denials that it does not confirm; some seconds an arch."""
    from ..gen.probes import probe

    for arch in specs.arch.values():
        for verdict in probe(arch):
            if verdict.holds:
                continue
            where = specs.where(f"arch/{arch.name}", *verdict.path)
            if verdict.admitted:
                yield Code.PROBE_ADMITS.at(where, claim=verdict.claim, arch=arch.name)
            else:
                reason = verdict.reason
                yield Code.PROBE_REFUSES.at(where, claim=verdict.claim, arch=arch.name, reason=reason)
