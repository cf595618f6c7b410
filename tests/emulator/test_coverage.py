"""Nothing is implemented without a second opinion: each operation has an oracle or a named reason."""

import re

import opcodes as oc
from cases import SCALAR_NAMES
from differ import implemented, implemented_names
from oracle import ds, machine, mfma, vmem


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Operations that no single-instruction oracle states; test_control.py and the program tests run them.
CONTROL = words("""
    s_nop s_endpgm s_branch s_cbranch_scc0 s_cbranch_scc1 s_cbranch_vccz s_cbranch_vccnz s_cbranch_execz
    s_cbranch_execnz s_barrier s_waitcnt s_sleep
""")
# The memory and matrix operations of the decode kernels (the ALU ones are known by name).
KERNEL_OPERATIONS = words("""
    buffer_load_dword buffer_load_dwordx2 buffer_load_dwordx4 buffer_load_ushort buffer_store_dword
    buffer_store_dwordx2 buffer_store_dwordx4 buffer_store_short ds_bpermute_b32 ds_or_b32 ds_read2_b32
    ds_read2_b64 ds_read2st64_b32 ds_read2st64_b64 ds_read_b128 ds_read_b32 ds_read_b64 ds_read_b96
    ds_swizzle_b32 ds_write2_b32 ds_write2_b64 ds_write2st64_b32 ds_write_b128 ds_write_b32 ds_write_b64
    global_atomic_add global_load_dwordx2 global_load_dwordx4 global_store_dword global_store_dwordx2
    v_mfma_f32_16x16x16_bf16 v_mfma_f32_16x16x32_bf16 v_mfma_f32_16x16x32_fp8_fp8 v_mfma_f32_16x16x4_f32
    v_mfma_scale_f32_16x16x128_f8f6f4
""")


# Implemented, in no decode kernel, and without an oracle: (pattern, why). Remove a line when its oracle is
# written.
UNCHECKED = (
    (r"(flat|scratch)_", "address forms only: the data paths are those of global_*, which are checked"),
    (r".*_d16(_hi)?$", "whether the other half is kept or zeroed is not settled by the facts"),
    (
        r"(ds|global|buffer)_(atomic_)?(add|min|max|pk_add)_(rtn_)?(f32|f64|f16|bf16)$",
        "float atomics: rounding mode",
    ),
    (r"global_load_lds_", "counts and addresses are launch matters"),
    (
        r"s_(dcache|icache|memtime|memrealtime|getreg|setreg|setprio|trap|ttracedata|wakeup)",
        "no value to compare",
    ),
    (r"s_(getpc|setpc|swappc)_b64$", "absolute code addresses"),
    (r"s_buffer_load_", "the same loads as s_load with a descriptor"),
    (r"buffer_(inv|wbl2)$", "cache operations: no value"),
    (r"v_(exp|log|rcp|rsq|sqrt|fma|max3|min3)_f16$|v_pk_(maximum3|minimum3)_f16$", "f16 is in no kernel"),
    (
        r"v_(med3_[iu]16|mad_[iu]16|mad_i64_i32|mul_legacy_f32|sat_pk_u8_i16|nop|fract_f32|sin_f32|cos_f32)$",
        "rare",
    ),
    (r"v_cvt_(rpi_i32_f32|sr_(fp8|bf8)_f32)$", "stochastic and odd rounding"),
    (
        r"v_cvt_scalef32_pk_(bf16_fp4|f16_\w+|fp4_\w+|bf8_\w+|fp8_\w+)$",
        "scaled packs of other widths",
    ),
    (r"v_fma_mix|v_pack_b32_f16|v_cvt_pk_[iu]16_[iu]32$", "mixed precision and 16-bit packs: in no kernel"),
    (r"v_accvgpr_", "moves between register files"),
)


def encodable(name: str) -> bool:
    return any(name in table for table in oc.TABLES.values())


def has_oracle(name: str) -> bool:
    if machine.knows(name.replace("v_cmpx_", "v_cmp_")) or name in SCALAR_NAMES:
        return True
    if not encodable(name):
        return False
    if name.startswith("ds_"):
        return any(pattern.match(name) for pattern in (ds._SINGLE, ds._DOUBLE, ds._ATOMIC, ds._HIGH))
    if name.startswith("v_mfma_"):
        return bool(mfma._NAME.match(name))
    return bool(vmem._WIDTH.search(name) or vmem._ATOMIC.match(name)) and not name.startswith("s_buffer")


def test_the_oracle_covers_what_decode_kernels_use() -> None:
    assert all(has_oracle(name) and implemented(name) for name in KERNEL_OPERATIONS)


def test_every_operation_of_the_core_has_a_second_opinion() -> None:
    """A new operation needs an oracle, or a line in UNCHECKED that says why not; no line may be idle."""
    missing = {name for name in implemented_names() if not has_oracle(name) and name not in CONTROL}
    matched = {name: [p for p, _ in UNCHECKED if re.match(p, name)] for name in missing}
    assert not sorted(name for name, patterns in matched.items() if not patterns)
    assert {p for patterns in matched.values() for p in patterns} == {p for p, _ in UNCHECKED}


def test_mnemonics_are_spelt_as_the_manual_does() -> None:
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for table in oc.TABLES.values() for name in table)
