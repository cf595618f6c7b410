// 64-bit integer operations, carries, and selection by a lane mask.
#include "lanes.hpp"
#include "rules.hpp"

namespace flymono {
namespace {

u64 mask_source(Wave& w, const Code& c, int i) { return c.src[i].kind == Src::none ? w.vcc() : s64(w, c, i); }
u32 mask_target(const Code& c) { return c.dst2_kind == Src::none ? u32{kVcc} : c.dst2; }

// f(a, b, carry in) -> 33-bit sum or difference; bit 32 is the carry or borrow.
template <bool CarryIn, class F>
void carry(Wave& w, const Code& c, F f) {
  Lanes ta, tb, r, k;
  const u32 *a = vsrc(w, c, 0, ta.x), *b = vsrc(w, c, 1, tb.x);
  const u64 exec = w.exec(), in = CarryIn ? mask_source(w, c, 3) : 0;
  for (int i = 0; i < kLanes; ++i) {
    const u64 x = f(u64{a[i]}, u64{b[i]}, CarryIn ? in >> i & 1 : 0);
    r.x[i] = static_cast<u32>(x);
    k.x[i] = static_cast<u32>(x >> 32) ? ~0u : 0u;
  }
  const u64 out = movemask(k.x) & exec;
  blend(w.row(c.dst), r.x, exec);
  set_mask(w, mask_target(c), out);
}

void cndmask(Wave& w, const Code& c) {
  Lanes ta, tb, r;
  const u32 *a = vsrc(w, c, 0, ta.x), *b = vsrc(w, c, 1, tb.x);
  const u64 mask = mask_source(w, c, 3), exec = w.exec();
  u32* d = w.row(c.dst);
  u32* out = exec == kAllLanes ? d : r.x;
  select(out, a, b, mask);
  if (exec != kAllLanes) blend(d, out, exec);
}

template <bool Signed>
void mad64(Wave& w, const Code& c) {
  Lanes ta, tb;
  const u32 *a = vsrc(w, c, 0, ta.x), *b = vsrc(w, c, 1, tb.x);
  alignas(64) u64 e[kLanes], r[kLanes];
  fetch64(w, c, 2, e);
  u64 out = 0;
  for (int i = 0; i < kLanes; ++i) {
    const u64 product = Signed ? static_cast<u64>(i64{static_cast<i32>(a[i])} * static_cast<i32>(b[i])) : u64{a[i]} * b[i];
    r[i] = product + e[i];
    bool k = r[i] < product;
    if (Signed) k = ((~(product ^ e[i]) & (product ^ r[i])) >> 63) != 0;
    out |= u64{k} << i;
  }
  const u64 exec = w.exec();
  store64(w, c.dst, r, exec);
  set_mask(w, mask_target(c), out & exec);
}

}  // namespace

void add_valu_int64(Table& t) {
#define C(name, in, expr) \
  t.add(#name, [](Wave& w, const Code& c) { carry<in>(w, c, [](u64 a, u64 b, u64 k) -> u64 { (void)k; return expr; }); })
  C(v_add_co_u32, false, a + b);
  C(v_sub_co_u32, false, a - b);
  C(v_subrev_co_u32, false, b - a);
  C(v_addc_co_u32, true, a + b + k);
  C(v_subb_co_u32, true, a - b - k);
  C(v_subbrev_co_u32, true, b - a - k);
  t.add("v_cndmask_b32", cndmask);
  t.add("v_mad_u64_u32", mad64<false>);
  t.add("v_mad_i64_i32", mad64<true>);
#define W(name, n, expr) \
  t.add(#name, [](Wave& w, const Code& c) { map64<n>(w, c, [](u64 a, u64 b, u64 e) -> u64 { (void)b; (void)e; return expr; }); })
  W(v_mov_b64, 1, a);
  W(v_lshlrev_b64, 2, b << (a & 63));
  W(v_lshrrev_b64, 2, b >> (a & 63));
  W(v_ashrrev_i64, 2, static_cast<u64>(static_cast<i64>(b) >> (a & 63)));
  W(v_lshl_add_u64, 3, (a << (b & 7)) + e);
  // f64
#define D(name, n, expr) \
  t.add(#name, [](Wave& w, const Code& c) { map64<n>(w, c, [](u64 a, u64 b, u64 e) -> u64 { (void)b; (void)e; return bits64(expr); }); }, kF64)
  D(v_add_f64, 2, f64(a) + f64(b));
  D(v_mul_f64, 2, f64(a) * f64(b));
  D(v_fma_f64, 3, __builtin_fma(f64(a), f64(b), f64(e)));
}

}  // namespace flymono
