"""What a generated kernel states about itself: plain records of literals.

A generated module fills these records with the numbers of its plan and hands them, with the lane's place
(``context``), to the stages. Offsets and sizes are bytes unless a name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


def absent() -> Any:
    """What kernels of another kind leave out."""
    return field(default=None)


@dataclass(frozen=True)
class Shape:
    """Sizes of the model on one rank, and of the step."""

    rows: int  # tokens of the step
    hidden: int
    streams: int  # hyper-connection streams
    mix: int  # gate projections: pre, post, comb
    q_rank: int
    kv_dim: int
    qkv_rows: int
    head_dim: int
    nope: int  # leading dims of a head that RoPE leaves alone
    rope: int
    q_rows: int  # rows of wq_b on this rank
    topk: int
    keys: int  # entries of a key-table row
    window: int  # entries of a window list
    ratio: int  # compression ratio of the cache that the layer reads; 0: window only
    record_data: int  # a KV record's data; its scale bytes lie behind the block's data
    record_scales: int


@dataclass(frozen=True)
class Strategy:
    """Instruction sequences, each chosen by a capability of the arch spec."""

    gemv: Literal["scaled_mfma", "fp8_mfma_fma"]
    weight_layout: Literal["row_major", "tile_major"]
    fp8: Literal["ocp", "fnuz"]
    bf16_cvt: Literal["cvt_pk", "integer_rne"]
    lane_swap: Literal["permlane_swap", "bpermute"]
    max3: bool  # NaN-propagating v_maximum3_f32
    bf16_k: int  # columns of the bf16 MFMA: 32, or 16 (two of them for 32)
    fp8_cvt: Literal["scaled", "plain"]  # e4m3 to bf16: one instruction with a scale, or fp32 in between


@dataclass(frozen=True)
class Numerics:
    """Constants of the formulas."""

    rms_eps: float  # added to a mean square
    gate_eps: float  # added to pre gates and in Sinkhorn
    post_multiplier: float
    sinkhorn: int  # iterations in all


@dataclass(frozen=True)
class Seam:
    """The seam's loop counts, its LDS members and its scratch regions."""

    gate_groups: int  # threads' groups of slices ...
    gate_slices: int  # ... and slices of a group
    red: int
    rl: int
    fl: int
    lin: int
    pmix: int


@dataclass(frozen=True)
class Front:
    """LDS members of the front; they overlay the seam's. ``red`` ends in 64 bytes for the norms."""

    red: int
    red_bytes: int
    qxl: int
    qxsl: int
    xl: int
    xsl: int

    @property
    def tail(self) -> int:
        """The 64 bytes that the norms use while the partial sums are live."""
        return self.red + self.red_bytes - 64


@dataclass(frozen=True)
class Scratch:
    """Offsets of the scratch regions of the front."""

    x8: int
    x8s: int
    xrdy: int
    qkvp: int
    qx8: int
    qx8s: int
    qrdy: int


@dataclass(frozen=True)
class Peer:
    """The peer buffer: ``mark`` bytes for a fault's mark, then ``half`` bytes a parity of the epoch. ``attn``
    and ``ffn`` are the pairs of every rank's partials in a half, counted from ``mark`` bytes in front of
    it."""

    ranks: int
    mark: int
    half: int
    attn: int
    ffn: int
    sym: int = 0  # byte offsets of launch arguments
    table: int = 0
    rank: int = 0


@dataclass(frozen=True)
class Epoch:
    """Words of the epoch buffer: a mark a workgroup, and two rings of ``ring`` counters."""

    marks: int
    ug_counters: int
    down_counters: int
    ring: int  # a power of two


@dataclass(frozen=True)
class Mixture:
    """Counts of the FFN half. A *pick* is one (row, expert); a *unit* is what a gate/up task reads experts
    for."""

    experts: int
    per_token: int  # picks of a row
    limit: float  # of gate and up
    routed_scale: float
    inter: int  # this rank's columns of an expert
    padded: int  # as MID rows and w2 lie in memory
    loaded: int  # as w13 lies in memory
    groups_per_task: int  # groups of 32 columns of a gate/up task
    parts: int  # tasks of a unit
    pick_width: int  # picks of a unit
    k_block: int  # columns of x in LDS at a time
    router_rows: int  # rows of a router group
    router_parts: int  # K parts
    shared_tasks: int  # shared units of a token tile
    down_extra: int
    copies: int  # of the routing

    def picks(self, rows: int) -> int:
        """Picks of a step."""
        return rows * self.per_token


@dataclass(frozen=True)
class FfnLds:
    """LDS members of the FFN half. ``red`` holds two tiles of partial sums; the route table lives in
    ``weights`` to ``totals``, the rest belongs to one stage at a time."""

    red: int
    weights: int  # routing weight of every pick
    slots: int  # (expert | picks << 16, first position | first unit << 16) of every slot
    units: int  # the same of every unit, or the slots where a slot is one unit
    order: int  # pick | row << 16 at every position: experts, then rows ascending
    starts: int  # first position of every expert
    bitmaps: int  # rows that picked an expert, 64 bits
    totals: int  # a word a wave, the counts of slots and units, a broadcast word
    x: int  # rows of the routed gate/up
    xs: int
    shared_x: int  # rows of the shared expert
    shared_xs: int
    smq: int
    smc: int
    kept: int  # task, pick: 16 weighted results in bf16
    sdl: int  # task, row: 16 results of the shared expert in bf16


@dataclass(frozen=True)
class FfnScratch:
    """Offsets of the scratch regions of the FFN half, and words from row to row of MID's codes."""

    normed: int
    xrdy: int
    x8r: int
    x8rs: int
    x8: int
    x8s: int
    x8rdy: int
    logit: int
    route: int
    smid: int
    smq: int
    smc: int
    mid: int
    mids: int
    mids_row: int
    ugf: int


@dataclass(frozen=True)
class Ffn:
    """The FFN half of a build."""

    mix: Mixture
    lds: FfnLds
    scratch: FfnScratch
    peer: Peer
    epoch: Epoch


@dataclass(frozen=True)
class Split:
    """How the keys of a row are cut into tasks, and the LDS members of one.

    Wave w scores key tile w mod key_tiles of the chunk against its group of head tiles.
    """

    chunk: int  # keys
    chunks: int  # of a row
    key_tiles: int  # 16 keys each
    head_groups: int  # waves that share a key tile, each with its own head tiles
    q: int
    raw: int
    p: int
    st: int


@dataclass(frozen=True)
class Back:
    """K2's attention half: its key split, the LDS members of its GEMVs, its scratch regions."""

    split: Split
    red: int
    xl: int
    xsl: int
    part: int
    pstat: int
    srdy: int
    xo: int
    xos: int
    crdy: int
    x8b: int
    x8bs: int
    ardy: int
    krdy: int
    made_here: bool  # this launch makes its key table
    group_k: int  # columns of a wo_a group
    o_rank: int  # its rows
    o_rows: int  # rows of all groups of the rank


@dataclass(frozen=True)
class Tasks:
    """``count`` tasks of a stage: task i on workgroup (first + i mod span) mod grid, in ascending order."""

    count: int
    first: int
    span: int


@dataclass(frozen=True)
class Gemv:
    """``rows`` weight rows in 16-row ``tiles``; K in ``parts`` of ``k`` columns, ``steps`` of 128 each."""

    rows: int
    k: int
    parts: int
    steps: int
    tiles: int
    per_workgroup: int  # tasks
    span: int  # workgroups that share the tasks, from the first on


@dataclass(frozen=True)
class Site:
    """A place where a wave waits: its number in a fault record, its stage, and whether it may be taken out
    (see mailbox)."""

    number: int
    stage: str
    hold: int = 1


@dataclass(frozen=True)
class Faults:
    """What a wait looks at after every ``look`` polls, and leaves when it gives up (see faults)."""

    code: int  # of this build, above a head's state
    shift: int  # of the code
    stop: int  # word of the epoch buffer
    mark: int  # byte offset of a mark in the fault words
    look: int
    fault: int  # byte offsets of launch arguments
    bound: int
    epoch: int


@dataclass(frozen=True)
class Build:
    """Everything the stages of one kernel know at build time.

    The tag is tag_scale * epoch + tag_offset.
    Workgroups that share nothing need the first three fields alone.
    """

    workgroups: int
    waves: int
    shape: Shape
    pass_width: int = absent()  # tokens of a GEMV pass
    lds_bytes: int = absent()
    tag_scale: int = absent()
    tag_offset: int = absent()
    faults: Faults = absent()
    timeline: tuple[str, ...] = ()  # points of a workgroup's record, in timeline builds
    how: Strategy = absent()
    numerics: Numerics = absent()
    seam: Seam = absent()
    front: Front = absent()
    scratch: Scratch = absent()
    back: Back = absent()
    ffn: Ffn = absent()
