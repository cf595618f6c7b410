"""Waits that give up: what they leave behind, and launches that turn back because of it.

- A wait that has lasted longer than the launch argument ``bound`` writes the head of the rank's fault words
  and, in a launch with peers, the same 16 bytes as a mark into every rank's peer buffer. Other waits look at
  the mark (K1's, which know no peers, at the epoch buffer's stop word) every ``look`` polls and end when they
  see it. Each wait that ends writes its site's record; then the wave is over, and barriers no longer count
  it.
- The rest of the launch may go on with what it finds until it waits itself. What it then stores is wrong, and
  nobody believes it: fault words, stop word and marks were there before (each store is acknowledged before
  the next, all before the wave ends), so whoever looks at fault words and own mark behind a launch that was
  given wrong data sees them.
- A launch that finds stop word or mark set turns back with every workgroup before it has touched anything.
  One with peers passes on what it found: a fault of K1, which has no peers, gets to the other ranks that way.

What comes after the decision to leave is assembler text behind the kernel's end. It needs no register of the
kernel, and stands there once for all waits; as code of each wait it would cost scalar registers that K2 has
not got (15 spills) and a fifth more instructions.
"""

from __future__ import annotations

from typing import Any

from flydsl.expr import const_expr

from . import lowlevel as ll
from .build import Build
from .context import Context

BLOCK_SHIFT = 4  # a head, a mark and a record have 16 bytes
OWN, FROM = 1, 2  # state of a head: of a launch without a rank, or this plus the rank that gave up
MARKED = 1 << 23  # in a record: a mark ended the wait
GIVE_UP, TURN_BACK = ".Lflymono_give_up", ".Lflymono_turn_back"


@ll.device
def turn_back(c: Context) -> None:
    """Behind the first statement of a kernel: nothing, unless a wait has given up before."""
    found = c.stopped
    if const_expr(c.peers is not None):
        found = found | ll.global_load(c.peers.sym, constant=True)
    if found != 0:
        if const_expr(c.peers is not None):
            ll.leave_to(TURN_BACK, c.wave)
        else:
            ll.end_program()


def seen(c: Context) -> Any:
    """What a wait looks at: not 0 if it has to end."""
    if c.peers is not None:
        return ll.uniform(ll.load_now(ll.late_argument(c.build.ffn.peer.sym)))
    return ll.uniform(ll.load_now(ll.late_argument(c.build.faults.epoch), 4 * c.build.faults.stop))


def finish(c: Context) -> None:
    """The last statement of a kernel: its end, and behind it the text that `leave_to` goes to."""
    peers = c.peers is not None
    lines = ["s_endpgm", f"{GIVE_UP}:", *_give_up(c.build, peers)]
    if peers:
        lines += [f"{TURN_BACK}:", *_turn_back(c.build)]
    ll.assembly("\n\t".join(lines))


def _begin(build: Build, peers: bool) -> list[str]:
    """One lane. s[0:1] launch arguments, s4, s5, s6 what came in vcc and m0, s[8:9] fault words, s[10:11]
    epoch buffer, s[12:13] table of peer buffers, s14 this rank, s[16:17] own peer buffer."""
    at = build.faults
    loads = [f"s_load_dwordx2 s[8:9], s[0:1], {at.fault}", f"s_load_dwordx2 s[10:11], s[0:1], {at.epoch}"]
    if peers:
        peer = build.ffn.peer
        loads += [
            f"s_load_dwordx2 s[12:13], s[0:1], {peer.table}", f"s_load_dword s14, s[0:1], {peer.rank}",
            f"s_load_dwordx2 s[16:17], s[0:1], {peer.sym}",
        ]  # fmt: skip
    return [
        "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_mov_b64 s[0:1], exec", "s_mov_b64 exec, 1",
        "s_mov_b32 s4, vcc_lo", "s_mov_b32 s5, vcc_hi", "s_mov_b32 s6, m0", *loads, "s_waitcnt lgkmcnt(0)",
    ]  # fmt: skip


def _address(low: int) -> list[str]:
    return [f"v_mov_b32 v4, s{low}", f"v_mov_b32 v5, s{low + 1}"]


def _store(offset: int = 0) -> list[str]:
    """Four words, seen by the host and by other GPUs before anything that follows."""
    return [f"global_store_dwordx4 v[4:5], v[0:3], off offset:{offset} sc0 sc1", "s_waitcnt vmcnt(0)"]


def _stop(build: Build) -> list[str]:
    store = f"global_store_dword v[4:5], v6, off offset:{4 * build.faults.stop} sc0 sc1"
    return ["v_mov_b32 v6, 1", *_address(10), store, "s_waitcnt vmcnt(0)"]


def _send(build: Build) -> list[str]:
    """v[0:3] as the mark of every rank's peer buffer."""
    lines = []
    for rank in range(build.ffn.peer.ranks):
        load = f"s_load_dwordx2 s[18:19], s[12:13], {8 * rank}"
        lines += [load, "s_waitcnt lgkmcnt(0)", *_address(18), *_store()]
    return lines


def _give_up(build: Build, peers: bool) -> list[str]:
    """vcc has `where` and the oldest tag, m0 the launch's."""
    code = build.faults.code << build.faults.shift
    own = [f"s_add_u32 s14, s14, {code + FROM:#x}"] if peers else [f"s_mov_b32 s14, {code + OWN:#x}"]
    copied = [*_address(16), "global_load_dwordx4 v[0:3], v[4:5], off sc0 sc1", "s_waitcnt vmcnt(0)",
              *_address(8), *_store(build.faults.mark)]  # fmt: skip
    return [
        *_begin(build, peers), "v_mov_b32 v0, s4", "v_mov_b32 v1, s5", "v_mov_b32 v2, s6",
        f"v_mov_b32 v3, {build.faults.code:#x}",
        "s_and_b32 s7, s4, 0xff", f"s_lshl_b32 s7, s7, {BLOCK_SHIFT}", "s_add_u32 s18, s8, s7",
        "s_addc_u32 s19, s9, 0", *_address(18), *_store(),
        f"s_and_b32 s7, s4, {MARKED:#x}", "s_cmp_lg_u32 s7, 0", f"s_cbranch_scc1 {GIVE_UP}_marked",
        *own, "v_mov_b32 v0, s14", "v_mov_b32 v1, s4", "v_mov_b32 v2, s5", "v_mov_b32 v3, s6",
        *_address(8), *_store(), *_stop(build), *(_send(build) if peers else ()), "s_endpgm",
        f"{GIVE_UP}_marked:", *(copied if peers else ()), *_stop(build), "s_endpgm",
    ]  # fmt: skip


def _turn_back(build: Build) -> list[str]:
    """Wave 0 (m0) of a workgroup passes on the mark, or this rank's own head."""
    high = -(1 << build.faults.shift) & 0xFFFFFFFF
    return [
        *_begin(build, True), "s_cmp_lg_u32 s6, 0", f"s_cbranch_scc1 {TURN_BACK}_end",
        *_address(16), "global_load_dwordx4 v[0:3], v[4:5], off sc0 sc1", "s_waitcnt vmcnt(0)",
        "v_readfirstlane_b32 s7, v0", "s_nop 4", "s_cmp_lg_u32 s7, 0", f"s_cbranch_scc1 {TURN_BACK}_marked",
        *_address(8), "global_load_dwordx4 v[0:3], v[4:5], off sc0 sc1", "s_waitcnt vmcnt(0)",
        "v_readfirstlane_b32 s7, v0", "s_nop 4", f"s_and_b32 s7, s7, {high:#x}",
        f"s_add_u32 s14, s14, {FROM}", "s_or_b32 s7, s7, s14", "v_mov_b32 v0, s7",
        f"s_branch {TURN_BACK}_send",
        f"{TURN_BACK}_marked:", *_address(8), *_store(build.faults.mark), *_stop(build),
        f"{TURN_BACK}_send:", *_send(build), f"{TURN_BACK}_end:", "s_endpgm",
    ]  # fmt: skip
