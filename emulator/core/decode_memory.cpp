#include "decode_families.hpp"

namespace flymono {
namespace {

constexpr Slot kSoffset{Role::reg, Type::int32, Bank::scalar, 1};

std::uint8_t byte_at(const Words& code, unsigned lo) { return static_cast<std::uint8_t>(code.bits(lo, 8)); }

// Destination and data share one acc bit: both are vector or both accumulator registers.
Operand data_registers(const Words& code, const Slot& slot, unsigned lo, bool acc) {
  return slot.role == Role::reg ? vector(code.bits(lo, 8), slot.dwords, acc) : Operand{};
}

void destination(const Words& code, const Row& row, unsigned lo, bool acc, Inst& inst) {
  if (row.dst.role == Role::reg && (!row.returns_if_sc0 || inst.sc0))
    inst.dst = data_registers(code, row.dst, lo, acc);
}

// Loads of one dword or less can go to LDS, and on some archs those of three and four dwords.
void check_lds(const Words& code, const Row& row) {
  const unsigned dwords = row.dst.dwords;
  const Row* wide = find_row(Family::global, 0x7d);  // global_load_lds_dwordx4 goes with them
  const bool wide_ok = (dwords == 3 || dwords == 4) && wide && wide->on(code.arch);
  if (row.dst.role != Role::reg || row.returns_if_sc0 || !(dwords == 1 || wide_ok))
    throw Malformed(std::string(mnemonic(row.op)) + " cannot go to LDS");
}

void flat_address(const Words& code, Family family, Inst& inst) {
  const unsigned saddr = code.bits(48, 7), vaddr = byte_at(code, 32);
  const bool has_saddr = family != Family::flat && saddr != 0x7f;
  if (has_saddr) inst.src[2] = scalar(saddr, family == Family::global ? 2 : 1);
  if (family != Family::scratch) inst.src[0] = vector(vaddr, has_saddr ? 1 : 2);
  else if (code.bit(13)) inst.src[0] = vector(vaddr, 1);
  // Flat offsets are 12 bits without sign, the others 13 with; scratch's top bit is bit 12.
  if (family == Family::flat) inst.imm = static_cast<std::int32_t>(code.bits(0, 12));
  else inst.imm = static_cast<std::int32_t>(code.bits(0, 13) << 19) >> 19;
}

}  // namespace

void decode_ds(const Words& code, Inst& inst) {
  code.need(1);
  const Row& row = row_on(code, Family::ds, code.bits(17, 8));
  if (code.bit(16)) throw Malformed("global data share, which these archs lack");
  const bool acc = code.bit(25);
  inst.op = row.op;
  inst.enc = Enc::ds;
  inst.size = 8;
  inst.dst = data_registers(code, row.dst, 56, acc);
  if (row.address != Address::none) inst.src[0] = vector(byte_at(code, 32), 1);
  for (unsigned i = 0; i < row.sources; ++i)
    inst.src[1 + i] = data_registers(code, row.src[i], 40 + 8 * i, acc);
  if (row.address == Address::ds_pair) {
    inst.offset0 = byte_at(code, 0);
    inst.offset1 = byte_at(code, 8);
  } else {
    inst.imm = static_cast<std::int32_t>(code.bits(0, 16));
  }
}

void decode_mubuf(const Words& code, Inst& inst) {
  code.need(1);
  const Row& row = row_on(code, Family::mubuf, code.bits(18, 7));
  inst.op = row.op;
  inst.enc = Enc::mubuf;
  inst.size = 8;
  inst.sc0 = code.bit(14);
  inst.sc1 = code.bit(15);
  inst.nt = code.bit(17);
  if (row.address == Address::none) return;
  const bool acc = code.bit(55);
  inst.lds = code.bit(16);
  inst.offen = code.bit(12);
  inst.idxen = code.bit(13);
  inst.imm = static_cast<std::int32_t>(code.bits(0, 12));
  if (inst.lds) check_lds(code, row);
  else destination(code, row, 40, acc, inst);
  if (row.sources) inst.src[1] = data_registers(code, row.src[0], 40, acc);
  if (inst.offen || inst.idxen) inst.src[0] = vector(byte_at(code, 32), inst.offen + inst.idxen);
  inst.src[2] = scalar(code.bits(48, 5) * 4, 4);
  inst.src[3] = source(code, byte_at(code, 56), kSoffset, 0);
}

void decode_flat(const Words& code, Inst& inst) {
  static constexpr Family families[] = {Family::flat, Family::scratch, Family::global};
  static constexpr Enc encodings[] = {Enc::flat, Enc::scratch, Enc::global};
  code.need(1);
  const unsigned segment = code.bits(14, 2);
  if (segment == 3) throw Malformed("flat segment 3");
  const Family family = families[segment];
  const Row& row = row_on(code, family, code.bits(18, 7));
  const bool acc = code.bit(55);
  inst.op = row.op;
  inst.enc = encodings[segment];
  inst.size = 8;
  inst.sc0 = code.bit(16);
  inst.nt = code.bit(17);
  inst.sc1 = code.bit(25);
  inst.lds = row.dst.role == Role::none && !row.sources;
  destination(code, row, 56, acc, inst);
  if (row.sources) inst.src[1] = data_registers(code, row.src[0], 40, acc);
  flat_address(code, family, inst);
}

}  // namespace flymono
