"""vLLM's own `layer.forward` under its own metadata, kernels on the emulator: the bits of `run layer`.

`run layer` is judged by the reference in the same scenario, with the budgets of its stages; all ranks
compare. FLYMONO_VLLM_ALL=1 adds layers that take minutes each.
"""

from __future__ import annotations

import os

import pytest
from scenario import needs_vllm, run

pytestmark = [needs_vllm, pytest.mark.slow, pytest.mark.timeout(1500)]
LAYERS = [
    ("gfx950", 2, 1, "0"),  # first: the embedding, nothing folded
    ("gfx950", 2, 1, "1"),  # Engram: the residual arrives settled
    ("gfx950", 2, 1, "2+3"),  # index and kv source, then a consumer of both, in one model step
    ("gfx950", 2, 6, "3"),  # a padded row
    ("gfx950", 2, 1, "40"),  # draft: wide windows, other routing
    ("gfx942", 4, 1, "2+3"),  # with the key list, on copies
]
if os.environ.get("FLYMONO_VLLM_ALL"):
    LAYERS += [("gfx950", 2, 1, "20+21"), ("gfx942", 4, 6, "3"), ("gfx942", 4, 1, "40")]
SELECTION = ["kv_score", "compress", "produce_keys", "query", "index"]


@pytest.mark.parametrize(("arch", "tp", "rows", "layers"), LAYERS)
def test_real_layers_have_the_bits_of_run_layer_on_every_rank(
    arch: str, tp: int, rows: int, layers: str
) -> None:
    found = run("forward", arch, tp, rows, layers, *(["padded"] if rows > 1 else []))
    one, numbers = found[""], layers.split("+")
    assert one["path"] == "whole" and one["counts"]["taken"] == 1
    assert one["differs"] == [[[]] * tp for _ in numbers]
    assert one["rope"] == 0.0  # vLLM's table is the one that the step was made with
    if numbers[0] in ("2", "20"):
        assert [call[0] for call in one["selection"]] == SELECTION
        normed, qr = [[rows, 5120], "torch.bfloat16"], [[rows, 1280], "torch.bfloat16"]
        assert one["selection"][0][1:] == [normed] and one["selection"][-1][1:] == [normed, qr]
    if layers == "1":
        assert one["engram"] == {"settled": True, "hashes": [[3, 4, 5]], "mask": [True]}


def test_bugs_of_a_host_are_seen() -> None:
    """Inputs taken for each other, a list of another step, a cache's blocks too far apart."""
    found = run("forward", "gfx950", 2, 1, 3, "swapped", "stale", "stride")
    assert found[""]["differs"] == [[[], []]]
    assert "out" in found["swapped"]["differs"][0][0] and "out" in found["stale"]["differs"][0][0]
    assert "swa of rank 0" in found["stride"]["raised"]
