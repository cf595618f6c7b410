// Number formats: bf16, f16, FP8 / BF8 in both flavours, FP6 / BF6, FP4, E8M0. Exact integer conversions.
//
// Invariants
//  - Decoding is exact. Encoding rounds once, to nearest even, from the f32 value.
//  - FNUZ (gfx942): one NaN 0x80, no infinity, no negative zero. OCP (gfx950): E4M3 without infinity, E5M2 with it.
#pragma once

#include <cmath>

#include "base.hpp"

namespace flymono {

inline u32 to_bf16(float x) {
  const u32 b = bits(x);
  if ((b & 0x7fffffff) > 0x7f800000) return (b >> 16) | 0x40;  // quieted
  return (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

// f16 through the bit pattern (no dependence on the host's F16C).
float from_f16(u32 h);
u16 to_f16(float x);
u16 to_f16_toward_zero(float x);
u16 to_f16_from_double(double x);

struct SmallFloat {          // a format of at most 8 bits
  int exponent_bits, mantissa_bits, bias;
  enum Special { none, fnuz, ocp_e4m3, ieee } special;
  u8 max_code;               // largest finite magnitude
};
inline constexpr SmallFloat kE4m3Fnuz{4, 3, 8, SmallFloat::fnuz, 0x7f}, kE5m2Fnuz{5, 2, 16, SmallFloat::fnuz, 0x7f},
    kE4m3{4, 3, 7, SmallFloat::ocp_e4m3, 0x7e}, kE5m2{5, 2, 15, SmallFloat::ieee, 0x7b},
    kE2m3{2, 3, 1, SmallFloat::none, 0x1f}, kE3m2{3, 2, 3, SmallFloat::none, 0x1f}, kE2m1{2, 1, 1, SmallFloat::none, 0x07};

float decode_small(const SmallFloat& f, u32 code);
// `saturate`: overflow gives the largest finite value (FP16_OVFL = 1, and formats without NaN), else NaN or infinity.
u32 encode_small(const SmallFloat& f, float x, bool saturate);
// Stochastic rounding: `random` (32 bits) is added below the last mantissa bit kept, then truncation.
u32 encode_small_stochastic(const SmallFloat& f, float x, u32 random);

// 256-entry tables of f32 values.
const float* small_table(const SmallFloat& f);

inline float e8m0(u32 byte) {  // 2^(byte - 127); 255 is NaN
  if (byte == 255) return f32(0x7fc00000);
  return byte ? f32(byte << 23) : f32(0x00400000);
}

}  // namespace flymono
