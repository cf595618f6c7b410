#include "decode_families.hpp"

namespace flymono {
namespace {

constexpr unsigned kLoadScale = 0x2c;  // VOP3P number of the first half of a scaled MFMA

unsigned source_at(unsigned i) { return 32 + 9 * i; }

// --- VOP3A, VOP3B

const Row& vop3_row(const Words& code, unsigned number) {
  if (number >= 0x1c0) return row_on(code, Family::vop3, number);
  const Row& row = number < 0x100   ? row_on(code, Family::vopc, number)
                   : number < 0x140 ? row_on(code, Family::vop2, number - 0x100)
                                    : row_on(code, Family::vop1, number - 0x140);
  if (!row.has_vop3_form()) throw Malformed(std::string(mnemonic(row.op)) + " has no VOP3 form");
  return row;
}

Operand destination(const Words& code, const Slot& slot) {
  const unsigned field = code.bits(0, 8);
  if (slot.role == Role::none) return {};
  if (slot.role == Role::mask) return scalar(field, 2);
  if (slot.bank == Bank::scalar) return scalar(field, slot.dwords);
  return vector(field, slot.dwords, slot.bank == Bank::acc);
}

void sources(const Words& code, const Row& row, Inst& inst) {
  for (unsigned i = 0; i < row.sources; ++i) {
    const Slot& slot = row.src[i];
    if (slot.role == Role::tied) inst.src[i] = inst.dst;
    // v_div_fmas reads VCC; the other masks are the third register field.
    else if (slot.role == Role::mask) inst.src[3] = i == 3 ? vcc_mask() : scalar(code.bits(50, 9), 2);
    else inst.src[i] = source(code, code.bits(source_at(i), 9), slot, 0);
  }
}

void modifiers(const Words& code, const Row& row, bool vop3b, Inst& inst) {
  for (unsigned i = 0; i < row.sources && i < 3; ++i) {
    if (row.src[i].role != Role::reg) continue;
    inst.src[i].neg = code.bit(61 + i);
    inst.src[i].abs = !vop3b && code.bit(8 + i);
  }
  inst.omod = static_cast<std::uint8_t>(code.bits(59, 2));
  inst.clamp = code.bit(15);
  if (!vop3b) inst.op_sel = static_cast<std::uint8_t>(code.bits(11, 4));
}

// v_bitop3 keeps its truth table where other operations keep their modifiers.
void truth_table(const Words& code, Inst& inst) {
  inst.bitop3 = static_cast<std::uint8_t>(code.bits(59, 2) << 6 | code.bits(8, 3) << 3 | code.bits(61, 3));
  inst.op_sel = static_cast<std::uint8_t>(code.bits(11, 4));
}

void decode_vop3ab(const Words& code, unsigned number, Inst& inst) {
  const Row& row = vop3_row(code, number);
  const bool vop3b = row.dst2.role == Role::mask;
  inst.op = row.op;
  inst.enc = vop3b ? Enc::vop3b : Enc::vop3a;
  inst.dst = destination(code, row.dst);
  if (vop3b) inst.dst2 = scalar(code.bits(8, 7), 2);
  sources(code, row, inst);
  if (row.swap) inst.dst2 = inst.src[0];
  if (row.op == Op::v_bitop3_b32 || row.op == Op::v_bitop3_b16) truth_table(code, inst);
  else modifiers(code, row, vop3b, inst);
}

// --- VOP3P

bool is_mix(Op op) { return op == Op::v_fma_mix_f32 || op == Op::v_fma_mixlo_f16 || op == Op::v_fma_mixhi_f16; }

// The mixed-precision FMAs are not packed: their neg_lo and neg_hi are neg and abs of the sources.
void mix_modifiers(Inst& inst) {
  for (unsigned i = 0; i < 3; ++i) {
    inst.src[i].neg = inst.neg_lo >> i & 1;
    inst.src[i].abs = inst.neg_hi >> i & 1;
  }
  inst.neg_lo = inst.neg_hi = 0;
}

void decode_packed(const Words& code, const Row& row, Inst& inst) {
  inst.enc = Enc::vop3p;
  inst.dst = destination(code, row.dst);
  sources(code, row, inst);
  inst.op_sel = static_cast<std::uint8_t>(code.bits(11, 3));
  inst.op_sel_hi = static_cast<std::uint8_t>(code.bits(59, 2) | code.bits(14, 1) << 2);
  inst.neg_lo = static_cast<std::uint8_t>(code.bits(61, 3));
  inst.neg_hi = static_cast<std::uint8_t>(code.bits(8, 3));
  inst.clamp = code.bit(15);
  if (is_mix(row.op)) mix_modifiers(inst);
}

// --- MAI

// Registers of an f8f6f4 operand by format: fp8, bf8, fp6, bf6, fp4.
std::uint8_t f8f6f4_dwords(unsigned format) {
  static constexpr std::uint8_t dwords[] = {8, 8, 6, 6, 4};
  if (format > 4) throw Malformed("f8f6f4 format " + std::to_string(format));
  return dwords[format];
}

bool is_f8f6f4(Op op) {
  return op == Op::v_mfma_f32_16x16x128_f8f6f4 || op == Op::v_mfma_f32_32x32x64_f8f6f4 ||
         op == Op::v_mfma_scale_f32_16x16x128_f8f6f4 || op == Op::v_mfma_scale_f32_32x32x64_f8f6f4;
}

bool accumulators(Operand& operand, bool acc) {
  if (acc && operand.kind == Kind::vgpr) operand.kind = Kind::agpr;
  return operand.kind == Kind::vgpr || operand.kind == Kind::agpr;
}

Slot mai_slot(const Row& row, unsigned i, const Inst& inst) {
  Slot slot = row.src[i];
  if (is_f8f6f4(row.op) && i < 2) slot.dwords = f8f6f4_dwords(i ? inst.blgp : inst.cbsz);
  return slot;
}

void mai_sources(const Words& code, const Row& row, Inst& inst) {
  for (unsigned i = 0; i < row.sources; ++i) {
    if (row.src[i].role == Role::tied) {
      inst.src[i] = inst.dst;
      continue;
    }
    inst.src[i] = source(code, code.bits(source_at(i), 9), mai_slot(row, i, inst), 0);
    const bool sparse_index = row.sources == 4 && i == 2;
    const bool acc = i == 2 ? code.bit(15) && !sparse_index : code.bit(59 + i);
    const bool is_register = accumulators(inst.src[i], acc);
    if (!is_register && (i < 2 || sparse_index || inst.src[i].kind != Kind::constant))
      throw Malformed("an MFMA operand that is not a vector register");
  }
}

// v_accvgpr_read and _write: the bank is fixed, the modifier and acc bits mean nothing.
void decode_accvgpr(const Words& code, const Row& row, Inst& inst) {
  inst.enc = Enc::mai;
  inst.dst = vector(code.bits(0, 8), 1, row.dst.bank == Bank::acc);
  inst.src[0] = source(code, code.bits(source_at(0), 9), row.src[0], 0);
}

void decode_mai(const Words& code, const Row& row, Inst& inst) {
  if (row.sources == 1) return decode_accvgpr(code, row, inst);
  inst.enc = Enc::mai;
  inst.cbsz = static_cast<std::uint8_t>(code.bits(8, 3));
  inst.abid = static_cast<std::uint8_t>(code.bits(11, 4));
  inst.blgp = static_cast<std::uint8_t>(code.bits(61, 3));
  inst.dst = vector(code.bits(0, 8), row.dst.dwords, code.bit(15));
  mai_sources(code, row, inst);
}

// A "load scale" of 8 bytes and the MFMA that takes the scales: one instruction.
void decode_scaled(const Words& code, Inst& inst) {
  static constexpr Slot scale{Role::reg, Type::int32, Bank::any, 1};
  code.need(3);
  Words second = code;
  second.word[0] = code.word[2];
  second.word[1] = code.word[3];
  if (second.bits(23, 9) != 0x1a7) throw Malformed("a scale load without its MFMA");
  const Row& row = row_on(code, Family::mai_scale, second.bits(16, 7));
  inst.op = row.op;
  decode_mai(second, row, inst);
  inst.enc = Enc::mai_scale;
  inst.size = 16;
  for (unsigned i = 0; i < 2; ++i) inst.scale[i] = source(code, code.bits(source_at(i), 9), scale, 0);
  inst.op_sel = static_cast<std::uint8_t>(code.bits(11, 3));
  inst.op_sel_hi = static_cast<std::uint8_t>(code.bits(59, 2) | code.bits(14, 1) << 2);
}

}  // namespace

void decode_vop3(const Words& code, Inst& inst) {
  code.need(1);
  inst.size = 8;
  const unsigned number = code.bits(16, 10);
  if (number < 0x380) return decode_vop3ab(code, number, inst);
  const unsigned packed = number - 0x380;
  if (packed == kLoadScale) return decode_scaled(code, inst);
  const bool mai = find_row(Family::mai, packed) != nullptr;
  const Row& row = row_on(code, mai ? Family::mai : Family::vop3p, packed);
  inst.op = row.op;
  mai ? decode_mai(code, row, inst) : decode_packed(code, row, inst);
}

}  // namespace flymono
