"""Instructions and states for the differential tests: every operand kind, modifier and EXEC shape, from one
seed.

Registers: sources v0..v11, destination v16.. (or v0 where it must overlap), scalars s4.., masks s40... Every
generated state fills all of them with a mix of corner values and random bits of the kind that the operation
reads.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import opcodes as oc
from asm import EXEC, M0, VCC, Dpp, Inline, Ins, Literal, Operand, Sdwa, s, v
from oracle import lanes, salu, valu, valu_float, valu_narrow
from oracle.state import State
from states import EXECS, INLINES, INTS, random_state, rng_of, word


def _wide(kind: str) -> int:
    return 2 if kind in ("b64", "i64", "f64") else 1


def _sources(rng: random.Random, vop: valu.Vop, vector_from: int) -> tuple[Operand, ...]:
    """One operand a source: vector registers, or a scalar / inline constant below `vector_from`."""
    out: list[Operand] = []
    for i, kind in enumerate(vop.src):
        width = _wide(kind)
        choice = rng.randrange(6) if i < vector_from else 0
        if choice < 3:
            out.append(v(2 * rng.randrange(5), width))
        elif choice == 3:
            out.append(s(4 + 2 * rng.randrange(12), width))
        elif choice == 4:
            out.append(VCC if width == 2 else rng.choice((s(106), s(107), s(126), M0)))
        else:
            integers = (
                width == 2 or kind == "b16"
            )  # float constants of other widths are not what compilers emit
            out.append(Inline(rng.choice([x for x in INLINES if isinstance(x, int) or not integers])))
    return tuple(out)


def _destination(rng: random.Random, vop: valu.Vop, name: str) -> Operand:
    if vop.dst == "mask":
        return VCC
    return v(rng.choice((0, 16, 18)), valu.destination_width(vop))


def _short(rng: random.Random, name: str, vop: valu.Vop) -> Iterator[Ins]:
    """VOP1, VOP2 or VOPC with registers, constants, a literal, DPP and SDWA."""
    dst = (_destination(rng, vop, name),)
    for _ in range(3):
        if name == "v_fmaak_f32":
            yield Ins(name, dst, (*_sources(rng, vop, 0)[:2], Literal(word(rng, True))))
        elif name == "v_fmamk_f32":
            yield Ins(name, dst, (v(0), Literal(word(rng, True)), v(2)))
        else:
            yield Ins(name, dst, _sources(rng, vop, 1))
    if "fma" in name and "k_" in name:
        return
    sources = _sources(rng, vop, 0)
    if all(_wide(kind) == 1 for kind in vop.src) and vop.src[0] not in ("b16", "f16"):
        yield Ins(name, dst, (Literal(word(rng, vop.src[0] == "f32")), *sources[1:]))
    if any(_wide(k) == 2 for k in vop.src) or vop.dst in ("b64", "carry64"):
        return
    floats = vop.src[0] in ("f16", "f32") and name != "v_cndmask_b32"
    for _ in range(2):
        bits = rng.randrange(4) if floats else 0
        if vop.dst != "mask":
            yield Ins(
                name, dst, sources, dpp=random_dpp(rng), neg=bits, abs=rng.randrange(4) if floats else 0
            )
    if name not in ("v_fmac_f32",):
        for _ in range(3):
            sel = (6, 6) if floats else (rng.randrange(7), rng.randrange(7))
            sext = (False, False) if floats else (rng.random() < 0.5, rng.random() < 0.5)
            neg = rng.randrange(4) if floats else 0
            yield Ins(name, dst, sources, sdwa=Sdwa(sel=sel, sext=sext), neg=neg)


def random_dpp(rng: random.Random) -> Dpp:
    ctrl = rng.choice(
        [
            rng.randrange(256),
            0x100 + rng.randrange(1, 16),
            0x110 + rng.randrange(1, 16),
            0x120 + rng.randrange(1, 16),
            0x140,
            0x141,
        ]
    )
    return Dpp(
        ctrl, rng.choice((15, rng.randrange(16))), rng.choice((15, rng.randrange(16))), rng.random() < 0.5
    )


def _long(rng: random.Random, name: str, vop: valu.Vop) -> Iterator[Ins]:
    """VOP3: any source scalar or constant, neg and abs on floats, explicit masks."""
    for _ in range(5):
        sources = _sources(rng, vop, 3)
        if sum(isinstance(o, type(VCC)) and o.kind == "s" for o in sources) > 1:
            sources = (sources[0], *_sources(rng, vop, 0)[1:])  # one scalar read port
        floats = sum(1 << i for i, kind in enumerate(vop.src) if kind in valu.SIGN_BIT)
        neg, absolute = rng.randrange(8) & floats, rng.randrange(8) & floats
        if vop.bit and name != "v_div_fmas_f32":
            sources = (*_sources(rng, vop, 0), s(40, 2))
        dst: tuple[Operand, ...] = (_destination(rng, vop, name),)
        if vop.dst == "mask":
            dst = (s(44, 2),)
        if vop.dst.startswith("carry"):
            dst, absolute = (*dst, rng.choice((s(44, 2), VCC))), 0
            neg = 0 if name == "v_div_scale_f32" else neg
        if name.startswith("v_cmpx_"):
            dst = (EXEC,)
        op_sel = rng.choice((0, 8)) if name.startswith(("v_cvt_pk_fp8", "v_cvt_pk_bf8")) else 0
        if "scalef32" in name:
            op_sel = (
                rng.randrange(4)
                if "fp4" in name
                else rng.choice((0, 8))
                if "fp8_f32" in name
                else rng.randrange(2)
            )
        if "cvt_pk_fp8" in name or "cvt_pk_bf8" in name or "scalef32" in name:
            sources = _sources(rng, vop, 0)
        enc = "vop3sd" if len(dst) > 1 else "vop3"
        yield Ins(
            name, dst, sources, enc=enc, neg=neg, abs=absolute, op_sel=op_sel, bitop3=rng.getrandbits(8)
        )


def division_scale_cases() -> list[tuple[Ins, State]]:
    """v_div_scale_f32 in its normal range; its corners are judged by whole quotients (test_division.py)."""
    rng = rng_of("div_scale")
    out = []
    for first in (v(2), v(4)):
        state = random_state(rng, "f32", "random")
        for row in (2, 4):
            state.v[row] = [rng.randrange(100, 150) << 23 | rng.getrandbits(23) for _ in range(64)]
        for carry in (VCC, s(44, 2)):
            out.append((Ins("v_div_scale_f32", (v(16), carry), (first, v(2), v(4)), enc="vop3sd"), state))
    return out


def vector_cases(name: str) -> list[tuple[Ins, State]]:
    """Instructions of one per-lane operation, each with a random state."""
    if name == "v_div_scale_f32":
        return division_scale_cases()
    rng, vop = rng_of("vector", name), valu.OPS[name.replace("v_cmpx_", "v_cmp_")]
    native = oc.native_encoding(name)
    instructions = list(_short(rng, name, vop)) if native in ("vop1", "vop2", "vopc") else []
    if not (name.startswith("v_fma") and name.endswith("k_f32")):
        instructions += _long(rng, name, vop)
    domain = next((kind for kind in vop.src if kind in valu.SIGN_BIT), "int")
    return [(ins, random_state(rng, domain, shape)) for ins in instructions for shape in rng.sample(EXECS, 2)]


def _scalar_operand(rng: random.Random, bits: int, literal: bool) -> Operand:
    choice = rng.randrange(5 if literal else 4)
    if choice == 4:
        return Literal(rng.choice(INTS))
    if choice == 3:
        return Inline(rng.choice([x for x in INLINES if isinstance(x, int) or bits == 32]))
    if choice == 2:
        return rng.choice((VCC, EXEC)) if bits == 64 else rng.choice((s(106), s(126), M0))
    return s(4 + 2 * rng.randrange(12), bits // 32)


def scalar_cases(name: str, count: int = 12) -> list[tuple[Ins, State]]:
    rng, out = rng_of("scalar", name), []
    for _ in range(count):
        state = random_state(rng, False, "random", rows=1)
        if oc.native_encoding(name) == "sopk":
            register = s(4 + rng.randrange(20))
            source = name.startswith("s_cmpk")
            imm = rng.choice((0, 1, 0x7FFF, 0x8000, 0xFFFF, rng.getrandbits(16)))
            if source and rng.random() < 0.4:
                state.set_scalar(register, imm | (0xFFFF0000 if imm & 0x8000 and name.endswith("i32") else 0))
            ins = Ins(name, () if source else (register,), (register,) if source else (), imm=imm)
        else:
            ins = _scalar(rng, name)
        out.append((ins, state))
    return out


def _scalar(rng: random.Random, name: str) -> Ins:
    wide = (
        name in salu.SAVEEXEC
        or name in salu.WREXEC
        or name in ("s_cmov_b64", "s_bitset0_b64", "s_bitset1_b64")
    )
    fn_bits = 64 if wide else salu.OPS.get(name, (None, 32))[1]
    widths = salu.operand_bits(name, fn_bits)
    encoding = oc.native_encoding(name)
    arity = 1 if encoding == "sop1" else 2
    first = _scalar_operand(rng, widths[0], True)
    sources = [first] + [
        _scalar_operand(rng, widths[1], not isinstance(first, Literal)) for _ in range(arity - 1)
    ]
    result = salu.result_bits(name, fn_bits)
    dst = () if encoding == "sopc" else (rng.choice((s(60, result // 32), VCC if result == 64 else M0)),)
    return Ins(name, dst, tuple(sources))


def packed_cases(name: str) -> list[tuple[Ins, State]]:
    rng, out = rng_of("packed", name), []
    arity = 3 if "fma" in name else 2
    for _ in range(12):
        sources: list[Operand] = [v(2 * rng.randrange(5), 2) for _ in range(arity)]
        high = rng.randrange(8)
        if rng.random() < 0.4:
            i = rng.randrange(arity)
            constant = rng.random() < 0.5 and name != "v_pk_mov_b32"
            sources[i] = Inline(rng.choice((0, 1.0, -2.0))) if constant else s(8, 2)
            high &= ~(1 << i) if constant else 7
        low = rng.randrange(8) & ((1 << arity) - 1)
        for i, operand in enumerate(sources):
            low &= ~(1 << i) if isinstance(operand, Inline) else 7
        moves = name == "v_pk_mov_b32"
        ins = Ins(
            name,
            (v(rng.choice((0, 16)), 2),),
            tuple(sources),
            op_sel=low,
            op_sel_hi=7 if moves else high,
            neg=0 if moves else rng.randrange(8) & ((1 << arity) - 1),
            neg_hi=0 if moves else rng.randrange(8) & ((1 << arity) - 1),
        )
        out.append((ins, random_state(rng, True, rng.choice(EXECS))))
    return out


def packed16_cases(name: str) -> list[tuple[Ins, State]]:
    """VOP3P on halves: every op_sel, negation on floats, scalar and shared sources."""
    rng, out = rng_of("packed16", name), []
    arity = 3 if "mad" in name or "fma" in name else 2
    floats = name.endswith("f16")
    for _ in range(12):
        sources: list[Operand] = [v(rng.randrange(10)) for _ in range(arity)]
        if rng.random() < 0.3:
            sources[rng.randrange(arity)] = s(8 + rng.randrange(8))
        masks = [rng.randrange(1 << arity) for _ in range(4)]
        ins = Ins(name, (v(rng.choice((0, 16))),), tuple(sources), op_sel=masks[0], op_sel_hi=masks[1],
                  neg=masks[2] if floats else 0, neg_hi=masks[3] if floats else 0)  # fmt: skip
        out.append((ins, random_state(rng, "f16" if floats else "int", rng.choice(EXECS))))
    return out


VECTOR_NAMES = sorted(
    set(valu.OPS) & (set(oc.VOP1) | set(oc.VOP2) | set(oc.VOPC) | set(oc.VOP3) | set(oc.VOP3SD))
)
CMPX_NAMES = sorted(n.replace("v_cmp_", "v_cmpx_") for n in valu.OPS if n.startswith("v_cmp_"))
SCALAR_NAMES = sorted(
    (set(salu.OPS) | set(salu.SAVEEXEC) | set(salu.WREXEC) | set(oc.SOPK) | {"s_cmov_b32", "s_cmov_b64"}
     | {f"s_bitset{bit}_b{bits}" for bit in (0, 1) for bits in (32, 64)}) - {"s_getreg_b32", "s_setreg_b32"}
)  # fmt: skip
PACKED_NAMES = sorted(valu_float.PACKED)
PACKED16_NAMES = sorted(valu_narrow.PACKED16)
LANE_NAMES = sorted(lanes.OPS)
