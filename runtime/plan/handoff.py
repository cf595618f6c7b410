"""The hand-offs of a launch as a graph of tasks, and whether the launch always ends.

A workgroup runs its tasks one after the other; a task starts once every task that it waits for is done. What
is published stays published, so a task that could start can still start later: if one order of the
workgroups ends, every order does, and one run in any order decides for all. (The tests check that against
all orders of small launches.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .placement import Stage
from .waits import Site


@dataclass(frozen=True)
class Task:
    """One entry of a workgroup's program; `after` names the stages of which every task must be done."""

    stage: str
    index: int
    after: tuple[str, ...]


@dataclass(frozen=True)
class Blocked:
    """A workgroup that never gets past a task."""

    workgroup: int
    task: Task
    missing: Mapping[str, int]  # awaited stage -> its tasks that never finish


def programs_of(stages: Sequence[Stage], sites: Sequence[Site], grid: int) -> tuple[tuple[Task, ...], ...]:
    """The program of each workgroup: stages in order, its tasks of a stage ascending."""
    producer = {s.name: s.producer for s in sites}
    after = {s.name: tuple(producer[w] for w in s.waits) for s in stages}
    return tuple(
        tuple(Task(s.name, i, after[s.name]) for s in stages for i in s.tasks_of(workgroup))
        for workgroup in range(grid)
    )


def blocked(programs: Sequence[Sequence[Task]]) -> list[Blocked]:
    """Workgroups that wait for ever; empty for a launch that always ends."""
    left: dict[str, int] = {}
    for program in programs:
        for task in program:
            left[task.stage] = left.get(task.stage, 0) + 1
    at, moved = [0] * len(programs), True
    while moved:
        moved = False
        for w, program in enumerate(programs):
            while at[w] < len(program) and all(left.get(stage, 0) == 0 for stage in program[at[w]].after):
                left[program[at[w]].stage] -= 1
                at[w], moved = at[w] + 1, True
    return [
        Blocked(w, program[at[w]], {s: left[s] for s in program[at[w]].after if left.get(s, 0)})
        for w, program in enumerate(programs)
        if at[w] < len(program)
    ]
