// Conversions between f32 and the small formats: bf16, f16, FP8 / BF8 (flavour by arch), FP4, scaled forms of gfx950.
#include <algorithm>

#include "lanes.hpp"
#include "numeric.hpp"

namespace flymono {
namespace {

const SmallFloat& fp8(const Wave& w) { return is_fnuz(w.grid->machine->options.arch) ? kE4m3Fnuz : kE4m3; }
const SmallFloat& bf8(const Wave& w) { return is_fnuz(w.grid->machine->options.arch) ? kE5m2Fnuz : kE5m2; }
template <bool Bf8>
const SmallFloat& format(const Wave& w) { return Bf8 ? bf8(w) : fp8(w); }

// Result word in the half of D that op_sel bit 3 names; the other half is kept.
u32 put_half(const Code& c, u32 d, u32 word) { return c.inst->op_sel & 8 ? (d & 0xffff) | word << 16 : (d & 0xffff0000) | word; }

template <bool Bf8>
void pk_small_f32(Wave& w, const Code& c) {  // FP16_OVFL = 0: overflow is NaN (fp8) or infinity (OCP bf8)
  const SmallFloat& f = format<Bf8>(w);
  Lanes ta, tb, r;
  const u32 *a = vsrc(w, c, 0, ta.x), *b = vsrc(w, c, 1, tb.x);
  u32* d = w.row(c.dst);
  for (int i = 0; i < kLanes; ++i) r.x[i] = put_half(c, d[i], encode_small(f, f32(a[i]), false) | encode_small(f, f32(b[i]), false) << 8);
  blend(d, r.x, w.exec());
}

template <bool Bf8>
void sr_small_f32(Wave& w, const Code& c) {  // destination byte op_sel[3:2]
  const SmallFloat& f = format<Bf8>(w);
  const u32 shift = (c.inst->op_sel >> 2 & 3) * 8;
  map2d(w, c, [&](u32 a, u32 b, u32 d) { return (d & ~(255u << shift)) | encode_small_stochastic(f, f32(a), b) << shift; });
}

template <bool Bf8>
void pk_f32_small(Wave& w, const Code& c) {  // low word, or the word that SDWA (or op_sel in VOP3) names
  const float* table = small_table(format<Bf8>(w));
  Lanes ta, lo, hi;
  const u32* a = vsrc(w, c, 0, ta.x);
  const u32 shift = c.inst->op_sel & 1 ? 16 : 0;
  for (int i = 0; i < kLanes; ++i) {
    lo.x[i] = bits(table[a[i] >> shift & 255]);
    hi.x[i] = bits(table[a[i] >> shift >> 8 & 255]);
  }
  blend(w.row(c.dst), lo.x, w.exec());
  blend(w.row(c.dst + 1), hi.x, w.exec());
}

template <bool Bf8>
void f32_small(Wave& w, const Code& c) {  // byte by SDWA, or op_sel[1:0]
  const float* table = small_table(format<Bf8>(w));
  const u32 shift = (c.inst->op_sel & 3) * 8;
  map1(w, c, [=](u32 a) { return bits(table[a >> shift & 255]); });
}

float scale_of(u32 s1) { return e8m0(s1 >> 23 & 255); }

enum class Wide { f32, bf16, f16 };
u32 narrow(Wide kind, float x) { return kind == Wide::bf16 ? to_bf16(x) : to_f16(x); }

// value * 2^(e - 127); the source word by op_sel[0]
template <bool Bf8, Wide K>
void scaled_decode(Wave& w, const Code& c) {
  const float* table = small_table(format<Bf8>(w));
  const u32 shift = c.inst->op_sel & 1 ? 16 : 0;
  Lanes ta, tb, lo, hi;
  const u32 *a = vsrc(w, c, 0, ta.x), *b = vsrc(w, c, 1, tb.x);
  for (int i = 0; i < kLanes; ++i) {
    const double scale = scale_of(b[i]);
    const float x = static_cast<float>(table[a[i] >> shift & 255] * scale), y = static_cast<float>(table[a[i] >> shift >> 8 & 255] * scale);
    lo.x[i] = K == Wide::f32 ? bits(x) : narrow(K, x) | narrow(K, y) << 16;
    hi.x[i] = bits(y);
  }
  blend(w.row(c.dst), lo.x, w.exec());
  if (K == Wide::f32) blend(w.row(c.dst + 1), hi.x, w.exec());
}

template <Wide K>
void scaled_decode_fp4(Wave& w, const Code& c) {  // source byte op_sel[1:0], low nibble first
  const float* table = small_table(kE2m1);
  const u32 shift = (c.inst->op_sel & 3) * 8;
  Lanes ta, tb, lo, hi;
  const u32 *a = vsrc(w, c, 0, ta.x), *b = vsrc(w, c, 1, tb.x);
  for (int i = 0; i < kLanes; ++i) {
    const double scale = scale_of(b[i]);
    const float x = static_cast<float>(table[a[i] >> shift & 15] * scale), y = static_cast<float>(table[a[i] >> shift >> 4 & 15] * scale);
    lo.x[i] = K == Wide::f32 ? bits(x) : narrow(K, x) | narrow(K, y) << 16;
    hi.x[i] = bits(y);
  }
  blend(w.row(c.dst), lo.x, w.exec());
  if (K == Wide::f32) blend(w.row(c.dst + 1), hi.x, w.exec());
}

float divided(float x, u32 s1) { return static_cast<float>(static_cast<double>(x) / scale_of(s1)); }

// f32: two sources and the scale in S2; packed 16-bit: one source and the scale in S1
template <bool Bf8>
void scaled_encode_f32(Wave& w, const Code& c) {
  const SmallFloat& f = format<Bf8>(w);
  Lanes t[3], r;
  const u32 *a = vsrc(w, c, 0, t[0].x), *b = vsrc(w, c, 1, t[1].x), *s = vsrc(w, c, 2, t[2].x);
  u32* d = w.row(c.dst);
  for (int i = 0; i < kLanes; ++i)
    r.x[i] = put_half(c, d[i], encode_small(f, divided(f32(a[i]), s[i]), false) | encode_small(f, divided(f32(b[i]), s[i]), false) << 8);
  blend(d, r.x, w.exec());
}

template <bool Bf8, Wide K>
void scaled_encode_16(Wave& w, const Code& c) {
  const SmallFloat& f = format<Bf8>(w);
  auto wide = [](u32 h) { return K == Wide::bf16 ? f32(h << 16) : from_f16(h); };
  map2d(w, c, [&](u32 a, u32 s, u32 d) {
    return put_half(c, d, encode_small(f, divided(wide(a & 0xffff), s), false) | encode_small(f, divided(wide(a >> 16), s), false) << 8);
  });
}

void scaled_encode_fp4_f32(Wave& w, const Code& c) {  // destination byte op_sel[3:2]
  const u32 shift = (c.inst->op_sel >> 2 & 3) * 8;
  Lanes t[3], r;
  const u32 *a = vsrc(w, c, 0, t[0].x), *b = vsrc(w, c, 1, t[1].x), *s = vsrc(w, c, 2, t[2].x);
  u32* d = w.row(c.dst);
  for (int i = 0; i < kLanes; ++i) {
    const u32 byte = encode_small(kE2m1, divided(f32(a[i]), s[i]), true) | encode_small(kE2m1, divided(f32(b[i]), s[i]), true) << 4;
    r.x[i] = (d[i] & ~(255u << shift)) | byte << shift;
  }
  blend(d, r.x, w.exec());
}

template <Wide K>
void scaled_encode_fp4_16(Wave& w, const Code& c) {
  const u32 shift = (c.inst->op_sel >> 2 & 3) * 8;
  auto wide = [](u32 h) { return K == Wide::bf16 ? f32(h << 16) : from_f16(h); };
  map2d(w, c, [&](u32 a, u32 s, u32 d) {
    const u32 byte = encode_small(kE2m1, divided(wide(a & 0xffff), s), true) | encode_small(kE2m1, divided(wide(a >> 16), s), true) << 4;
    return (d & ~(255u << shift)) | byte << shift;
  });
}

void to_half(Wave& w, const Code& c) {
  const bool high = c.inst->op_sel & 8;
  if (high) {
    Lanes t, r;
    const u32* a = vsrc(w, c, 0, t.x);
    u32* d = w.row(c.dst);
    for (int i = 0; i < kLanes; ++i) r.x[i] = (d[i] & 0xffff) | u32{to_f16(f32(a[i]))} << 16;
    return blend(d, r.x, w.exec());
  }
  map1(w, c, [](u32 a) { return u32{to_f16(f32(a))}; });
}

// Marks: each source makes its own half.
u32 each_half(const Code&, const u32*, const u32 u[3]) { return (u[0] ? 0xffffu : 0u) | (u[1] ? 0xffff0000u : 0u); }

}  // namespace

void add_convert(Table& t) {
  const u32 keep = kReadsDst;
  t.add("v_cvt_pk_fp8_f32", pk_small_f32<false>, keep | kHalfDst);
  t.add("v_cvt_pk_bf8_f32", pk_small_f32<true>, keep | kHalfDst);
  t.add("v_cvt_sr_fp8_f32", sr_small_f32<false>, keep | kByteDst);
  t.add("v_cvt_sr_bf8_f32", sr_small_f32<true>, keep | kByteDst);
  t.add("v_cvt_pk_f32_fp8", pk_f32_small<false>);
  t.add("v_cvt_pk_f32_bf8", pk_f32_small<true>);
  t.add("v_cvt_f32_fp8", f32_small<false>);
  t.add("v_cvt_f32_bf8", f32_small<true>);
  t.add("v_cvt_pk_bf16_f32", [](Wave& w, const Code& c) {
    map2(w, c, [](u32 a, u32 b) { return to_bf16(f32(a)) | to_bf16(f32(b)) << 16; });
  }, 0, each_half);
  t.add("v_cvt_f32_bf16", [](Wave& w, const Code& c) { map1(w, c, [](u32 a) { return a << 16; }); });
  t.add("v_cvt_f16_f32", to_half, kHalfDst);
  t.add("v_cvt_f32_f16", [](Wave& w, const Code& c) {
    const u32 s = c.inst->op_sel & 1 ? 16 : 0;
    map1(w, c, [s](u32 a) { return bits(from_f16(a >> s & 0xffff)); });
  }, kF16);
  t.add("v_cvt_pkrtz_f16_f32", [](Wave& w, const Code& c) {
    map2(w, c, [](u32 a, u32 b) { return u32{to_f16_toward_zero(f32(a))} | u32{to_f16_toward_zero(f32(b))} << 16; });
  }, 0, each_half);
  t.add("v_cvt_f64_f32", [](Wave& w, const Code& c) {
    map64<1>(w, c, [](u64 a, u64, u64) { return bits64(static_cast<double>(f32(static_cast<u32>(a)))); });
  });
  t.add("v_cvt_f32_f64", [](Wave& w, const Code& c) {
    alignas(64) u64 a[kLanes];
    fetch64(w, c, 0, a);
    Lanes r;
    for (int i = 0; i < kLanes; ++i) r.x[i] = bits(static_cast<float>(f64(a[i])));
    blend(w.row(c.dst), r.x, w.exec());
  }, kF64);
  t.add("v_cvt_pk_u16_u32", [](Wave& w, const Code& c) {
    map2(w, c, [](u32 a, u32 b) { return std::min(a, 0xffffu) | std::min(b, 0xffffu) << 16; });
  }, 0, each_half);
  t.add("v_cvt_pk_i16_i32", [](Wave& w, const Code& c) {
    auto sat = [](u32 x) { return static_cast<u32>(std::clamp(static_cast<i32>(x), -32768, 32767)) & 0xffff; };
    map2(w, c, [sat](u32 a, u32 b) { return sat(a) | sat(b) << 16; });
  }, 0, each_half);
  t.add("v_cvt_scalef32_pk_f32_fp8", scaled_decode<false, Wide::f32>);
  t.add("v_cvt_scalef32_pk_f32_bf8", scaled_decode<true, Wide::f32>);
  t.add("v_cvt_scalef32_pk_bf16_fp8", scaled_decode<false, Wide::bf16>);
  t.add("v_cvt_scalef32_pk_bf16_bf8", scaled_decode<true, Wide::bf16>);
  t.add("v_cvt_scalef32_pk_f16_fp8", scaled_decode<false, Wide::f16>);
  t.add("v_cvt_scalef32_pk_f16_bf8", scaled_decode<true, Wide::f16>);
  t.add("v_cvt_scalef32_pk_f32_fp4", scaled_decode_fp4<Wide::f32>);
  t.add("v_cvt_scalef32_pk_bf16_fp4", scaled_decode_fp4<Wide::bf16>);
  t.add("v_cvt_scalef32_pk_f16_fp4", scaled_decode_fp4<Wide::f16>);
  t.add("v_cvt_scalef32_pk_fp8_f32", scaled_encode_f32<false>, keep | kHalfDst);
  t.add("v_cvt_scalef32_pk_bf8_f32", scaled_encode_f32<true>, keep | kHalfDst);
  t.add("v_cvt_scalef32_pk_fp8_bf16", scaled_encode_16<false, Wide::bf16>, keep | kHalfDst);
  t.add("v_cvt_scalef32_pk_bf8_bf16", scaled_encode_16<true, Wide::bf16>, keep | kHalfDst);
  t.add("v_cvt_scalef32_pk_fp8_f16", scaled_encode_16<false, Wide::f16>, keep | kHalfDst);
  t.add("v_cvt_scalef32_pk_bf8_f16", scaled_encode_16<true, Wide::f16>, keep | kHalfDst);
  t.add("v_cvt_scalef32_pk_fp4_f32", scaled_encode_fp4_f32, keep | kByteDst);
  t.add("v_cvt_scalef32_pk_fp4_bf16", scaled_encode_fp4_16<Wide::bf16>, keep | kByteDst);
  t.add("v_cvt_scalef32_pk_fp4_f16", scaled_encode_fp4_16<Wide::f16>, keep | kByteDst);
}

}  // namespace flymono
