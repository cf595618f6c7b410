// Vector comparisons: a lane mask into VCC or an SGPR pair, inactive lanes 0; v_cmpx also replaces EXEC.
#include <cmath>

#include "lanes.hpp"
#include "numeric.hpp"

namespace flymono {
namespace {

template <bool Exec>
void finish(Wave& w, const Code& c, u64 mask) {
  set_mask(w, c.dst, mask & w.exec());
  if (Exec) w.set_exec(mask & w.exec());
}

template <bool Exec, class F>
void compare32(Wave& w, const Code& c, F f) {
  Lanes ta, tb, r;
  const u32 *a = vsrc(w, c, 0, ta.x), *b = vsrc(w, c, 1, tb.x);
  FLYMONO_LANES r.x[i] = f(a[i], b[i]) ? ~0u : 0u;
  finish<Exec>(w, c, movemask(r.x));
}

template <bool Exec, class F>
void compare64(Wave& w, const Code& c, F f) {
  alignas(64) u64 a[kLanes], b[kLanes];
  fetch64(w, c, 0, a);
  fetch64(w, c, 1, b);
  u64 m = 0;
  for (int i = 0; i < kLanes; ++i) m |= u64{f(a[i], b[i])} << i;
  finish<Exec>(w, c, m);
}

// VOP3 op_sel picks halves of 16-bit operands.
u32 shift_of(const Code& c, int i) { return c.inst->op_sel >> i & 1 ? 16 : 0; }


template <bool Exec, class F>
void add_typed(Table& t, const std::string& prefix, const std::string& cond, F) {
  t.add(prefix + cond + "_i32", [](Wave& w, const Code& c) {
    compare32<Exec>(w, c, [](u32 a, u32 b) { return F{}(static_cast<i32>(a), static_cast<i32>(b)); }); });
  t.add(prefix + cond + "_u32", [](Wave& w, const Code& c) {
    compare32<Exec>(w, c, [](u32 a, u32 b) { return F{}(a, b); }); });
  t.add(prefix + cond + "_i64", [](Wave& w, const Code& c) {
    compare64<Exec>(w, c, [](u64 a, u64 b) { return F{}(static_cast<i64>(a), static_cast<i64>(b)); }); });
  t.add(prefix + cond + "_u64", [](Wave& w, const Code& c) {
    compare64<Exec>(w, c, [](u64 a, u64 b) { return F{}(a, b); }); });
  t.add(prefix + cond + "_i16", [](Wave& w, const Code& c) {
    const u32 p = shift_of(c, 0), q = shift_of(c, 1);
    compare32<Exec>(w, c, [p, q](u32 a, u32 b) { return F{}(static_cast<i16>(a >> p), static_cast<i16>(b >> q)); }); });
  t.add(prefix + cond + "_u16", [](Wave& w, const Code& c) {
    const u32 p = shift_of(c, 0), q = shift_of(c, 1);
    compare32<Exec>(w, c, [p, q](u32 a, u32 b) { return F{}(static_cast<u16>(a >> p), static_cast<u16>(b >> q)); }); });
}

template <bool Exec, class F>
void add_float(Table& t, const std::string& prefix, const std::string& cond, F) {
  t.add(prefix + cond + "_f32", [](Wave& w, const Code& c) {
    compare32<Exec>(w, c, [](u32 a, u32 b) { return F{}(f32(a), f32(b)); }); });
  t.add(prefix + cond + "_f64", [](Wave& w, const Code& c) {
    compare64<Exec>(w, c, [](u64 a, u64 b) { return F{}(f64(a), f64(b)); }); }, kF64);
  t.add(prefix + cond + "_f16", [](Wave& w, const Code& c) {
    const u32 p = shift_of(c, 0), q = shift_of(c, 1);
    compare32<Exec>(w, c, [p, q](u32 a, u32 b) { return F{}(from_f16(a >> p & 0xffff), from_f16(b >> q & 0xffff)); }); }, kF16);
}

template <bool Exec>
void class_f32(Wave& w, const Code& c) {
  compare32<Exec>(w, c, [](u32 a, u32 b) {
    const u32 exponent = a >> 23 & 255, mantissa = a & 0x7fffff;
    const bool negative = a >> 31;
    u32 bit;
    if (exponent == 255) bit = mantissa ? (mantissa >> 22 ? 1 : 0) : (negative ? 2 : 9);
    else if (exponent) bit = negative ? 3 : 8;
    else if (mantissa) bit = negative ? 4 : 7;
    else bit = negative ? 5 : 6;
    return (b >> bit & 1) != 0;
  });
}

template <bool Exec>
void add_all(Table& t, const std::string& prefix) {
  add_typed<Exec>(t, prefix, "eq", [](auto a, auto b) { return a == b; });
  add_typed<Exec>(t, prefix, "ne", [](auto a, auto b) { return a != b; });
  add_typed<Exec>(t, prefix, "lt", [](auto a, auto b) { return a < b; });
  add_typed<Exec>(t, prefix, "le", [](auto a, auto b) { return a <= b; });
  add_typed<Exec>(t, prefix, "gt", [](auto a, auto b) { return a > b; });
  add_typed<Exec>(t, prefix, "ge", [](auto a, auto b) { return a >= b; });
  add_float<Exec>(t, prefix, "eq", [](auto a, auto b) { return a == b; });
  add_float<Exec>(t, prefix, "lt", [](auto a, auto b) { return a < b; });
  add_float<Exec>(t, prefix, "le", [](auto a, auto b) { return a <= b; });
  add_float<Exec>(t, prefix, "gt", [](auto a, auto b) { return a > b; });
  add_float<Exec>(t, prefix, "ge", [](auto a, auto b) { return a >= b; });
  add_float<Exec>(t, prefix, "lg", [](auto a, auto b) { return a < b || a > b; });
  add_float<Exec>(t, prefix, "o", [](auto a, auto b) { return a == a && b == b; });
  add_float<Exec>(t, prefix, "u", [](auto a, auto b) { return a != a || b != b; });
  add_float<Exec>(t, prefix, "nlt", [](auto a, auto b) { return !(a < b); });
  add_float<Exec>(t, prefix, "nle", [](auto a, auto b) { return !(a <= b); });
  add_float<Exec>(t, prefix, "ngt", [](auto a, auto b) { return !(a > b); });
  add_float<Exec>(t, prefix, "nge", [](auto a, auto b) { return !(a >= b); });
  add_float<Exec>(t, prefix, "neq", [](auto a, auto b) { return !(a == b); });
  add_float<Exec>(t, prefix, "nlg", [](auto a, auto b) { return !(a < b || a > b); });
  add_typed<Exec>(t, prefix, "f", [](auto, auto) { return false; });
  add_typed<Exec>(t, prefix, "t", [](auto, auto) { return true; });
  add_float<Exec>(t, prefix, "f", [](auto, auto) { return false; });
  add_float<Exec>(t, prefix, "tru", [](auto, auto) { return true; });
  t.add(prefix + "class_f32", class_f32<Exec>);
}

}  // namespace

void add_valu_cmp(Table& t) {
  add_all<false>(t, "v_cmp_");
  add_all<true>(t, "v_cmpx_");
}

}  // namespace flymono
