#include "decode_families.hpp"

namespace flymono {
namespace {

constexpr unsigned kSdwa = 249, kDpp = 250;

struct Short {
  const Row& row;
  Enc enc;
  unsigned vdst;  // field, unused by VOPC
  unsigned src1;  // field, unused by VOP1
};

Short split(const Words& code) {
  const unsigned number = code.bits(25, 6);
  if (number == 0x3f) return {row_on(code, Family::vop1, code.bits(9, 8)), Enc::vop1, code.bits(17, 8), 0};
  if (number == 0x3e) return {row_on(code, Family::vopc, code.bits(17, 8)), Enc::vopc, 0, code.bits(9, 8)};
  return {row_on(code, Family::vop2, number), Enc::vop2, code.bits(17, 8), code.bits(9, 8)};
}

Operand destination(const Slot& slot, unsigned field) {
  if (slot.role == Role::none) return {};
  if (slot.role == Role::mask) return vcc_mask();
  if (slot.bank == Bank::scalar) return scalar(field, slot.dwords);
  return vector(field, slot.dwords, slot.bank == Bank::acc);
}

// src[1] is a vector register; what stands after it is tied, a mask or a literal.
void later_sources(const Words& code, const Short& form, Inst& inst) {
  bool register_seen = false;
  for (unsigned i = 1; i < form.row.sources; ++i) {
    const Slot& slot = form.row.src[i];
    if (slot.role == Role::mask) {
      inst.src[3] = vcc_mask();
    } else if (slot.role == Role::tied) {
      inst.src[i] = inst.dst;
    } else if (slot.role == Role::literal) {
      inst.src[i] = literal(code.need(1), slot.type);
      inst.size = 8;
    } else if (!register_seen) {
      inst.src[i] = vector(form.src1, slot.dwords);
      register_seen = true;
    }
  }
}

void modifiers(Operand& operand, bool neg, bool abs) {
  operand.neg = neg;
  operand.abs = abs;
}

Operand sdwa_register(unsigned field, bool is_scalar, const Slot& slot) {
  if (slot.dwords != 1) throw Malformed("SDWA on a 64-bit operand");
  return is_scalar ? scalar(field, 1) : vector(field, 1);
}

void select(Operand& operand, const Words& code, unsigned at) {
  operand.sel = static_cast<std::uint8_t>(code.bits(at, 3));
  if (operand.sel == 7) throw Malformed("SDWA select 7");
  operand.sext = code.bit(at + 3);
  modifiers(operand, code.bit(at + 4), code.bit(at + 5));
}

void sdwa_destination(const Words& code, const Short& form, Inst& inst) {
  if (form.enc == Enc::vopc) {
    if (code.bit(47)) inst.dst = scalar(code.bits(40, 7), 2);
    return;
  }
  inst.sdwa.dst_sel = static_cast<std::uint8_t>(code.bits(40, 3));
  inst.sdwa.dst_unused = static_cast<std::uint8_t>(code.bits(43, 2));
  if (inst.sdwa.dst_sel == 7 || inst.sdwa.dst_unused == 3) throw Malformed("SDWA destination select");
  inst.clamp = code.bit(45);
  inst.omod = static_cast<std::uint8_t>(code.bits(46, 2));
}

void decode_sdwa(const Words& code, const Short& form, Inst& inst) {
  code.need(1);
  if (!form.row.sources || form.row.dst.bank == Bank::scalar) throw Malformed("an operation without an SDWA form");
  inst.size = 8;
  inst.sdwa.on = true;
  inst.src[0] = sdwa_register(code.bits(32, 8), code.bit(55), form.row.src[0]);
  select(inst.src[0], code, 48);
  sdwa_destination(code, form, inst);
  if (form.enc == Enc::vop1) return;
  if (form.row.src[1].role != Role::reg) throw Malformed("an operation without an SDWA form");
  inst.src[1] = sdwa_register(form.src1, code.bit(63), form.row.src[1]);
  select(inst.src[1], code, 56);
}

// Controls that exist: see emulator facts; the others would read nothing that is defined.
bool dpp_control(unsigned ctrl) {
  if (ctrl <= 0x0ff) return true;                                         // quad_perm
  if (ctrl >= 0x101 && ctrl <= 0x12f) return ctrl & 0xf;                  // row shifts, rotate
  if (ctrl == 0x130 || ctrl == 0x134 || ctrl == 0x138 || ctrl == 0x13c) return true;  // wave
  return (ctrl >= 0x140 && ctrl <= 0x143) || (ctrl >= 0x150 && ctrl <= 0x15f);
}

void decode_dpp(const Words& code, const Short& form, Inst& inst) {
  code.need(1);
  if (form.enc == Enc::vopc || !form.row.sources || form.row.dst.bank != Bank::any || form.row.swap)
    throw Malformed("an operation without a DPP form");
  inst.size = 8;
  inst.src[0] = vector(code.bits(32, 8), form.row.src[0].dwords);
  modifiers(inst.src[0], code.bit(52), code.bit(53));
  if (form.enc == Enc::vop2) modifiers(inst.src[1], code.bit(54), code.bit(55));
  inst.dpp.on = true;
  inst.dpp.ctrl = static_cast<std::uint16_t>(code.bits(40, 9));
  inst.dpp.bound_ctrl = code.bit(51);
  inst.dpp.bank_mask = static_cast<std::uint8_t>(code.bits(56, 4));
  inst.dpp.row_mask = static_cast<std::uint8_t>(code.bits(60, 4));
  if (!dpp_control(inst.dpp.ctrl)) throw Malformed("DPP control " + std::to_string(inst.dpp.ctrl));
}

bool has_literal(const Row& row) {
  for (const Slot& slot : row.src)
    if (slot.role == Role::literal) return true;
  return false;
}

}  // namespace

void decode_vop(const Words& code, Inst& inst) {
  const Short form = split(code);
  const unsigned src0 = code.bits(0, 9);
  inst.op = form.row.op;
  inst.enc = form.enc;
  inst.dst = destination(form.row.dst, form.vdst);
  if (form.row.dst2.role == Role::mask) inst.dst2 = vcc_mask();
  later_sources(code, form, inst);
  if (src0 == kSdwa || src0 == kDpp) {
    if (has_literal(form.row)) throw Malformed("SDWA or DPP with a literal");
    return src0 == kSdwa ? decode_sdwa(code, form, inst) : decode_dpp(code, form, inst);
  }
  if (form.row.sources) inst.src[0] = source(code, src0, form.row.src[0], 1);
  if (inst.src[0].literal) inst.size = 8;
  if (form.row.swap) inst.dst2 = inst.src[0];
}

}  // namespace flymono
