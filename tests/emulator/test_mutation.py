"""Mutants of correct kernels: a wait, barrier or address that guards something is missed when it is gone.

A mutant is the code object with one instruction replaced in place. It is killed by a finding (with both PCs
where two instructions meet) or by a wrong output. Survivors are allowed only where `undetected` says
why.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pytest
from programs import ARCHS, code_objects, expected, launch

from flymono.emulator import CodeObject, EmulationError

NOP = struct.pack("<I", 0xBF800000)


@dataclass
class Case:
    """One kernel with inputs and the check of its output."""

    kernel: str
    groups: int = 1
    n: int = 0

    def run(self, arch: str, code: CodeObject | None = None, **options: object) -> bool:
        """Launch; True when every output is right. EmulationError passes through."""
        rng = np.random.default_rng(7)
        if self.kernel == "handoff":
            data, out, flag = (
                np.zeros(256, np.int32),
                np.zeros(self.groups * 256, np.int32),
                np.zeros(1, np.int32),
            )
            launch(arch, self.kernel, (data, out, flag), self.n, self.groups, code, **options)
            want = np.tile(np.arange(256) * 3 + 1, (self.groups, 1))
            want[self.n] = 0
            return bool(np.array_equal(out.reshape(self.groups, 256), want))
        if self.kernel == "vadd":
            a, b, c = (rng.integers(0, 99, 1024).astype(np.float32) for _ in range(3))
            launch(arch, self.kernel, (a, b, c), 1024, 1, code, **options)
            return bool(np.array_equal(c, a + b))
        if self.kernel == "reduce":
            x, out = (
                rng.integers(0, 99, self.groups * 256).astype(np.float32),
                np.zeros(self.groups, np.float32),
            )
            launch(arch, self.kernel, (x, out, 0), 0, self.groups, code, **options)
            return bool(np.array_equal(out, x.reshape(self.groups, 256).sum(1)))
        if self.kernel == "transpose":
            x, out = rng.standard_normal(1024).astype(np.float32), np.zeros(1024, np.float32)
            launch(arch, self.kernel, (x, out, 0), 0, 1, code, **options)
            return bool(np.array_equal(out, expected("transpose", x)))
        assert self.kernel == "rounds"
        y, out = rng.integers(0, 99, 256).astype(np.int32), np.zeros(256, np.int32)
        launch(arch, self.kernel, (y, out, 0), self.n, 1, code, **options)
        return bool(np.array_equal(out, expected("rounds", y, self.n)))


CASES = [
    Case("vadd"),
    Case("reduce", groups=2),
    Case("transpose"),
    Case("rounds", n=3),
    Case("handoff", groups=3, n=1),
]


def sites(arch: str, kernel: str, mnemonic: str) -> list[int]:
    """PCs of one instruction within the kernel's live code."""
    return [
        pc
        for pc, _size, text in code_objects(arch)[kernel].disassemble(kernel)
        if text.split()[0] == mnemonic
    ]


def mutants(mnemonic: str) -> list[object]:
    return [
        pytest.param(arch, case, id=f"{case.kernel}-{arch}")
        for arch in ARCHS
        for case in CASES
        if case.kernel != "vadd" or mnemonic == "s_waitcnt"
    ]


SCHEDULES = [
    {"lds_race": True, "order": order, "seed": seed, "quantum": quantum, "sampling": sampling}
    for order, seed, quantum, sampling in (
        ("linear", 0, 4096, "late"), ("reversed", 0, 4096, "late"), ("random", 1, 1, "random"),
        ("random", 2, 3, "early"), ("random", 3, 2, "late"))
]  # fmt: skip


def publishing(arch: str, kernel: str) -> list[int]:
    """Waits between a global store and a barrier: behind them other workgroups may be told of the data."""
    lines = [(pc, text.split()[0]) for pc, _size, text in code_objects(arch)[kernel].disassemble(kernel)]
    out = []
    for at, (pc, name) in enumerate(lines):
        if name == "s_waitcnt" and lines[at + 1][1] == "s_barrier":
            memory = [n for _, n in lines[:at] if n.startswith(("ds_", "global_", "buffer_"))]
            out += [pc] if memory and "store" in memory[-1] else []
    return out


def undetected(arch: str, case: Case, mnemonic: str) -> list[int]:
    """Mutants that no check and no schedule of the emulator shows today. Strict: a killed one must go.

    Global stores become visible when they issue, so a missing `publishing` wait leaves nothing in flight. In
    `handoff` the producer's barrier (its last) would need three waves to lag far behind the one that stores
    the flag.
    """
    if mnemonic == "s_waitcnt":
        return publishing(arch, case.kernel)
    return sites(arch, case.kernel, "s_barrier")[-1:] if case.kernel == "handoff" else []


def verdicts(arch: str, case: Case, mnemonic: str) -> dict[int, str]:
    """PC -> "found", "wrong" or "survived" for each instruction of one mnemonic turned into s_nop."""
    out = {}
    for pc in sites(arch, case.kernel, mnemonic):
        mutant = code_objects(arch)[case.kernel].patched(pc, NOP)
        seen = {judge(arch, case, mutant, **options) for options in SCHEDULES}
        out[pc] = "found" if "found" in seen else "wrong" if "wrong" in seen else "survived"
    return out


def judge(arch: str, case: Case, mutant: CodeObject, **options: object) -> str:
    try:
        return "survived" if case.run(arch, mutant, **options) else "wrong"
    except EmulationError as error:
        assert all(f.pc >= 0 and f.workgroup >= 0 and f.wave >= 0 for f in error.findings)
        return "found"


@pytest.mark.parametrize(("arch", "case"), mutants("s_waitcnt"))
@pytest.mark.parametrize("mnemonic", ["s_waitcnt", "s_barrier"])
def test_every_wait_and_barrier_guards(arch: str, case: Case, mnemonic: str) -> None:
    """Each becomes s_nop: killed by a finding or a wrong output, except what `undetected` explains."""
    assert all(case.run(arch, **options) for options in SCHEDULES), "the kernel itself must be clean"
    survivors = [pc for pc, verdict in verdicts(arch, case, mnemonic).items() if verdict == "survived"]
    assert survivors == undetected(arch, case, mnemonic)


@pytest.mark.parametrize("arch", ARCHS)
def test_missing_wait_names_both_instructions(arch: str) -> None:
    """Every removed wait behind a load is reported as a pair: the load before it, the use behind it."""
    for case in CASES:
        code = code_objects(arch)[case.kernel]
        pairs = 0
        for pc in sites(arch, case.kernel, "s_waitcnt"):
            if pc in undetected(arch, case, "s_waitcnt"):
                continue
            with pytest.raises(EmulationError) as error:
                case.run(arch, code.patched(pc, NOP))
            found = [f for f in error.value.findings if f.other_pc >= 0]
            pairs += any(min(f.pc, f.other_pc) < pc < max(f.pc, f.other_pc) for f in found)
        assert pairs >= 2, case.kernel


def killed(arch: str, case: Case, mutant: CodeObject, **options: object) -> bool:
    return judge(arch, case, mutant, **options) != "survived"


@pytest.mark.parametrize("arch", ARCHS)
def test_shifted_lds_address(arch: str) -> None:
    """An LDS offset moved by 4 (transpose) reads what nobody wrote or the wrong cell."""
    case = CASES[2]
    code = code_objects(arch)["transpose"]
    for pc, _size, text in code.disassemble("transpose"):
        if text.startswith("ds_read"):
            word = struct.unpack_from("<I", code.text, pc)[0]
            assert killed(
                arch, case, code.patched(pc, [word + 1 if "2" in text.split("_b32")[0] else word + 4])
            )


@pytest.mark.parametrize("arch", ARCHS)
def test_shifted_global_address(arch: str) -> None:
    """A load moved past its buffer: an error that names the buffer's end, with workgroup, wave and lane."""
    code = code_objects(arch)["vadd"]
    pc, word = next(
        (pc, struct.unpack_from("<I", code.text, pc)[0])
        for pc, _s, text in code.disassemble("vadd")
        if text.startswith("global_load")
    )
    with pytest.raises(EmulationError) as error:
        CASES[0].run(arch, code.patched(pc, [word + 16]))
    finding = error.value.findings[0]
    assert finding.pc == pc and finding.lane == 63 and finding.wave == 3 and finding.workgroup == 0


@pytest.mark.parametrize("arch", ARCHS)
def test_lost_flag_is_a_deadlock(arch: str) -> None:
    """The flag store becomes a no-op: every wave's PC and the polled address with its buffer are reported."""
    code = code_objects(arch)["handoff"]
    stores = [
        pc
        for pc, _s, text in code.disassemble("handoff")
        if text.startswith("global_store") and "sc1" in text
    ]
    mutant = code.patched(stores[-1], NOP + NOP)
    with pytest.raises(EmulationError) as error:
        CASES[4].run(arch, mutant)
    text = str(error.value)
    polls = [
        pc for pc, _s, line in code.disassemble("handoff") if line.startswith("global_load") and "sc1" in line
    ]
    assert "wait" in text.lower() and " c" in text, text
    assert any(f"{pc:#x}" in text for pc in polls), text
