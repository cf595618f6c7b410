// DS operations that are no plain read or write: lane exchange (bpermute, permute, swizzle), atomics, transpose reads.
#include <cmath>

#include "ds.hpp"

namespace flymono {
namespace {

// Writes D for active lanes from lane `from[i]` of `data` (-1: 0), marks included.
void gather(Wave& w, const Code& c, const u32* data, u32 data_row, const int* from) {
  Lanes r;
  const u64 exec = w.exec();
  for (int i = 0; i < kLanes; ++i) r.x[i] = from[i] < 0 ? 0 : data[from[i]];
  if (w.check) {
    ByteMask m = w.vund[data_row], out{};
    if (m.b[0] | m.b[1] | m.b[2] | m.b[3])
      for (int k = 0; k < 4; ++k)
        for (int i = 0; i < kLanes; ++i)
          if (from[i] >= 0) out.b[k] |= (m.b[k] >> from[i] & 1) << i;
    for (int k = 0; k < 4; ++k) w.vund[c.dst].b[k] = (w.vund[c.dst].b[k] & ~exec) | (out.b[k] & exec);
  }
  blend(w.row(c.dst), r.x, exec);
  if (w.check) ds_issue(w, c, c.dst, 1);
}

void bpermute(Wave& w, const Code& c) {
  const u32 *address = w.row(c.src[0].index), *data = w.row(c.src[1].index);
  const u32 offset = static_cast<u32>(c.inst->imm) & 0xffff;
  const u64 exec = w.exec();
  int from[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const int lane = static_cast<int>((address[i] + offset) >> 2 & 63);
    from[i] = (exec >> lane & 1) ? lane : -1;
  }
  gather(w, c, data, c.src[1].index, from);
}

void permute(Wave& w, const Code& c) {
  const u32 *address = w.row(c.src[0].index), *data = w.row(c.src[1].index);
  const u32 offset = static_cast<u32>(c.inst->imm) & 0xffff;
  int from[kLanes];
  for (int& f : from) f = -1;
  for (u64 left = w.exec(); left; left &= left - 1) {  // ascending: the highest source lane wins
    const int i = std::countr_zero(left);
    from[(address[i] + offset) >> 2 & 63] = i;
  }
  gather(w, c, data, c.src[1].index, from);
}

void swizzle(Wave& w, const Code& c) {
  const u32 offset = static_cast<u32>(c.inst->imm) & 0xffff;
  if (offset >= 0xc000) return fatal(w, c, "unimplemented", "ds_swizzle in rotate or FFT mode");
  const u64 exec = w.exec();
  int from[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    int lane;
    if (offset & 0x8000) {
      lane = (i & ~3) | static_cast<int>(offset >> (2 * (i & 3)) & 3);
    } else {
      const int in = i & 31, x = ((in & static_cast<int>(offset & 31)) | static_cast<int>(offset >> 5 & 31)) ^ static_cast<int>(offset >> 10 & 31);
      lane = (i & 32) | x;
    }
    from[i] = (exec >> lane & 1) ? lane : -1;
  }
  const Src& s = c.src[0].kind == Src::vgpr ? c.src[0] : c.src[1];
  gather(w, c, w.row(s.index), s.index, from);
}

template <class T, class F>
void atomic(Wave& w, const Code& c, bool returns, F f) {
  alignas(64) u32 at[kLanes];
  constexpr u32 dwords = sizeof(T) / 4;
  const u64 ok = lds_lanes(w, c, w.row(c.src[0].index), static_cast<u32>(c.inst->imm) & 0xffff, sizeof(T), sizeof(T), at);
  if (w.check && w.grid->machine->options.lds_race) lds_access(w, c, at, ok, sizeof(T), true);
  auto operand = [&](int k, u32 i) {
    T x = w.row(c.src[k].index)[i];
    if constexpr (dwords == 2) x |= T{w.row(c.src[k].index + 1)[i]} << 32;
    return x;
  };
  for (u64 left = ok; left; left &= left - 1) {
    const u32 i = static_cast<u32>(std::countr_zero(left));
    T old;
    std::memcpy(&old, w.wg->lds.data() + at[i], sizeof old);
    const T a = operand(1, i), b = c.src[2].kind == Src::vgpr ? operand(2, i) : T{0};
    const T now = f(old, a, b);
    std::memcpy(w.wg->lds.data() + at[i], &now, sizeof now);
    if (returns)
      for (u32 k = 0; k < dwords; ++k) w.row(c.dst + k)[i] = static_cast<u32>(old >> (16 * k) >> (16 * k));
    if (!w.check) continue;
    // The bytes were undefined: so is the sum of them and anything, and what is returned.
    u64 bad = 0;
    for (u32 k = 0; k < sizeof(T); ++k) bad |= w.wg->lds_undefined[(at[i] + k) >> 6] >> ((at[i] + k) & 63) & 1;
    if (returns)
      for (u32 k = 0; k < dwords; ++k)
        for (u64& plane : w.vund[c.dst + k].b) plane = bad ? plane | u64{1} << i : plane & ~(u64{1} << i);
  }
  if (w.check) {
    ByteMask m = w.vund[c.src[1].index];
    const u64 bad = (m.b[0] | m.b[1] | m.b[2] | m.b[3]) & ok;
    if (bad) report(w, c, "uninitialised", "the operand of an LDS atomic was never written", std::countr_zero(bad));
    ds_issue(w, c, returns ? c.dst : 0, returns ? dwords : 0);
  }
}

template <bool Returns, class T, class F>
Handler handler(F) {
  return [](Wave& w, const Code& c) { atomic<T>(w, c, Returns, F{}); };
}

template <class T>
void add_family(Table& t, const std::string& suffix) {
  using S = std::make_signed_t<T>;
  auto both = [&](const std::string& name, const std::string& rtn, auto f) {
    t.add("ds_" + name + suffix, handler<false, T>(f));
    t.add("ds_" + rtn + suffix, handler<true, T>(f));
  };
  auto same = [&](const std::string& name, auto f) { both(name, name + "_rtn", f); };
  if (suffix[1] == 'u') {
    same("add", [](T m, T a, T) -> T { return m + a; });
    same("sub", [](T m, T a, T) -> T { return m - a; });
    same("rsub", [](T m, T a, T) -> T { return a - m; });
    same("inc", [](T m, T a, T) -> T { return m >= a ? 0 : m + 1; });
    same("dec", [](T m, T a, T) -> T { return m == 0 || m > a ? a : m - 1; });
    same("min", [](T m, T a, T) -> T { return a < m ? a : m; });
    same("max", [](T m, T a, T) -> T { return a > m ? a : m; });
  } else if (suffix[1] == 'i') {
    same("min", [](T m, T a, T) -> T { return S(a) < S(m) ? a : m; });
    same("max", [](T m, T a, T) -> T { return S(a) > S(m) ? a : m; });
  } else {
    same("and", [](T m, T a, T) -> T { return m & a; });
    same("or", [](T m, T a, T) -> T { return m | a; });
    same("xor", [](T m, T a, T) -> T { return m ^ a; });
    same("mskor", [](T m, T a, T b) -> T { return (m & ~a) | b; });
    same("cmpst", [](T m, T a, T b) -> T { return m == a ? b : m; });
    t.add("ds_wrxchg_rtn" + suffix, handler<true, T>([](T, T a, T) -> T { return a; }));
  }
}


}  // namespace

void add_ds_atomic(Table& t) {
  t.add("ds_bpermute_b32", bpermute);
  t.add("ds_permute_b32", permute);
  t.add("ds_swizzle_b32", swizzle);
  for (const char* suffix : {"_u32", "_i32", "_b32"}) add_family<u32>(t, suffix);
  for (const char* suffix : {"_u64", "_i64", "_b64"}) add_family<u64>(t, suffix);
  auto add = [](u32 m, u32 a, u32) -> u32 { return bits(f32(m) + f32(a)); };
  t.add("ds_add_f32", handler<false, u32>(add));
  t.add("ds_add_rtn_f32", handler<true, u32>(add));
  auto low = [](u32 m, u32 a, u32) -> u32 { return bits(std::fmin(f32(m), f32(a))); };
  auto high = [](u32 m, u32 a, u32) -> u32 { return bits(std::fmax(f32(m), f32(a))); };
  t.add("ds_min_f32", handler<false, u32>(low));
  t.add("ds_max_f32", handler<false, u32>(high));
  t.add("ds_min_rtn_f32", handler<true, u32>(low));
  t.add("ds_max_rtn_f32", handler<true, u32>(high));
}

}  // namespace flymono
