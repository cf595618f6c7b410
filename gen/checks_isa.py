"""Checks on the code object and its ISA text. Every finding at once, each with the line that caused it."""

from __future__ import annotations

import re
from collections.abc import Callable

from .findings import Finding
from .isa import Instruction, Resources
from .unit import Expect

# Errata of arch specs that show in the text: code -> (mnemonic, operand pattern, what it does).
_ERRATA = {
    "pk_fma_f32_op_sel_010": (
        "v_pk_fma_f32",
        re.compile(r"op_sel:\[0,1,0\]"),
        "is reported to compute wrong results on this arch",
    ),
}


def check(
    figures: Resources, code: list[Instruction], expect: Expect, where: Callable[[Instruction], str]
) -> list[Finding]:
    """Compare one kernel with what the plan promises. `where` names the source of an instruction."""
    name = figures.name
    return [
        *_memory(figures, expect),
        *_budget(figures, expect),
        *_scratch(code, figures, where),
        *_errata(code, expect, where),
        *_stages(name, code, expect),
    ]


def _memory(figures: Resources, expect: Expect) -> list[Finding]:
    name, out = figures.name, []
    if figures.vgpr_spills or figures.sgpr_spills:
        out.append(
            Finding(
                "ISA_SPILL",
                name,
                f"{figures.vgpr_spills} VGPR and {figures.sgpr_spills} SGPR spills",
                "shorten live ranges: run-time loops with unroll=1, or sched_barrier between groups",
            )
        )
    if figures.scratch_bytes:
        out.append(
            Finding(
                "ISA_SCRATCH",
                name,
                f"{figures.scratch_bytes} bytes of scratch a lane",
                "keep indexed values in registers (static indices only) or in LDS",
            )
        )
    if figures.dynamic_stack:
        out.append(Finding("ISA_STACK", name, "the kernel uses a dynamic stack", "inline every function"))
    if expect.lds_bytes is not None and figures.lds_bytes != expect.lds_bytes:
        out.append(
            Finding(
                "ISA_LDS",
                name,
                f"{figures.lds_bytes} bytes of LDS, planned {expect.lds_bytes}",
                "the LDS map of the plan and the struct of the template must agree",
            )
        )
    if expect.lds_limit is not None and figures.lds_bytes > expect.lds_limit:
        out.append(
            Finding(
                "ISA_LDS_LIMIT",
                name,
                f"{figures.lds_bytes} bytes of LDS, a workgroup may have {expect.lds_limit}",
                "narrow the token pass, or correct workgroup.lds_bytes of the arch spec",
            )
        )
    return out


def _budget(figures: Resources, expect: Expect) -> list[Finding]:
    name, out = figures.name, []
    if expect.kernarg_bytes is not None and figures.kernarg_bytes != expect.kernarg_bytes:
        out.append(
            Finding(
                "ISA_KERNARG",
                name,
                f"kernarg segment of {figures.kernarg_bytes} bytes, the ABI has {expect.kernarg_bytes}",
                "arguments of the template and of the ABI table must agree, and none may be hidden",
            )
        )
    if expect.block is not None and figures.max_threads != expect.block:
        out.append(
            Finding(
                "ISA_BLOCK",
                name,
                f"compiled for {figures.max_threads} threads, planned {expect.block}",
                "set known_block_size to the plan's block",
            )
        )
    if expect.max_vgprs is not None and figures.vgprs > expect.max_vgprs:
        out.append(
            Finding(
                "ISA_VGPRS",
                name,
                f"{figures.vgprs} VGPRs, {expect.max_vgprs} keep every workgroup resident",
                "shorten live ranges",
            )
        )
    return out


def _scratch(
    code: list[Instruction], figures: Resources, where: Callable[[Instruction], str]
) -> list[Finding]:
    """Scratch instructions; a kernel without scratch memory must not hold any."""
    hits = [i for i in code if i.mnemonic.startswith("scratch_")]
    return [
        Finding("ISA_SCRATCH", where(i), f"scratch access: {i}", "keep the value in registers or LDS")
        for i in hits[:5]
    ]


def _errata(code: list[Instruction], expect: Expect, where: Callable[[Instruction], str]) -> list[Finding]:
    out = []
    for erratum in expect.errata:
        if erratum not in _ERRATA:
            out.append(
                Finding(
                    "ISA_ERRATUM",
                    "",
                    f"no check for erratum {erratum!r} of the arch spec",
                    "add it to gen/checks_isa.py",
                )
            )
            continue
        mnemonic, pattern, text = _ERRATA[erratum]
        out += [
            Finding(
                "ISA_ERRATUM", where(i), f"{i} {text}", "avoid the lane broadcast in contracted vector code"
            )
            for i in code
            if i.mnemonic == mnemonic and pattern.search(i.operands)
        ]
    return out


def _stages(name: str, code: list[Instruction], expect: Expect) -> list[Finding]:
    """Every planned stage has code behind its marker, and no marker is unknown."""
    seen = {i.stage for i in code} - {""}
    if not expect.stages or not seen:
        return []
    missing, unknown = (
        [s for s in expect.stages if s not in seen],
        sorted(seen - set(expect.stages) - {"end"}),
    )
    return [
        Finding(
            "ISA_STAGE", name, f"stage {s} of the plan has no instruction", "mark the stage in the template"
        )
        for s in missing
    ] + [
        Finding("ISA_STAGE", name, f"stage marker {s} is not in the plan", "use the plan's stage names")
        for s in unknown
    ]
