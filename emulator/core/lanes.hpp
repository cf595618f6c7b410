// Operand access and the per-lane loops that handlers are made of.
//
// Invariants
//  - A handler reads all its sources before it writes a lane of D, except lane by lane: D may be a source.
//  - Inactive lanes of D keep their value.
#pragma once

#include "table.hpp"

namespace flymono {

u32 special_scalar(const Wave& w, flymono::Kind kind);
const u32* fetch_slow(Wave& w, const Code& c, const Src& s, u32* tmp, int word);

// ---- scalar operands
inline u32 s32(const Wave& w, const Src& s) {
  if (s.kind == Src::sgpr) return w.s[s.index];
  if (s.kind == Src::konst) return static_cast<u32>(s.value);
  return special_scalar(w, s.special_kind);
}
inline u32 s32(const Wave& w, const Code& c, int i) { return s32(w, c.src[i]); }
inline u64 s64(const Wave& w, const Code& c, int i) {
  const Src& s = c.src[i];
  if (s.kind == Src::sgpr) return w.pair(s.index);
  if (s.kind == Src::konst) return s.value;
  return special_scalar(w, s.special_kind);
}

// ---- vector operands: a pointer to 64 lanes of dword `word` of source i
inline const u32* vsrc(Wave& w, const Code& c, int i, u32* tmp, int word = 0) {
  const Src& s = c.src[i];
  if (s.plain) return w.row(s.index + word);
  if (s.kind == Src::konst) return s.k + kLanes * word;
  return fetch_slow(w, c, s, tmp, word);
}

struct alignas(64) Lanes {
  u32 x[kLanes];
};

#define FLYMONO_LANES _Pragma("GCC ivdep") for (int i = 0; i < kLanes; ++i)

template <class F>
inline void map1(Wave& w, const Code& c, F f) {
  Lanes t, r;
  const u32* a = vsrc(w, c, 0, t.x);
  u32* d = w.row(c.dst);
  const u64 exec = w.exec();
  u32* out = exec == kAllLanes ? d : r.x;
  FLYMONO_LANES out[i] = f(a[i]);
  if (exec != kAllLanes) blend(d, out, exec);
}

template <class F>
inline void map2(Wave& w, const Code& c, F f) {
  Lanes ta, tb, r;
  const u32 *a = vsrc(w, c, 0, ta.x), *b = vsrc(w, c, 1, tb.x);
  u32* d = w.row(c.dst);
  const u64 exec = w.exec();
  u32* out = exec == kAllLanes ? d : r.x;
  FLYMONO_LANES out[i] = f(a[i], b[i]);
  if (exec != kAllLanes) blend(d, out, exec);
}

template <class F>
inline void map3(Wave& w, const Code& c, F f) {
  Lanes ta, tb, tc, r;
  const u32 *a = vsrc(w, c, 0, ta.x), *b = vsrc(w, c, 1, tb.x), *e = vsrc(w, c, 2, tc.x);
  u32* d = w.row(c.dst);
  const u64 exec = w.exec();
  u32* out = exec == kAllLanes ? d : r.x;
  FLYMONO_LANES out[i] = f(a[i], b[i], e[i]);
  if (exec != kAllLanes) blend(d, out, exec);
}

// D also a source (accumulators, partial writes): f(a, b, d)
template <class F>
inline void map2d(Wave& w, const Code& c, F f) {
  Lanes ta, tb, r;
  const u32 *a = vsrc(w, c, 0, ta.x), *b = vsrc(w, c, 1, tb.x);
  u32* d = w.row(c.dst);
  FLYMONO_LANES r.x[i] = f(a[i], b[i], d[i]);
  blend(d, r.x, w.exec());
}

// 64-bit sources and result: f(u64 a, u64 b, u64 c) with the widths given by the operands (1 dword: zero-extended)
inline void fetch64(Wave& w, const Code& c, int i, u64* out) {
  Lanes lo, hi;
  const u32* l = vsrc(w, c, i, lo.x);
  if (c.src[i].dwords < 2) {
    for (int k = 0; k < kLanes; ++k) out[k] = l[k];
    return;
  }
  const u32* h = vsrc(w, c, i, hi.x, 1);
  for (int k = 0; k < kLanes; ++k) out[k] = u64{h[k]} << 32 | l[k];
}
inline void store64(Wave& w, u32 row, const u64* x, u64 exec) {
  Lanes lo, hi;
  for (int k = 0; k < kLanes; ++k) lo.x[k] = static_cast<u32>(x[k]), hi.x[k] = static_cast<u32>(x[k] >> 32);
  blend(w.row(row), lo.x, exec);
  blend(w.row(row + 1), hi.x, exec);
}
template <int N, class F>
inline void map64(Wave& w, const Code& c, F f) {
  alignas(64) u64 x[3][kLanes] = {};
  for (int k = 0; k < N; ++k) fetch64(w, c, k, x[k]);
  alignas(64) u64 r[kLanes];
  for (int i = 0; i < kLanes; ++i) r[i] = f(x[0][i], x[1][i], x[2][i]);
  store64(w, c.dst, r, w.exec());
}

// A lane mask as scalar destination (VCC or SGPR pair).
inline void set_mask(Wave& w, u32 scalar, u64 mask) { w.set_pair(static_cast<int>(scalar), mask); }

}  // namespace flymono
