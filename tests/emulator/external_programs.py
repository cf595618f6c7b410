"""Programs for memory that other ranks change, and a rank of them as a process: `python external_programs.py
FILE RANK PROGRAM`.

A file holds `RANKS` records, then `SLOT` bytes for each rank that the others write, then as many for its own
results. The mailbox of rank r is slot r.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from machine_asm import (
    VCC,
    Launch,
    branch,
    code_of,
    const,
    global_atomic_add,
    global_load,
    global_store,
    run,
    s_cmp_eq_u32,
    s_endpgm,
    s_load,
    s_memrealtime,
    s_mov,
    s_not_b64,
    s_sleep,
    s_waitcnt,
    sop2,
    v,
    v_cmp_eq_u32,
    v_lshlrev,
    v_mov,
    v_or,
    v_xor,
)

RANKS, SLOT, ROUNDS = 2, 4096, 300
S_ADD, S_SUB, S_SUBB = 0, 1, 5
RESTING, WORKING, LEFT = 1, 2, 3
INPUTS = (
    s_load(4, 0, 0, 4),  # s[4:5] the other rank's mailbox, s[6:7] mine
    s_load(8, 0, 16, 2),  # s[8:9] my results
    s_waitcnt(lgkm=0),
    v_lshlrev(1, const(3), 0),  # 8 bytes a lane
    v_mov(6, const(0)),
)


def until_all(test: list[list[int]]) -> list[list[int]]:
    """Repeat `test`, which compares all lanes into VCC, until it holds in each of them; sleep in between."""
    words = sum(map(len, test))
    return [*test, s_not_b64(10, VCC), branch("scc0", 2), s_sleep(1), branch("always", -(words + 4))]


def rounds(first: bool) -> bytes:
    """Hand a pair (n, n) to and fro; each lane ors up how much the two words of a pair ever differed."""
    send = [v_mov(2, 12), v_mov(3, 12), global_store(1, 2, 4, dwords=2, sc0=1, sc1=1), s_waitcnt(vm=0)]
    receive = until_all([global_load(4, 1, 6, dwords=2, sc0=1, sc1=1), s_waitcnt(vm=0), v_cmp_eq_u32(12, 5)])
    check = [v_xor(4, v(5), 4), v_or(6, v(4), 6)]
    one = [*send, *receive, *check] if first else [*receive, *check, *send]
    body = [sop2(S_ADD, 12, 12, const(1)), *one, s_cmp_eq_u32(12, 13)]
    words = sum(map(len, body))
    return code_of(
        *INPUTS, s_mov(12, 0), s_mov(13, ROUNDS), *body, branch("scc0", -(words + 1)),
        v_mov(7, 12), global_store(1, 6, 8, dwords=2), s_waitcnt(vm=0), s_endpgm(),
    )  # fmt: skip


def adds() -> bytes:
    """Each lane adds 1 to word 0 of the other's mailbox, and of its own, ROUNDS times."""
    body = [
        global_atomic_add(4, 3, 2, 4), global_atomic_add(5, 3, 2, 6), s_waitcnt(vm=0),
        sop2(S_ADD, 12, 12, const(1)), s_cmp_eq_u32(12, 13),
    ]  # fmt: skip
    words = sum(map(len, body))
    return code_of(
        *INPUTS, v_mov(2, const(1)), v_mov(3, const(0)), s_mov(12, 0), s_mov(13, ROUNDS),
        *body, branch("scc0", -(words + 1)), s_endpgm(),
    )  # fmt: skip


def clocked() -> bytes:
    """Wait for 1 in my mailbox and store how far the 100 MHz clock went meanwhile."""
    wait = until_all([global_load(4, 1, 6, sc0=1, sc1=1), s_waitcnt(vm=0), v_cmp_eq_u32(const(1), 4)])
    return code_of(
        *INPUTS, s_memrealtime(14), s_waitcnt(lgkm=0), *wait, s_memrealtime(16), s_waitcnt(lgkm=0),
        sop2(S_SUB, 16, 16, 14), sop2(S_SUBB, 17, 17, 15), v_mov(2, 16), v_mov(3, 17),
        global_store(1, 2, 8, dwords=2), s_waitcnt(vm=0), s_endpgm(),
    )  # fmt: skip


PROGRAMS = {"rounds": rounds, "adds": lambda first: adds(), "clocked": lambda first: clocked()}


def make(path: Path) -> Path:
    """The file, all zero."""
    path.write_bytes(bytes(64 * RANKS + 2 * SLOT * RANKS))
    return path


class Shared:
    """The file mapped by one rank."""

    def __init__(self, path: Path, rank: int) -> None:
        with path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        self.bytes, self.rank = np.frombuffer(self.memory, np.uint8), rank
        self.records = self.bytes[: 64 * RANKS].view(np.uint32).reshape(RANKS, 16)
        slots = self.bytes[64 * RANKS :].reshape(2, RANKS, SLOT)
        self.mail, self.results = slots[0], slots[1]

    def say(self, state: int, rank: int | None = None) -> None:
        """Write a rank's record: this one's, if none is named."""
        own = self.records[self.rank if rank is None else rank]
        own[0], own[1], own[4] = os.getpid(), state, self.rank if rank is None else rank

    def run(self, program: str, external: Sequence[str] = ("theirs", "mine"), **options: object) -> Launch:
        """A launch of one wave that finds two mailboxes and the results of this rank."""
        theirs, mine, results = self.mail[1 - self.rank], self.mail[self.rank], self.results[self.rank]
        args = np.array([m.ctypes.data for m in (theirs, mine, results)] + [0], np.uint64)
        buffers = [("args", args), ("theirs", theirs), ("mine", mine), ("results", results)]
        records = [int(self.records[r].ctypes.data) for r in (self.rank, 1 - self.rank)]
        code = PROGRAMS[program](self.rank == 0)
        self.say(WORKING)
        done = run(
            code, buffers, kernarg=args.ctypes.data, external=external, **({"roster": records} | options)
        )
        self.say(RESTING)
        return done


if __name__ == "__main__":
    done = Shared(Path(sys.argv[1]), int(sys.argv[2])).run(sys.argv[3])
    print("\n".join(f.message for f in done.findings), flush=True)
