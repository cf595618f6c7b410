#include "decode.hpp"

#include <cstdio>

#include "decode_families.hpp"

namespace flymono {
namespace {

struct ArchName {
  std::string_view name;
  Arch arch;
};
constexpr ArchName kArchs[] = {{"gfx942", Arch::gfx942}, {"gfx950", Arch::gfx950}};

struct Prefix {
  std::uint32_t mask, value;
  void (*decode)(const Words&, Inst&);
};

// First match wins: SOP1, SOPC and SOPP are carved out of SOPK, and that out of SOP2.
constexpr Prefix kPrefixes[] = {
    {0x80000000, 0x00000000, decode_vop},    {0xc0000000, 0x80000000, decode_scalar},
    {0xfc000000, 0xc0000000, decode_smem},   {0xfc000000, 0xd0000000, decode_vop3},
    {0xfc000000, 0xd8000000, decode_ds},     {0xfc000000, 0xdc000000, decode_flat},
    {0xfc000000, 0xe0000000, decode_mubuf},
};

Words load(Arch arch, const std::uint8_t* bytes, std::size_t left, std::uint32_t pc) {
  Words code;
  code.pc = pc;
  code.end = pc + left;
  code.arch = arch;
  for (unsigned i = 0; i < 4 && 4 * i + 4 <= left; ++i, ++code.available)
    for (unsigned byte = 0; byte < 4; ++byte)
      code.word[i] |= static_cast<std::uint32_t>(bytes[4 * i + byte]) << (8 * byte);
  return code;
}

std::string describe(const Words& code, const std::string& what) {
  std::string text = what + " (";
  if (!code.available) text += "no whole dword is left";
  for (unsigned i = 0; i < code.available && i < 2; ++i) {
    char word[16];
    std::snprintf(word, sizeof word, "%s0x%08x", i ? " " : "", code.word[i]);
    text += word;
  }
  return text + ")";
}

Inst unknown(std::uint32_t pc, std::size_t left, const Words& code) {
  Inst inst;
  inst.op = Op::unknown;
  inst.enc = Enc::sopp;
  inst.pc = pc;
  inst.size = static_cast<std::uint8_t>(left < 4 ? left : 4);
  inst.imm = static_cast<std::int32_t>(code.word[0]);
  return inst;
}

void dispatch(const Words& code, Inst& inst) {
  code.need(0);
  for (const Prefix& prefix : kPrefixes)
    if ((code.word[0] & prefix.mask) == prefix.value) return prefix.decode(code, inst);
  throw Malformed("no encoding has this prefix");
}

}  // namespace

const Row& row_on(const Words& code, Family family, unsigned number) {
  const Row* row = find_row(family, number);
  if (!row) throw Malformed("no operation has opcode " + std::to_string(number) + " of its encoding");
  if (!row->on(code.arch))
    throw Malformed(std::string(mnemonic(row->op)) + " does not exist on " + std::string(arch_name(code.arch)));
  return *row;
}

bool decode(Arch arch, const std::uint8_t* bytes, std::size_t left, std::uint32_t pc, Inst& out, std::string& why) {
  const Words code = load(arch, bytes, left, pc);
  out = Inst{};
  out.pc = pc;
  try {
    dispatch(code, out);
    code.need(out.size / 4 - 1);
    return true;
  } catch (const Malformed& malformed) {
    why = describe(code, malformed.what());
    out = unknown(pc, left, code);
    return false;
  }
}

Listing decode_all(Arch arch, const std::vector<std::uint8_t>& text) {
  Listing listing;
  listing.insts.reserve(text.size() / 6 + 1);
  std::string why;
  for (std::uint32_t pc = 0; pc < text.size(); pc += listing.insts.back().size) {
    if (!decode(arch, text.data() + pc, text.size() - pc, pc, listing.insts.emplace_back(), why))
      listing.errors.push_back({pc, why});
  }
  return listing;
}

std::optional<Arch> arch_named(std::string_view name) {
  for (const ArchName& known : kArchs)
    if (known.name == name) return known.arch;
  return std::nullopt;
}

std::string_view arch_name(Arch arch) {
  for (const ArchName& known : kArchs)
    if (known.arch == arch) return known.name;
  return "?";
}

}  // namespace flymono
