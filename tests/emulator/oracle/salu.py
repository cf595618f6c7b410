"""Scalar operations: s_* of SOP1, SOP2, SOPK and SOPC, one at a time on Python ints.

Each entry of OPS is (function, operand widths). The function takes the state's SCC and the raw source values
and returns (result or None, new SCC or None for "unchanged").
"""

from __future__ import annotations

from collections.abc import Callable

from asm import EXEC, Ins, Reg

from .state import MASK32, MASK64, State, signed

Result = tuple[int | None, int | None]
Fn = Callable[..., Result]
OPS: dict[str, tuple[Fn, int]] = {}


def op(names: str, bits: int = 32) -> Callable[[Fn], Fn]:
    def register(fn: Fn) -> Fn:
        for name in names.split():
            OPS[name] = (fn, bits)
        return fn

    return register


def _overflow(total: int) -> int:
    return int(not -(1 << 31) <= total < 1 << 31)


op("s_add_u32")(lambda scc, a, b: (a + b, (a + b) >> 32))
op("s_addc_u32")(lambda scc, a, b: (a + b + scc, (a + b + scc) >> 32))
op("s_sub_u32")(lambda scc, a, b: (a - b, int(b > a)))
op("s_subb_u32")(lambda scc, a, b: (a - b - scc, int(b + scc > a)))
op("s_add_i32")(lambda scc, a, b: (a + b, _overflow(signed(a) + signed(b))))
op("s_sub_i32")(lambda scc, a, b: (a - b, _overflow(signed(a) - signed(b))))
op("s_mul_i32")(lambda scc, a, b: (a * b, None))
op("s_mul_hi_u32")(lambda scc, a, b: (a * b >> 32, None))
op("s_mul_hi_i32")(lambda scc, a, b: (signed(a) * signed(b) >> 32, None))
op("s_min_i32")(lambda scc, a, b: (min(signed(a), signed(b)), int(signed(a) < signed(b))))
op("s_min_u32")(lambda scc, a, b: (min(a, b), int(a < b)))
op("s_max_i32")(lambda scc, a, b: (max(signed(a), signed(b)), int(signed(a) >= signed(b))))
op("s_max_u32")(lambda scc, a, b: (max(a, b), int(a >= b)))
op("s_cselect_b32")(lambda scc, a, b: (a if scc else b, None))
op("s_cselect_b64", 64)(lambda scc, a, b: (a if scc else b, None))
op("s_bfm_b32")(lambda scc, a, b: (((1 << (a & 31)) - 1) << (b & 31), None))
op("s_pack_ll_b32_b16")(lambda scc, a, b: (a & 0xFFFF | b << 16, None))
op("s_pack_lh_b32_b16")(lambda scc, a, b: (a & 0xFFFF | b & 0xFFFF0000, None))
op("s_pack_hh_b32_b16")(lambda scc, a, b: (a >> 16 | b & 0xFFFF0000, None))
for _n in (1, 2, 3, 4):
    op(f"s_lshl{_n}_add_u32")(lambda scc, a, b, n=_n: ((a << n) + b, int((a << n) + b > MASK32)))

_BITWISE = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}


def _nonzero(value: int, bits: int) -> Result:
    value &= (1 << bits) - 1
    return value, int(value != 0)


for _name, _fn in _BITWISE.items():
    for _bits in (32, 64):
        op(f"s_{_name}_b{_bits}", _bits)(lambda scc, a, b, f=_fn, n=_bits: _nonzero(f(a, b), n))
for _bits in (32, 64):
    op(f"s_lshl_b{_bits}", _bits)(lambda scc, a, b, n=_bits: _nonzero(a << (b & n - 1), n))
    op(f"s_lshr_b{_bits}", _bits)(lambda scc, a, b, n=_bits: _nonzero(a >> (b & n - 1), n))
    op(f"s_ashr_i{_bits}", _bits)(lambda scc, a, b, n=_bits: _nonzero(signed(a, n) >> (b & n - 1), n))
    op(f"s_not_b{_bits}", _bits)(lambda scc, a, n=_bits: _nonzero(~a, n))
    op(f"s_mov_b{_bits}", _bits)(lambda scc, a: (a, None))
    op(f"s_bcnt1_i32_b{_bits}", _bits)(lambda scc, a: _nonzero(a.bit_count(), 32))
    op(f"s_bcnt0_i32_b{_bits}", _bits)(lambda scc, a, n=_bits: _nonzero(n - a.bit_count(), 32))
    op(f"s_ff1_i32_b{_bits}", _bits)(lambda scc, a: ((a & -a).bit_length() - 1, None))
    op(f"s_flbit_i32_b{_bits}", _bits)(lambda scc, a, n=_bits: (n - a.bit_length() if a else -1, None))
    op(f"s_ff0_i32_b{_bits}", _bits)(
        lambda scc, a, n=_bits: ((~a & a + 1 & (1 << n) - 1).bit_length() - 1, None)
    )
    op(f"s_brev_b{_bits}", _bits)(lambda scc, a, n=_bits: (int(f"{a:0{n}b}"[::-1], 2), None))
    op(f"s_cmp_eq_u{_bits}", _bits)(lambda scc, a, b: (None, int(a == b)))
    op(f"s_cmp_lg_u{_bits}", _bits)(lambda scc, a, b: (None, int(a != b)))


def _field(a: int, control: int, bits: int, is_signed: bool) -> Result:
    offset, width = control & bits - 1, control >> 16 & 0x7F
    width = min(width, bits)
    if not width:
        return 0, 0
    # A signed source extends past its own top bit; a field that runs over the end sees those sign bits.
    value = (signed(a, bits) >> offset if is_signed else a >> offset) & (1 << width) - 1
    return _nonzero(signed(value, width) if is_signed else value, bits)


op("s_absdiff_i32")(lambda scc, a, b: _nonzero(abs(signed(signed(a) - signed(b))), 32))
op("s_bfm_b64", 64)(lambda scc, a, b: (((1 << (a & 63)) - 1) << (b & 63), None))
op("s_flbit_i32")(
    lambda scc, a: (32 - (~a & MASK32 if a >> 31 else a).bit_length() if a not in (0, MASK32) else -1, None)
)
op("s_bitcmp0_b64", 64)(lambda scc, a, b: (None, int(not a >> (b & 63) & 1)))
op("s_bitcmp1_b64", 64)(lambda scc, a, b: (None, a >> (b & 63) & 1))
op("s_bfe_u64", 64)(lambda scc, a, b: _field(a, b, 64, False))
op("s_bfe_i64", 64)(lambda scc, a, b: _field(a, b, 64, True))
op("s_bfe_u32")(lambda scc, a, b: _field(a, b, 32, False))
op("s_bfe_i32")(lambda scc, a, b: _field(a, b, 32, True))
op("s_abs_i32")(lambda scc, a: _nonzero(abs(signed(a)), 32))
op("s_sext_i32_i16")(lambda scc, a: (signed(a, 16), None))
op("s_sext_i32_i8")(lambda scc, a: (signed(a, 8), None))
op("s_bitcmp0_b32")(lambda scc, a, b: (None, int(not a >> (b & 31) & 1)))
op("s_bitcmp1_b32")(lambda scc, a, b: (None, a >> (b & 31) & 1))


@op("s_wqm_b32")
@op("s_wqm_b64", 64)
def _wqm(scc: int, a: int) -> Result:
    return _nonzero(sum(0xF << q for q in range(0, 64, 4) if a >> q & 0xF), 64)


_TESTS = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
for _test, _fn in _TESTS.items():
    op(f"s_cmp_{_test}_i32")(lambda scc, a, b, f=_fn: (None, int(f(signed(a), signed(b)))))
    op(f"s_cmp_{_test}_u32")(lambda scc, a, b, f=_fn: (None, int(f(a, b))))

_EXEC_WITH = dict(_BITWISE, andn1=lambda a, b: ~a & b, orn1=lambda a, b: ~a | b)
SAVEEXEC = {f"s_{name}_saveexec_b64": name for name in _EXEC_WITH}
WREXEC = {"s_andn1_wrexec_b64": "andn1", "s_andn2_wrexec_b64": "andn2"}


def _sopk(state: State, ins: Ins) -> None:
    wide = signed(ins.imm, 16)
    if ins.name.startswith("s_cmpk_"):
        test, kind = ins.name.split("_")[2:]
        left = state.read(ins.src[0])
        pair = (signed(left), wide) if kind == "i32" else (left, ins.imm & 0xFFFF)
        state.scc = int(_TESTS[test](*pair))
        return
    dst = ins.dst[0]
    assert isinstance(dst, Reg)
    old = state.scalar(dst)
    if ins.name == "s_movk_i32":
        state.set_scalar(dst, wide)
    elif ins.name == "s_cmovk_i32":
        state.set_scalar(dst, wide if state.scc else old)
    elif ins.name == "s_addk_i32":
        state.set_scalar(dst, old + wide)
        state.scc = _overflow(signed(old) + wide)
    elif ins.name == "s_mulk_i32":
        state.set_scalar(dst, signed(old) * wide)
    else:
        raise KeyError(ins.name)


def step(state: State, ins: Ins) -> None:
    """Execute one scalar instruction in place; KeyError if it is none of this family."""
    if ins.encoding == "sopk":
        _sopk(state, ins)
        return
    if ins.name in SAVEEXEC:
        source, old = state.read(ins.src[0], kind="b64"), state.exec
        assert isinstance(ins.dst[0], Reg)
        state.set_scalar(ins.dst[0], old)
        # s_andn2_saveexec: EXEC = S0 & ~EXEC.
        state.set_scalar(EXEC, _EXEC_WITH[SAVEEXEC[ins.name]](source, old) & MASK64)
        state.scc = int(state.exec != 0)
        return
    if ins.name in ("s_cmov_b32", "s_cmov_b64"):
        if state.scc:
            assert isinstance(ins.dst[0], Reg)
            state.set_scalar(ins.dst[0], state.read(ins.src[0], kind=f"b{ins.name[-2:]}"))
        return
    if ins.name in WREXEC:
        new = _EXEC_WITH[WREXEC[ins.name]](state.read(ins.src[0], kind="b64"), state.exec) & MASK64
        state.set_scalar(EXEC, new)
        assert isinstance(ins.dst[0], Reg)
        state.set_scalar(ins.dst[0], new)
        state.scc = int(new != 0)
        return
    if ins.name.startswith("s_bitset"):
        dst, bit = ins.dst[0], 1 << (state.read(ins.src[0]) & int(ins.name[-2:]) - 1)
        assert isinstance(dst, Reg)
        state.set_scalar(dst, state.scalar(dst) | bit if "bitset1" in ins.name else state.scalar(dst) & ~bit)
        return
    fn, bits = OPS[ins.name]
    kinds = operand_bits(ins.name, bits)
    result, scc = fn(state.scc, *(state.read(o, kind=f"b{n}") for o, n in zip(ins.src, kinds, strict=False)))
    if result is not None:
        assert isinstance(ins.dst[0], Reg)
        state.set_scalar(ins.dst[0], result)
    if scc is not None:
        state.scc = scc


def operand_bits(name: str, bits: int) -> tuple[int, int]:
    """Widths of the two sources: the shift count of a 64-bit shift is a single register."""
    if name in ("s_bfm_b64", "s_bitset0_b64", "s_bitset1_b64"):
        return 32, 32
    wide_first = (
        "s_lshl_b64",
        "s_lshr_b64",
        "s_ashr_i64",
        "s_bfe_u64",
        "s_bfe_i64",
        "s_bitcmp0_b64",
        "s_bitcmp1_b64",
    )
    return (bits, 32) if name in wide_first else (bits, bits)


def result_bits(name: str, bits: int) -> int:
    return 32 if "_i32_b" in name else bits
