"""Agreement: ranks do a thing together, and all fail alike if one of them fails.

Invariant: whatever an action raises is told to the others before anybody goes on; a rank never leaves the
others waiting in a collective that it will not come to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from flymono.runtime.runner.errors import Doing, Reason, RunnerError
from flymono.runtime.runner.ranks import Ranks, RanksError

T = TypeVar("T")
SECONDS = 60.0


def together(
    group: Ranks, doing: Doing, action: Callable[[], T], seconds: float = SECONDS, of: str = ""
) -> list[T]:
    """What `action` gave on every rank. Raises RunnerError, with the same reasons on all, if one failed."""
    mine: Any = None
    failed: Exception | None = None
    try:
        mine = action()
    except Exception as error:  # torch, the driver, ours: the others have to hear of any
        failed = error
    said = _gather(group, doing, (None if failed is None else _text(failed), mine), seconds, of)
    reasons = [Reason(rank, doing, text, of) for rank, (text, _) in enumerate(said) if text is not None]
    if reasons:
        raise RunnerError("no rank takes the kernels", reasons) from failed
    return [value for _, value in said]


def same(group: Ranks, doing: Doing, facts: Mapping[str, object], seconds: float = SECONDS) -> None:
    """Nothing if `facts` are equal on all ranks. Raises RunnerError that names what differs, and on whom."""
    said = _gather(group, doing, dict(facts), seconds)
    reasons = [
        Reason(rank, doing, f"{name} is {_shown(own.get(name))}, on rank 0 {_shown(said[0].get(name))}")
        for rank, own in enumerate(said)
        for name in [*said[0], *(n for n in own if n not in said[0])]
        if own.get(name) != said[0].get(name)
    ]
    if reasons:
        raise RunnerError("ranks differ, so no rank takes the kernels", reasons)


def _gather(group: Ranks, doing: Doing, value: object, seconds: float, of: str = "") -> Sequence[Any]:
    try:
        return group.all_gather(value, seconds)
    except RanksError as error:
        reasons = [
            Reason(rank, doing, f"no answer: it is gone, or takes more than {error.seconds:g} s", of)
            for rank in error.absent
        ]
        raise RunnerError("no rank takes the kernels", reasons) from error


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."
