// Vector f32 arithmetic: IEEE, round to nearest even, denormals kept (the MODE that the kernels start with).
#include <algorithm>
#include <cmath>

#include "lanes.hpp"
#include "numeric.hpp"

namespace flymono {
namespace {

inline bool nan(u32 x) { return (x & 0x7fffffff) > 0x7f800000; }
inline bool signalling(u32 x) { return nan(x) && !(x & 0x400000); }
inline u32 quiet(u32 x) { return x | 0x400000; }

// IEEE = 1: a signalling NaN wins (quieted), a quiet NaN loses; +0 > -0.
inline u32 max_ieee(u32 a, u32 b) {
  u32 r = f32(a) > f32(b) ? a : f32(a) < f32(b) ? b : a & b;
  r = nan(a) ? b : nan(b) ? a : r;
  r = signalling(b) ? quiet(b) : r;
  return signalling(a) ? quiet(a) : r;
}
inline u32 min_ieee(u32 a, u32 b) {
  u32 r = f32(a) < f32(b) ? a : f32(a) > f32(b) ? b : a | b;
  r = nan(a) ? b : nan(b) ? a : r;
  r = signalling(b) ? quiet(b) : r;
  return signalling(a) ? quiet(a) : r;
}
// IEEE 754-2019 maximum / minimum: any NaN gives NaN.
inline u32 maximum(u32 a, u32 b) {
  u32 r = f32(a) > f32(b) ? a : f32(a) < f32(b) ? b : a & b;
  r = nan(b) ? quiet(b) : r;
  return nan(a) ? quiet(a) : r;
}
inline u32 minimum(u32 a, u32 b) {
  u32 r = f32(a) < f32(b) ? a : f32(a) > f32(b) ? b : a | b;
  r = nan(b) ? quiet(b) : r;
  return nan(a) ? quiet(a) : r;
}
inline u32 med3(u32 a, u32 b, u32 e) {
  if (nan(a) || nan(b) || nan(e)) return min_ieee(min_ieee(a, b), e);
  return max_ieee(min_ieee(a, b), min_ieee(max_ieee(a, b), e));
}
inline float fract(float x) {
  const float r = x - std::floor(x);
  return r >= 1.0f ? 0x1.fffffep-1f : r;
}

inline u32 to_u32(float x) { return x != x || x <= -1.0f ? 0u : x >= 0x1p32f ? ~0u : static_cast<u32>(static_cast<i64>(x)); }
inline u32 to_i32(float x) {
  if (x != x) return 0;
  if (x >= 0x1p31f) return 0x7fffffff;
  if (x <= -0x1p31f) return 0x80000000;
  return static_cast<u32>(static_cast<i32>(x));
}

#define F1(name, expr) \
  t.add(#name, [](Wave& w, const Code& c) { map1(w, c, [](u32 x) -> u32 { const float a = f32(x); (void)a; return expr; }); }, kClamp)
#define F2(name, expr) \
  t.add(#name, [](Wave& w, const Code& c) { map2(w, c, [](u32 x, u32 y) -> u32 { const float a = f32(x), b = f32(y); (void)a; (void)b; return expr; }); }, kClamp)
#define F3(name, expr) \
  t.add(#name, [](Wave& w, const Code& c) { map3(w, c, [](u32 x, u32 y, u32 z) -> u32 { const float a = f32(x), b = f32(y), e = f32(z); (void)a; (void)b; (void)e; return expr; }); }, kClamp)

void add_arithmetic(Table& t) {
  F2(v_add_f32, bits(a + b));
  F2(v_sub_f32, bits(a - b));
  F2(v_subrev_f32, bits(b - a));
  F2(v_mul_f32, bits(a * b));
  F2(v_mul_legacy_f32, a == 0 || b == 0 ? 0u : bits(a * b));
  F3(v_fma_f32, bits(__builtin_fmaf(a, b, e)));
  F3(v_fmamk_f32, bits(__builtin_fmaf(a, b, e)));
  F3(v_fmaak_f32, bits(__builtin_fmaf(a, b, e)));
  F3(v_mad_f32, bits(a * b + e));
  t.add("v_fmac_f32", [](Wave& w, const Code& c) {
    map2d(w, c, [](u32 a, u32 b, u32 d) { return bits(__builtin_fmaf(f32(a), f32(b), f32(d))); });
  }, kReadsDst);
  F2(v_max_f32, max_ieee(x, y));
  F2(v_min_f32, min_ieee(x, y));
  F3(v_max3_f32, max_ieee(max_ieee(x, y), z));
  F3(v_min3_f32, min_ieee(min_ieee(x, y), z));
  F3(v_med3_f32, med3(x, y, z));
  F3(v_maximum3_f32, maximum(maximum(x, y), z));
  F3(v_minimum3_f32, minimum(minimum(x, y), z));
  F1(v_rndne_f32, bits(std::nearbyint(a)));
  F1(v_floor_f32, bits(std::floor(a)));
  F1(v_ceil_f32, bits(std::ceil(a)));
  F1(v_trunc_f32, bits(std::trunc(a)));
  F1(v_fract_f32, bits(fract(a)));
}

void add_convert_int(Table& t) {
  F1(v_cvt_f32_u32, bits(static_cast<float>(x)));
  F1(v_cvt_f32_i32, bits(static_cast<float>(static_cast<i32>(x))));
  F1(v_cvt_u32_f32, to_u32(a));
  F1(v_cvt_i32_f32, to_i32(a));
  F1(v_cvt_rpi_i32_f32, to_i32(std::floor(a + 0.5f)));
  F1(v_cvt_flr_i32_f32, to_i32(std::floor(a)));
  F1(v_cvt_f32_ubyte0, bits(static_cast<float>(x & 255)));
  F1(v_cvt_f32_ubyte1, bits(static_cast<float>(x >> 8 & 255)));
  F1(v_cvt_f32_ubyte2, bits(static_cast<float>(x >> 16 & 255)));
  F1(v_cvt_f32_ubyte3, bits(static_cast<float>(x >> 24)));
}

i32 exponent_of(float x) { return x == 0 || std::isinf(x) || x != x ? 0 : std::ilogb(x) + 1; }

void add_scale(Table& t) {
  t.add("v_ldexp_f32", [](Wave& w, const Code& c) {
    map2(w, c, [](u32 a, u32 b) { return nan(a) ? quiet(a) : bits(std::ldexp(f32(a), std::clamp(static_cast<i32>(b), -400, 400))); });
  }, kClamp);
  F1(v_frexp_exp_i32_f32, static_cast<u32>(exponent_of(a)));
  F1(v_frexp_mant_f32, a == 0 || std::isinf(a) || a != a ? x : bits(std::ldexp(a, -exponent_of(a))));
}

// ---- division: the three helpers around a reciprocal. Scaling follows the vendor's pseudocode with its errata: VCC is
// set exactly where the quotient has to be scaled back.
struct Scaled {
  float value;
  bool vcc;
};
Scaled div_scale(float s0, float den, float num) {
  auto exponent = [](float x) { return static_cast<i32>(bits(x) >> 23 & 255); };
  auto denormal = [](double x) { return x != 0 && std::fabs(x) < 0x1p-126; };
  const double quotient = static_cast<double>(num) / den, inverse = 1.0 / static_cast<double>(den);
  if (num == 0 || den == 0) return {f32(0x7fc00000), true};
  if (exponent(num) - exponent(den) >= 96) return {bits(s0) == bits(den) ? std::ldexp(s0, 64) : s0, true};
  if (denormal(den)) return {std::ldexp(s0, 64), false};
  // v_rcp would flush this reciprocal: the denominator comes down, and where the quotient is denormal only it does.
  if (denormal(inverse) && denormal(quotient)) return {bits(s0) == bits(den) ? std::ldexp(s0, -64) : s0, true};
  if (denormal(inverse)) return {std::ldexp(s0, -64), false};
  if (denormal(quotient)) return {bits(s0) == bits(num) ? std::ldexp(s0, 64) : s0, true};
  if (exponent(num) <= 23) return {std::ldexp(s0, 64), false};
  return {s0, false};
}

float div_fixup(float q, float den, float num) {
  const u32 sign = (bits(den) ^ bits(num)) & 0x80000000;
  if (num != num) return f32(quiet(bits(num)));
  if (den != den) return f32(quiet(bits(den)));
  if ((num == 0 && den == 0) || (std::isinf(num) && std::isinf(den))) return f32(0xffc00000);
  if (den == 0 || std::isinf(num)) return f32(sign | 0x7f800000);
  if (std::isinf(den) || num == 0) return f32(sign);
  const i32 gap = static_cast<i32>(bits(num) >> 23 & 255) - static_cast<i32>(bits(den) >> 23 & 255);
  if (gap < -150) return f32(sign);
  if ((bits(den) >> 23 & 255) == 255) return f32(sign | 0x7f800000);
  if (q != q) return f32(sign | 0x7f800000);
  return f32((bits(q) & 0x7fffffff) | sign);
}

// a * b + c to 53 bits, rounded to odd: rounding that to f32, scaled or denormal, rounds the exact value once.
double fma_to_odd(float a, float b, float c) {
  const double p = static_cast<double>(a) * b, s = p + c, back = s - p, lost = (p - (s - back)) + (c - back);
  if (!(std::fabs(s) < HUGE_VAL) || lost == 0 || (std::bit_cast<u64>(s) & 1)) return s;
  return std::nextafter(s, lost > 0 ? HUGE_VAL : -HUGE_VAL);
}

void add_division(Table& t) {
  t.add("v_div_scale_f32", [](Wave& w, const Code& c) {
    Lanes ta, tb, te, r;
    const u32 *a = vsrc(w, c, 0, ta.x), *b = vsrc(w, c, 1, tb.x), *e = vsrc(w, c, 2, te.x);
    u64 mask = 0;
    for (int i = 0; i < kLanes; ++i) {
      const Scaled s = div_scale(f32(a[i]), f32(b[i]), f32(e[i]));
      r.x[i] = bits(s.value);
      mask |= u64{s.vcc} << i;
    }
    blend(w.row(c.dst), r.x, w.exec());
    set_mask(w, c.dst2_kind == Src::none ? u32{kVcc} : c.dst2, mask & w.exec());
  });
  t.add("v_div_fmas_f32", [](Wave& w, const Code& c) {
    Lanes ta, tb, te, r;
    const u32 *a = vsrc(w, c, 0, ta.x), *b = vsrc(w, c, 1, tb.x), *e = vsrc(w, c, 2, te.x);
    const u64 vcc = w.vcc();
    for (int i = 0; i < kLanes; ++i) {
      if (vcc >> i & 1) {
        const double x = fma_to_odd(f32(a[i]), f32(b[i]), f32(e[i]));
        r.x[i] = bits(static_cast<float>(std::ldexp(x, (e[i] >> 23 & 255) > 127 ? 64 : -64)));
      } else {
        r.x[i] = bits(__builtin_fmaf(f32(a[i]), f32(b[i]), f32(e[i])));
      }
    }
    blend(w.row(c.dst), r.x, w.exec());
  }, kReadsVcc);
  t.add("v_div_fixup_f32", [](Wave& w, const Code& c) {
    map3(w, c, [](u32 a, u32 b, u32 e) { return bits(div_fixup(f32(a), f32(b), f32(e))); });
  });
}

}  // namespace

void add_valu_float(Table& t) {
  add_arithmetic(t);
  add_convert_int(t);
  add_scale(t);
  add_division(t);
}

}  // namespace flymono
