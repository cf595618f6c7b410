"""Integer helpers that every layout shares."""

from __future__ import annotations


def cdiv(a: int, b: int) -> int:
    """Ceiling of a / b for a >= 0, b > 0."""
    return -(-a // b)


def align_up(value: int, to: int) -> int:
    """The smallest multiple of `to` that is >= value."""
    return cdiv(value, to) * to


def floor_pow2(value: int) -> int:
    """The largest power of two <= value (value >= 1)."""
    return 1 << (value.bit_length() - 1)


def ceil_pow2(value: int) -> int:
    """The smallest power of two >= value (value >= 1)."""
    return 1 << (value - 1).bit_length()
