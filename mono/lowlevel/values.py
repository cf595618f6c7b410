"""Raw MLIR values of traced ones, and back."""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl._mlir import ir
from flydsl._mlir.dialects import llvm
from flydsl.expr.typing import Int32


def i32(v: Any) -> Any:
    """A raw i32 value of a Python int (two's complement) or a traced integer."""
    if isinstance(v, int):
        return Int32((v + 2**31) % 2**32 - 2**31).ir_value()
    return v.ir_value() if hasattr(v, "ir_value") else v


def raw(v: Any) -> Any:
    return v.ir_value() if hasattr(v, "ir_value") else v


def type_of(kind: Any, count: int) -> Any:
    return kind.ir_type if count == 1 else ir.VectorType.get([count], kind.ir_type)


def wrap(value: Any, kind: Any, count: int) -> Any:
    return kind(value) if count == 1 else fx.Vector(value)


def undef(kind: Any, count: int = 1) -> Any:
    """A value that nothing may use: what the idle waves of a stage carry past a uniform branch."""
    return wrap(llvm.UndefOp(type_of(kind, count)).result, kind, count)
