"""Kinds of findings of the emulator, one sentence each; `docs/findings.md` is made from this table.

The core (`core/`) spells a kind where it reports it; a test holds both lists together.
"""

from __future__ import annotations

KINDS = {
    "missing-wait": "A register or LDS byte is used, or overwritten, while the operation that owns it is "
    "outstanding; the other PC is that operation's.",
    "store-data-hazard": "The instruction right behind a wide store overwrites the data that it still reads.",
    "uninitialised": "A value that was never written reaches an address, a branch, EXEC or stored data.",
    "out-of-bounds": "An access outside every registered buffer.",
    "read-only": "A write to a buffer that was registered as read-only.",
    "misaligned": "An address that is no multiple of what the instruction asks for.",
    "lds-out-of-bounds": "An access outside the workgroup's LDS.",
    "lds-race": "Two waves touch one LDS byte with no barrier between (option lds_race).",
    "lds-conflict": "Two lanes of one instruction write different data to one LDS address.",
    "mfma-overlap": "The wide result of a matrix instruction overlaps an operand.",
    "bad-jump": "A branch to an address that is no instruction.",
    "ran-off": "Execution left the code.",
    "trap": "The kernel executed s_trap.",
    "unimplemented": "An instruction, or a form of one, that the emulator lacks; none is ever skipped.",
    "all-waiting": "Every wave that is left waits: one finding a place, with the address it polls.",
    "rank-gone": "The launch waits for memory of a rank whose process has ended, or that was closed.",
    "all-resting": "The launch waits for memory of ranks none of which has had work for `patience` seconds.",
    "budget": "The launch was stopped at its limit of instructions.",
}
