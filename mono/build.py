"""What a generated kernel states about itself: plain records of literals.

A generated module fills these records with the numbers of its plan and hands them, with the lane's place
(``context``), to the stages. Offsets and sizes are bytes unless a name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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


@dataclass(frozen=True)
class Numerics:
    """Constants of the formulas."""

    rms_eps: float  # added to a mean square
    gate_eps: float  # added to pre gates and in Sinkhorn
    post_multiplier: float
    sinkhorn: int  # iterations in all


@dataclass(frozen=True)
class Seam:
    """The seam's loop counts and its LDS members."""

    gate_groups: int  # threads' groups of slices ...
    gate_slices: int  # ... and slices of a group
    red: int
    rl: int
    fl: int


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
class Tasks:
    """``count`` tasks of a stage: task i on workgroup first + i mod span, in ascending order."""

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
    """A place where a wave waits: its number in a fault record, its stage, how often it may look."""

    number: int
    stage: str
    polls: int


@dataclass(frozen=True)
class Build:
    """Everything the stages of one kernel know at build time.

    The tag is tag_scale * epoch + tag_offset; ``fault_word`` is where the epoch buffer takes a fault record.
    """

    workgroups: int
    waves: int
    pass_width: int  # tokens of a GEMV pass
    lds_bytes: int
    tag_scale: int
    tag_offset: int
    fault_word: int
    shape: Shape
    how: Strategy
    numerics: Numerics
    seam: Seam
    front: Front
    scratch: Scratch
