// The opcode map, read once from optable.inc.
//
// Invariants
//  - Every Op has exactly one Row, so row_of() answers for a decoded instruction, too.
//  - A Row describes the short form; the VOP3 form of a VOP1, VOP2 or VOPC operation shares it.
#pragma once

#include <cstdint>
#include <string_view>

#include "inst.hpp"

namespace flymono {

// What an operand's bits mean; decides the value of a constant and nothing else.
enum class Type : std::uint8_t {
  none, int16, f16, bf16, int32, f32, pair16, pair_f16, pair_bf16, pair32, uint64, int64, f64, wide,
};

enum class Role : std::uint8_t {
  none,
  reg,      // a register or constant field of the encoding
  mask,     // VCC in short encodings, an SGPR pair in VOP3
  tied,     // the destination again
  literal,  // a literal dword that the operation always carries
};

enum class Bank : std::uint8_t { any, scalar, vector, acc };

struct Slot {
  Role role = Role::none;
  Type type = Type::none;
  Bank bank = Bank::any;
  std::uint8_t dwords = 0;
};

enum class Imm : std::uint8_t { none, signed16, unsigned16, branch, field8 };
enum class Address : std::uint8_t { none, ds, ds_pair, smem, smem_buffer, buffer, pointer };

// The family of an encoding, as the rows of optable.inc name it.
enum class Family : std::uint8_t {
  sop1, sop2, sopk, sopc, sopp, smem, vop1, vop2, vopc, vop3, vop3p, mai, mai_scale,
  ds, mubuf, flat, global, scratch, count_,
};

struct Row {
  Op op{};
  Family family{};
  std::uint16_t number = 0;
  std::uint8_t archs = 0;      // bit 1 << Arch
  Slot dst, dst2, src[4];
  std::uint8_t sources = 0;
  bool swap = false;           // source 0 is written, too
  bool returns_if_sc0 = false; // atomics: a destination only where the old value is asked for
  Imm imm = Imm::none;
  Address address = Address::none;

  bool on(Arch arch) const { return archs >> static_cast<int>(arch) & 1; }
  bool has_vop3_form() const;  // of a VOP1, VOP2 or VOPC operation
};

// The row of `number` in `family`, or nullptr. Does not look at the arch.
const Row* find_row(Family family, unsigned number);
const Row& row_of(Op op);

}  // namespace flymono
