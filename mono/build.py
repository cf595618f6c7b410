"""What a generated kernel states about itself: plain records of literals, no arithmetic.

A generated module fills these records with numbers of its plan and hands them, with the lane's place
(``context``), to the stages. All offsets and sizes are bytes unless a name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass


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
    data_bytes: int  # a KV record's data; its scale bytes lie behind the block's data
    scale_bytes: int


@dataclass(frozen=True)
class Work:
    """How the step is cut up: tasks, passes, waves."""

    workgroups: int
    waves: int
    pass_width: int  # tokens of a GEMV pass
    slices: int  # seam slices of the hidden axis
    slice_columns: int
    gate_block: int  # slices that one gate thread sums
    wqkv_tiles: int  # 16-row tiles of wqkv
    wqkv_parts: int  # K parts of a tile
    wqb_tasks: int  # 16-row tasks of wq_b a workgroup


@dataclass(frozen=True)
class Strategy:
    """Instruction sequences, each chosen by a capability of the arch spec."""

    gemv: str  # "scaled_mfma" or "fp8_mfma_fma"
    fp8: str  # "ocp" or "fnuz"
    weight_layout: str  # "row_major" or "tile_major"
    lane_swap: bool  # v_permlane{16,32}_swap
    bf16_cvt: bool  # v_cvt_pk_bf16_f32
    max3: bool  # NaN-propagating v_maximum3_f32


@dataclass(frozen=True)
class Numerics:
    """Constants of the formulas."""

    eps: float  # added to a mean square
    hc_eps: float  # added to pre gates and in Sinkhorn
    post_scale: float
    sinkhorn: int  # iterations in all


@dataclass(frozen=True)
class Lds:
    """Offsets in the one LDS block; the seam's members overlay the front's."""

    total: int
    seam_red: int
    seam_rl: int
    seam_fl: int
    red: int
    qxl: int
    qxsl: int
    xl: int
    xsl: int
    tail: int  # 64 bytes behind the front's partial sums


@dataclass(frozen=True)
class Scratch:
    """Offsets of the scratch regions that the launch touches."""

    x8: int
    x8s: int
    xrdy: int
    qkvp: int
    qx8: int
    qx8s: int
    qrdy: int
    lin: int
    pmix: int


@dataclass(frozen=True)
class Site:
    """A place where a wave waits: its number in a fault record, its name, how often it may look."""

    number: int
    name: str
    polls: int


@dataclass(frozen=True)
class Build:
    """Everything the stages of one kernel know at build time."""

    shape: Shape
    work: Work
    how: Strategy
    numerics: Numerics
    lds: Lds
    scratch: Scratch
