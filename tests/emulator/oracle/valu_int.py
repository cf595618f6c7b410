"""Integer and move operations of the vector ALU: plain functions on unsigned Python ints."""

from __future__ import annotations

from .state import MASK32, MASK64, signed
from .valu import Lane, op, plain


def s24(x: int) -> int:
    return signed(x, 24)


def u24(x: int) -> int:
    return x & 0xFFFFFF


plain("v_mov_b32", "b32", lambda a: a)
plain("v_mov_b64", "b64", lambda a: a, dst="b64")
plain("v_not_b32", "b32", lambda a: ~a)
plain("v_bfrev_b32", "b32", lambda a: int(f"{a:032b}"[::-1], 2))
plain("v_ffbh_u32", "b32", lambda a: 32 - a.bit_length() if a else -1)
plain("v_ffbl_b32", "b32", lambda a: (a & -a).bit_length() - 1)
plain("v_prng_b32", "b32", lambda a: a << 1 ^ (197 if a >> 31 else 0))

_TWO = {
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a,
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_lshlrev_b32": lambda a, b: b << (a & 31),
    "v_lshrrev_b32": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32": lambda a, b: signed(b) >> (a & 31),
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: signed(a) * signed(b) >> 32,
    "v_mul_u32_u24": lambda a, b: u24(a) * u24(b),
    "v_mul_i32_i24": lambda a, b: s24(a) * s24(b),
    "v_min_i32": lambda a, b: min(signed(a), signed(b)),
    "v_max_i32": lambda a, b: max(signed(a), signed(b)),
    "v_min_u32": min,
    "v_max_u32": max,
    "v_bcnt_u32_b32": lambda a, b: a.bit_count() + b,
    "v_bfm_b32": lambda a, b: ((1 << (a & 31)) - 1) << (b & 31),
}
for _name, _fn in _TWO.items():
    plain(_name, "b32 b32", _fn)

_THREE = {
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32": lambda a, b, c: (a + b) << (c & 31),
    "v_lshl_or_b32": lambda a, b, c: a << (b & 31) | c,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c & 31),
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3),
    "v_mad_u32_u24": lambda a, b, c: u24(a) * u24(b) + c,
    "v_mad_i32_i24": lambda a, b, c: s24(a) * s24(b) + c,
    "v_min3_u32": min,
    "v_max3_u32": max,
    "v_med3_u32": lambda a, b, c: sorted((a, b, c))[1],
    "v_min3_i32": lambda a, b, c: min(map(signed, (a, b, c))),
    "v_max3_i32": lambda a, b, c: max(map(signed, (a, b, c))),
    "v_med3_i32": lambda a, b, c: sorted(map(signed, (a, b, c)))[1],
}
for _name, _fn in _THREE.items():
    plain(_name, "b32 b32 b32", _fn)


def _field(a: int, offset: int, width: int, is_signed: bool) -> int:
    offset, width = offset & 31, width & 31
    value = (signed(a) if is_signed else a) >> offset & (1 << width) - 1
    return signed(value, width) if is_signed and width else value


plain("v_bfe_u32", "b32 b32 b32", lambda a, b, c: _field(a, b, c, False))
plain("v_bfe_i32", "b32 b32 b32", lambda a, b, c: _field(a, b, c, True))


@op("v_perm_b32", "b32 b32 b32")
def _perm(_lane: Lane, a: int, b: int, selector: int) -> int:
    data = (b | a << 32).to_bytes(8, "little")
    out = []
    for code in selector.to_bytes(4, "little"):
        if code < 8:
            out.append(data[code])
        elif code < 12:
            out.append(0xFF if data[2 * (code - 8) + 1] & 0x80 else 0)
        else:
            out.append(0 if code == 12 else 0xFF)
    return int.from_bytes(bytes(out), "little")


@op("v_bitop3_b32", "b32 b32 b32")
def _bitop3(lane: Lane, a: int, b: int, c: int) -> int:
    table = lane.ins.bitop3
    return sum((table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i for i in range(32))


@op("v_mbcnt_lo_u32_b32", "b32 b32")
def _mbcnt_lo(lane: Lane, a: int, b: int) -> int:
    return (a & ((1 << min(lane.lane, 32)) - 1)).bit_count() + b


@op("v_mbcnt_hi_u32_b32", "b32 b32")
def _mbcnt_hi(lane: Lane, a: int, b: int) -> int:
    return (a & ((1 << max(lane.lane - 32, 0)) - 1)).bit_count() + b


# 64-bit results.
plain("v_lshl_add_u64", "b64 b32 b64", lambda a, b, c: (a << (b & 7)) + c, dst="b64")
plain("v_lshlrev_b64", "b32 b64", lambda a, b: b << (a & 63), dst="b64")
plain("v_lshrrev_b64", "b32 b64", lambda a, b: b >> (a & 63), dst="b64")
plain("v_ashrrev_i64", "b32 b64", lambda a, b: signed(b, 64) >> (a & 63), dst="b64")
plain("v_mad_u64_u32", "b32 b32 b64", lambda a, b, c: (a * b + c & MASK64, a * b + c >> 64), dst="carry64")

# Carries: (result, carry or borrow out). The carry-in comes as the lane's mask bit.
plain("v_add_co_u32", "b32 b32", lambda a, b: (a + b & MASK32, a + b >> 32), dst="carry")
plain("v_sub_co_u32", "b32 b32", lambda a, b: (a - b & MASK32, int(b > a)), dst="carry")
plain("v_subrev_co_u32", "b32 b32", lambda a, b: (b - a & MASK32, int(a > b)), dst="carry")
op("v_addc_co_u32", "b32 b32", dst="carry", bit=True)(
    lambda lane, a, b: (a + b + lane.bit & MASK32, a + b + lane.bit >> 32)
)
op("v_subb_co_u32", "b32 b32", dst="carry", bit=True)(
    lambda lane, a, b: (a - b - lane.bit & MASK32, int(b + lane.bit > a))
)
op("v_subbrev_co_u32", "b32 b32", dst="carry", bit=True)(
    lambda lane, a, b: (b - a - lane.bit & MASK32, int(a + lane.bit > b))
)
# abs and neg act on bit 31 of the value that is moved.
op("v_cndmask_b32", "f32 f32", bit=True)(lambda lane, a, b: b if lane.bit else a)

# 16-bit operations leave zero in the upper half.
_SHORT = {
    "v_add_u16": lambda a, b: a + b,
    "v_sub_u16": lambda a, b: a - b,
    "v_subrev_u16": lambda a, b: b - a,
    "v_mul_lo_u16": lambda a, b: a * b,
    "v_lshlrev_b16": lambda a, b: b << (a & 15),
    "v_lshrrev_b16": lambda a, b: b >> (a & 15),
    "v_ashrrev_i16": lambda a, b: signed(b, 16) >> (a & 15),
    "v_min_u16": min,
    "v_max_u16": max,
    "v_min_i16": lambda a, b: min(signed(a, 16), signed(b, 16)),
    "v_max_i16": lambda a, b: max(signed(a, 16), signed(b, 16)),
}
for _name, _fn in _SHORT.items():
    plain(_name, "b16 b16", _fn, dst="z16")

_TESTS = {
    "f": lambda a, b: False,
    "t": lambda a, b: True,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
for _test, _fn in _TESTS.items():
    for _bits in (16, 32, 64):
        # A 64-bit literal zero-extends for u64 and sign-extends for i64; registers are plain either way.
        for _sign in "iu":
            _kind = "i64" if (_sign, _bits) == ("i", 64) else f"b{_bits}"
            plain(
                f"v_cmp_{_test}_{_sign}{_bits}",
                f"{_kind} {_kind}",
                (lambda a, b, f=_fn, n=_bits: f(signed(a, n), signed(b, n))) if _sign == "i" else _fn,
                dst="mask",
            )
