// How "undefined" bits pass through bitwise operations: from values and undefined bits of one lane.
// Everything without a rule: any undefined source bit makes the whole result undefined.
#pragma once

#include "machine.hpp"

namespace flymono::rules {

inline u32 copy(const Code&, const u32*, const u32 u[3]) { return u[0]; }
inline u32 either(const Code&, const u32*, const u32 u[3]) { return u[0] | u[1]; }
inline u32 any3(const Code&, const u32*, const u32 u[3]) { return u[0] | u[1] | u[2]; }

inline u32 and_bits(u32 a, u32 ua, u32 b, u32 ub) { return (ua & (b | ub)) | (ub & (a | ua)); }
inline u32 or_bits(u32 a, u32 ua, u32 b, u32 ub) { return (ua & (~b | ub)) | (ub & (~a | ua)); }
// From the lowest undefined bit upwards: what a sum, difference or product may change.
inline u32 upward(u32 u) { return u ? ~((u & (0u - u)) - 1) : 0; }

inline u32 and2(const Code&, const u32 v[3], const u32 u[3]) { return and_bits(v[0], u[0], v[1], u[1]); }
inline u32 or2(const Code&, const u32 v[3], const u32 u[3]) { return or_bits(v[0], u[0], v[1], u[1]); }
inline u32 sum2(const Code&, const u32*, const u32 u[3]) { return upward(u[0] | u[1]); }
inline u32 sum3(const Code&, const u32*, const u32 u[3]) { return upward(u[0] | u[1] | u[2]); }
inline u32 or3(const Code&, const u32 v[3], const u32 u[3]) {
  return or_bits(v[0] | v[1], or_bits(v[0], u[0], v[1], u[1]), v[2], u[2]);
}
inline u32 and_or(const Code&, const u32 v[3], const u32 u[3]) {
  return or_bits(v[0] & v[1], and_bits(v[0], u[0], v[1], u[1]), v[2], u[2]);
}
inline u32 lshl_or(const Code&, const u32 v[3], const u32 u[3]) {
  if (u[1] & 31) return ~0u;
  return or_bits(v[0] << (v[1] & 31), u[0] << (v[1] & 31), v[2], u[2]);
}
inline u32 bfi(const Code&, const u32 v[3], const u32 u[3]) {
  return (v[0] & u[1]) | (~v[0] & u[2]) | (u[0] & ((v[1] ^ v[2]) | u[1] | u[2]));
}
// shifts with the amount in source 0 (reversed operands)
inline u32 shl_rev(const Code&, const u32 v[3], const u32 u[3]) { return u[0] & 31 ? ~0u : u[1] << (v[0] & 31); }
inline u32 shr_rev(const Code&, const u32 v[3], const u32 u[3]) { return u[0] & 31 ? ~0u : u[1] >> (v[0] & 31); }
inline u32 sar_rev(const Code&, const u32 v[3], const u32 u[3]) {
  return u[0] & 31 ? ~0u : static_cast<u32>(static_cast<i32>(u[1]) >> (v[0] & 31));
}
inline u32 shl(const Code&, const u32 v[3], const u32 u[3]) { return u[1] & 31 ? ~0u : u[0] << (v[1] & 31); }
inline u32 shr(const Code&, const u32 v[3], const u32 u[3]) { return u[1] & 31 ? ~0u : u[0] >> (v[1] & 31); }
inline u32 bfe(const Code&, const u32 v[3], const u32 u[3]) {
  if ((u[1] & 31) || (u[2] & 31)) return ~0u;
  const u32 width = v[2] & 31, field = width ? (u[0] >> (v[1] & 31)) & ((1u << width) - 1) : 0;
  return field;
}
inline u32 bfe_signed(const Code& c, const u32 v[3], const u32 u[3]) {
  const u32 field = bfe(c, v, u), width = v[2] & 31;
  return width && (field >> (width - 1) & 1) ? field | ~((1u << width) - 1) : field;
}
inline u32 perm(const Code&, const u32 v[3], const u32 u[3]) {
  u32 r = 0;
  for (int k = 0; k < 4; ++k) {
    const u32 sel = v[2] >> (8 * k) & 255;
    u32 byte = 0;
    if (u[2] >> (8 * k) & 255) byte = 255;
    else if (sel < 8) byte = (sel < 4 ? u[1] >> (8 * sel) : u[0] >> (8 * (sel - 4))) & 255;
    else if (sel < 12) byte = ((sel & 2) ? u[0] : u[1]) >> ((sel & 1) ? 31 : 15) & 1 ? 255 : 0;
    r |= byte << (8 * k);
  }
  return r;
}

}  // namespace flymono::rules
