"""Whole kernels that LLVM compiled (sample_*.hsaco, made by decode_corpus.py), run through ``Emulator``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flymono.emulator import CodeObject, EmulationError, Emulator

ARCHS = ("gfx942", "gfx950")
WAITCNT, NOP = "s_waitcnt", 0xBF800000


def sample(arch: str) -> CodeObject:
    return CodeObject(Path(__file__).parent / f"sample_{arch}.hsaco")


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("check", [True, False])
def test_reverse_through_lds(arch: str, check: bool) -> None:
    source, out = np.random.default_rng(1).random(64).astype(np.float32), np.zeros(64, np.float32)
    device = Emulator(arch, check=check)
    device.register("in", source, writable=False)
    device.register("out", out)
    result = device.launch(sample(arch), "reverse", 1, [out, source, 64])
    assert (out == source[::-1]).all()
    assert result.by_opcode["s_endpgm"] == 1
    assert sum(result.by_pc.values()) == result.instructions
    assert result.traffic["in"].load.bytes == result.traffic["out"].store.bytes == 256
    assert result.traffic["in"].load.by_scope == {"wave": 256, "workgroup": 0, "agent": 0, "system": 0}


@pytest.mark.parametrize("arch", ARCHS)
def test_float_argument_and_stages(arch: str) -> None:
    data = np.arange(64, dtype=np.float32)
    device = Emulator(arch)
    device.register("data", data)
    code = sample(arch)
    kernel = code.kernels["scale"]
    middle = kernel.entry + 8
    stages = [("head", kernel.entry, middle), ("rest", middle, kernel.end)]
    result = device.launch(code, "scale", 1, [data, 1.5], block=64, stages=stages)
    assert (data == np.arange(64, dtype=np.float32) * np.float32(1.5)).all()
    assert sum(s.instructions for s in result.by_stage.values()) == result.instructions
    assert result.by_stage[""].instructions == 0
    assert [s.stage for s in result.spans] == ["head", "rest"]
    assert result.spans[0].first == 0 and result.spans[-1].last == result.instructions


@pytest.mark.parametrize("arch", ARCHS)
def test_every_wait_of_the_samples_is_needed(arch: str) -> None:
    """Replacing a wait by s_nop is reported with both places (``reverse`` has no redundant one)."""
    code = sample(arch)
    kernel = code.kernels["reverse"]
    waits = [i for i in code.instructions if kernel.entry <= i.pc < kernel.end and i.mnemonic == WAITCNT]
    assert waits
    for wait in waits:
        source, out = np.ones(64, np.float32), np.zeros(64, np.float32)
        device = Emulator(arch)
        device.register("in", source)
        device.register("out", out)
        with pytest.raises(EmulationError) as caught:
            device.launch(code.patched(wait.pc, [NOP]), "reverse", 1, [out, source, 64])
        first = caught.value.findings[0]
        assert first.kind == "missing-wait"
        assert first.other_pc < wait.pc <= first.pc
        assert "missing-wait" in str(caught.value) and hex(first.other_pc) in str(caught.value)


def test_code_of_another_arch_is_refused() -> None:
    with pytest.raises(ValueError, match="code for gfx950"):
        Emulator("gfx942").launch(sample("gfx950"), "scale", 1, [0, 1.0])


def test_a_wrong_pointer_is_an_error_with_the_place() -> None:
    data = np.zeros(64, np.float32)
    device = Emulator("gfx942")
    device.register("data", data)
    with pytest.raises(EmulationError, match="outside every registered buffer") as caught:
        device.launch(sample("gfx942"), "scale", 1, [data.ctypes.data + 4, 1.0], block=64)
    assert {f.kind for f in caught.value.findings} == {"out-of-bounds"}
    assert caught.value.findings[0].lane == 63
    assert caught.value.result is not None and caught.value.result.instructions > 0
