"""Random archs and models whose sizes divide as the tiles need it; the plan says whether they have one."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from flymono.runtime.plan import BuildKey
from flymono.specs import load
from flymono.specs.schema import ArchSpec, ModelSpec

from .plan_specs import arch_with

SPECS = load()
TP_SIZES = st.sampled_from([(1,), (2,), (4,), (8,), (1, 2), (2, 4), (4, 8), (2, 4, 8)])


@st.composite
def archs(draw: st.DrawFn, tp: tuple[int, ...]) -> ArchSpec:
    """Either MFMA strategy, 64 to 400 compute units, 24 to 256 KiB of LDS, lines of 64 to 256 bytes."""
    base = SPECS.arch[draw(st.sampled_from(["gfx942", "gfx950"]))]
    blocks: list[Any] = ["whole", "whole", 1024, 1024, 2048, 512]
    k_block = draw(st.sampled_from(blocks if base.gemv.expert_k_block != "whole" else ["whole"]))
    width: Any = draw(st.one_of(st.just("auto"), st.just("auto"), st.integers(1, 16)))
    limit: Any = draw(st.one_of(st.just("auto"), st.just("auto"), st.integers(1, 64)))
    units = draw(st.one_of(st.integers(256, 400), st.integers(64, 1100)))
    arch = arch_with(
        base, tp=tp, lds=draw(st.integers(24, 256)) * 1024, width=width, limit=limit, units=units
    )
    line = draw(st.sampled_from([64, 128, 128, 256]))
    update = {
        "memory": arch.memory.model_copy(update={"line_bytes": line}),
        "gemv": arch.gemv.model_copy(update={"expert_k_block": k_block}),
    }
    return arch.model_copy(update=update)


@st.composite
def models(draw: st.DrawFn, tp: tuple[int, ...]) -> ModelSpec:
    """Sizes around the shipped model's; every one a multiple of what the tiles take."""
    base, most = SPECS.model["deepseek_v41_flash"], max(tp)
    groups = most * draw(st.sampled_from([1, 2]))
    rope = draw(st.sampled_from([64, 128]))
    attention = base.attention.model_copy(
        update={
            "heads": groups * 16 * draw(st.integers(1, 2)),
            "head_dim": draw(st.sampled_from([128, 256, 512, 1024])),
            "rope_dim": rope,
            "q_lora_rank": 128 * draw(st.integers(1, 16)),
            "o_lora_rank": 32 * draw(st.integers(1, 40)),
            "o_groups": groups,
        }
    )
    moe = base.moe.model_copy(
        update={
            "experts": 64 * draw(st.integers(1, 8)),
            "experts_per_token": draw(st.integers(1, 8)),
            "intermediate": most * 64 * draw(st.integers(1, 20)),
        }
    )
    drafts = {"experts": 64 * draw(st.integers(1, 3)), "experts_per_token": draw(st.integers(1, 3))}
    streams = base.hyper.model_copy(update={"streams": draw(st.sampled_from([2, 4]))})
    indexer = base.indexer.model_copy(update={"topk": 64 * draw(st.integers(1, 16))})
    return base.model_copy(
        update={
            "hidden": draw(st.sampled_from([1024, 1024, 1024, 256])) * draw(st.integers(1, 7)),
            "attention": attention,
            "moe": moe,
            "draft": base.draft.model_copy(update=drafts),
            "hyper": streams,
            "indexer": indexer,
        }
    )


@st.composite
def layers(draw: st.DrawFn) -> tuple[ModelSpec, ArchSpec]:
    """A model and an arch with common TP sizes."""
    tp = draw(TP_SIZES)
    return draw(models(tp)), draw(archs(tp))


@st.composite
def keys(draw: st.DrawFn, arch: ArchSpec, limit: int, kind: str = "k1") -> BuildKey:
    """Any supported build of a kind on an arch whose steps have at most `limit` rows."""
    ratio = draw(st.sampled_from([0, 1, 2]))
    rows = draw(st.one_of(st.integers(1, limit), st.just(limit)))
    tp, flag = draw(st.sampled_from(arch.tp)), draw(st.booleans())
    if kind == "ffn":
        return BuildKey("ffn", arch.name, tp, rows, draft=flag)
    if kind == "k2":
        return BuildKey("k2", arch.name, tp, rows, ratio, index=flag and ratio > 0, draft=flag and ratio == 0)
    return BuildKey(
        "k1",
        arch.name,
        tp,
        rows,
        ratio,
        flag,
        draw(st.booleans()) if ratio else False,
        128 if ratio else draw(st.sampled_from([128, 192])),
        draw(st.booleans()),
    )
