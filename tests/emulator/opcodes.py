"""Opcode numbers of the GFX9 / CDNA3 / CDNA4 encodings (AMD ISA manuals, chapter "Microcode formats").

One dictionary an encoding, keyed by the mnemonic without its _e32/_e64 suffix. A VOP1, VOP2 or VOPC
operation has a VOP3 form too: its number there is 0x140 + op, 0x100 + op, or op. gfx942 and gfx950 share one
number space.
"""


def _number(text: str) -> dict[str, int]:
    """`name:7 other:9` -> {"name": 7, "other": 9}; a bare name continues the count."""
    table: dict[str, int] = {}
    following = 0
    for word in text.split():
        name, _, number = word.partition(":")
        following = int(number) if number else following
        table[name] = following
        following += 1
    return table


SOP1 = _number("""
    s_mov_b32:0 s_mov_b64 s_cmov_b32 s_cmov_b64 s_not_b32 s_not_b64 s_wqm_b32 s_wqm_b64 s_brev_b32
    s_brev_b64 s_bcnt0_i32_b32 s_bcnt0_i32_b64 s_bcnt1_i32_b32 s_bcnt1_i32_b64 s_ff0_i32_b32 s_ff0_i32_b64
    s_ff1_i32_b32 s_ff1_i32_b64 s_flbit_i32_b32 s_flbit_i32_b64 s_flbit_i32 s_sext_i32_i8:22 s_sext_i32_i16
    s_bitset0_b32 s_bitset0_b64 s_bitset1_b32 s_bitset1_b64 s_getpc_b64 s_setpc_b64 s_swappc_b64
    s_and_saveexec_b64:32 s_or_saveexec_b64 s_xor_saveexec_b64 s_andn2_saveexec_b64 s_orn2_saveexec_b64
    s_nand_saveexec_b64 s_nor_saveexec_b64 s_xnor_saveexec_b64 s_abs_i32:48 s_andn1_saveexec_b64:51
    s_orn1_saveexec_b64 s_andn1_wrexec_b64 s_andn2_wrexec_b64""")
SOP2 = _number("""
    s_add_u32:0 s_sub_u32 s_add_i32 s_sub_i32 s_addc_u32 s_subb_u32 s_min_i32 s_min_u32 s_max_i32 s_max_u32
    s_cselect_b32 s_cselect_b64 s_and_b32 s_and_b64 s_or_b32 s_or_b64 s_xor_b32 s_xor_b64 s_andn2_b32
    s_andn2_b64 s_orn2_b32 s_orn2_b64 s_nand_b32 s_nand_b64 s_nor_b32 s_nor_b64 s_xnor_b32 s_xnor_b64
    s_lshl_b32 s_lshl_b64 s_lshr_b32 s_lshr_b64 s_ashr_i32 s_ashr_i64 s_bfm_b32 s_bfm_b64 s_mul_i32
    s_bfe_u32 s_bfe_i32 s_bfe_u64 s_bfe_i64 s_absdiff_i32:42 s_mul_hi_u32:44 s_mul_hi_i32 s_lshl1_add_u32
    s_lshl2_add_u32 s_lshl3_add_u32 s_lshl4_add_u32 s_pack_ll_b32_b16 s_pack_lh_b32_b16 s_pack_hh_b32_b16""")
SOPK = _number("""
    s_movk_i32:0 s_cmovk_i32 s_cmpk_eq_i32 s_cmpk_lg_i32 s_cmpk_gt_i32 s_cmpk_ge_i32 s_cmpk_lt_i32
    s_cmpk_le_i32 s_cmpk_eq_u32 s_cmpk_lg_u32 s_cmpk_gt_u32 s_cmpk_ge_u32 s_cmpk_lt_u32 s_cmpk_le_u32
    s_addk_i32 s_mulk_i32 s_getreg_b32:17 s_setreg_b32""")
SOPC = _number("""
    s_cmp_eq_i32:0 s_cmp_lg_i32 s_cmp_gt_i32 s_cmp_ge_i32 s_cmp_lt_i32 s_cmp_le_i32 s_cmp_eq_u32
    s_cmp_lg_u32 s_cmp_gt_u32 s_cmp_ge_u32 s_cmp_lt_u32 s_cmp_le_u32 s_bitcmp0_b32 s_bitcmp1_b32
    s_bitcmp0_b64 s_bitcmp1_b64 s_cmp_eq_u64:18 s_cmp_lg_u64""")
SOPP = _number("""
    s_nop:0 s_endpgm s_branch s_wakeup s_cbranch_scc0 s_cbranch_scc1 s_cbranch_vccz s_cbranch_vccnz
    s_cbranch_execz s_cbranch_execnz s_barrier s_waitcnt:12 s_sleep:14 s_setprio""")
SMEM = _number("""
    s_load_dword:0 s_load_dwordx2 s_load_dwordx4 s_load_dwordx8 s_load_dwordx16 s_buffer_load_dword:8
    s_buffer_load_dwordx2 s_buffer_load_dwordx4 s_buffer_load_dwordx8 s_buffer_load_dwordx16 s_memtime:36
    s_memrealtime""")
VOP1 = _number("""
    v_nop:0 v_mov_b32 v_readfirstlane_b32 v_cvt_f32_i32:5 v_cvt_f32_u32 v_cvt_u32_f32 v_cvt_i32_f32
    v_cvt_f16_f32:10 v_cvt_f32_f16 v_cvt_rpi_i32_f32 v_cvt_flr_i32_f32 v_cvt_f32_f64:15 v_cvt_f64_f32
    v_cvt_f32_ubyte0 v_cvt_f32_ubyte1 v_cvt_f32_ubyte2 v_cvt_f32_ubyte3 v_fract_f32:27 v_trunc_f32
    v_ceil_f32 v_rndne_f32 v_floor_f32 v_exp_f32 v_log_f32 v_rcp_f32 v_rcp_iflag_f32 v_rsq_f32 v_sqrt_f32:39
    v_not_b32:43 v_bfrev_b32 v_ffbh_u32 v_ffbl_b32 v_ffbh_i32 v_frexp_exp_i32_f32:51 v_frexp_mant_f32
    v_mov_b64:56 v_floor_f16:68 v_ceil_f16 v_trunc_f16 v_rndne_f16 v_swap_b32:81 v_cvt_f32_fp8:84
    v_cvt_f32_bf8 v_cvt_pk_f32_fp8 v_cvt_pk_f32_bf8 v_prng_b32 v_permlane16_swap_b32 v_permlane32_swap_b32
    v_cvt_f32_bf16""")
VOP2 = _number("""
    v_cndmask_b32:0 v_add_f32 v_sub_f32 v_subrev_f32 v_mul_f32:5 v_mul_i32_i24 v_mul_hi_i32_i24
    v_mul_u32_u24 v_mul_hi_u32_u24 v_min_f32 v_max_f32 v_min_i32 v_max_i32 v_min_u32 v_max_u32 v_lshrrev_b32
    v_ashrrev_i32 v_lshlrev_b32 v_and_b32 v_or_b32 v_xor_b32 v_fmamk_f32:23 v_fmaak_f32 v_add_co_u32
    v_sub_co_u32 v_subrev_co_u32 v_addc_co_u32 v_subb_co_u32 v_subbrev_co_u32 v_add_f16 v_sub_f16
    v_subrev_f16 v_mul_f16 v_add_u16:38 v_sub_u16 v_subrev_u16 v_mul_lo_u16 v_lshlrev_b16 v_lshrrev_b16
    v_ashrrev_i16 v_max_f16 v_min_f16 v_max_u16 v_max_i16 v_min_u16 v_min_i16 v_add_u32:52 v_sub_u32
    v_subrev_u32 v_fmac_f32:59 v_xnor_b32:61""")


def _compares() -> dict[str, int]:
    table = {"v_cmp_class_f32": 16}
    floats = [
        "f",
        "lt",
        "eq",
        "le",
        "gt",
        "lg",
        "ge",
        "o",
        "u",
        "nge",
        "nlg",
        "ngt",
        "nle",
        "neq",
        "nlt",
        "tru",
    ]
    for kind, base in (("f16", 32), ("f32", 64), ("f64", 96)):
        table |= {f"v_cmp_{test}_{kind}": base + i for i, test in enumerate(floats)}
    integers = ["f", "lt", "eq", "le", "gt", "ne", "ge", "t"]
    for kind, base in (("i16", 160), ("u16", 168), ("i32", 192), ("u32", 200), ("i64", 224), ("u64", 232)):
        table |= {f"v_cmp_{test}_{kind}": base + i for i, test in enumerate(integers)}
    # The same sixteen tests with EXEC written too stand sixteen numbers higher.
    table |= {
        name.replace("v_cmp_", "v_cmpx_"): number + (1 if "class" in name else 16)
        for name, number in list(table.items())
    }
    return table


VOPC = _compares()
VOP3 = _number("""
    v_mad_i32_i24:450 v_mad_u32_u24 v_bfe_u32:456 v_bfe_i32 v_bfi_b32 v_fma_f32 v_fma_f64 v_alignbit_b32:462
    v_alignbyte_b32 v_min3_f32 v_min3_i32 v_min3_u32 v_max3_f32 v_max3_i32 v_max3_u32 v_med3_f32 v_med3_i32
    v_med3_u32 v_sad_u32:476 v_div_fixup_f32:478 v_div_fmas_f32:482 v_perm_b32:493 v_mad_u32_u16:497
    v_mad_i32_i16 v_xad_u32 v_lshl_add_u32:509 v_add_lshl_u32 v_add3_u32 v_lshl_or_b32 v_and_or_b32
    v_or3_b32 v_lshl_add_u64:520 v_bitop3_b32:564 v_cvt_scalef32_pk_fp8_f32:565 v_cvt_scalef32_pk_bf8_f32
    v_cvt_scalef32_pk_f32_fp8:569 v_cvt_scalef32_pk_f32_bf8 v_cvt_scalef32_pk_fp4_f32:573
    v_cvt_scalef32_pk_f32_fp4:575 v_cvt_scalef32_pk_fp8_bf16:580 v_cvt_pk_bf16_f32:616
    v_cvt_scalef32_pk_bf16_fp8 v_cvt_scalef32_pk_bf16_bf8 v_add_f64:640 v_mul_f64 v_mul_lo_u32:645
    v_mul_hi_u32 v_mul_hi_i32 v_ldexp_f32 v_readlane_b32 v_writelane_b32 v_bcnt_u32_b32 v_mbcnt_lo_u32_b32
    v_mbcnt_hi_u32_b32 v_lshlrev_b64:655 v_lshrrev_b64 v_ashrrev_i64 v_bfm_b32:659 v_cvt_pkrtz_f16_f32:662
    v_add_i32:668 v_sub_i32 v_add_i16 v_sub_i16 v_cvt_pk_fp8_f32:674 v_cvt_pk_bf8_f32 v_cvt_sr_fp8_f32
    v_cvt_sr_bf8_f32 v_minimum3_f32:680 v_maximum3_f32""")
VOP3SD = _number("v_div_scale_f32:480 v_mad_u64_u32:488 v_mad_i64_i32")
VOP3P = _number("""
    v_pk_mad_i16:0 v_pk_mul_lo_u16 v_pk_add_i16 v_pk_sub_i16 v_pk_lshlrev_b16 v_pk_lshrrev_b16
    v_pk_ashrrev_i16 v_pk_max_i16 v_pk_min_i16 v_pk_mad_u16 v_pk_add_u16 v_pk_sub_u16 v_pk_max_u16
    v_pk_min_u16 v_pk_fma_f16 v_pk_add_f16 v_pk_mul_f16 v_pk_min_f16 v_pk_max_f16 v_pk_fma_f32:48
    v_pk_mul_f32 v_pk_add_f32 v_pk_mov_b32""")
MAI = _number("""
    v_mfma_f32_16x16x128_f8f6f4:45 v_mfma_f32_32x32x64_f8f6f4 v_mfma_f32_16x16x32_bf16:53
    v_mfma_i32_16x16x64_i8 v_mfma_f32_32x32x16_bf16 v_mfma_i32_32x32x32_i8 v_mfma_f32_32x32x2_f32:68
    v_mfma_f32_16x16x4_f32 v_mfma_f32_16x16x4_4b_f16:73 v_mfma_f32_4x4x4_16b_f16 v_mfma_f32_32x32x8_f16:76
    v_mfma_f32_16x16x16_f16 v_mfma_f32_16x16x32_f16:84 v_mfma_f32_32x32x16_f16 v_mfma_i32_32x32x16_i8
    v_mfma_i32_16x16x32_i8 v_accvgpr_read v_accvgpr_write v_mfma_f32_16x16x4_4b_bf16:94
    v_mfma_f32_4x4x4_16b_bf16 v_mfma_f32_32x32x8_bf16:96 v_mfma_f32_16x16x16_bf16
    v_mfma_f32_16x16x32_bf8_bf8:112 v_mfma_f32_16x16x32_bf8_fp8 v_mfma_f32_16x16x32_fp8_bf8
    v_mfma_f32_16x16x32_fp8_fp8 v_mfma_f32_32x32x16_bf8_bf8 v_mfma_f32_32x32x16_bf8_fp8
    v_mfma_f32_32x32x16_fp8_bf8 v_mfma_f32_32x32x16_fp8_fp8""")
MAI_SCALE = _number("v_mfma_scale_f32_16x16x128_f8f6f4:45 v_mfma_scale_f32_32x32x64_f8f6f4")
DS = _number("""
    ds_add_u32:0 ds_sub_u32 ds_rsub_u32 ds_inc_u32 ds_dec_u32 ds_min_i32 ds_max_i32 ds_min_u32 ds_max_u32
    ds_and_b32 ds_or_b32 ds_xor_b32 ds_mskor_b32 ds_write_b32 ds_write2_b32 ds_write2st64_b32 ds_cmpst_b32
    ds_add_f32:21 ds_write_b8:30 ds_write_b16 ds_add_rtn_u32 ds_sub_rtn_u32 ds_rsub_rtn_u32 ds_inc_rtn_u32
    ds_dec_rtn_u32 ds_min_rtn_i32 ds_max_rtn_i32 ds_min_rtn_u32 ds_max_rtn_u32 ds_and_rtn_b32 ds_or_rtn_b32
    ds_xor_rtn_b32 ds_mskor_rtn_b32 ds_wrxchg_rtn_b32 ds_cmpst_rtn_b32:48 ds_read_b32:54 ds_read2_b32
    ds_read2st64_b32 ds_read_i8 ds_read_u8 ds_read_i16 ds_read_u16 ds_swizzle_b32 ds_permute_b32
    ds_bpermute_b32 ds_add_u64 ds_sub_u64 ds_rsub_u64 ds_inc_u64 ds_dec_u64 ds_min_i64 ds_max_i64 ds_min_u64
    ds_max_u64 ds_and_b64 ds_or_b64 ds_xor_b64 ds_mskor_b64 ds_write_b64 ds_write2_b64 ds_write2st64_b64
    ds_cmpst_b64 ds_write_b8_d16_hi:84 ds_write_b16_d16_hi ds_read_u8_d16 ds_read_u8_d16_hi ds_read_i8_d16
    ds_read_i8_d16_hi ds_read_u16_d16 ds_read_u16_d16_hi ds_add_rtn_u64:96 ds_sub_rtn_u64 ds_rsub_rtn_u64
    ds_inc_rtn_u64 ds_dec_rtn_u64 ds_min_rtn_i64 ds_max_rtn_i64 ds_min_rtn_u64 ds_max_rtn_u64 ds_and_rtn_b64
    ds_or_rtn_b64 ds_xor_rtn_b64 ds_mskor_rtn_b64 ds_wrxchg_rtn_b64 ds_cmpst_rtn_b64:112 ds_read_b64:118
    ds_read2_b64 ds_read2st64_b64 ds_write_b96:222 ds_write_b128 ds_read_b96:254 ds_read_b128""")
_ATOMICS = ["swap", "cmpswap", "add", "sub", "smin", "umin", "smax", "umax", "and", "or", "xor", "inc", "dec"]


def _memory(prefix: str) -> dict[str, int]:
    """Loads, stores and integer atomics, numbered alike in MUBUF, FLAT and GLOBAL."""
    table = _number(f"""
        {prefix}_load_ubyte:16 {prefix}_load_sbyte {prefix}_load_ushort {prefix}_load_sshort
        {prefix}_load_dword {prefix}_load_dwordx2 {prefix}_load_dwordx3 {prefix}_load_dwordx4
        {prefix}_store_byte {prefix}_store_short:26 {prefix}_store_dword:28 {prefix}_store_dwordx2
        {prefix}_store_dwordx3 {prefix}_store_dwordx4""")
    for base, suffix in ((64, ""), (96, "_x2")):
        table |= {f"{prefix}_atomic_{name}{suffix}": base + i for i, name in enumerate(_ATOMICS)}
    return table


MUBUF = _memory("buffer") | {"buffer_wbl2": 40, "buffer_inv": 41}
GLOBAL = _memory("global")

TABLES = {
    "sop1": SOP1,
    "sop2": SOP2,
    "sopk": SOPK,
    "sopc": SOPC,
    "sopp": SOPP,
    "smem": SMEM,
    "vop1": VOP1,
    "vop2": VOP2,
    "vopc": VOPC,
    "vop3": VOP3,
    "vop3sd": VOP3SD,
    "vop3p": VOP3P,
    "mai": MAI,
    "mai_scale": MAI_SCALE,
    "ds": DS,
    "mubuf": MUBUF,
    "global": GLOBAL,
}


def native_encoding(name: str) -> str:
    """The shortest encoding that holds `name`; KeyError for a mnemonic that no table knows."""
    for encoding, table in TABLES.items():
        if name in table:
            return encoding
    raise KeyError(name)
