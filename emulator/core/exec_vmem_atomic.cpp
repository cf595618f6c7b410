// Global and buffer atomics. Executed at once, lane by lane in ascending order; the value returns with vmcnt.
#include <algorithm>
#include <cmath>

#include "numeric.hpp"
#include "outside.hpp"
#include "vmem.hpp"

namespace flymono {
namespace {

template <class T, class F>
void atomic(Wave& w, const Code& c, bool compare, F f) {
  Span64 lanes;
  Reach reach;
  constexpr u32 dwords = sizeof(T) / 4;
  if (!vector_addresses(w, c, sizeof(T), Access::atomic, lanes, reach)) return;
  if (reach.is_partial) return fatal(w, c, "unimplemented", "atomic that is partly out of the buffer's range");
  count_traffic(w, c, sizeof(T), Access::atomic, lanes, reach);
  const u32 data = c.src[1].index;
  const bool returns = c.inst->sc0 && c.dst_kind == Src::vgpr;
  if (w.check) {
    check_stored(w, c, data, dwords * (compare ? 2 : 1), 4, lanes.mask);
    sample_all(w);
  }
  ++w.grid->machine->stores;
  auto operand = [&](u32 row, u32 i) {
    T x = w.row(row)[i];
    if constexpr (dwords == 2) x |= T{w.row(row + 1)[i]} << 32;
    return x;
  };
  T old[kLanes] = {};
  for (u64 left = lanes.mask; left; left &= left - 1) {
    const u32 i = static_cast<u32>(std::countr_zero(left));
    if (lanes.address[i] % sizeof(T)) {
      report(w, c, "misaligned", "atomic at an address that is no multiple of " + std::to_string(sizeof(T)), static_cast<int>(i), -1, lanes.address[i]);
      continue;
    }
    void* p = reinterpret_cast<void*>(lanes.address[i]);
    const auto next = [&](T seen) { return f(seen, operand(data, i), compare ? operand(data + dwords, i) : T{0}); };
    if (lanes.outside) {
      old[i] = outside::update(static_cast<T*>(p), next);
      continue;
    }
    std::memcpy(&old[i], p, sizeof(T));
    const T now = next(old[i]);
    std::memcpy(p, &now, sizeof(T));
  }
  if (returns)
    for (u64 left = lanes.mask | lanes.zero; left; left &= left - 1) {
      const u32 i = static_cast<u32>(std::countr_zero(left));
      for (u32 k = 0; k < dwords; ++k) w.row(c.dst + k)[i] = static_cast<u32>(u64{old[i]} >> (32 * k));
    }
  if (!w.check) return;
  Pending p;
  p.cls = Pending::vm;
  if (returns) {
    p.first = c.dst;
    p.count = dwords;
    for (u32 k = 0; k < dwords; ++k)
      for (u64& plane : w.vund[c.dst + k].b) plane &= ~(lanes.mask | lanes.zero);
  }
  issue(w, c, std::move(p));
}

template <class T, bool Compare, class F>
Handler handler(F) {
  return [](Wave& w, const Code& c) { atomic<T>(w, c, Compare, F{}); };
}

float flushed(u32 x) { return std::fpclassify(f32(x)) == FP_SUBNORMAL ? 0.0f : f32(x); }

template <class T>
void add_family(Table& t, const std::string& prefix, const std::string& suffix) {
  using S = std::make_signed_t<T>;
  auto op = [&](const char* name, auto f) { t.add(prefix + name + suffix, handler<T, false>(f)); };
  op("swap", [](T, T a, T) -> T { return a; });
  // data low = new value, data high = compare
  t.add(prefix + "cmpswap" + suffix, handler<T, true>([](T m, T a, T b) -> T { return m == b ? a : m; }));
  op("add", [](T m, T a, T) -> T { return m + a; });
  op("sub", [](T m, T a, T) -> T { return m - a; });
  op("and", [](T m, T a, T) -> T { return m & a; });
  op("or", [](T m, T a, T) -> T { return m | a; });
  op("xor", [](T m, T a, T) -> T { return m ^ a; });
  op("umin", [](T m, T a, T) -> T { return std::min(m, a); });
  op("umax", [](T m, T a, T) -> T { return std::max(m, a); });
  op("smin", [](T m, T a, T) -> T { return static_cast<T>(std::min(S(m), S(a))); });
  op("smax", [](T m, T a, T) -> T { return static_cast<T>(std::max(S(m), S(a))); });
  op("inc", [](T m, T a, T) -> T { return m >= a ? 0 : m + 1; });
  op("dec", [](T m, T a, T) -> T { return m == 0 || m > a ? a : m - 1; });
}

u32 pk_add_bf16(u32 m, u32 a) {
  const u32 lo = to_bf16(f32(m << 16) + f32(a << 16));
  return to_bf16(f32(m & 0xffff0000) + f32(a & 0xffff0000)) << 16 | lo;
}
u32 pk_add_f16(u32 m, u32 a) {
  const u32 lo = to_f16(from_f16(m & 0xffff) + from_f16(a & 0xffff));
  return u32{to_f16(from_f16(m >> 16) + from_f16(a >> 16))} << 16 | lo;
}

}  // namespace

void add_vmem_atomic(Table& t) {
  for (const std::string family : {"global_atomic_", "buffer_atomic_", "flat_atomic_"}) {
    add_family<u32>(t, family, "");
    add_family<u64>(t, family, "_x2");
    // f32 at L2: denormals flushed, RNE
    t.add(family + "add_f32", handler<u32, false>([](u32 m, u32 a, u32) -> u32 {
      const float d = flushed(m) + flushed(a);
      return bits(flushed(bits(d)));
    }));
    t.add(family + "pk_add_f16", handler<u32, false>([](u32 m, u32 a, u32) -> u32 { return pk_add_f16(m, a); }));
    t.add(family + "pk_add_bf16", handler<u32, false>([](u32 m, u32 a, u32) -> u32 { return pk_add_bf16(m, a); }));
    t.add(family + "add_f64", handler<u64, false>([](u64 m, u64 a, u64) -> u64 { return bits64(f64(m) + f64(a)); }));
    t.add(family + "min_f64", handler<u64, false>([](u64 m, u64 a, u64) -> u64 { return bits64(std::fmin(f64(m), f64(a))); }));
    t.add(family + "max_f64", handler<u64, false>([](u64 m, u64 a, u64) -> u64 { return bits64(std::fmax(f64(m), f64(a))); }));
  }
}

}  // namespace flymono
