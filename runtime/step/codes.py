"""Codes of what can be wrong with a step's launch arguments."""

from __future__ import annotations

from enum import StrEnum


class StepCode(StrEnum):
    """Why a step must not be launched; `about` explains each code in one sentence."""

    MISSING = "argument-missing"
    TYPE = "argument-type"
    SIZE = "argument-size"
    LAYOUT = "argument-layout"
    NUMBER = "argument-number"
    POSITION = "position-range"
    SLOT = "slot-range"
    SLOT_TWICE = "slot-twice"
    WINDOW_LENGTH = "window-length"
    WINDOW_SLOT = "window-slot"
    SELECTION_RANGE = "selection-range"
    REQUEST = "request-range"
    BLOCK_TABLE = "block-table"
    KEY_COUNT = "key-count"
    KEY_RANGE = "key-range"
    KEY_AFTER_END = "key-after-end"
    CACHE_STRIDE = "cache-stride"
    CACHE_SIZE = "cache-size"
    CACHE_REACH = "cache-reach"
    SCALE = "scale-bits"
    ZERO_RECORD = "zero-record"
    RANK = "rank-range"
    PEERS = "peer-table"

    @property
    def about(self) -> str:
        """One sentence for the docs page."""
        return ABOUT[self]


ABOUT = {
    StepCode.MISSING: "An argument that the launch reads is not given.",
    StepCode.TYPE: "An argument is no tensor of the ABI's dtype, or no whole number where one is needed.",
    StepCode.SIZE: "A tensor is smaller than what the launch reads of it.",
    StepCode.LAYOUT: "A tensor's elements do not lie as the kernel takes them: strides, alignment.",
    StepCode.NUMBER: "A number is not positive, or not the stride of the tensor that it belongs to.",
    StepCode.POSITION: "A position is negative, or has no row in the RoPE table that a kernel could reach.",
    StepCode.SLOT: "A row's slot is beyond the window cache, or negative and not the -1 of a padded row.",
    StepCode.SLOT_TWICE: "Two rows of a step would write the same record.",
    StepCode.WINDOW_LENGTH: "A row's window length is negative or beyond the width of the window list.",
    StepCode.WINDOW_SLOT: "A window list names a slot beyond the window cache.",
    StepCode.SELECTION_RANGE: "A selected compressed row is not visible at the row's position (-1 is none).",
    StepCode.REQUEST: "A row's request has no line in the block table.",
    StepCode.BLOCK_TABLE: "A block table is too narrow for a selected row, or leads out of the cache.",
    StepCode.KEY_COUNT: "A row's key count is negative or beyond the key table's width.",
    StepCode.KEY_RANGE: "A key-table entry is beyond the cache that it names.",
    StepCode.KEY_AFTER_END: "A key-table entry after a row's last key is not -1, and a chunk would read it.",
    StepCode.CACHE_STRIDE: "Blocks of a cache overlap: the stride is below a block's bytes.",
    StepCode.CACHE_SIZE: "A cache's memory does not hold one block.",
    StepCode.CACHE_REACH: "A cache is beyond what a kernel's 32-bit slots or in-block offsets reach.",
    StepCode.SCALE: "The softmax scale's bits are not those of head_dim ** -0.5 * log2(e).",
    StepCode.ZERO_RECORD: "The record of key -1 holds a byte that is not zero.",
    StepCode.RANK: "The rank is not one of the TP group.",
    StepCode.PEERS: "The peer table has an empty or a repeated address, or another one for this rank.",
}
