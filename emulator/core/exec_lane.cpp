// Moves between lanes and between register files, and the wrappers that turn DPP, SDWA and clamp into plain operations.
#include "shadow.hpp"

namespace flymono {
namespace {

u32 first_lane(const Wave& w) { return w.exec() ? static_cast<u32>(std::countr_zero(w.exec())) : 0; }

void scalar_from_lane(Wave& w, const Code& c, u32 lane) {
  w.s[c.dst] = w.row(c.src[0].index)[lane];
}
void marks_from_lane(Wave& w, const Code& c, u32 lane) {
  w.sund[c.dst] = undefined_bits(w.vund[c.src[0].index], static_cast<int>(lane));
}

void readlane_marks(Wave& w, const Code& c) {
  if (c.src[1].kind == Src::sgpr && w.sund[c.src[1].index]) w.sund[c.dst] = ~0u;
  else marks_from_lane(w, c, s32(w, c, 1) & 63);
}

void writelane_marks(Wave& w, const Code& c) {
  const u32 lane = s32(w, c, 1) & 63;
  const u32 u = c.src[0].kind == Src::sgpr ? w.sund[c.src[0].index] : 0;
  for (int k = 0; k < 4; ++k) {
    u64& plane = w.vund[c.dst].b[k];
    plane = (u >> (8 * k) & 255) ? plane | u64{1} << lane : plane & ~(u64{1} << lane);
  }
}

// Rows of 16 lanes change places between two registers; both are written whole.
template <int Rows>  // 1: D row 1 <-> S row 0, D row 3 <-> S row 2;  2: D rows 2, 3 <-> S rows 0, 1
void permlane_swap(Wave& w, const Code& c) {
  if (w.exec() != kAllLanes)
    return fatal(w, c, "unimplemented", "a lane swap while some lanes are inactive (its result is not documented)");
  u32 *d = w.row(c.dst), *s = w.row(c.dst2);
  for (int i = 0; i < kLanes; ++i)
    if (i >> 4 & Rows) std::swap(d[i], s[i ^ (16 * Rows)]);
}
template <int Rows>
void permlane_marks(Wave& w, const Code& c) {
  ByteMask &d = w.vund[c.dst], &s = w.vund[c.dst2];
  constexpr u64 high = Rows == 1 ? 0xffff0000ffff0000ull : 0xffffffff00000000ull;
  for (int k = 0; k < 4; ++k) {
    const u64 x = d.b[k], y = s.b[k];
    d.b[k] = (x & ~high) | (y << (16 * Rows) & high);
    s.b[k] = (y & high) | (x >> (16 * Rows) & ~high);
  }
}

void swap_marks(Wave& w, const Code& c) {
  const u64 exec = w.exec();
  for (int k = 0; k < 4; ++k) {
    u64 &x = w.vund[c.dst].b[k], &y = w.vund[c.dst2].b[k];
    const u64 differ = (x ^ y) & exec;
    x ^= differ;
    y ^= differ;
  }
}

// ---- DPP: where lane i reads; -1: no such lane
int dpp_source(u32 ctrl, int i) {
  const int row = i & ~15, in = i & 15;
  const int n = static_cast<int>(ctrl & 15);
  if (ctrl <= 0xff) return (i & ~3) | static_cast<int>(ctrl >> (2 * (i & 3)) & 3);
  if (ctrl >= 0x101 && ctrl <= 0x10f) return in + n < 16 ? i + n : -1;
  if (ctrl >= 0x111 && ctrl <= 0x11f) return in - n >= 0 ? i - n : -1;
  if (ctrl >= 0x121 && ctrl <= 0x12f) return row | ((in - n) & 15);
  switch (ctrl) {
    case 0x130: return i + 1 < kLanes ? i + 1 : -1;
    case 0x134: return (i + 1) & 63;
    case 0x138: return i - 1;
    case 0x13c: return (i - 1) & 63;
    case 0x140: return row | (15 - in);
    case 0x141: return (i & ~7) | (7 - (i & 7));
    case 0x142: return row ? row - 1 : -1;                        // lane 15 of the row before
    case 0x143: return i >= 32 ? 31 : -1;
    default: break;
  }
  if (ctrl >= 0x150 && ctrl <= 0x15f) return row | n;
  return -2;
}

void dpp(Wave& w, const Code& c) {
  const Dpp& p = c.inst->dpp;
  const u64 exec = w.exec();
  const u32* a = w.row(c.src[0].index);
  const u32 scratch = c.plain->src[0].index;
  u32* out = w.row(scratch);
  Lanes r;
  u64 written = 0, taken = 0;
  int from[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    from[i] = dpp_source(p.ctrl, i);
    if (from[i] == -2) return fatal(w, c, "unimplemented", "DPP control " + hex(p.ctrl));
    const bool readable = from[i] >= 0 && (exec >> from[i] & 1);
    const bool row_on = p.row_mask >> (i >> 4) & 1, bank_on = p.bank_mask >> (i >> 2 & 3) & 1;
    r.x[i] = readable ? a[from[i]] : 0;
    taken |= u64{readable} << i;
    written |= u64{row_on && bank_on && (readable || p.bound_ctrl)} << i;
  }
  u32 sign = 0, keep = ~0u;
  if (c.src[0].neg) sign = 1u << (c.sign_bit & 31);
  if (c.src[0].abs) keep = ~(1u << (c.sign_bit & 31));
  for (int i = 0; i < kLanes; ++i) out[i] = (r.x[i] & keep) ^ sign;
  w.set_exec(exec & written);
  if (w.check) {
    ByteMask m = w.vund[c.src[0].index], moved{};
    if (any_undefined(m))
      for (int k = 0; k < 4; ++k)
        for (u64 left = taken; left; left &= left - 1) {
          const int i = std::countr_zero(left);
          moved.b[k] |= (m.b[k] >> from[i] & 1) << i;
        }
    w.vund[scratch] = moved;
    c.plain->shadow(w, *c.plain);
  }
  c.plain->fn(w, *c.plain);
  if (c.inst->enc != Enc::vopc || c.dst_kind != Src::sgpr || c.dst != kExec) w.set_exec(exec);
}

// ---- SDWA
u32 pick(const Src& s, u32 x) {
  static constexpr u8 shift[] = {0, 8, 16, 24, 0, 16, 0}, width[] = {8, 8, 8, 8, 16, 16, 32};
  const u32 n = width[s.sel];
  x >>= shift[s.sel];
  if (n < 32) x = s.sext ? static_cast<u32>(static_cast<i32>(x << (32 - n)) >> (32 - n)) : x & ((1u << n) - 1);
  return x;
}

void extract(Wave& w, const Src& s, const Src& to, u32 sign_bit) {
  u32* out = w.row(to.index);
  Lanes t;
  const u32* a = t.x;
  if (s.kind == Src::vgpr) a = w.row(s.index);
  else broadcast(t.x, s32(w, s));
  for (int i = 0; i < kLanes; ++i) {
    u32 x = pick(s, a[i]);
    if (s.abs) x &= ~(1u << sign_bit);
    if (s.neg) x ^= 1u << sign_bit;
    out[i] = x;
  }
  if (!w.check) return;
  ByteMask m{};
  const u32 scalar = s.kind == Src::sgpr ? w.sund[s.index] : 0;
  for (int i = 0; i < kLanes; ++i) {
    const u32 u = pick(s, s.kind == Src::vgpr ? undefined_bits(w.vund[s.index], i) : scalar);
    for (int k = 0; k < 4; ++k) m.b[k] |= u64{(u >> (8 * k) & 255) != 0} << i;
  }
  w.vund[to.index] = m;
}

void place(Wave& w, const Code& c) {  // the result stands in the scratch row: its low bits go to dst_sel
  static constexpr u8 shift[] = {0, 8, 16, 24, 0, 16}, width[] = {8, 8, 8, 8, 16, 16};
  const Sdwa& s = c.inst->sdwa;
  const u32 row = c.plain->dst, n = width[s.dst_sel], at = shift[s.dst_sel], field = ((1u << n) - 1) << at;
  u32 *d = w.row(c.dst), *r = w.row(row);
  Lanes out;
  for (int i = 0; i < kLanes; ++i) {
    const u32 x = r[i] & ((1u << n) - 1);
    u32 rest = 0;
    if (s.dst_unused == 1 && (x >> (n - 1) & 1)) rest = at + n < 32 ? ~0u << (at + n) : 0;
    if (s.dst_unused == 2) rest = d[i] & ~field;
    out.x[i] = rest | x << at;
  }
  const u64 exec = w.exec();
  blend(d, out.x, exec);
  if (!w.check) return;
  const ByteMask m = w.vund[row];
  for (u32 k = 0; k < 4; ++k) {
    u64 plane = s.dst_unused == 2 ? w.vund[c.dst].b[k] : 0;
    if (k >= at / 8 && k < (at + n) / 8) plane = m.b[k - at / 8];
    w.vund[c.dst].b[k] = (w.vund[c.dst].b[k] & ~exec) | (plane & exec);
  }
}

void sdwa(Wave& w, const Code& c) {
  for (int i = 0; i < 2; ++i)
    if (c.src[i].kind != Src::none) extract(w, c.src[i], c.plain->src[i], c.sign_bit);
  if (w.check) c.plain->shadow(w, *c.plain);
  c.plain->fn(w, *c.plain);
  if (c.dst_kind == Src::vgpr && c.plain->dst != c.dst) place(w, c);
}

void clamp(Wave& w, const Code& c) {  // float result to [0, 1]; NaN to 0 (DX10_CLAMP)
  if (w.check) c.plain->shadow(w, *c.plain);
  c.plain->fn(w, *c.plain);
  u32* d = w.row(c.dst);
  Lanes r;
  for (int i = 0; i < kLanes; ++i) {
    const float x = f32(d[i]);
    r.x[i] = !(x > 0.0f) ? 0u : x > 1.0f ? 0x3f800000u : d[i];
  }
  blend(d, r.x, w.exec());
}

}  // namespace

const u32* fetch_slow(Wave& w, const Code& c, const Src& s, u32* tmp, int word) {
  if (s.kind == Src::vgpr) std::memcpy(tmp, w.row(s.index + static_cast<u32>(word)), 4 * kLanes);
  else if (s.kind == Src::sgpr) broadcast(tmp, w.s[s.index + word]);
  else broadcast(tmp, word ? 0 : s32(w, s));
  const int sign_word = c.sign_bit >> 5;
  if ((s.neg || s.abs) && (word == sign_word || s.dwords < 2)) {
    const u32 bit = 1u << (c.sign_bit & 31), keep = s.abs ? ~bit : ~0u, flip = s.neg ? bit : 0;
    for (int i = 0; i < kLanes; ++i) tmp[i] = (tmp[i] & keep) ^ flip;
  }
  return tmp;
}

Handler dpp_handler() { return dpp; }
Handler sdwa_handler() { return sdwa; }
Handler clamp_handler() { return clamp; }

void add_lane(Table& t) {
  t.add("v_readfirstlane_b32", [](Wave& w, const Code& c) { scalar_from_lane(w, c, first_lane(w)); }, kOwnMarks, nullptr,
        [](Wave& w, const Code& c) { marks_from_lane(w, c, first_lane(w)); });
  t.add("v_readlane_b32", [](Wave& w, const Code& c) { scalar_from_lane(w, c, s32(w, c, 1) & 63); }, kOwnMarks, nullptr, readlane_marks);
  t.add("v_writelane_b32", [](Wave& w, const Code& c) { w.row(c.dst)[s32(w, c, 1) & 63] = s32(w, c, 0); }, kOwnMarks, nullptr, writelane_marks);
  t.add("v_permlane16_swap_b32", permlane_swap<1>, kOwnMarks, nullptr, permlane_marks<1>);
  t.add("v_permlane32_swap_b32", permlane_swap<2>, kOwnMarks, nullptr, permlane_marks<2>);
  t.add("v_swap_b32", [](Wave& w, const Code& c) {
    Lanes d, s;
    std::memcpy(d.x, w.row(c.dst), sizeof d.x);
    std::memcpy(s.x, w.row(c.dst2), sizeof s.x);
    blend(w.row(c.dst), s.x, w.exec());
    blend(w.row(c.dst2), d.x, w.exec());
  }, kOwnMarks, nullptr, swap_marks);
  t.add("v_nop", [](Wave&, const Code&) {}, kOwnMarks, nullptr, shadow_none);
  auto copy = [](Wave& w, const Code& c) { map1(w, c, [](u32 a) { return a; }); };
  auto same = [](const Code&, const u32*, const u32 u[3]) { return u[0]; };
  t.add("v_accvgpr_read_b32", copy, 0, same);
  t.add("v_accvgpr_write_b32", copy, 0, same);
  t.add("v_accvgpr_mov_b32", copy, 0, same);
  t.add("v_accvgpr_read", copy, 0, same);
  t.add("v_accvgpr_write", copy, 0, same);
}

}  // namespace flymono
