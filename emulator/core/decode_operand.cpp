#include "decode_operand.hpp"

#include <bit>

namespace flymono {
namespace {

// 0.5, -0.5, 1, -1, 2, -2, 4, -4, 1/(2 pi): fields 240..248.
constexpr std::uint16_t kF16[] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118};
constexpr std::uint16_t kBf16[] = {0x3f00, 0xbf00, 0x3f80, 0xbf80, 0x4000, 0xc000, 0x4080, 0xc080, 0x3e22};
constexpr std::uint32_t kF32[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000,
                                  0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};
constexpr std::uint64_t kF64[] = {0x3fe0000000000000, 0xbfe0000000000000, 0x3ff0000000000000,
                                  0xbff0000000000000, 0x4000000000000000, 0xc000000000000000,
                                  0x4010000000000000, 0xc010000000000000, 0x3fc45f306dc9c882};

bool is64(Type type) { return type == Type::uint64 || type == Type::int64 || type == Type::f64; }

Operand constant(std::uint64_t value, const Slot& slot) {
  Operand operand;
  operand.kind = Kind::constant;
  operand.dwords = slot.dwords;
  operand.value = value;
  return operand;
}

// 128..192 are 0..64, 193..208 are -1..-16.
Operand inline_integer(unsigned field, const Slot& slot) {
  const std::int64_t value = field <= 192 ? field - 128 : 192 - static_cast<std::int64_t>(field);
  return constant(is64(slot.type) ? static_cast<std::uint64_t>(value) : static_cast<std::uint32_t>(value), slot);
}

Operand special(Kind kind, unsigned dwords, bool hi) {
  if (hi && dwords != 1) throw Malformed("the upper half of a register pair as a wider operand");
  if (dwords > 2) throw Malformed("vcc or exec as an operand of more than 64 bits");
  Operand operand;
  operand.kind = kind;
  operand.dwords = static_cast<std::uint8_t>(dwords);
  operand.hi = hi;
  return operand;
}

Operand group(Kind kind, unsigned index, unsigned dwords, unsigned limit, unsigned align) {
  if (index + dwords > limit) throw Malformed("a register group that ends past the last register");
  if (index % align) throw Malformed("a register group that starts at a misaligned register");
  Operand operand;
  operand.kind = kind;
  operand.dwords = static_cast<std::uint8_t>(dwords);
  operand.index = static_cast<std::uint16_t>(index);
  return operand;
}

unsigned scalar_align(unsigned dwords) { return dwords >= 4 ? 4 : dwords; }

}  // namespace

std::uint32_t Words::need(unsigned dword) const {
  if (dword >= available) throw Malformed("an instruction cut off by the end of the code");
  return word[dword];
}

std::uint32_t inline_float(unsigned field, Type type) {
  const unsigned i = field - 240;
  if (type == Type::f16 || type == Type::int16 || type == Type::pair_f16) return kF16[i];
  if (type == Type::bf16 || type == Type::pair_bf16) return kBf16[i];
  return kF32[i];
}

std::uint64_t inline_double(unsigned field) { return kF64[field - 240]; }

Operand scalar(unsigned field, unsigned dwords) {
  if (field <= 101) return group(Kind::sgpr, field, dwords, 102, scalar_align(dwords));
  if (field == 106 || field == 107) return special(Kind::vcc, dwords, field == 107);
  if (field >= 108 && field <= 123) return group(Kind::ttmp, field - 108, dwords, 16, scalar_align(dwords));
  if (field == 124 && dwords == 1) return special(Kind::m0, 1, false);
  if (field == 126 || field == 127) return special(Kind::exec, dwords, field == 127);
  throw Malformed("scalar register field " + std::to_string(field));
}

Operand vector(unsigned index, unsigned dwords, bool acc) {
  return group(acc ? Kind::agpr : Kind::vgpr, index, dwords, 256, dwords > 1 ? 2 : 1);
}

Operand literal(std::uint32_t word, Type type) {
  std::uint64_t value = word;
  if (type == Type::f64) value = static_cast<std::uint64_t>(word) << 32;
  if (type == Type::int64) value = static_cast<std::uint64_t>(std::int64_t{std::bit_cast<std::int32_t>(word)});
  Operand operand = constant(value, {Role::reg, type, Bank::any, static_cast<std::uint8_t>(is64(type) ? 2 : 1)});
  operand.literal = true;
  return operand;
}

Operand vcc_mask() { return special(Kind::vcc, 2, false); }

Operand source(const Words& code, unsigned field, const Slot& slot, unsigned literal_at) {
  if (field >= 256) {
    if (slot.bank == Bank::scalar) throw Malformed("a vector register where a scalar one must stand");
    return vector(field - 256, slot.dwords, slot.bank == Bank::acc);
  }
  if (slot.bank == Bank::vector || slot.bank == Bank::acc)
    throw Malformed("source field " + std::to_string(field) + " where a vector register must stand");
  if (field <= 127) return scalar(field, slot.dwords);
  if (field <= 208) return inline_integer(field, slot);
  if (field >= 240 && field <= 248)
    return constant(is64(slot.type) ? inline_double(field) : inline_float(field, slot.type), slot);
  if (field == 255 && literal_at) {
    Operand operand = literal(code.need(literal_at), slot.type);
    operand.dwords = slot.dwords;
    return operand;
  }
  Operand operand;
  operand.dwords = slot.dwords;
  if (field >= 235 && field <= 238) {
    operand.kind = Kind::aperture;
    operand.index = static_cast<std::uint16_t>(field);
  } else if (field == 251) operand.kind = Kind::vccz;
  else if (field == 252) operand.kind = Kind::execz;
  else if (field == 253) operand.kind = Kind::scc;
  else throw Malformed("source field " + std::to_string(field));
  return operand;
}

}  // namespace flymono
