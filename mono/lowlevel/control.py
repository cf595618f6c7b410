"""Waits, the program counter, and what the compiler must not see through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flydsl.expr as fx
from flydsl._mlir import ir
from flydsl._mlir.dialects import llvm as _llvm
from flydsl._mlir.dialects import scf as _scf
from flydsl.expr import rocdl
from flydsl.expr.typing import Int32, T

from .values import i32, raw, type_of, undef, wrap
from .vector import intrinsic


def wait_stores() -> None:
    """Until every store of the wave is acknowledged. A barrier alone does not wait for them."""
    rocdl.s_waitcnt(vmcnt=0)


def sleep() -> None:
    rocdl.s_sleep(1)


def end_program() -> None:
    """s_endpgm here: the wave is over, and barriers no longer count it.

    As text, so that the compiler sees no way out of the middle of the kernel: a known one costs flow blocks
    and condition masks around every stage (measured at 6 rows, TP4: 2,721 against 2,422 instructions).
    """
    assembly("s_endpgm")


def clock() -> Any:
    """The 100 MHz clock (s_memrealtime)."""
    return fx.Int64(intrinsic("s.memrealtime", T.i64))


def _arguments() -> Any:
    return _llvm.call_intrinsic(ir.Type.parse("!llvm.ptr<4>"), "llvm.amdgcn.kernarg.segment.ptr", [], [], [])


def late_argument(offset: int) -> Any:
    """The i64 launch argument at byte ``offset``, loaded here and not before: what only a wait in vain needs
    would otherwise hold scalar registers from the first stage to the last."""
    text = f"s_load_dwordx2 $0, $1, {offset}\n\ts_waitcnt lgkmcnt(0)"
    return fx.Int64(_llvm.inline_asm(T.i64, [_arguments()], text, "=&s,s", has_side_effects=True))


def leave_to(label: str, scalar: Any, lanes: Sequence[Any] = (), mask: Any = None) -> None:
    """On to the assembler text at ``label``, which ends the wave, so no register has to be kept for it.

    It finds ``scalar`` in m0, the two ``lanes`` of the first lane in ``mask`` in vcc_lo and vcc_hi, and the
    address of the launch arguments in exec. (A branch on a lane's condition instead of the mask would cost
    each wait three instructions when all is well.)
    """
    text, operands, constraints = ["s_mov_b32 m0, $0"], [raw(scalar), _arguments()], ["s", "s"]
    if lanes:
        text += ["s_mov_b64 exec, $2", "v_readfirstlane_b32 vcc_lo, $3", "v_readfirstlane_b32 vcc_hi, $4"]
        operands += [raw(mask), *[raw(v) for v in lanes]]
        constraints += ["s", "v", "v"]
    text += ["s_mov_b64 exec, $1", f"s_branch {label}"]
    constraints += ["~{vcc}", "~{memory}"]
    _llvm.inline_asm(None, operands, "\n\t".join(text), ",".join(constraints), has_side_effects=True)


def assembly(text: str) -> None:
    """Assembler text without operands, in program order."""
    _llvm.inline_asm(None, [], text, "", has_side_effects=True)


def keep_order() -> None:
    """The scheduler moves no instruction past this point."""
    rocdl.sched_barrier(0)


def memory_changes() -> None:
    """Loads before and after this point are different loads."""
    _llvm.inline_asm(None, [], "", "~{memory}", has_side_effects=True)


def opaque(v: int) -> Any:
    """``v`` in a scalar register, its value hidden from the compiler (it would unroll a counted wait)."""
    return Int32(_llvm.inline_asm(T.i32, [i32(v)], "s_mov_b32 $0, $1", "=s,i", has_side_effects=False))


def fresh(v: Any) -> Any:
    """A scalar under a new name, without an instruction.

    Conditions on it are compared where they are used; one that an earlier stage left in a mask would take
    four instructions to branch on.
    """
    data = raw(v)
    return type(v)(_llvm.inline_asm(data.type, [data], "", "=s,0", has_side_effects=True))


def spin(
    widths: Sequence[int],
    load: Callable[[], Sequence[Any]],
    stale: Callable[[Sequence[Any]], Any],
    every: int,
    look: Callable[[Any, Sequence[Any]], None],
) -> list[Any]:
    """``load()`` (vectors of ``widths`` i32 words) until ``stale`` (a scalar condition) is false.

    The loop stands once in the code: load, test, leave; else count down, sleep, again. After the first time
    in vain and then after ``every`` ones it calls ``look(ticks, words)`` with the ticks of the 100 MHz clock
    since the first look and what was loaded; a look may end the wave.
    """
    types = [*[type_of(Int32, w) for w in widths], T.i32, T.i64]
    empty = [undef(Int32, w).ir_value() for w in widths]
    first_count = -(1 << 30)
    loop = _scf.WhileOp(types, [*empty, raw(opaque(first_count)), undef(fx.Int64).ir_value()])
    before = loop.before.blocks.append(*types)
    with ir.InsertionPoint(before):
        memory_changes()
        got = list(load())
        _scf.condition(raw(stale(got)), [*[raw(v) for v in got], *before.arguments[-2:]])
    after = loop.after.blocks.append(*types)
    with ir.InsertionPoint(after):
        left, begun = Int32(after.arguments[-2]) - Int32(1), after.arguments[-1]
        out = _scf.IfOp(raw(left < Int32(0)), [T.i32, T.i64], has_else=True)
        with ir.InsertionPoint(out.then_block):
            now = clock()
            since = (left < Int32(-1)).select(now, fx.Int64(begun))
            look(now - since, [wrap(after.arguments[i], Int32, w) for i, w in enumerate(widths)])
            _scf.yield_([i32(every - 1), raw(since)])
        with ir.InsertionPoint(out.else_block):
            _scf.yield_([raw(left), begun])
        sleep()
        _scf.yield_([*after.arguments[:-2], *out.results])
    return [wrap(loop.results[i], Int32, w) for i, w in enumerate(widths)]
