#include "disasm_operand.hpp"

#include <bit>
#include <cstdio>
#include <iterator>

#include "decode_operand.hpp"

namespace flymono {
namespace {

std::string registers(char bank, unsigned index, unsigned dwords) {
  const std::string first = std::to_string(index);
  if (dwords == 1) return bank + first;
  return bank + ("[" + first + ":" + std::to_string(index + dwords - 1) + "]");
}

bool is64(Type type) { return type == Type::uint64 || type == Type::int64 || type == Type::f64; }

// -16 .. 64 stand in the encoding as integers, nine floats as floats.
std::string constant(const Operand& operand, Type type) {
  static constexpr const char* floats[] = {"0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494"};
  const bool wide = is64(type);
  if (operand.literal) return hex(type == Type::f64 ? operand.value >> 32 : operand.value & 0xffffffff);
  const std::int64_t integer = wide ? std::bit_cast<std::int64_t>(operand.value)
                                    : std::bit_cast<std::int32_t>(static_cast<std::uint32_t>(operand.value));
  if (integer >= -16 && integer <= 64) return std::to_string(integer);
  for (unsigned i = 0; i < std::size(floats); ++i)
    if (operand.value == (wide ? inline_double(240 + i) : inline_float(240 + i, type)))
      return wide && i == 8 ? "0.15915494309189532" : floats[i];
  return hex(operand.value);
}

std::string half(const char* name, const Operand& operand) {
  return operand.dwords == 2 ? name : name + std::string(operand.hi ? "_hi" : "_lo");
}

std::string aperture(unsigned field) {
  static constexpr const char* names[] = {"src_shared_base", "src_shared_limit", "src_private_base", "src_private_limit"};
  return names[field - 235];
}

std::string waitcnt(unsigned word) {
  const unsigned vm = (word & 0xf) | (word >> 14 & 3) << 4, exp = word >> 4 & 7, lgkm = word >> 8 & 0xf;
  const bool all = vm == 63 && exp == 7 && lgkm == 15;
  std::string text;
  if (vm != 63 || all) text += " vmcnt(" + std::to_string(vm) + ")";
  if (exp != 7 || all) text += " expcnt(" + std::to_string(exp) + ")";
  if (lgkm != 15 || all) text += " lgkmcnt(" + std::to_string(lgkm) + ")";
  return text.substr(1);
}

std::string hwreg(unsigned word) {
  static constexpr const char* names[] = {"0", "HW_REG_MODE", "HW_REG_STATUS", "HW_REG_TRAPSTS", "HW_REG_HW_ID",
                                          "HW_REG_GPR_ALLOC", "HW_REG_LDS_ALLOC", "HW_REG_IB_STS"};
  const unsigned id = word & 63, offset = word >> 6 & 31, size = (word >> 11) + 1;
  std::string text = id < std::size(names) ? names[id] : id == 20 ? "HW_REG_XCC_ID" : std::to_string(id);
  if (offset || size != 32) text += ", " + std::to_string(offset) + ", " + std::to_string(size);
  return "hwreg(" + text + ")";
}

std::string index_mode(unsigned bits) {
  static constexpr const char* names[] = {"SRC0", "SRC1", "SRC2", "DST"};
  std::string text;
  for (unsigned i = 0; i < 4; ++i)
    if (bits >> i & 1) {
      if (!text.empty()) text += ',';
      text += names[i];
    }
  return "gpr_idx(" + text + ")";
}

bool names_hwreg(Op op) {
  return op == Op::s_getreg_b32 || op == Op::s_setreg_b32 || op == Op::s_setreg_imm32_b32;
}

}  // namespace

std::string hex(unsigned long long value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", value);
  return text;
}

std::string operand_text(const Operand& operand, Type type) {
  switch (operand.kind) {
    case Kind::none: return "off";
    case Kind::sgpr: return registers('s', operand.index, operand.dwords);
    case Kind::vgpr: return registers('v', operand.index, operand.dwords);
    case Kind::agpr: return registers('a', operand.index, operand.dwords);
    case Kind::ttmp: return "ttmp" + registers(' ', operand.index, operand.dwords).substr(1);
    case Kind::vcc: return half("vcc", operand);
    case Kind::exec: return half("exec", operand);
    case Kind::m0: return "m0";
    case Kind::scc: return "src_scc";
    case Kind::vccz: return "src_vccz";
    case Kind::execz: return "src_execz";
    case Kind::constant: return constant(operand, type);
    case Kind::aperture: return aperture(operand.index);
  }
  return "?";
}

std::string modified_text(const Operand& operand, Type type) {
  std::string text = operand_text(operand, type);
  if (operand.sext) text = "sext(" + text + ")";
  if (operand.abs) text = "|" + text + "|";
  return operand.neg ? "-" + text : text;
}

std::string immediate_text(const Inst& inst, Imm kind) {
  const auto word = static_cast<unsigned>(inst.imm);
  if (kind == Imm::branch) return hex(inst.target);
  if (kind == Imm::field8) return index_mode(word);
  if (inst.op == Op::s_set_gpr_idx_mode) return index_mode(word);
  if (inst.op == Op::s_waitcnt) return waitcnt(word);
  if (names_hwreg(inst.op)) return hwreg(word);
  const bool small = inst.enc == Enc::sopp && word < 256;
  return small ? std::to_string(word) : hex(word & 0xffff);
}

}  // namespace flymono
