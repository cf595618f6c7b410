"""How many rows one GEMV pass holds, and the widest step that follows.

Policy `auto`: the widest width <= the MFMA's N at which every stage of a decoder layer (K1 and K2 and the
FFN half, every TP size of the arch) fits the LDS budget at that width's own row limit. One width serves
all launches of a layer, since a step's rows and its scratch are common to them.

Row limit `auto`: the smallest of four limits, each with its reason (attention.md 1.5, ffn_structure.md 1.7).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...specs.schema import ArchSpec, ModelSpec
from .arith import cdiv
from .dims import TILE_ROWS, Dims, dims_of, shape_reasons
from .ffn.lds import deciding, moe_structs
from .ffn.limits import block_reasons
from .ffn.shape import ROUTER_PARTS, staging_of
from .k1.lds import front_struct
from .k1.stages import grid_reasons, wq_b_span
from .k2.lds import gemv_struct, split_of
from .lds import WAVE, Struct
from .placement import BLOCK, grid_of, residency_reasons
from .seam import seam_struct, slices_of
from .strategy import strategy_of, strategy_reasons
from .unsupported import Code, Reason, Unsupported

BITMAP_ROWS = 64
"""Two bitmap words an expert hold one bit a row."""
PICK_THREADS = 512
"""One thread a pick while the route table is built."""


@dataclass(frozen=True)
class RowLimit:
    """The widest step at one pass width. `by` names the limit that decides, `why` says it in words."""

    rows: int
    by: str
    why: str


@dataclass(frozen=True)
class Demand:
    """LDS bytes of one stage; `slack` is negative where it does not fit."""

    stage: str
    tp: int
    rows: int
    width: int
    bytes: int
    slack: int


@dataclass(frozen=True)
class WidthReport:
    """The pass width of an arch for a model, and what decides it.

    `tightest` is the stage with the least slack at this width; `wider` the stage that keeps the next width
    out, with its missing bytes (None where the width is the MFMA's N or was stated as a number).
    """

    arch: str
    width: int
    auto: bool
    limit: RowLimit
    budget: int
    demands: tuple[Demand, ...]
    tightest: Demand
    wider: Demand | None
    why: str


def row_limit(model: ModelSpec, arch: ArchSpec, width: int) -> RowLimit:
    """The widest step of a layer at `width` rows a pass, over all TP sizes of the arch."""
    grid, picks = grid_of(arch).workgroups, model.moe.experts_per_token
    slices = slices_of(dims_of(model, arch.tp[0]))
    limits = [
        RowLimit(
            (grid - slices) // 2,
            "seam workgroups",
            f"{slices} slices, a norm and a gate a row on {grid} workgroups",
        ),
        RowLimit(BITMAP_ROWS, "route bitmaps", f"{BITMAP_ROWS} bitmap bits an expert"),
        RowLimit(
            PICK_THREADS // picks, "route picks", f"{picks} picks a row, one thread each of {PICK_THREADS}"
        ),
    ]
    for tp in arch.tp:
        units = dims_of(model, tp).intermediate // TILE_ROWS
        limits.append(
            RowLimit(
                grid // units * width,
                "shared units",
                f"TP{tp}: {units} shared-expert units a pass of {width}, one a workgroup of {grid}",
            )
        )
    return min(limits, key=lambda one: one.rows)


def demands_of(model: ModelSpec, arch: ArchSpec, width: int, rows: int) -> tuple[Demand, ...]:
    """LDS bytes of every stage of a layer at `rows` rows, for each TP size, in launch order."""
    how, budget = strategy_of(arch), arch.workgroup.lds_bytes
    grid = grid_of(arch).workgroups
    found = []
    for tp in arch.tp:
        d, held = dims_of(model, tp), min(rows, width)
        mixtures = (d, dims_of(model, tp, draft=True))  # a draft layer runs at the same width
        moe = max(
            (moe_structs(m, rows, width, None, *staging_of(m, arch, how, rows, width)) for m in mixtures),
            key=_moe_bytes,
        )
        sizes = (
            ("K1 seam", seam_struct(d, rows).bytes),
            ("K1 front", front_struct(d, held, wq_b_per_workgroup(d, wq_b_span(grid))).bytes),
            ("K2 split", split_of(d, rows, grid, budget).bytes),
            ("K2 gemv", gemv_struct(d, held).bytes),
            ("FFN seam", seam_struct(d, rows, k2=True).bytes),
            (f"FFN moe ({deciding(moe)})", moe[0].bytes),
        )
        found += [Demand(stage, tp, rows, width, size, budget - size) for stage, size in sizes]
    return tuple(found)


def _moe_bytes(structs: tuple[Struct, ...]) -> int:
    return structs[0].bytes


def wq_b_per_workgroup(d: Dims, span: int) -> int:
    """wq_b tasks that the fullest of `span` workgroups runs."""
    return cdiv(cdiv(d.q_rows, TILE_ROWS), span)


def layer_reasons(model: ModelSpec, arch: ArchSpec) -> list[Reason]:
    """Why no layer of `model` can be planned for `arch`, whatever the rows."""
    reasons = strategy_reasons(arch) + _workgroup_reasons(arch)
    for tp in arch.tp:
        reasons += shape_reasons(model, tp)
    if not reasons:
        reasons += residency_reasons(arch)
        reasons += grid_reasons(dims_of(model, arch.tp[0]), grid_of(arch))
        reasons += _unit_reasons(model, arch) + block_reasons(model, arch)
    return list(dict.fromkeys(reasons))


def _workgroup_reasons(arch: ArchSpec) -> list[Reason]:
    group, found = arch.workgroup, []
    if group.wave_size != WAVE:
        what = f"waves have {group.wave_size} lanes, the kernels are written for {WAVE}"
        found.append(Reason(Code.WORKGROUP_SHAPE, what, f"state wave_size {WAVE} if the GPU has it"))
    if group.max_threads < BLOCK:
        what = f"a workgroup has at most {group.max_threads} threads, the kernels need {BLOCK}"
        found.append(Reason(Code.WORKGROUP_SHAPE, what, f"state at least {BLOCK} if the GPU has them"))
    return found


def _unit_reasons(model: ModelSpec, arch: ArchSpec) -> list[Reason]:
    """Stages of K2 and the FFN half that hold at most one task, or at most two, a workgroup."""
    grid, reasons = grid_of(arch).workgroups, []
    for tp in arch.tp:
        d = dims_of(model, tp)
        needs = (
            ("shared-expert units of one pass", d.intermediate // TILE_ROWS, 1),
            ("wo_a tasks", d.o_rows // (2 * TILE_ROWS), 1),
            ("router tasks", max(model.moe.experts, model.draft.experts) // TILE_ROWS * ROUTER_PARTS, 1),
            ("wo_b and down tasks", d.hidden // TILE_ROWS, 2),
        )
        reasons += [
            Reason(
                Code.GRID_TOO_SMALL,
                f"TP{tp}: {n} {what} exceed {grid} workgroups, {most} each",
                f"drop {tp} from the arch spec's tp list",
            )
            for what, n, most in needs
            if n > most * grid
        ]
    return reasons


def width_report(model: ModelSpec, arch: ArchSpec) -> WidthReport:
    """The pass width and row limit of `arch`; Unsupported with every reason if nothing fits."""
    reasons = layer_reasons(model, arch)
    if reasons:
        raise Unsupported(f"{arch.name} with {model.name}", tuple(reasons))
    if arch.gemv.pass_width == "auto":
        report = _widest(model, arch)
    else:
        report = _stated(model, arch, arch.gemv.pass_width)
    return _with_stated_limit(report, arch)


def _widest(model: ModelSpec, arch: ArchSpec) -> WidthReport:
    n = strategy_of(arch).gemv_mfma.n
    wider: Demand | None = None
    for width in range(n, 0, -1):
        limit = _limit_at(model, arch, width)
        demands = demands_of(model, arch, width, limit.rows)
        short = [d for d in demands if d.slack < 0]
        if not short:
            why = (
                f"the MFMA has {n} columns"
                if wider is None
                else (
                    f"at {wider.width} rows a pass {wider.stage} of TP{wider.tp} needs {wider.bytes} B for "
                    f"{wider.rows} rows, {-wider.slack} too many"
                )
            )
            return _report(arch, width, True, limit, demands, wider, why)
        wider = min(short, key=lambda d: d.slack)
    raise _nothing_fits(model, arch)


def _stated(model: ModelSpec, arch: ArchSpec, width: int) -> WidthReport:
    limit, n = _limit_at(model, arch, min(width, _mfma_n(arch))), _mfma_n(arch)
    demands = demands_of(model, arch, width, limit.rows)
    reasons = [
        Reason(Code.PASS_WIDTH_TOO_WIDE, _short_text(d), "state a narrower pass_width, or auto")
        for d in demands
        if d.slack < 0
    ]
    if width > n:
        reasons.insert(
            0,
            Reason(
                Code.PASS_WIDTH_TOO_WIDE,
                f"pass_width {width} exceeds the {n} columns of the MFMA",
                f"state at most {n}, or auto",
            ),
        )
    if reasons:
        raise Unsupported(f"{arch.name} with {model.name}", tuple(reasons))
    return _report(arch, width, False, limit, demands, None, "stated by the arch spec")


def _limit_at(model: ModelSpec, arch: ArchSpec, width: int) -> RowLimit:
    """The computed row limit, or the spec's if that is lower."""
    limit, stated = row_limit(model, arch, width), arch.rows.limit
    if stated == "auto" or stated >= limit.rows:
        return limit
    return RowLimit(stated, "arch spec", arch.rows.reason)


def _with_stated_limit(report: WidthReport, arch: ArchSpec) -> WidthReport:
    stated = arch.rows.limit
    if stated == "auto" or stated <= report.limit.rows:
        return report
    raise Unsupported(
        arch.name,
        (
            Reason(
                Code.ROWS_LIMIT_TOO_HIGH,
                f"the spec states {stated} rows, but {report.limit.by} admit {report.limit.rows}: "
                f"{report.limit.why}",
                f"state at most {report.limit.rows}, or auto",
            ),
        ),
    )


def _report(
    arch: ArchSpec,
    width: int,
    auto: bool,
    limit: RowLimit,
    demands: tuple[Demand, ...],
    wider: Demand | None,
    why: str,
) -> WidthReport:
    return WidthReport(
        arch=arch.name,
        width=width,
        auto=auto,
        limit=limit,
        budget=arch.workgroup.lds_bytes,
        demands=demands,
        tightest=min(demands, key=lambda d: d.slack),
        wider=wider,
        why=why,
    )


def _nothing_fits(model: ModelSpec, arch: ArchSpec) -> Unsupported:
    """Blame the stages that fail for one request's rows; failing those, the ones that fail one row a pass."""
    rows = 1 + model.draft.block_size
    short = [d for d in demands_of(model, arch, 1, rows) if d.slack < 0]
    short = short or [d for d in demands_of(model, arch, 1, row_limit(model, arch, 1).rows) if d.slack < 0]
    reasons = tuple(
        Reason(
            Code.LDS_TOO_SMALL,
            _short_text(d),
            "raise workgroup.lds_bytes in the arch spec to what the GPU has; no pass width helps",
        )
        for d in short
    )
    return Unsupported(f"{arch.name} with {model.name}", reasons)


def _short_text(d: Demand) -> str:
    return (
        f"{d.stage} of TP{d.tp} needs {d.bytes} bytes of LDS at {d.rows} rows, {d.width} a pass; "
        f"the budget is {d.bytes + d.slack}, {-d.slack} bytes short"
    )


def _mfma_n(arch: ArchSpec) -> int:
    return strategy_of(arch).gemv_mfma.n
