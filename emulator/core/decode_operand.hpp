// Register and constant fields of an encoding, shared by the decoders.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "inst.hpp"
#include "optable.hpp"

namespace flymono {

// Thrown and caught inside the decoder; `what` names the field.
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The two to four dwords of one instruction, and what the encodings have in common.
struct Words {
  std::uint32_t word[4] = {};
  unsigned available = 0;  // dwords up to the end of the code
  std::uint32_t pc = 0;
  std::uint64_t end = 0;   // byte offset of the end of the code
  Arch arch{};

  // Bits [lo, lo + width) of the first 64 bits, counted as the manuals do.
  std::uint32_t bits(unsigned lo, unsigned width) const {
    const std::uint64_t both = word[0] | static_cast<std::uint64_t>(word[1]) << 32;
    return static_cast<std::uint32_t>(both >> lo & ((std::uint64_t{1} << width) - 1));
  }
  bool bit(unsigned lo) const { return bits(lo, 1); }
  std::uint32_t need(unsigned dword) const;  // that dword, or Malformed at the end of the code
};

// A source field of 8 (scalar) or 9 bits. A literal is `code.word[literal_at]`; 0: none is allowed.
Operand source(const Words& code, unsigned field, const Slot& slot, unsigned literal_at);
Operand scalar(unsigned field, unsigned dwords);              // SGPR, VCC, M0, EXEC, TTMP
Operand vector(unsigned index, unsigned dwords, bool acc = false);
Operand literal(std::uint32_t word, Type type);
Operand vcc_mask();

std::uint32_t inline_float(unsigned field, Type type);        // fields 240..248, up to 32 bits
std::uint64_t inline_double(unsigned field);

}  // namespace flymono
