"""What ranks tell one another on the host: one operation, which every rank makes in the same order.

Invariant: it ends within its seconds. A rank that did not answer is named on every rank that did; afterwards
the ranks are of no use, since nobody knows what the missing one will still say.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Condition
from typing import Any, Protocol

import torch

from flymono.specs.findings import UserError


class RanksError(UserError):
    """Ranks that did not answer in time, or are gone."""

    exit_code = 1

    def __init__(self, absent: Sequence[int], seconds: float, why: str = "") -> None:
        self.absent, self.seconds, self.why = tuple(absent), seconds, why
        who = ("rank " if len(self.absent) == 1 else "ranks ") + ", ".join(map(str, self.absent))
        super().__init__(f"{who} did not answer within {seconds:g} s" + (f" ({why})" if why else ""))


class Ranks(Protocol):
    """This rank's end of the group."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...

    def all_gather(self, value: object, seconds: float) -> list[Any]:
        """Every rank's value, in the order of ranks. Raises RanksError."""
        ...


@dataclass
class _Meeting:
    """Where the ranks of one process meet: values by round and rank."""

    size: int
    changed: Condition = field(default_factory=Condition)
    rounds: dict[int, dict[int, Any]] = field(default_factory=dict)


class LocalRanks:
    """A rank of a group in one process, a thread a rank."""

    def __init__(self, meeting: _Meeting, rank: int) -> None:
        self._meeting, self.rank, self.size = meeting, rank, meeting.size
        self._round = 0

    @classmethod
    def make(cls, size: int) -> tuple[LocalRanks, ...]:
        """All ranks of a group."""
        meeting = _Meeting(size)
        return tuple(cls(meeting, rank) for rank in range(size))

    def all_gather(self, value: object, seconds: float) -> list[Any]:
        """Every rank's value. Raises RanksError."""
        number, self._round = self._round, self._round + 1
        meet = self._meeting
        with meet.changed:
            here = meet.rounds.setdefault(number, {})
            here[self.rank] = value
            meet.changed.notify_all()
            if not meet.changed.wait_for(lambda: len(here) == self.size, seconds):
                raise RanksError([r for r in range(self.size) if r not in here], seconds)
            meet.rounds.pop(number - 1, None)  # everybody is past it
            return [here[r] for r in range(self.size)]


class GlooRanks:
    """A rank of a torch.distributed group with the gloo backend, such as vLLM's CPU group of a TP group.

    Ranks send to one another directly: what does not come names the rank that it should have come from.
    """

    def __init__(self, group: Any) -> None:
        import torch.distributed as dist

        self._dist, self._group = dist, group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def all_gather(self, value: object, seconds: float) -> list[Any]:
        """Every rank's value. Raises RanksError."""
        with torch.device("cpu"):  # a host makes its layers under its GPU's, and the group is one of CPUs
            return self._gathered(value, seconds)

    def _gathered(self, value: object, seconds: float) -> list[Any]:
        data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        others = [r for r in range(self.size) if r != self.rank]
        wait, length = _Waiting(seconds), torch.tensor([data.numel()])
        sizes = {r: torch.zeros(1, dtype=torch.int64) for r in others}
        expected = {r: self._receive(sizes[r], r) for r in others}
        sent = [(r, self._send(t, r)) for r in others for t in (length, data)]
        wait.for_all(expected.items())
        bodies = {r: torch.zeros(int(sizes[r]), dtype=torch.uint8) for r in others if r not in wait.absent}
        wait.for_all([(r, self._receive(body, r)) for r, body in bodies.items()])
        wait.for_all(sent)
        if wait.absent:
            raise RanksError(sorted(wait.absent), seconds, "; ".join(dict.fromkeys(wait.absent.values())))
        got = {r: pickle.loads(body.numpy().tobytes()) for r, body in bodies.items()}
        return [value if r == self.rank else got[r] for r in range(self.size)]

    def _receive(self, into: torch.Tensor, rank: int) -> Callable[[timedelta], object]:
        return self._begun(lambda: self._dist.irecv(into, group=self._group, group_src=rank))

    def _send(self, what: torch.Tensor, rank: int) -> Callable[[timedelta], object]:
        return self._begun(lambda: self._dist.isend(what, group=self._group, group_dst=rank))

    def _begun(self, begin: Callable[[], Any]) -> Callable[[timedelta], object]:
        """Wait for it, or raise what beginning it raised: a peer may be gone already."""
        try:
            work = begin()
        except RuntimeError as error:
            raised = error

            def again(left: timedelta) -> object:
                raise raised

            return again
        return lambda left: work.wait(left)


class _Waiting:
    """Waits that share one end; who did not come, and why."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self.absent: dict[int, str] = {}

    def for_all(self, works: Any) -> None:
        """Wait for each (rank, wait) in turn."""
        for rank, wait in works:
            if rank in self.absent:
                continue
            left = max(self._end - time.monotonic(), 0.01)
            try:
                wait(timedelta(seconds=left))
            except RuntimeError as error:
                self.absent[rank] = str(error).strip().splitlines()[0][:200]
