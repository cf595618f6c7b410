// Vector integer operations on 32 and 16 bits.
#include <algorithm>

#include "lanes.hpp"
#include "rules.hpp"

namespace flymono {
namespace {

#define V1(name, expr, rule) \
  t.add(#name, [](Wave& w, const Code& c) { map1(w, c, [](u32 a) -> u32 { return expr; }); }, 0, rule)
#define V2(name, expr, rule) \
  t.add(#name, [](Wave& w, const Code& c) { map2(w, c, [](u32 a, u32 b) -> u32 { return expr; }); }, 0, rule)
#define V3(name, expr, rule) \
  t.add(#name, [](Wave& w, const Code& c) { map3(w, c, [](u32 a, u32 b, u32 e) -> u32 { return expr; }); }, 0, rule)

inline i32 sx(u32 x) { return static_cast<i32>(x); }
inline u32 zx(i64 x) { return static_cast<u32>(x); }
inline i32 s24(u32 x) { return sx(x << 8) >> 8; }
inline u32 u24(u32 x) { return x & 0xffffff; }
template <class T>
inline T med3(T a, T b, T c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); }

inline u32 bfe_u(u32 a, u32 b, u32 e) { return (a >> (b & 31)) & ((1u << (e & 31)) - 1); }
inline u32 bfe_i(u32 a, u32 b, u32 e) {
  const u32 width = e & 31, x = bfe_u(a, b, e);
  const u32 sign = width ? 1u << (width - 1) : 0;
  return (x ^ sign) - sign;
}
inline u32 perm_byte(u32 s0, u32 s1, u32 sel) {
  const u64 both = u64{s0} << 32 | s1;
  if (sel < 8) return static_cast<u32>(both >> (8 * sel)) & 255;
  if (sel < 12) return (both >> (16 * (sel - 8) + 15) & 1) ? 255 : 0;
  return sel == 12 ? 0 : 255;
}
inline u32 perm(u32 a, u32 b, u32 sel) {
  u32 r = 0;
  for (u32 k = 0; k < 4; ++k) r |= perm_byte(a, b, sel >> (8 * k) & 255) << (8 * k);
  return r;
}

void add_arithmetic(Table& t) {
  V2(v_add_u32, a + b, rules::sum2);
  V2(v_sub_u32, a - b, rules::sum2);
  V2(v_subrev_u32, b - a, rules::sum2);
  V2(v_add_i32, a + b, rules::sum2);
  V2(v_sub_i32, a - b, rules::sum2);
  V2(v_mul_lo_u32, a * b, nullptr);
  V2(v_mul_hi_u32, static_cast<u32>(u64{a} * b >> 32), nullptr);
  V2(v_mul_hi_i32, zx((i64{sx(a)} * sx(b)) >> 32), nullptr);
  V2(v_mul_u32_u24, u24(a) * u24(b), nullptr);
  V2(v_mul_i32_i24, static_cast<u32>(s24(a)) * static_cast<u32>(s24(b)), nullptr);
  V2(v_mul_hi_u32_u24, static_cast<u32>(u64{u24(a)} * u24(b) >> 32), nullptr);
  V2(v_mul_hi_i32_i24, zx((i64{s24(a)} * s24(b)) >> 32), nullptr);
  V3(v_mad_u32_u24, u24(a) * u24(b) + e, nullptr);
  V3(v_mad_i32_i24, static_cast<u32>(s24(a)) * static_cast<u32>(s24(b)) + e, nullptr);
  V3(v_add3_u32, a + b + e, rules::sum3);
  V3(v_lshl_add_u32, (a << (b & 31)) + e, nullptr);
  V3(v_add_lshl_u32, (a + b) << (e & 31), nullptr);
  V3(v_xad_u32, (a ^ b) + e, rules::sum3);
  V2(v_min_i32, zx(std::min(sx(a), sx(b))), nullptr);
  V2(v_max_i32, zx(std::max(sx(a), sx(b))), nullptr);
  V2(v_min_u32, std::min(a, b), nullptr);
  V2(v_max_u32, std::max(a, b), nullptr);
  V3(v_min3_i32, zx(std::min(std::min(sx(a), sx(b)), sx(e))), nullptr);
  V3(v_max3_i32, zx(std::max(std::max(sx(a), sx(b)), sx(e))), nullptr);
  V3(v_min3_u32, std::min(std::min(a, b), e), nullptr);
  V3(v_max3_u32, std::max(std::max(a, b), e), nullptr);
  V3(v_med3_i32, zx(med3(sx(a), sx(b), sx(e))), nullptr);
  V3(v_med3_u32, med3(a, b, e), nullptr);
  V3(v_sad_u32, (a > b ? a - b : b - a) + e, nullptr);
}

void add_logic(Table& t) {
  V2(v_and_b32, a & b, rules::and2);
  V2(v_or_b32, a | b, rules::or2);
  V2(v_xor_b32, a ^ b, rules::either);
  V2(v_xnor_b32, ~(a ^ b), rules::either);
  V1(v_not_b32, ~a, rules::copy);
  V1(v_mov_b32, a, rules::copy);
  V3(v_or3_b32, a | b | e, rules::or3);
  V3(v_and_or_b32, (a & b) | e, rules::and_or);
  V3(v_lshl_or_b32, (a << (b & 31)) | e, rules::lshl_or);
  V3(v_bfi_b32, (a & b) | (~a & e), rules::bfi);
  V2(v_lshlrev_b32, b << (a & 31), rules::shl_rev);
  V2(v_lshrrev_b32, b >> (a & 31), rules::shr_rev);
  V2(v_ashrrev_i32, zx(sx(b) >> (a & 31)), rules::sar_rev);
  V2(v_lshl_b32, a << (b & 31), rules::shl);
  V2(v_lshr_b32, a >> (b & 31), rules::shr);
  V3(v_bfe_u32, bfe_u(a, b, e), rules::bfe);
  V3(v_bfe_i32, bfe_i(a, b, e), rules::bfe_signed);
  V2(v_bfm_b32, ((1u << (a & 31)) - 1) << (b & 31), nullptr);
  V3(v_alignbit_b32, static_cast<u32>((u64{a} << 32 | b) >> (e & 31)), nullptr);
  V3(v_alignbyte_b32, static_cast<u32>((u64{a} << 32 | b) >> (8 * (e & 3))), nullptr);
  V3(v_perm_b32, perm(a, b, e), rules::perm);
  V2(v_bcnt_u32_b32, static_cast<u32>(std::popcount(a)) + b, nullptr);
  V1(v_bfrev_b32, [](u32 x) {
    x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
    x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(x);
  }(a), nullptr);
  V1(v_ffbh_u32, a ? static_cast<u32>(std::countl_zero(a)) : ~0u, nullptr);
  V1(v_ffbl_b32, a ? static_cast<u32>(std::countr_zero(a)) : ~0u, nullptr);
  V1(v_ffbh_i32, [](u32 x) {
    const u32 y = sx(x) < 0 ? ~x : x;
    return y ? static_cast<u32>(std::countl_zero(y)) : ~0u;
  }(a), nullptr);
  V1(v_prng_b32, (a << 1) ^ (a >> 31 ? 197u : 0u), nullptr);
  // The truth table's bit for source bits (s0, s1, s2) is bit s0 * 4 + s1 * 2 + s2.
  t.add("v_bitop3_b32", [](Wave& w, const Code& c) {
    const u32 table = c.inst->bitop3;
    map3(w, c, [table](u32 a, u32 b, u32 e) {
      u32 r = 0;
      for (u32 k = 0; k < 8; ++k)
        r |= (0u - (table >> k & 1)) & ((k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? e : ~e));
      return r;
    });
  }, 0, rules::any3);
}

inline u32 sh(u32 x) { return x & 0xffff; }
inline i32 sh16(u32 x) { return static_cast<i16>(x); }

// 16-bit results clear the high half (generation 9). VOP3 op_sel picks the source halves; a high destination half keeps
// the other one.
template <class F>
void half2(Wave& w, const Code& c, F f) {
  const u32 sel = c.inst->op_sel;
  const u32 s0 = sel & 1 ? 16 : 0, s1 = sel & 2 ? 16 : 0;
  if (sel & 8) return map2d(w, c, [=](u32 a, u32 b, u32 d) { return (d & 0xffff) | sh(f(a >> s0, b >> s1)) << 16; });
  map2(w, c, [=](u32 a, u32 b) { return sh(f(a >> s0, b >> s1)); });
}
template <class F>
void half3(Wave& w, const Code& c, F f) {
  const u32 sel = c.inst->op_sel;
  const u32 s0 = sel & 1 ? 16 : 0, s1 = sel & 2 ? 16 : 0, s2 = sel & 4 ? 16 : 0;
  if (sel & 8) return fatal(w, c, "unimplemented", "16-bit three-operand result in the high half");
  map3(w, c, [=](u32 a, u32 b, u32 e) { return sh(f(a >> s0, b >> s1, e >> s2)); });
}

void add_half(Table& t) {
#define H2(name, expr) \
  t.add(#name, [](Wave& w, const Code& c) { half2(w, c, [](u32 a, u32 b) -> u32 { return expr; }); }, kHalfDst)
#define H3(name, expr) \
  t.add(#name, [](Wave& w, const Code& c) { half3(w, c, [](u32 a, u32 b, u32 e) -> u32 { return expr; }); }, kHalfDst)
  H2(v_add_u16, a + b);
  H2(v_sub_u16, a - b);
  H2(v_subrev_u16, b - a);
  H2(v_add_i16, a + b);
  H2(v_sub_i16, a - b);
  H2(v_mul_lo_u16, sh(a) * sh(b));
  H2(v_lshlrev_b16, b << (a & 15));
  H2(v_lshrrev_b16, sh(b) >> (a & 15));
  H2(v_ashrrev_i16, zx(sh16(b) >> (a & 15)));
  H2(v_min_u16, std::min(sh(a), sh(b)));
  H2(v_max_u16, std::max(sh(a), sh(b)));
  H2(v_min_i16, zx(std::min(sh16(a), sh16(b))));
  H2(v_max_i16, zx(std::max(sh16(a), sh16(b))));
  H3(v_mad_u16, sh(a) * sh(b) + sh(e));
  H3(v_mad_i16, static_cast<u32>(sh16(a)) * static_cast<u32>(sh16(b)) + e);
  H3(v_med3_i16, zx(med3(sh16(a), sh16(b), sh16(e))));
  H3(v_med3_u16, med3(sh(a), sh(b), sh(e)));
  V3(v_mad_u32_u16, sh(a) * sh(b) + e, nullptr);
  V3(v_mad_i32_i16, static_cast<u32>(sh16(a)) * static_cast<u32>(sh16(b)) + e, nullptr);
  V1(v_sat_pk_u8_i16, static_cast<u32>(std::clamp(sh16(a), 0, 255)) | static_cast<u32>(std::clamp(sh16(a >> 16), 0, 255)) << 8, nullptr);
}

u64 lower_lanes(int i) { return (u64{1} << i) - 1; }

void add_count(Table& t) {
  t.add("v_mbcnt_lo_u32_b32", [](Wave& w, const Code& c) {
    Lanes ta, tb, r;
    const u32 *a = vsrc(w, c, 0, ta.x), *b = vsrc(w, c, 1, tb.x);
    for (int i = 0; i < kLanes; ++i)
      r.x[i] = static_cast<u32>(std::popcount(a[i] & static_cast<u32>(lower_lanes(i)))) + b[i];
    blend(w.row(c.dst), r.x, w.exec());
  });
  t.add("v_mbcnt_hi_u32_b32", [](Wave& w, const Code& c) {
    Lanes ta, tb, r;
    const u32 *a = vsrc(w, c, 0, ta.x), *b = vsrc(w, c, 1, tb.x);
    for (int i = 0; i < kLanes; ++i)
      r.x[i] = static_cast<u32>(std::popcount(a[i] & static_cast<u32>(lower_lanes(i) >> 32))) + b[i];
    blend(w.row(c.dst), r.x, w.exec());
  });
}

// VOP3P on 16-bit integers: op_sel picks the half for the low result, op_sel_hi for the high one.
template <class F>
void packed(Wave& w, const Code& c, F f) {
  const u32 lo = c.inst->op_sel, hi = c.inst->op_sel_hi;
  const u32 l0 = lo & 1 ? 16 : 0, l1 = lo & 2 ? 16 : 0, h0 = hi & 1 ? 16 : 0, h1 = hi & 2 ? 16 : 0;
  map2(w, c, [=](u32 a, u32 b) { return sh(f(sh(a >> l0), sh(b >> l1))) | sh(f(sh(a >> h0), sh(b >> h1))) << 16; });
}
template <class F>
void packed3(Wave& w, const Code& c, F f) {
  const u32 lo = c.inst->op_sel, hi = c.inst->op_sel_hi;
  auto pick = [](u32 x, u32 sel, u32 bit) { return sh(sel >> bit & 1 ? x >> 16 : x); };
  map3(w, c, [=](u32 a, u32 b, u32 e) {
    return sh(f(pick(a, lo, 0), pick(b, lo, 1), pick(e, lo, 2))) | sh(f(pick(a, hi, 0), pick(b, hi, 1), pick(e, hi, 2))) << 16;
  });
}

void add_packed(Table& t) {
#define P2(name, expr) t.add(#name, [](Wave& w, const Code& c) { packed(w, c, [](u32 a, u32 b) -> u32 { return expr; }); })
  P2(v_pk_add_u16, a + b);
  P2(v_pk_add_i16, a + b);
  P2(v_pk_sub_u16, a - b);
  P2(v_pk_sub_i16, a - b);
  P2(v_pk_mul_lo_u16, a * b);
  P2(v_pk_lshlrev_b16, b << (a & 15));
  P2(v_pk_lshrrev_b16, b >> (a & 15));
  P2(v_pk_ashrrev_i16, zx(sh16(b) >> (a & 15)));
  P2(v_pk_min_u16, std::min(a, b));
  P2(v_pk_max_u16, std::max(a, b));
  P2(v_pk_min_i16, zx(std::min(sh16(a), sh16(b))));
  P2(v_pk_max_i16, zx(std::max(sh16(a), sh16(b))));
  t.add("v_pk_mad_u16", [](Wave& w, const Code& c) { packed3(w, c, [](u32 a, u32 b, u32 e) { return a * b + e; }); });
  t.add("v_pk_mad_i16", [](Wave& w, const Code& c) { packed3(w, c, [](u32 a, u32 b, u32 e) { return a * b + e; }); });
}

}  // namespace

void add_valu_int(Table& t) {
  add_arithmetic(t);
  add_logic(t);
  add_half(t);
  add_count(t);
  add_packed(t);
}

}  // namespace flymono
