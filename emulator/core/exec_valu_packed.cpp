// Packed f32 (two results a lane, dwords picked by op_sel) and f16 arithmetic.
#include <cmath>

#include "lanes.hpp"
#include "numeric.hpp"

namespace flymono {
namespace {

// The dword of source i that feeds the low (op_sel) or high (op_sel_hi) result. A 32-bit constant has a low dword only.
const u32* pick(Wave& w, const Code& c, int i, bool high, u32* tmp) {
  const u32 sel = (high ? c.inst->op_sel_hi : c.inst->op_sel) >> i & 1;
  const Src& s = c.src[i];
  if (s.kind == Src::konst) return s.k;
  return vsrc(w, c, i, tmp, static_cast<int>(sel));
}

u32 sign_flip(const Code& c, int i, bool high) {
  return ((high ? c.inst->neg_hi : c.inst->neg_lo) >> i & 1) ? 0x80000000u : 0u;
}

template <class F>
void packed2(Wave& w, const Code& c, F f) {
  Lanes t[4], r[2];
  const u32* x[4] = {pick(w, c, 0, false, t[0].x), pick(w, c, 1, false, t[1].x), pick(w, c, 0, true, t[2].x), pick(w, c, 1, true, t[3].x)};
  for (int h = 0; h < 2; ++h) {
    const u32 n0 = sign_flip(c, 0, h), n1 = sign_flip(c, 1, h);
    const u32 *a = x[2 * h], *b = x[2 * h + 1];
    FLYMONO_LANES r[h].x[i] = bits(f(f32(a[i] ^ n0), f32(b[i] ^ n1)));
  }
  blend(w.row(c.dst), r[0].x, w.exec());
  blend(w.row(c.dst + 1), r[1].x, w.exec());
}

void pk_fma(Wave& w, const Code& c) {
  Lanes t[6], r[2];
  for (int h = 0; h < 2; ++h) {
    const u32 *a = pick(w, c, 0, h, t[3 * h].x), *b = pick(w, c, 1, h, t[3 * h + 1].x), *e = pick(w, c, 2, h, t[3 * h + 2].x);
    const u32 n0 = sign_flip(c, 0, h), n1 = sign_flip(c, 1, h), n2 = sign_flip(c, 2, h);
    FLYMONO_LANES r[h].x[i] = bits(__builtin_fmaf(f32(a[i] ^ n0), f32(b[i] ^ n1), f32(e[i] ^ n2)));
  }
  blend(w.row(c.dst), r[0].x, w.exec());
  blend(w.row(c.dst + 1), r[1].x, w.exec());
}

void pk_mov(Wave& w, const Code& c) {  // lo = S0.dword[op_sel 0], hi = S1.dword[op_sel 1]
  Lanes t[2], lo, hi;
  const u32 *a = pick(w, c, 0, false, t[0].x), *b = pick(w, c, 1, false, t[1].x);
  std::memcpy(lo.x, a, sizeof lo.x);
  std::memcpy(hi.x, b, sizeof hi.x);
  blend(w.row(c.dst), lo.x, w.exec());
  blend(w.row(c.dst + 1), hi.x, w.exec());
}

// ---- f16
u32 shift(u32 sel, int i) { return sel >> i & 1 ? 16 : 0; }

template <class F>
void half_result(Wave& w, const Code& c, const u32* r, F) {
  u32* d = w.row(c.dst);
  Lanes out;
  const bool high = c.inst->op_sel & 8;
  for (int i = 0; i < kLanes; ++i) out.x[i] = high ? (d[i] & 0xffff) | r[i] << 16 : r[i];
  blend(d, out.x, w.exec());
}

template <int N, class F>
void half(Wave& w, const Code& c, F f) {
  Lanes t[3], r;
  const u32* x[3];
  for (int k = 0; k < N; ++k) x[k] = vsrc(w, c, k, t[k].x);
  for (int i = 0; i < kLanes; ++i) {
    double v[3] = {};
    for (int k = 0; k < N; ++k) v[k] = from_f16(x[k][i] >> shift(c.inst->op_sel, k) & 0xffff);
    r.x[i] = to_f16_from_double(f(v[0], v[1], v[2]));
  }
  half_result(w, c, r.x, f);
}

template <int N, class F>
void packed_half(Wave& w, const Code& c, F f) {
  Lanes t[3], r;
  const u32* x[3];
  for (int k = 0; k < N; ++k) x[k] = vsrc(w, c, k, t[k].x);
  const Inst& in = *c.inst;
  for (int i = 0; i < kLanes; ++i) {
    u32 out = 0;
    for (int h = 0; h < 2; ++h) {
      double v[3] = {};
      for (int k = 0; k < N; ++k) {
        v[k] = from_f16(x[k][i] >> shift(h ? in.op_sel_hi : in.op_sel, k) & 0xffff);
        if ((h ? in.neg_hi : in.neg_lo) >> k & 1) v[k] = -v[k];
      }
      out |= u32{to_f16_from_double(f(v[0], v[1], v[2]))} << (16 * h);
    }
    r.x[i] = out;
  }
  blend(w.row(c.dst), r.x, w.exec());
}

// v_fma_mix*: each source is an f32, or (op_sel_hi) the f16 half that op_sel names; neg_hi holds the abs bits.
enum class Mix { f32, low, high };
template <Mix M>
void fma_mix(Wave& w, const Code& c) {
  const Inst& in = *c.inst;
  Lanes t[3], r;
  const u32* x[3];
  for (int k = 0; k < 3; ++k) x[k] = vsrc(w, c, k, t[k].x);
  u32* d = w.row(c.dst);
  for (int i = 0; i < kLanes; ++i) {
    float v[3];
    for (int k = 0; k < 3; ++k) {
      v[k] = (in.op_sel_hi >> k & 1) ? from_f16(x[k][i] >> shift(in.op_sel, k) & 0xffff) : f32(x[k][i]);
      if (in.neg_hi >> k & 1) v[k] = std::fabs(v[k]);
      if (in.neg_lo >> k & 1) v[k] = -v[k];
    }
    if (M == Mix::f32) {
      r.x[i] = bits(__builtin_fmaf(v[0], v[1], v[2]));
    } else {
      const u32 h = to_f16_from_double(std::fma(double{v[0]}, double{v[1]}, double{v[2]}));
      r.x[i] = M == Mix::low ? (d[i] & 0xffff0000) | h : (d[i] & 0xffff) | h << 16;
    }
  }
  blend(d, r.x, w.exec());
}

double larger(double a, double b) { return a != a ? b : b != b ? a : (a > b || (a == b && !std::signbit(a))) ? a : b; }
double smaller(double a, double b) { return a != a ? b : b != b ? a : (a < b || (a == b && std::signbit(a))) ? a : b; }
double maximum(double a, double b) { return a != a || b != b ? NAN : larger(a, b); }
double minimum(double a, double b) { return a != a || b != b ? NAN : smaller(a, b); }

}  // namespace

void add_valu_packed(Table& t) {
  t.add("v_pk_add_f32", [](Wave& w, const Code& c) { packed2(w, c, [](float a, float b) { return a + b; }); });
  t.add("v_pk_mul_f32", [](Wave& w, const Code& c) { packed2(w, c, [](float a, float b) { return a * b; }); });
  t.add("v_pk_fma_f32", pk_fma);
  t.add("v_pk_mov_b32", pk_mov);
  t.add("v_fma_mix_f32", fma_mix<Mix::f32>);
  t.add("v_fma_mixlo_f16", fma_mix<Mix::low>, kReadsDst);
  t.add("v_fma_mixhi_f16", fma_mix<Mix::high>, kReadsDst);
  t.add("v_pack_b32_f16", [](Wave& w, const Code& c) {
    const u32 a0 = shift(c.inst->op_sel, 0), b0 = shift(c.inst->op_sel, 1);
    map2(w, c, [=](u32 a, u32 b) { return (a >> a0 & 0xffff) | (b >> b0) << 16; });
  }, kF16, [](const Code&, const u32*, const u32 u[3]) { return (u[0] ? 0xffffu : 0u) | (u[1] ? 0xffff0000u : 0u); });
#define H(name, n, expr) \
  t.add(#name, [](Wave& w, const Code& c) { half<n>(w, c, [](double a, double b, double e) { (void)b; (void)e; return expr; }); }, kF16 | kHalfDst)
  H(v_add_f16, 2, a + b);
  H(v_sub_f16, 2, a - b);
  H(v_subrev_f16, 2, b - a);
  H(v_mul_f16, 2, a * b);
  H(v_max_f16, 2, larger(a, b));
  H(v_min_f16, 2, smaller(a, b));
  H(v_fma_f16, 3, std::fma(a, b, e));
  H(v_max3_f16, 3, larger(larger(a, b), e));
  H(v_min3_f16, 3, smaller(smaller(a, b), e));
  H(v_rndne_f16, 1, std::nearbyint(a));
  H(v_floor_f16, 1, std::floor(a));
  H(v_ceil_f16, 1, std::ceil(a));
  H(v_trunc_f16, 1, std::trunc(a));
  H(v_sqrt_f16, 1, std::sqrt(a));
  H(v_rcp_f16, 1, 1.0 / a);
  H(v_rsq_f16, 1, 1.0 / std::sqrt(a));
  H(v_exp_f16, 1, std::exp2(a));
  H(v_log_f16, 1, std::log2(a));
#define P(name, n, expr) \
  t.add(#name, [](Wave& w, const Code& c) { packed_half<n>(w, c, [](double a, double b, double e) { (void)b; (void)e; return expr; }); }, kF16)
  P(v_pk_add_f16, 2, a + b);
  P(v_pk_mul_f16, 2, a * b);
  P(v_pk_max_f16, 2, larger(a, b));
  P(v_pk_min_f16, 2, smaller(a, b));
  P(v_pk_fma_f16, 3, std::fma(a, b, e));
  P(v_pk_maximum3_f16, 3, maximum(maximum(a, b), e));
  P(v_pk_minimum3_f16, 3, minimum(minimum(a, b), e));
}

}  // namespace flymono
