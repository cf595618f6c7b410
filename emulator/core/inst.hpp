// One decoded instruction: the contract between the decoder and the machine.
//
// Invariants
//  - Op names an operation, not an encoding: v_add_f32 as VOP2, VOP3, SDWA or DPP is one Op; what
//    the encoding adds (modifiers, DPP control, SDWA selects) stands in fields of Inst.
//  - An Inst is self-contained: literals, inline constants and branch targets are resolved by the
//    decoder, so that the machine never looks at code bytes.
//  - Register operands carry their width in dwords; the decoder has checked alignment and range.
//
// Conventions the machine relies on (machine -> decoder; say so here if one has to change)
//  - decode.hpp declares   bool decode(Arch, const std::uint8_t* code, std::size_t left, std::uint32_t pc, Inst& out,
//                                      std::string& why);   false: unknown encoding, `why` says what
//                          std::string disassemble(const Inst&);
//    and the bindings of the decoder come in by   void bind_decode(nanobind::module_&);   NB_MODULE(_core) itself is
//    in module.cpp (machine), which calls it.
//  - v_cmp*: dst is vcc or an SGPR pair (dwords = 2). Carry ops: dst2 is the carry out, src[3] the carry in.
//    v_cndmask: src[3] is the mask, VOP2 and VOP3 alike. fmamk / fmaak: always fma(src[0], src[1], src[2]), K in its
//    place. fmac: D is an implicit third source. div_fmas reads VCC implicitly.
//  - SOPK: the register operand is dst (s_cmpk too), imm is the constant. s_setreg: src[0], imm. s_getreg: dst, imm.
//  - 64-bit operands: dwords = 2; constant `value` is the whole 64-bit value (integers sign-extended, f64 patterns for
//    f64 ops, v_pk_*_f32: the 32-bit pattern in the low dword).
//  - Atomics: dst.kind is none without return (sc0 = 0). MUBUF/DS loads: dst; stores: src[1].
//  - v_mfma: dst, src[0..2] carry their full dword counts. An f8f6f4 operand has 8, 6 or 4 dwords by its format.
#pragma once

#include <cstdint>
#include <string_view>

namespace flymono {

enum class Arch : std::uint8_t { gfx942, gfx950 };

// Does the arch's FP8 conversion and matrix arithmetic use FNUZ (or OCP)? In the order of Arch.
constexpr bool kFnuz[] = {true, false};
constexpr bool is_fnuz(Arch arch) { return kFnuz[static_cast<int>(arch)]; }

enum class Op : std::uint16_t {
#define FLYMONO_OP(name, mnemonic) name,
#include "ops.def"
#undef FLYMONO_OP
  count_
};

// Mnemonic without encoding suffix ("v_add_f32"), as the counters and --list-opcodes print it.
std::string_view mnemonic(Op op);

enum class Enc : std::uint8_t {
  sop1, sop2, sopk, sopc, sopp, smem,
  vop1, vop2, vopc, vop3a, vop3b, vop3p, mai, mai_scale,  // mai_scale: the 16-byte scaled MFMA
  ds, mubuf, global, flat, scratch,
};

enum class Kind : std::uint8_t {
  none,
  sgpr,      // index 0..101
  vgpr,      // index 0..255
  agpr,      // index 0..255
  vcc, exec, m0, scc, vccz, execz,  // vcc/exec: `hi` selects the upper dword of a 32-bit operand
  constant,  // inline constant or literal; `value` holds its 32-bit pattern
  ttmp,      // index 0..15
  aperture,  // src codes 235..238 (index holds the code)
};

struct Operand {
  Kind kind = Kind::none;
  std::uint8_t dwords = 1;     // width of the register group this operand covers
  std::uint16_t index = 0;     // first register
  std::uint64_t value = 0;     // constants: 32-bit pattern, or the 64-bit value for 64-bit operands
  bool hi = false;             // 32-bit view of the upper half of vcc / exec
  bool literal = false;        // a literal dword (as opposed to an inline constant)
  bool neg = false, abs = false;
  bool sext = false;           // SDWA
  std::uint8_t sel = 6;        // SDWA select: 0..3 byte, 4/5 word, 6 dword
};

struct Dpp {
  bool on = false;
  std::uint16_t ctrl = 0;      // 9-bit DPP control
  std::uint8_t row_mask = 15, bank_mask = 15;
  bool bound_ctrl = false;     // BC bit: out-of-range source reads as 0 and the lane is written
};

struct Sdwa {
  bool on = false;
  std::uint8_t dst_sel = 6, dst_unused = 0;
};

struct Inst {
  Op op{};
  Enc enc{};
  std::uint8_t size = 4;       // bytes
  std::uint32_t pc = 0;        // byte offset from the start of .text
  Operand dst;                 // vdst / sdst
  Operand dst2;                // VOP3B sdst (carry out), v_swap / v_permlane*_swap second register
  Operand src[4];              // src0, src1, src2, and the carry-in or mask (VOP2 carry ops, cndmask)
                               // memory: src[0] address VGPR(s), src[1] data, src[2] SGPR base / V#,
                               //         src[3] soffset (MUBUF, SMEM)
                               // ds *2*: src[1] data0, src[2] data1. mai: A, B, C.
  Operand scale[2];            // mai_scale: scale A, scale B
  std::int32_t imm = 0;        // simm16 (sign-extended), memory offset, waitcnt word, hwreg word
  std::uint32_t target = 0;    // branches: byte offset of the target
  std::uint8_t offset0 = 0, offset1 = 0;   // ds two-address forms
  std::uint8_t op_sel = 0, op_sel_hi = 0;  // bit i = source i, bit 3 of op_sel = destination
  std::uint8_t neg_lo = 0, neg_hi = 0;     // VOP3P
  bool clamp = false;
  std::uint8_t omod = 0;
  std::uint8_t bitop3 = 0;
  std::uint8_t cbsz = 0, abid = 0, blgp = 0;
  bool sc0 = false, sc1 = false, nt = false;
  bool offen = false, idxen = false, lds = false;
  Dpp dpp;
  Sdwa sdwa;
};

}  // namespace flymono
