// Transcendentals. The ISA promises 1 ulp and flushes denormal inputs and outputs; the bits are not specified, so the
// model is a policy: "exact" is correctly rounded, "ulp" moves each finite result by -1, 0 or +1 ulp, seeded.
#include <cmath>

#include "lanes.hpp"

namespace flymono {
namespace {

float flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

// Rounds a double to float; when it lies within 2^-20 of a float's tie, the long double decides.
template <class Slow>
float rounded(double y, Slow slow) {
  const u64 low = bits64(y) & 0x1fffffff;
  const i64 from_tie = static_cast<i64>(low) - 0x10000000;
  if (from_tie < 512 && from_tie > -512 && std::isfinite(y)) return static_cast<float>(slow());
  return static_cast<float>(y);
}

float exp2_exact(float x) {
  x = flush(x);
  if (x != x || x == 0) return x != x ? x : 1.0f;
  return flush(rounded(std::exp2(static_cast<double>(x)), [x] { return exp2l(static_cast<long double>(x)); }));
}
float log2_exact(float x) {
  x = flush(x);
  if (x == 0) return -INFINITY;
  if (x < 0) return f32(0xffc00000);
  return flush(rounded(std::log2(static_cast<double>(x)), [x] { return log2l(static_cast<long double>(x)); }));
}
float rcp_exact(float x) {
  x = flush(x);
  return flush(static_cast<float>(1.0 / static_cast<double>(x)));  // 53 >= 2 * 24 + 2: no double rounding
}
float rsq_exact(float x) {
  x = flush(x);
  if (x == 0) return std::copysign(INFINITY, x);
  if (x < 0) return f32(0xffc00000);
  return flush(rounded(1.0 / std::sqrt(static_cast<double>(x)), [x] { return 1.0L / sqrtl(static_cast<long double>(x)); }));
}
float sqrt_exact(float x) {
  x = flush(x);
  if (x < 0) return f32(0xffc00000);
  return std::sqrt(x);
}
float turns(float x, bool cosine) {  // argument in revolutions
  x = flush(x);
  if (!std::isfinite(x)) return f32(0xffc00000);
  const double r = 6.283185307179586476925286766559 * (static_cast<double>(x) - std::floor(static_cast<double>(x)));
  return flush(static_cast<float>(cosine ? std::cos(r) : std::sin(r)));
}

u32 nudge(u32 result, u32 input, u64 seed) {
  const float r = f32(result);
  if (!std::isfinite(r) || r == 0) return result;
  Random random{seed ^ (u64{input} << 32 | result)};
  const u32 moved = result + static_cast<u32>(random.below(3)) - 1;
  return std::isfinite(f32(moved)) && std::fabs(f32(moved)) >= 0x1p-126f ? moved : result;
}

template <class F>
void apply(Wave& w, const Code& c, F f, float fixed_input) {
  const Options& o = w.grid->machine->options;
  const bool exact = o.trans == Trans::exact;
  Lanes t, r;
  const u32* a = vsrc(w, c, 0, t.x);
  const u64 exec = w.exec();
  for (u64 left = exec; left; left &= left - 1) {
    const int i = std::countr_zero(left);
    const u32 y = bits(f(f32(a[i])));
    r.x[i] = exact || f32(a[i]) == fixed_input ? y : nudge(y, a[i], o.seed);
  }
  blend(w.row(c.dst), r.x, exec);
}

}  // namespace

void add_trans(Table& t) {
#define T(name, expr, fixed) \
  t.add(#name, [](Wave& w, const Code& c) { apply(w, c, [](float x) { return expr; }, fixed); }, kClamp)
  T(v_exp_f32, exp2_exact(x), 0.0f);   // 2^0 = 1 and log2(1) = 0 are exact on the hardware
  T(v_exp_legacy_f32, exp2_exact(x), 0.0f);
  T(v_log_f32, log2_exact(x), 1.0f);
  T(v_log_legacy_f32, log2_exact(x), 1.0f);
  T(v_rcp_f32, rcp_exact(x), NAN);
  T(v_rcp_iflag_f32, rcp_exact(x), NAN);
  T(v_rsq_f32, rsq_exact(x), NAN);
  T(v_sqrt_f32, sqrt_exact(x), NAN);
  T(v_sin_f32, turns(x, false), 0.0f);
  T(v_cos_f32, turns(x, true), 0.0f);
}

}  // namespace flymono
