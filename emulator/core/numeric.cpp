#include "numeric.hpp"

#include <array>

namespace flymono {

float from_f16(u32 h) {
  const u32 sign = (h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
  if (exponent == 31) return f32(sign | 0x7f800000 | mantissa << 13);
  if (exponent) return f32(sign | (exponent + 112) << 23 | mantissa << 13);
  const float x = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -x : x;
}

// Rounds |x| to `mantissa_bits` with exponents of the given bias; returns the unsigned code (may exceed the format).
static u64 round_code(double x, int mantissa_bits, int bias, bool nearest) {
  int e;
  std::frexp(x, &e);                                 // x = m * 2^e, 0.5 <= m < 1
  const int exponent = e - 1 < 1 - bias ? 1 - bias : e - 1;  // subnormals share the lowest exponent
  const double scaled = std::ldexp(x, mantissa_bits - exponent);
  const double r = nearest ? std::nearbyint(scaled) : std::floor(scaled);
  const u64 units = static_cast<u64>(r);             // a carry into the exponent is the right code
  return (static_cast<u64>(exponent - 1 + bias) << mantissa_bits) + units;
}

static u16 encode_f16(double x, bool nearest) {
  const u16 sign = std::signbit(x) ? 0x8000 : 0;
  if (x != x) return sign | 0x7e00;
  const double a = std::fabs(x);
  if (a == 0) return sign;
  if (std::isinf(a)) return sign | 0x7c00;
  u64 code = round_code(a, 10, 15, nearest);
  if (code >= 0x7c00) code = nearest ? 0x7c00 : 0x7bff;
  return static_cast<u16>(sign | code);
}

u16 to_f16(float x) { return encode_f16(x, true); }
u16 to_f16_toward_zero(float x) { return encode_f16(x, false); }
u16 to_f16_from_double(double x) { return encode_f16(x, true); }

float decode_small(const SmallFloat& f, u32 code) {
  const int width = 1 + f.exponent_bits + f.mantissa_bits;
  const u32 magnitude = code & ((1u << (width - 1)) - 1), mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
  const bool negative = code >> (width - 1) & 1;
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  if (f.special == SmallFloat::fnuz && code == 0x80) return f32(0x7fc00000);
  if (f.special == SmallFloat::ocp_e4m3 && magnitude == 0x7f) return f32(negative ? 0xffc00000 : 0x7fc00000);
  if (f.special == SmallFloat::ieee && exponent == (1 << f.exponent_bits) - 1) {
    const u32 pattern = mantissa ? 0x7fc00000u : 0x7f800000u;
    return f32(pattern | (negative ? 0x80000000u : 0));
  }
  const int scale = (exponent ? exponent : 1) - f.bias - f.mantissa_bits;
  const u32 units = exponent ? mantissa | 1u << f.mantissa_bits : mantissa;
  const float x = std::ldexp(static_cast<float>(units), scale);
  return negative ? -x : x;
}

static u32 nan_code(const SmallFloat& f, bool negative) {
  if (f.special == SmallFloat::fnuz) return 0x80;
  if (f.special == SmallFloat::none) return f.max_code;
  return 0x7f | (negative ? 0x80u : 0);
}

static u32 finish(const SmallFloat& f, u64 code, bool negative, bool saturate, bool infinite) {
  const u32 sign = negative ? 1u << (f.exponent_bits + f.mantissa_bits) : 0;
  if (code > f.max_code || infinite) {
    if (saturate || f.special == SmallFloat::none) return sign | f.max_code;
    return f.special == SmallFloat::ieee ? (sign | 0x7c) : nan_code(f, negative);
  }
  if (!code && f.special == SmallFloat::fnuz) return 0;
  return sign | static_cast<u32>(code);
}

u32 encode_small(const SmallFloat& f, float x, bool saturate) {
  const bool negative = std::signbit(x);
  if (x != x) return nan_code(f, negative);
  const double a = std::fabs(static_cast<double>(x));
  const bool infinite = std::isinf(a);
  const u64 code = a == 0 || infinite ? 0 : round_code(a, f.mantissa_bits, f.bias, true);
  return finish(f, code, negative, saturate, infinite);
}

u32 encode_small_stochastic(const SmallFloat& f, float x, u32 random) {
  const bool negative = std::signbit(x);
  if (x != x) return nan_code(f, negative);
  const double a = std::fabs(static_cast<double>(x));
  if (std::isinf(a)) return finish(f, 0, negative, false, true);
  if (a == 0) return finish(f, 0, negative, false, false);
  // The addend is a fraction of the last place kept: random bits [31:12] (fp8) or [31:11] (bf8) of the f32 mantissa.
  const int keep = f.mantissa_bits == 3 ? 20 : 21;
  int e;
  std::frexp(a, &e);
  const int exponent = e - 1 < 1 - f.bias ? 1 - f.bias : e - 1;
  const double fraction = std::ldexp(static_cast<double>(random >> (32 - keep)), -keep);
  const u64 units = static_cast<u64>(std::floor(std::ldexp(a, f.mantissa_bits - exponent) + fraction));
  return finish(f, (static_cast<u64>(exponent - 1 + f.bias) << f.mantissa_bits) + units, negative, false, false);
}

static std::array<float, 256> make_table(const SmallFloat& f) {
  std::array<float, 256> t;
  for (u32 i = 0; i < 256; ++i) t[i] = decode_small(f, i);
  return t;
}

const float* small_table(const SmallFloat& f) {
  static const std::array<float, 256> tables[] = {make_table(kE4m3Fnuz), make_table(kE5m2Fnuz), make_table(kE4m3),
                                                  make_table(kE5m2), make_table(kE2m3), make_table(kE3m2), make_table(kE2m1)};
  const SmallFloat* formats[] = {&kE4m3Fnuz, &kE5m2Fnuz, &kE4m3, &kE5m2, &kE2m3, &kE3m2, &kE2m1};
  for (int i = 0; i < 7; ++i)
    if (formats[i]->bias == f.bias && formats[i]->mantissa_bits == f.mantissa_bits && formats[i]->special == f.special)
      return tables[i].data();
  return nullptr;
}

}  // namespace flymono
