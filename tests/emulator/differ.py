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


def _result_format(name: str, arch: str) -> tuple[sf.Format | None, int]:
    """(format, bits between results) of what a float operation writes; (None, 32) for everything else."""
    if not name.startswith("v_") or "_cmp" in name:
        return None, 32
    converted = re.match(r"v_cvt(?:_scalef32)?(?:_sr)?(?:_pk|_pkrtz)?_([a-z0-9]+)_", name)
    kind = converted[1] if converted else next((k for k in ("f64", "f16", "f32") if k in name), "")
    if name.startswith("v_mfma"):
        kind = name.split("_")[2 if "scale" not in name else 3]
    formats = {"f32": (sf.F32, 32), "f64": (sf.F64, 64), "f16": (sf.F16, 16), "bf16": (sf.BF16, 16)}
    if kind in ("fp8", "bf8"):
        return flavour(arch, kind), 8
    return formats.get(kind, (None, 32))


def _one_nan(ins: Ins, arch: str, state: State) -> np.ndarray:
    """The vector registers with every NaN that `ins` may have written replaced by one code (and MFMA zeros
    by +0)."""
    fmt, bits = _result_format(ins.name, arch)
    v = state.v.copy()
    if fmt is None or not ins.dst or ins.dst[0].kind != "v":
        return v
    first, step = ins.dst[0].index, 2 if bits == 64 else 1
    for row in range(first, first + ins.dst[0].count, step):
        for lane in range(64):
            word = int(v[row, lane]) | (int(v[row + 1, lane]) << 32 if bits == 64 else 0)
            for shift in range(0, 32 * step, bits):
                num = sf.decode(fmt, word >> shift & (1 << bits) - 1)
                if num.nan:
                    word = word & ~((1 << bits) - 1 << shift) | sf.nan_code(fmt) << shift
                elif num.zero and ins.name.startswith("v_mfma"):
                    word = 0
            v[row, lane] = word & 0xFFFFFFFF
            if bits == 64:
                v[row + 1, lane] = word >> 32
    return v


def differences(arch: str, ins: Ins, before: State, want: State, got: State) -> list[str]:
    found = []
    for index in np.flatnonzero(want.s != got.s):
        found.append(f"s[{index}]: oracle {want.s[index]:#010x}, core {got.s[index]:#010x}")
    if want.scc != got.scc:
        found.append(f"SCC: oracle {want.scc}, core {got.scc}")
    if (want.v != got.v).any():
        want_v, got_v = _one_nan(ins, arch, want), _one_nan(ins, arch, got)
    else:
        want_v, got_v = want.v, got.v
    for row, lane in zip(*np.nonzero(want_v != got_v), strict=True):
        a, b = int(want_v[row, lane]), int(got_v[row, lane])
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
        try:
            check(arch, ins, state)
        except ValueError as refused:
            # Float compares of the SDWA form are in the ISA and in no compiler's output: refused, never
            # wrong.
            assert ins.sdwa and "_cmp" in ins.name and "SDWA form" in str(refused), refused


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
