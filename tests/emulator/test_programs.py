"""Compiled FlyDSL kernels on the emulator against numpy, for both archs and several workgroup orders."""

import ml_dtypes
import numpy as np
import pytest
from programs import ARCHS, code_objects, expected, launch

from flymono.emulator import EmulationError, Emulator

ORDERS = ("linear", "reversed", "random")
both = pytest.mark.parametrize("arch", ARCHS)


@both
def test_vadd(arch: str) -> None:
    """3000 floats in 3 workgroups: the last group runs with a partial EXEC and writes nothing past the
    end."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(3072).astype(np.float32) for _ in range(2))
    c = np.full(3072, 7, np.float32)
    result = launch(arch, "vadd", (a, b, c), 3000, groups=3)
    assert np.array_equal(c[:3000], a[:3000] + b[:3000]) and (c[3000:] == 7).all()
    assert result.instructions > 3 * 4 * 10
    assert sum(result.by_opcode.values()) == result.instructions


@both
def test_traffic_is_counted(arch: str) -> None:
    a, b, c = np.zeros(1024, np.float32), np.zeros(1024, np.float32), np.zeros(1024, np.float32)
    traffic = launch(arch, "vadd", (a, b, c), 1024).traffic
    assert traffic["a"].requested == traffic["b"].requested == traffic["c"].requested == 4096
    assert traffic["a"].unique_loaded == 4096 and traffic["c"].unique_stored == 4096


@both
def test_reduce(arch: str) -> None:
    """DPP, swizzle, bpermute or permlane, and an LDS step: integers, so any order of adding gives the same
    bits."""
    x = np.random.default_rng(1).integers(-1000, 1000, 5 * 256).astype(np.float32)
    out = np.zeros(5, np.float32)
    launch(arch, "reduce", (x, out, 0), 0, groups=5)
    assert np.array_equal(out, x.reshape(5, 256).sum(1))


@both
@pytest.mark.parametrize("order", ORDERS)
def test_transpose(arch: str, order: str) -> None:
    x = np.arange(3 * 1024, dtype=np.float32)
    out = np.zeros_like(x)
    launch(arch, "transpose", (x, out, 0), 0, groups=3, order=order, seed=5)
    assert np.array_equal(out, expected("transpose", x))


@both
@pytest.mark.parametrize("records", [16, 1000, 2048, 4096])
def test_buffer_bounds(arch: str, records: int) -> None:
    """Dwords behind num_records load as 0, and stores behind it are dropped, each dword for itself."""
    x = np.arange(1, 1025, dtype=np.int32)
    out = np.full(1024, -1, np.int32)
    launch(arch, "bounds", (x, out, 0), records)
    want = np.full(1024, -1, np.int32)
    stored = (records - 8) // 4
    want[:stored] = np.where(np.arange(stored) < records // 4, x[:stored], 0)
    assert np.array_equal(out, want)


@both
def test_quantise(arch: str) -> None:
    """Scale and codes equal ml_dtypes' conversion of the same products, in the arch's FP8 flavour."""
    x = (np.random.default_rng(2).standard_normal((8, 256)) * np.exp2(np.arange(8))[:, None]).astype(
        np.float32
    )
    largest = {"gfx942": 240, "gfx950": 448}[arch]
    kind = {"gfx942": ml_dtypes.float8_e4m3fnuz, "gfx950": ml_dtypes.float8_e4m3fn}[arch]
    codes, scales = np.zeros((8, 256), np.uint8), np.zeros(8, np.float32)
    launch(arch, "quantise", (x, codes, scales), largest, groups=2)
    want_scale = np.float32(largest) / np.abs(x).max(1)
    assert np.array_equal(scales, want_scale)
    assert np.array_equal(codes, (x * want_scale[:, None]).astype(kind).view(np.uint8))


@both
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("producer", [0, 5])
def test_handoff(arch: str, order: str, producer: int) -> None:
    """Five workgroups poll while the sixth has not started or has long finished: all must be resident."""
    data, out, flag = np.zeros(256, np.int32), np.zeros(6 * 256, np.int32), np.zeros(1, np.int32)
    launch(arch, "handoff", (data, out, flag), producer, groups=6, order=order, seed=9)
    want = np.tile(np.arange(256, dtype=np.int32) * 3 + 1, (6, 1))
    want[producer] = 0
    assert flag[0] == 1 and np.array_equal(out.reshape(6, 256), want)


@both
def test_rounds(arch: str) -> None:
    """Two barriers a step, four waves: any wave running ahead would read a neighbour's new value."""
    x = np.arange(256, dtype=np.int32)
    out = np.zeros(256, np.int32)
    launch(arch, "rounds", (x, out, 0), 9)
    assert np.array_equal(out, expected("rounds", x, 9))


@both
@pytest.mark.parametrize("seed", range(3))
def test_ticket(arch: str, seed: int) -> None:
    """40 waves draw 40 different numbers, whatever the order."""
    counter, out = np.zeros(1, np.int32), np.zeros(41, np.int32)
    launch(arch, "ticket", (counter, out, 0), 0, groups=10, order="random", seed=seed)
    assert counter[0] == 40 and (out[:40] == 1).all() and out[40] == 0


@both
def test_same_bits_over_orders_and_seeds(arch: str) -> None:
    outputs = set()
    x = np.random.default_rng(4).standard_normal(6 * 256).astype(np.float32)
    for order in ORDERS:
        for seed in (0, 1):
            out = np.zeros(6, np.float32)
            launch(arch, "reduce", (x, out, 0), 0, groups=6, order=order, seed=seed)
            outputs.add(out.tobytes())
    assert len(outputs) == 1


@both
def test_a_seed_replays(arch: str) -> None:
    """The same seed gives the same schedule: counters equal, the drawn tickets too."""
    runs = []
    for _ in range(2):
        counter, out = np.zeros(1, np.int32), np.zeros(64, np.int32)
        result = launch(arch, "ticket", (counter, out, 0), 0, groups=8, order="random", seed=3)
        runs.append((result.instructions, dict(result.by_opcode)))
    data, flag = np.zeros(256, np.int32), np.zeros(1, np.int32)
    for _ in range(2):
        flag[0] = 0
        result = launch(
            arch, "handoff", (data, np.zeros(1024, np.int32), flag), 3, groups=4, order="random", seed=3
        )
        runs.append((result.instructions, dict(result.by_opcode)))
    assert runs[0] == runs[1] and runs[2] == runs[3]


def test_both_archs_agree() -> None:
    """One source, two compilations, one result where no FP8 flavour is involved."""
    x = np.random.default_rng(6).standard_normal(4 * 256).astype(np.float32)
    outs = []
    for arch in ARCHS:
        out = np.zeros(4, np.float32)
        launch(arch, "reduce", (x, out, 0), 0, groups=4)
        outs.append(out)
    assert np.array_equal(*outs)


@both
def test_findings_name_the_region(arch: str) -> None:
    """A flag nobody sets: the report names the polled buffer, its region, and the waves that wait."""
    emulator = Emulator(arch)
    data, out, flag = np.zeros(256, np.int32), np.zeros(512, np.int32), np.zeros(4, np.int32)
    for name, array in (("data", data), ("out", out), ("flags", flag)):
        emulator.register(name, array)
    emulator.name_regions("flags", [("spare", 0, 8), ("stage ready", 8, 8)])
    with pytest.raises(EmulationError) as error:
        emulator.launch(code_objects(arch)["handoff"], "handoff", 2, (data, out, flag.ctypes.data + 8, 77))
    stuck = [finding for finding in error.value.findings if finding.buffer == "flags"]
    assert stuck and all(finding.region == "stage ready" for finding in stuck)
    assert "stage ready" in str(error.value) and error.value.result.instructions > 0


@both
def test_a_read_only_buffer_is_not_written(arch: str) -> None:
    emulator = Emulator(arch)
    a, b, c = (np.ones(1024, np.float32) for _ in range(3))
    for name, array, writable in (("a", a, True), ("b", b, True), ("c", c, False)):
        emulator.register(name, array, writable=writable)
    with pytest.raises(EmulationError) as error:
        emulator.launch(code_objects(arch)["vadd"], "vadd", 1, (a, b, c, 1024))
    assert all(finding.text.startswith("global_store") for finding in error.value.findings)
    assert (c == 1).all()


@both
def test_stage_counters(arch: str) -> None:
    """Instructions of two PC ranges add up to the launch."""
    code = code_objects(arch)["vadd"]
    middle = code.disassemble("vadd")[8][0]
    emulator = Emulator(arch)
    arrays = [np.zeros(1024, np.float32) for _ in range(3)]
    for name, array in zip("abc", arrays, strict=True):
        emulator.register(name, array)
    stages = (("head", 0, middle), ("tail", middle, code.kernels["vadd"].end))
    result = emulator.launch(code, "vadd", 1, (*arrays, 1024), stages=stages)
    counts = {name: stage.instructions for name, stage in result.by_stage.items()}
    assert counts["head"] == 8 * 4 and counts["head"] + counts["tail"] == result.instructions
    assert sum(result.by_pc.values()) == result.instructions


@both
def test_vadd_under_every_sampling(arch: str) -> None:
    """When a load looks at memory changes nothing for a correct kernel."""
    for sampling in ("late", "early", "random"):
        a, b, c = (np.arange(1024, dtype=np.float32) for _ in range(3))
        launch(arch, "vadd", (a, b, c), 1024, sampling=sampling, seed=1)
        assert np.array_equal(c, a + b)


@both
def test_without_checks_the_results_are_the_same(arch: str) -> None:
    x = np.arange(1024, dtype=np.float32)
    outs = []
    for check in (True, False):
        out = np.zeros(4, np.float32)
        launch(arch, "reduce", (x, out, 0), 0, groups=4, check=check)
        outs.append(out)
    assert np.array_equal(*outs)
