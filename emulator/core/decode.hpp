// From code bytes to Inst.
//
// Where the operands stand (inst.hpp has the fields):
//  - "dst = op(src[0], src[1], src[2])". An operation that also reads its destination (v_fmac,
//    s_addk, s_bitset, v_smfmac) has it as its last source, v_fmamk and v_fmaak have their literal
//    in place, so that all of v_fma, v_fmac, v_fmamk and v_fmaak are fma(src[0], src[1], src[2]).
//    Partial writes (SDWA preserve, op_sel halves, v_writelane, FP8 conversions) are not listed.
//  - src[3] is the lane mask: carry in, v_cndmask's mask, v_div_fmas' VCC. dst2 is the carry out.
//    A mask is VCC in short encodings and an SGPR pair (or VCC) in VOP3.
//  - v_cmp: dst is the mask; v_cmpx writes EXEC besides.
//  - s_cmpk: dst and src[0] are the register that is compared (SOPK has one field), nothing is
//    written; imm is zero-extended in the _u32 forms and in SOPP and hwreg words.
//  - Swaps (v_swap, v_permlane*_swap): dst2 equals src[0].
//  - Memory: src[0] address, src[1] data, src[2] data1 (DS) or SGPR base / V#, src[3] soffset.
//    A cmpswap's data is one group (new value, then compare value). A buffer or global load to LDS
//    has no dst; `lds` is set. Atomics have a dst only where sc0 asks for the old value.
//  - MAI: src[0..2] = A, B, C; v_smfmac: src[2] is the index register, src[3] the accumulator.
//    The widths of A and B in f8f6f4 follow cbsz and blgp (8, 6 or 4 registers).
//  - v_fma_mix*: op_sel_hi[i] says that source i is f16, op_sel[i] which half; neg and abs are the sources'.
//  - v_bitop3: the truth table is in `bitop3`, no modifier is set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inst.hpp"

namespace flymono {

// Decodes the instruction at `code`, `left` bytes before the end of the code section, `pc` bytes
// after its start. False: `why` says what is wrong, with the code words, and `out` is an Inst of
// Op::unknown, 4 bytes long (less at a ragged end), whose `imm` holds the code word.
bool decode(Arch arch, const std::uint8_t* code, std::size_t left, std::uint32_t pc, Inst& out, std::string& why);

// A whole code section. Never fails: what cannot be decoded is an unknown Inst.
struct Listing {
  struct Error {
    std::uint32_t pc;
    std::string what;
  };
  std::vector<Inst> insts;    // in address order, without gaps
  std::vector<Error> errors;  // one for each unknown Inst
};
Listing decode_all(Arch arch, const std::vector<std::uint8_t>& text);

// "gfx942" -> Arch::gfx942; empty for an arch that the emulator does not know.
std::string disassemble(const Inst& inst);  // disasm.cpp

std::optional<Arch> arch_named(std::string_view name);
std::string_view arch_name(Arch arch);

}  // namespace flymono
