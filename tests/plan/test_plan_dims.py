"""Sizes of a rank, and models whose sizes the tiles cannot divide."""

from __future__ import annotations

import pytest

from flymono.runtime.plan.dims import dims_of, shape_reasons
from flymono.specs import Specs

# attention.md 1.2
RANK = {
    2: {"heads": 32, "head_tiles": 2, "groups": 4, "group_k": 4096, "q_rows": 16384, "o_rows": 4096},
    4: {"heads": 16, "head_tiles": 1, "groups": 2, "group_k": 4096, "q_rows": 8192, "o_rows": 2048},
}
WHOLE = {
    "qkv_rows": 1792, "k_mix": 20480, "mix": 24, "nope": 448, "half": 32, "keys": 640,
    "record_data_bytes": 576, "record_scale_bytes": 8, "record_bytes": 584, "request_rows": 6,
}  # fmt: skip


@pytest.mark.parametrize("tp", [2, 4])
def test_sizes(specs: Specs, tp: int) -> None:
    d = vars(dims_of(specs.model["deepseek_v41_flash"], tp))
    want = RANK[tp] | WHOLE | {"intermediate": 2304 // tp, "intermediate_padded": {2: 1152, 4: 640}[tp]}
    assert {name: d[name] for name in want} == want
    assert shape_reasons(specs.model["deepseek_v41_flash"], tp) == []


@pytest.mark.parametrize(
    ("part", "name", "value", "says"),
    [
        (None, "hidden", 5120 + 128, "hidden"),
        ("attention", "q_lora_rank", 1280 + 64, "q_lora_rank"),
        ("attention", "head_dim", 512 + 64, "head_dim"),
        ("attention", "rope_dim", 48, "rope_dim"),
        ("attention", "heads", 64 + 32, "heads"),
        ("attention", "o_groups", 6, "o_groups"),
        ("attention", "o_lora_rank", 1024 + 16, "o_lora_rank"),
        ("moe", "intermediate", 2304 + 64, "intermediate"),
        ("moe", "experts", 384 + 32, "experts"),
    ],
)
def test_each_size_that_does_not_divide_is_named(
    specs: Specs, part: str | None, name: str, value: int, says: str
) -> None:
    model = specs.model["deepseek_v41_flash"]
    changed = {name: value} if part is None else {part: getattr(model, part).model_copy(update={name: value})}
    reasons = shape_reasons(model.model_copy(update=changed), 4)
    assert reasons and any(says in r.text and str(value) in r.text for r in reasons)
