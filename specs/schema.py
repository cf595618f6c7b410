"""The schema of every spec file, as frozen pydantic models (strict, no unknown keys).

Invariants
 - A value is a fact with a unit in its name or description; nothing here is a preference of a kernel.
 - `auto` stands only where the plan has a policy of that name; there is no expression language.
 - Models are frozen: a spec that has been loaded is never edited, a changed spec is a new file.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Auto = Literal["auto"]
Count = Annotated[int, Field(gt=0)]
Fp8Flavour = Literal["ocp", "fnuz"]


class Spec(BaseModel):
    """Base of every spec model: strict types, unknown keys refused, frozen."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Sourced(Spec):
    """A measured or published figure with where it comes from."""

    value: Annotated[float, Field(gt=0)]
    unit: str
    source: str


# ---------------------------------------------------------------- arch


class Elf(Spec):
    """How a code object names the architecture."""

    mach: Annotated[int, Field(ge=0, le=255, description="e_flags & 0xff of a code object")]


class Workgroup(Spec):
    """What one workgroup can hold."""

    lds_bytes: Annotated[int, Field(gt=0, description="LDS bytes that one workgroup may allocate")]
    wave_size: Count
    max_threads: Count


class Machine(Spec):
    """Counts of a whole GPU."""

    xcds: Count
    compute_units: dict[str, Count]  # product name -> compute units
    simds_per_cu: Count
    workgroups: Annotated[
        Count | Auto, Field(description="workgroups of a launch; auto: the largest power of two that fits")
    ] = "auto"


class Registers(Spec):
    """Register file limits."""

    vgprs_per_simd_lane: Count
    vgpr_granule: Count
    sgprs_per_wave: Count


class Fp8(Spec):
    """The 8-bit float format that the MFMA and the conversions of this arch use."""

    flavour: Fp8Flavour
    max: Annotated[float, Field(gt=0, description="largest finite value that kernels clamp to")]
    exponent_bias: Count
    nan: Literal["0x7f_0xff", "0x80"]


class Mfma(Spec):
    """One matrix instruction: D[m,n] += A[m,k] * B[k,n]."""

    name: str
    m: Count
    n: Count
    k: Count
    a: Literal["f32", "f16", "bf16", "fp8", "f8f6f4"]
    b: Literal["f32", "f16", "bf16", "fp8", "f8f6f4"]
    scaled: bool = False
    passes: Annotated[int, Field(gt=0, description="passes of 4 clocks")]


Capability = Literal[
    "mfma_scale_f8f6f4",
    "mfma_fp8",
    "mfma_bf16_k32",
    "permlane_swap",
    "cvt_pk_bf16_f32",
    "cvt_scalef32",
    "cvt_pk_fp8_f32",
    "maximum3_f32",
    "bitop3",
    "global_load_lds_b128",
    "ds_read_tr",
]

Erratum = Literal["pk_fma_f32_op_sel_010"]


class CacheModifiers(Spec):
    """Buffer `aux` bits and what the combinations mean."""

    sc0: int
    nt: int
    sc1: int
    device_scope: Annotated[int, Field(description="aux of a hand-off between workgroups of one GPU")]
    system_scope: Annotated[int, Field(description="aux of a hand-off between GPUs")]


class Memory(Spec):
    """Memory figures for the roofline, each with its source."""

    clock_mhz: Sourced
    hbm_bandwidth: Sourced
    l2_bytes_per_xcd: Count
    l2_latency: Sourced
    mall_bandwidth: Sourced
    mall_latency: Sourced
    hbm_latency: Sourced
    line_bytes: Count


class Gemv(Spec):
    """How many tokens one GEMV pass holds in LDS."""

    pass_width: Count | Auto
    expert_k_block: Annotated[
        Count | Literal["whole"],
        Field(description="K columns of x that routed gate/up holds in LDS at a time; whole: all of them"),
    ] = "whole"


class Layers(Spec):
    """How a layer is put together from launches."""

    index_keys: Annotated[
        Literal["k2", "launch"],
        Field(description="who makes an index layer's key table: K2 itself, or a launch before it"),
    ] = "k2"


class Rows(Spec):
    """The largest step width."""

    limit: Count | Auto
    reason: str


class ArchSpec(Spec):
    """One GPU architecture: capabilities and figures, never preferences."""

    schema_version: Literal[1]
    kind: Literal["arch"]
    name: str
    title: str
    inherits: str | None = None
    elf: Elf
    workgroup: Workgroup
    machine: Machine
    registers: Registers
    fp8: Fp8
    mfma: tuple[Mfma, ...]
    capabilities: dict[Capability, bool]
    errata: tuple[Erratum, ...] = ()
    cache: CacheModifiers
    memory: Memory
    gemv: Gemv
    layers: Layers = Layers()
    rows: Rows
    tp: tuple[Count, ...]

    def has(self, capability: Capability) -> bool:
        """Whether the arch has `capability` (every capability is stated, none is a default)."""
        return self.capabilities[capability]


# ---------------------------------------------------------------- model


class Attention(Spec):
    """Sizes of the attention half (whole model, before any TP split)."""

    heads: Count
    kv_heads: Count
    head_dim: Count
    rope_dim: Count
    q_lora_rank: Count
    o_lora_rank: Count
    o_groups: Count
    window: Count


class Hyper(Spec):
    """Hyper-connection streams and their gates."""

    streams: Count
    sinkhorn_iters: Count
    eps: float
    post_multiplier: float


class Topology(Spec):
    """Which layer is what."""

    layers: Count
    compress_ratios: tuple[int, ...]
    kv_source_layers: tuple[int, ...]
    index_source_layers: tuple[int, ...]
    candidate_source_layer: int
    engram_layers: tuple[int, ...]
    draft_layers: Count


class Indexer(Spec):
    heads: Count
    head_dim: Count
    topk: Count
    candidate_blocks: Count
    candidate_block_size: Count


class Rope(Spec):
    """Rotary embedding of both kinds of layer."""

    theta: Count
    compress_theta: Count
    scaling: Literal["yarn"]
    factor: Count
    beta_fast: Count
    beta_slow: Count
    original_max_positions: Count
    max_positions: Count


class Moe(Spec):
    """The FFN half."""

    experts: Count
    experts_per_token: Count
    shared_experts: Count
    intermediate: Count
    scoring: Literal["sqrtsoftplus"]
    topk_method: Literal["noaux_tc"]
    norm_topk_prob: bool
    routed_scaling: float
    swiglu_limit: float
    activation: Literal["silu"]
    hash_layers: int


class Draft(Spec):
    """The DSpark draft layers."""

    block_size: Count
    target_layers: tuple[int, ...]
    experts: Count
    experts_per_token: Count
    markov_rank: Count
    noise_token: int


class Quantisation(Spec):
    """How the checkpoint stores weights."""

    method: Literal["fp8"]
    weight_block: tuple[Count, Count]
    scale_format: Literal["ue8m0"]
    expert_dtype: Literal["fp4"]
    activation_group: Count
    record_group: Count
    dense_code_range: tuple[int, int]
    expert_code_range: tuple[int, int]


class Loaded(Spec):
    """Weights that vLLM itself holds on one rank, before any copies of ours."""

    tp: Count
    gib: Annotated[float, Field(gt=0)]
    source: str


class ModelSpec(Spec):
    """One model: every value of its published config that a layer's computation depends on."""

    schema_version: Literal[1]
    kind: Literal["model"]
    name: str
    title: str
    prefix: Annotated[str, Field(description="first part of build ids, e.g. dsv41")]
    architecture: str
    model_type: str
    text_model_type: str
    hidden: Count
    vocab: Count
    rms_eps: float
    attention: Attention
    hyper: Hyper
    topology: Topology
    indexer: Indexer
    rope: Rope
    moe: Moe
    draft: Draft
    quantisation: Quantisation
    windows: Annotated[tuple[Count, ...], Field(description="window list widths that builds exist for")]
    loaded: tuple[Loaded, ...] = ()


# ---------------------------------------------------------------- builds


class BuildGroup(Spec):
    """A product of build parameters: every combination is a shipped build. What a kernel does not depend on
    is left at its default (attention's part of an FFN launch, fold and window of K2)."""

    kernel: Literal["k1", "k2", "ffn", "keylist"]
    arch: str
    tp: tuple[Count, ...]
    rows: Annotated[str | tuple[Count, ...], Field(description="a name of `widths`, or the row counts")]
    ratio: tuple[int, ...] = (2,)
    fold: tuple[bool, ...] = (True,)
    index: tuple[bool, ...] = (False,)
    window: tuple[Count, ...] = (128,)
    timeline: tuple[bool, ...] = (False,)
    draft: tuple[bool, ...] = (False,)
    why: str


class BuildSpec(Spec):
    """The shipped matrix of one model. `widths` are lists of rows that groups share, each written once."""

    schema_version: Literal[1]
    kind: Literal["build"]
    name: str
    model: str
    widths: dict[str, tuple[Count, ...]] = {}
    groups: tuple[BuildGroup, ...]

    def rows_of(self, group: BuildGroup) -> tuple[int, ...]:
        """The row counts of a group; none where it names widths that are not stated (a finding says so)."""
        return self.widths.get(group.rows, ()) if isinstance(group.rows, str) else group.rows


# ---------------------------------------------------------------- numerics


class Term(Spec):
    """A scalar that error bounds are made of.

    `formula` is arithmetic over the names of the model's sizes, the summation order and earlier terms
    (reference/formula.py evaluates it); a mapping gives one formula per GEMV strategy.
    """

    name: str
    formula: str | dict[str, str]
    derivation: str


class Budget(Spec):
    """How far one output of one stage may be from the reference, and why.

    `bits`: equal bit for bit. `bound`: |got - exact| <= bound, element by element. `rounded`: got lies
    between the roundings (to `dtype`) of exact - bound and exact + bound, so a neighbour passes only near
    a tie. `ranked`: an order, in which two entries may be exchanged only if their bounds overlap.
    `relative`: |got - exact| <= budget * |exact| in the norm of a row.
    `formula` is the bound in words of `terms`; the derivation says where each part comes from.
    """

    stage: str
    output: str
    dtype: Literal["f32", "bf16", "e4m3", "e8m0", "i32", "bytes"]
    rule: Literal["bits", "bound", "rounded", "ranked", "relative"]
    terms: tuple[str, ...] = ()
    formula: str
    derivation: str


class NumericsSpec(Spec):
    """The error budgets of one kernel."""

    schema_version: Literal[1]
    kind: Literal["numerics"]
    name: str
    kernel: Literal["k1", "k2", "ffn", "keylist"]
    model: str
    terms: tuple[Term, ...]
    budgets: tuple[Budget, ...]
