"""Runs one instruction on the core and on the oracle and says where they differ.

NaNs of float operations compare as a class: which payload a NaN result carries is not specified.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
from asm import EXEC, M0, VCC, Ins, Reg, encode, program
from oracle import machine
from oracle import softfloat as sf
from oracle.convert import flavour
from oracle.state import State

from flymono.emulator.execute import execute

ROWS = 64
_FLOAT32 = re.compile(r"_f32(_|$)|_f32$")


def core(arch: str, code: bytes, state: State, **options: object) -> State:
    """Run bytes on the C++ core, from and to the oracle's State."""
    got = execute(
        arch,
        code,
        vgprs=state.v[:ROWS],
        sgprs=[int(x) for x in state.s[:102]],
        exec=state.exec,
        vcc=state.scalar(VCC),
        scc=state.scc,
        m0=state.scalar(M0),
        lds=state.lds,
        rows=ROWS,
        **options,
    )
    out = state.copy()
    out.v[:ROWS] = got.vgprs
    out.s[:102] = got.sgprs
    for reg, value in ((VCC, got.vcc), (EXEC, got.exec), (M0, got.m0)):
        out.set_scalar(reg, value)
    out.scc, out.lds = int(got.scc), np.asarray(got.lds, np.uint8)
    assert not got.findings, got.findings
    return out


def oracle(arch: str, state: State, *instructions: Ins) -> State:
    out = state.copy()
    for ins in instructions:
        machine.step(out, ins, arch)
    return out


def _nan_class(name: str, arch: str, code: int) -> int:
    """A 32-bit result with every NaN in it replaced by one code, by the type that `name` writes."""
    written = re.match(r"v_cvt(?:_scalef32)?(?:_pk)?_([a-z0-9]+)_", name)
    kind = written[1] if written else "f32"
    if kind == "f32":
        return 0x7FC00000 if sf.decode(sf.F32, code).nan else code
    if kind in ("bf16", "f16"):
        fmt, width = (sf.BF16 if kind == "bf16" else sf.F16), 16
    elif kind in ("fp8", "bf8"):
        fmt, width = flavour(arch, kind), 8
    else:
        return code
    parts = [code >> shift & (1 << width) - 1 for shift in range(0, 32, width)]
    parts = [sf.nan_code(fmt) if sf.decode(fmt, part).nan else part for part in parts]
    return sum(part << width * i for i, part in enumerate(parts))


def differences(arch: str, ins: Ins, before: State, want: State, got: State) -> list[str]:
    found = []
    float_result = (
        ins.name.startswith("v_") and ("f32" in ins.name or "f16" in ins.name) and "_cmp" not in ins.name
    )
    for index in np.flatnonzero(want.s != got.s):
        found.append(f"s[{index}]: oracle {want.s[index]:#010x}, core {got.s[index]:#010x}")
    if want.scc != got.scc:
        found.append(f"SCC: oracle {want.scc}, core {got.scc}")
    for row, lane in zip(*np.nonzero(want.v != got.v), strict=True):
        a, b = int(want.v[row, lane]), int(got.v[row, lane])
        if float_result and _nan_class(ins.name, arch, a) == _nan_class(ins.name, arch, b):
            continue
        sources = [
            f"{before.read(o, int(lane), 'b64' if isinstance(o, Reg) and o.count > 1 else 'b32'):#x}"
            for o in ins.src
            if o is not None and (not isinstance(o, Reg) or o.count < 3)
        ]
        found.append(
            f"v{row} lane {lane}: oracle {a:#010x}, core {b:#010x}, sources {sources}, "
            f"old {int(before.v[row, lane]):#x}"
        )
    for at in np.flatnonzero(want.lds != got.lds):
        found.append(f"LDS[{at}]: oracle {want.lds[at]:#x}, core {got.lds[at]:#x}")
    return found


def check(arch: str, ins: Ins, state: State) -> None:
    """Assert that core and oracle agree on every register, mask and LDS byte behind `ins`."""
    want, got = oracle(arch, state, ins), core(arch, encode(ins), state)
    found = differences(arch, ins, state, want, got)
    assert not found, f"{arch} {ins}\nexec {state.exec:#x} vcc {state.scalar(VCC):#x}\n" + "\n".join(
        found[:6]
    )


def check_all(arch: str, cases: list[tuple[Ins, State]]) -> None:
    for ins, state in cases:
        check(arch, ins, state)


def run(arch: str, state: State, *instructions: Ins) -> State:
    """The core's state behind a short program."""
    return core(arch, program(*instructions), state)


@cache
def gfx950_only(name: str) -> bool:
    """Operations that CDNA4 added."""
    added = (
        "v_bitop3",
        "v_cvt_scalef32",
        "v_cvt_pk_bf16",
        "v_permlane",
        "v_maximum3",
        "v_minimum3",
        "v_prng",
        "v_cvt_f32_bf16",
        "f8f6f4",
        "x16x32_bf16",
        "x16x32_f16",
        "32x32x16_bf16",
        "32x32x16_f16",
        "x16x64_i8",
    )
    return any(part in name for part in added)


@cache
def implemented_names() -> frozenset[str]:
    """Every operation that the core executes on one arch or the other."""
    from flymono.emulator import _core

    return frozenset(_core.implemented_ops())


def implemented(name: str) -> bool:
    """Whether the core lists `name`; what it lists it must do right, what it does not list it must refuse."""
    return name in implemented_names()
