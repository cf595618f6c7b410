// "Undefined" marks (check mode): how they pass through each class of instruction, and where they are findings.
//
// Invariants
//  - Marks move before the instruction executes, from the values and marks of its sources.
//  - Copying and computing is harmless; an undefined value is a finding where it becomes an address, a branch, EXEC or
//    stored data. After a finding the value counts as defined, so that one mistake is reported once.
#pragma once

#include "lanes.hpp"

namespace flymono {

void shadow_none(Wave&, const Code&);
void shadow_valu(Wave&, const Code&);
void shadow_salu(Wave&, const Code&);
void shadow_branch(Wave&, const Code&);   // SCC, VCC
void shadow_address(Wave&, const Code&);  // vector memory, LDS, scalar loads
Handler shadow_for(const Inst& inst, const Entry& entry);

inline u64 any_undefined(const ByteMask& m) { return m.b[0] | m.b[1] | m.b[2] | m.b[3]; }
inline u32 undefined_bits(const ByteMask& m, int lane) {
  u32 u = 0;
  for (int k = 0; k < 4; ++k) u |= (m.b[k] >> lane & 1) ? 0xffu << (8 * k) : 0u;
  return u;
}

}  // namespace flymono
