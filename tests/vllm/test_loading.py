"""vLLM's processing of real parameters with the plugin's hooks, and its own reload."""

from __future__ import annotations

import pytest
from scenario import needs_vllm, run

pytestmark = [needs_vllm, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.mark.parametrize(("arch", "tp"), [("gfx942", 4), ("gfx950", 2), ("gfx950", 4)])
def test_launches_read_what_the_checkpoint_says(arch: str, tp: int) -> None:
    """At load, and after a reload: byte for byte what the project's copies of the published form are, at the
    same addresses (a captured graph holds them; `launches_same` looks at the tensors from before)."""
    found = run("loading", arch, tp)
    assert "error" not in found, found["error"]
    assert found["loaded"] == [] and found["planted"] == ["ffn.w2"]
    assert found["reloaded"] == [] and found["launches_same"] == []
    # vLLM may put its RoPE table elsewhere; no reload changes it, and the launches' weights keep theirs alive
    assert {name.partition(".")[2] for name in found["moved"]} <= {"cos_sin"}
    assert (found["copies"] > 100 << 20) is found["own"]


def test_padding_that_is_not_zero_is_refused_by_tensor() -> None:
    found = run("loading", "gfx942", 4, "padding")
    assert (
        "w13_weight" in found["error"]
        and "expert 5" in found["error"]
        and found["broken"] == ["weights-unfit"]
    )


def test_an_aiter_that_does_not_pad_its_codes_is_named() -> None:
    """20 code columns of w2 at TP4, where the kernels' layout has 24 (FFN math, Q6)."""
    found = run("loading", "gfx950", 4, env={"FLYMONO_TEST_CODES": "tight"})
    assert "w2_weight_scale" in found["error"] and "AITER version that pads" in found["error"]
