"""Rules of scalars and of the runner's tables: softmax scale, zero record, rank, peer addresses."""

from __future__ import annotations

import math
import struct

from .codes import StepCode
from .findings import StepFinding
from .given import Given


def scale_faults(given: Given) -> list[StepFinding]:
    """`qk_scale` other than the bits of f32(head_dim ** -0.5 * log2(e)) (attention.md 4.1)."""
    bits = given.number("qk_scale")
    if bits is None:
        return []
    want: int = struct.unpack("<I", struct.pack("<f", given.dims.head_dim**-0.5 * math.log2(math.e)))[0]
    if bits & 0xFFFFFFFF == want:
        return []
    limit, fix = f"head_dim {given.dims.head_dim} needs {want:#x}", f"pass {want}"
    return [StepFinding(StepCode.SCALE, "qk_scale", f"{bits & 0xFFFFFFFF:#x}", limit, fix)]


def zero_record_faults(given: Given) -> list[StepFinding]:
    """A record of key -1 that is not all zero: masked keys would not weigh zero values."""
    record = given.tensor("zrec")
    if record is None:
        return []
    count = int((record.reshape(-1)[: given.dims.record_bytes] != 0).sum())
    if not count:
        return []
    what, limit = f"{count} bytes are not zero", "key -1 is read from here"
    return [StepFinding(StepCode.ZERO_RECORD, "zrec", what, limit, "zero it, and let no launch write it")]


def rank_faults(given: Given) -> list[StepFinding]:
    """A rank outside the group; a peer table with empty or repeated addresses, or not this rank's own."""
    rank, table, own = given.number("rank"), given.tensor("peers"), given.number("sym")
    tp, found = given.dims.tp, list[StepFinding]()
    inside = rank is not None and 0 <= rank < tp
    if rank is not None and not inside:
        fix = "pass this process's place in the TP group"
        found.append(StepFinding(StepCode.RANK, "rank", str(rank), f"ranks of TP{tp} are 0 to {tp - 1}", fix))
    if table is None:
        return found
    addresses = [int(a) for a in table.reshape(-1)[:tp].tolist()]
    fix = "exchange the peer buffers' addresses again: one of each rank, in rank order"
    for at, address in enumerate(addresses):
        first = addresses.index(address)
        if address == 0 or first < at:
            limit = "a peer buffer's address" if address == 0 else f"rank {first} has the same"
            found.append(StepFinding(StepCode.PEERS, "peers", f"entry {at} is {address:#x}", limit, fix))
    if inside and rank is not None and own is not None and addresses[rank] != own:
        limit = f"sym says {own:#x}"
        found.append(
            StepFinding(StepCode.PEERS, "peers", f"entry {rank} is {addresses[rank]:#x}", limit, fix)
        )
    return found
