#include "decode_families.hpp"

namespace flymono {
namespace {

struct Shape {
  Family family;
  Enc enc;
  std::uint32_t mask, value;
  unsigned number_at, number_bits;
};
constexpr Shape kShapes[] = {
    {Family::sop1, Enc::sop1, 0xff800000, 0xbe800000, 8, 8},
    {Family::sopc, Enc::sopc, 0xff800000, 0xbf000000, 16, 7},
    {Family::sopp, Enc::sopp, 0xff800000, 0xbf800000, 16, 7},
    {Family::sopk, Enc::sopk, 0xf0000000, 0xb0000000, 23, 5},
    {Family::sop2, Enc::sop2, 0xc0000000, 0x80000000, 23, 7},
};

const Shape& shape_of(std::uint32_t word) {
  for (const Shape& shape : kShapes)
    if ((word & shape.mask) == shape.value) return shape;
  throw Malformed("no scalar encoding has this prefix");
}

// simm16; a branch target is checked here, so that the machine may jump without looking.
void immediate(const Words& code, Imm kind, Inst& inst) {
  const std::int32_t simm = static_cast<std::int16_t>(code.bits(0, 16));
  inst.imm = kind == Imm::unsigned16 ? static_cast<std::int32_t>(code.bits(0, 16)) : simm;
  if (kind == Imm::field8) inst.imm = static_cast<std::int32_t>(code.bits(8, 8));
  if (kind != Imm::branch) return;
  const std::int64_t target = std::int64_t{code.pc} + 4 + 4 * std::int64_t{simm};
  if (target < 0 || target >= static_cast<std::int64_t>(code.end)) throw Malformed("a branch out of the code");
  inst.target = static_cast<std::uint32_t>(target);
}

// SOPK has one register field, a destination or (s_cmpk, s_setreg) a source.
unsigned source_field(const Words& code, Family family, unsigned i) {
  return family == Family::sopk ? code.bits(16, 7) : code.bits(8 * i, 8);
}

void sources(const Words& code, const Row& row, Inst& inst) {
  for (unsigned i = 0; i < row.sources; ++i) {
    const Slot& slot = row.src[i];
    if (slot.role == Role::tied) {
      inst.src[i] = inst.dst;
    } else if (slot.role == Role::literal) {
      inst.src[i] = literal(code.need(1), slot.type);
    } else {
      inst.src[i] = source(code, source_field(code, row.family, i), slot, 1);
    }
    if (inst.src[i].literal) inst.size = 8;
  }
}

}  // namespace

void decode_scalar(const Words& code, Inst& inst) {
  const Shape& shape = shape_of(code.word[0]);
  const Row& row = row_on(code, shape.family, code.bits(shape.number_at, shape.number_bits));
  inst.op = row.op;
  inst.enc = shape.enc;
  if (row.dst.role == Role::reg) inst.dst = scalar(code.bits(16, 7), row.dst.dwords);
  sources(code, row, inst);
  if (row.imm != Imm::none) immediate(code, row.imm, inst);
}

void decode_smem(const Words& code, Inst& inst) {
  const Row& row = row_on(code, Family::smem, code.bits(18, 8));
  inst.op = row.op;
  inst.enc = Enc::smem;
  inst.size = 8;
  code.need(1);
  if (row.dst.role == Role::reg) inst.dst = scalar(code.bits(6, 7), row.dst.dwords);
  if (row.address == Address::none) return;
  if (row.sources) inst.src[1] = scalar(code.bits(6, 7), row.src[0].dwords);
  inst.src[2] = scalar(code.bits(0, 6) * 2, row.address == Address::smem_buffer ? 4 : 2);
  inst.sc0 = code.bit(16);
  const bool has_imm = code.bit(17), has_soffset = code.bit(14);
  if (has_imm) inst.imm = static_cast<std::int32_t>(code.bits(32, 21) << 11) >> 11;
  if (has_soffset) inst.src[3] = scalar(code.bits(57, 7), 1);
  if (!has_imm && !has_soffset) inst.src[3] = scalar(code.bits(32, 7), 1);
}

}  // namespace flymono
