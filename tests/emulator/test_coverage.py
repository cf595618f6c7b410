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


def has_oracle(name: str) -> bool:
    if machine.knows(name.replace("v_cmpx_", "v_cmp_")) or name in SCALAR_NAMES:
        return True
    if name.startswith("ds_"):
        return any(p.match(name) for p in (ds._SINGLE, ds._DOUBLE, ds._ATOMIC))
    if name.startswith("v_mfma_"):
        return bool(mfma._NAME.match(name)) and (name in oc.MAI or name in oc.MAI_SCALE)
    return bool(vmem._WIDTH.search(name) or vmem._ATOMIC.match(name)) and not name.startswith("s_buffer")


def test_the_oracle_covers_what_decode_kernels_use() -> None:
    assert all(has_oracle(name) and implemented(name) for name in KERNEL_OPERATIONS)


def test_every_operation_of_the_core_has_a_second_opinion() -> None:
    """Lists what has none; a new operation needs an oracle, or a line in UNCHECKED that says why not."""
    missing = {name for name in implemented_names() if not has_oracle(name) and name not in CONTROL}
    assert missing <= UNCHECKED, sorted(missing - UNCHECKED)


UNCHECKED: set[str] = set()


def test_mnemonics_are_spelt_as_the_manual_does() -> None:
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for table in oc.TABLES.values() for name in table)
