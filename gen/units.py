"""From specs and a build key to a unit: the only place where gen reads a plan.

The template of a kernel kind is `<kind>.py.j2`; it sees `plan` (all numbers), `key` (what was asked for),
`model` (its spec: constants of formulas) and `symbol` (the kernel's name in the code object).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..runtime.plan import BuildKey, KernelPlan, plan_of, shipped, to_data
from ..specs.loader import Specs
from .unit import Expect, Unit

__all__ = ["abi_of", "cost_table", "mfma_of", "shipped", "unit_of"]


def unit_of(specs: Specs, key: BuildKey) -> Unit:
    """The unit of `key`. Raises `Unsupported` with every reason if it has no plan."""
    plan = plan_of(specs, key)
    arch = specs.arch[key.arch]
    model = next(m for m in specs.model.values() if m.prefix == key.model)
    names = (f"arch/{arch.name}", f"model/{model.name}")
    expect = Expect(
        lds_bytes=plan.lds.total,
        lds_limit=arch.workgroup.lds_bytes,
        kernarg_bytes=plan.abi.kernarg_bytes,
        block=plan.block,
        mfma=mfma_of(plan),
        mfma_open=tuple(m.stage for m in plan.cost.mfma if not m.exact),
        stages=tuple(s.name for s in plan.stages if s.tasks),
        errata=arch.errata,
        max_vgprs=arch.registers.vgprs_per_simd_lane // (plan.waves // arch.machine.simds_per_cu),
    )
    return Unit(
        id=key.id,
        target=arch.name,
        template=f"{key.kind}.py.j2",
        context={"plan": plan, "key": key, "symbol": key.symbol, "model": model},
        specs=tuple((name, specs.digest(name)[:12]) for name in names),
        costs=tuple(cost_table(plan)),
        command=f"flymono gen --build {key.id}",
        reasons=f"flymono plan show {key.id}",
        expect=expect,
        abi=abi_of(plan),
    )


def mfma_of(plan: KernelPlan) -> dict[str, int]:
    """Matrix instructions that the source of each stage holds, loops over passes unrolled or not."""
    counts: Counter[str] = Counter()
    for m in plan.cost.mfma:
        counts[m.stage] += m.static * m.passes
    return dict(counts)


def abi_of(plan: KernelPlan) -> tuple[dict[str, object], ...]:
    """Every launch argument as JSON values, in order."""
    arguments = to_data(plan.abi.arguments)
    assert isinstance(arguments, list)
    return tuple(dict(a) for a in arguments if isinstance(a, dict))


def cost_table(plan: KernelPlan) -> Iterator[tuple[str, str]]:
    """Rows of a generated module's cost table."""
    cost, bound = plan.cost, plan.cost.bound
    yield "grid", f"{plan.grid} workgroups of {plan.block} threads"
    yield "GEMV passes", f"{plan.passes.count} of at most {plan.passes.width} rows"
    yield "LDS", f"{plan.lds.total:,} of {plan.lds.budget:,} bytes"
    yield "scratch", f"{plan.scratch.total:,} bytes"
    for count in cost.mfma:
        yield f"MFMA {count.stage}", f"{count.executed:,} x {count.instruction}"
    yield "HBM", f"{bound.hbm_bytes:,} bytes"
    yield "lower bound", f"{bound.ns:,} ns by {bound.by}"
