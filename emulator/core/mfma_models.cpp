#include <algorithm>
#include <cmath>

#include "mfma.hpp"

namespace flymono {
namespace {

typedef double Vec __attribute__((vector_size(64), aligned(8), may_alias));
constexpr int kVec = 8;

// acc[i][j] = sum_k a[k][i] * b[k][j] for a tile of 4 rows and N columns.
template <int N>
void dot_rows(const MfmaTask& t, int i0, double (*acc)[N]) {
  Vec v[4][N / kVec] = {};
  for (int k = 0; k < t.k; ++k) {
    const double* a = t.a + k * t.m + i0;
    const double* b = t.b + k * N;
    for (int h = 0; h < N / kVec; ++h) {
      const Vec x = *reinterpret_cast<const Vec*>(b + h * kVec);
      for (int i = 0; i < 4; ++i) v[i][h] += x * a[i];
    }
  }
  std::memcpy(acc, v, sizeof v);
}

// f32(dot + c) with one rounding: the f64 sum is made odd where it is inexact, so that rounding again is harmless.
inline float round_sum(double dot, float c) {
  const double x = c, s = dot + x, back = s - dot;
  const double error = (dot - (s - back)) + (x - back);
  u64 b = bits64(s);
  const bool inexact = error > 0 || error < 0, same = (error > 0) == (s > 0);
  b += inexact && !(b & 1) ? (same ? u64{1} : ~u64{0}) : u64{0};
  return static_cast<float>(f64(b));
}

template <int N>
void exact_tile(const MfmaTask& t) {
  alignas(64) double acc[4][N];
  for (int i = 0; i < t.m; i += 4) {
    dot_rows<N>(t, i, acc);
    for (int r = 0; r < 4; ++r)
      for (int j = 0; j < N; ++j) t.d[(i + r) * N + j] = round_sum(acc[r][j], t.c[(i + r) * N + j]);
  }
}

void exact(const MfmaTask& t) {
  if (t.n == 16 && t.m % 4 == 0) return exact_tile<16>(t);
  if (t.n == 32 && t.m % 4 == 0) return exact_tile<32>(t);
  for (int i = 0; i < t.m; ++i)
    for (int j = 0; j < t.n; ++j) {
      double acc = 0;
      for (int k = 0; k < t.k; ++k) acc += t.a[k * t.m + i] * t.b[k * t.n + j];
      t.d[i * t.n + j] = round_sum(acc, t.c[i * t.n + j]);
    }
}

void chain(const MfmaTask& t) {
  for (int i = 0; i < t.m; ++i)
    for (int j = 0; j < t.n; ++j) {
      float acc = t.c[i * t.n + j];
      for (int k = 0; k < t.k; ++k)
        acc = static_cast<float>(std::fma(t.a[k * t.m + i], t.b[k * t.n + j], static_cast<double>(acc)));
      t.d[i * t.n + j] = acc;
    }
}

void perturb(const MfmaTask& t) {
  exact(t);
  for (int i = 0; i < t.m; ++i)
    for (int j = 0; j < t.n; ++j) {
      float& d = t.d[i * t.n + j];
      double largest = std::fabs(t.c[i * t.n + j]);
      for (int k = 0; k < t.k; ++k) largest = std::max(largest, std::fabs(t.a[k * t.m + i] * t.b[k * t.n + j]));
      if (!std::isfinite(d) || !std::isfinite(largest)) continue;
      Random random{t.seed ^ (u64{bits(d)} << 32 | static_cast<u64>(i * t.n + j))};
      const double step = (static_cast<double>(random.next() >> 11) * 0x1p-52 - 1.0) * 0x1p-23 * largest;
      const float moved = static_cast<float>(d + step);
      if (std::isfinite(moved)) d = moved;
    }
}

// ---- cdna3
struct Term {
  double s;                  // significand, 1 <= |s| < 2 for a normal number
  int e;
};
Term split(double x, int lowest) {
  if (x == 0 || !std::isfinite(x)) return {x, lowest};
  const int e = std::max(std::ilogb(x), lowest);
  return {std::ldexp(x, -e), e};
}
constexpr int kNever = -999;  // exponent of a zero product

// Products aligned to the largest exponent, truncated toward zero to 24 fraction bits, summed.
Term aligned_sum(const Term* p, int n, int step) {
  int top = kNever;
  for (int k = 0; k < n; k += step) top = std::max(top, p[k].e);
  double sum = 0;
  for (int k = 0; k < n; k += step) sum += std::trunc(std::ldexp(p[k].s, p[k].e - top + 24)) * 0x1p-24;
  return {sum, top};
}

double floor_to(double x, int fraction_bits) { return std::ldexp(std::floor(std::ldexp(x, fraction_bits)), -fraction_bits); }

float cdna3_group(const MfmaTask& t, const Term* p, int n, float c) {
  Term dot;
  if (t.even_odd) {
    const Term even = aligned_sum(p, n, 2), odd = aligned_sum(p + 1, n - 1, 2);
    dot.e = std::max(even.e, odd.e);
    dot.s = floor_to(std::ldexp(even.s, even.e - dot.e), 24) + floor_to(std::ldexp(odd.s, odd.e - dot.e), 24);
  } else {
    dot = aligned_sum(p, n, 1);
  }
  const Term cc = split(c, -126);
  const int top = std::max(dot.e, cc.e);
  const double s_dot = floor_to(std::ldexp(dot.s, dot.e - top), 32);
  double s_c = floor_to(std::ldexp(cc.s, cc.e - top), 24);
  if (t.even_odd && cc.e < top - 25) s_c = 0;
  const double sum = s_dot + s_c;
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  const Term r = split(std::ldexp(sum, top), -126);
  return static_cast<float>(std::ldexp(floor_to(r.s, 31), r.e));
}

void cdna3(const MfmaTask& t) {
  if (t.fused) return chain(t);
  Term p[128];
  for (int i = 0; i < t.m; ++i)
    for (int j = 0; j < t.n; ++j) {
      float acc = t.c[i * t.n + j];
      for (int k0 = 0; k0 < t.k; k0 += t.group) {
        const int n = std::min(t.group, t.k - k0);
        for (int k = 0; k < n; ++k) {
          const Term a = split(t.a[(k0 + k) * t.m + i], t.low_a), b = split(t.b[(k0 + k) * t.n + j], t.low_b);
          p[k] = {a.s * b.s, a.s * b.s == 0 ? kNever : a.e + b.e};
          if (!t.even_odd && p[k].e + (std::fabs(p[k].s) >= 2) >= 128) p[k].s *= INFINITY;
        }
        acc = cdna3_group(t, p, n, acc);
      }
      t.d[i * t.n + j] = acc;
    }
}

}  // namespace

void mfma_run(Mfma model, const MfmaTask& task) {
  switch (model) {
    case Mfma::exact: return exact(task);
    case Mfma::fma: return chain(task);
    case Mfma::cdna3: return cdna3(task);
    case Mfma::perturb: return perturb(task);
  }
}

}  // namespace flymono
