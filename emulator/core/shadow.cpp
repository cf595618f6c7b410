#include "shadow.hpp"

namespace flymono {
namespace {

bool is_memory(Enc e) { return e == Enc::mubuf || e == Enc::global || e == Enc::flat || e == Enc::scratch; }
bool is_scalar(Enc e) { return e == Enc::sop1 || e == Enc::sop2 || e == Enc::sopk || e == Enc::sopc; }

u32 scalar_marks(const Wave& w, const Src& s, int word = 0) {
  if (s.kind == Src::sgpr) return w.sund[s.index + word];
  if (s.kind == Src::special && s.special_kind == flymono::Kind::scc) return w.scc_und ? 1u : 0u;
  return 0;
}

u64 pair_marks(const Wave& w, int scalar) { return u64{w.sund[scalar + 1]} << 32 | w.sund[scalar]; }

void set_planes(ByteMask& m, u64 exec, const u64 planes[4]) {
  for (int k = 0; k < 4; ++k) m.b[k] = (m.b[k] & ~exec) | (planes[k] & exec);
}

void set_pair_marks(Wave& w, int scalar, u64 bits) {
  w.sund[scalar] = static_cast<u32>(bits);
  w.sund[scalar + 1] = static_cast<u32>(bits >> 32);
}

// Planes of dword `word` of source i.
ByteMask planes_of(const Wave& w, const Code& c, int i, int word = 0) {
  const Src& s = c.src[i];
  ByteMask m{};
  if (s.kind == Src::vgpr) return w.vund[s.index + (word < s.dwords ? word : 0)];
  const u32 u = scalar_marks(w, s, word < s.dwords ? word : 0);
  for (int k = 0; k < 4; ++k) m.b[k] = (u >> (8 * k) & 255) ? kAllLanes : 0;
  return m;
}

// Lanes of any source that are undefined in part; lane masks count lane by lane.
u64 undefined_lanes(const Wave& w, const Code& c, int sources) {
  u64 any = 0;
  for (int i = 0; i < sources; ++i)
    for (int word = 0; word < c.src[i].dwords && c.src[i].kind != Src::none; ++word)
      any |= any_undefined(planes_of(w, c, i, word));
  if (c.src[3].kind == Src::sgpr) any |= pair_marks(w, c.src[3].index);
  return any;
}

void by_rule(Wave& w, const Code& c, u64 exec) {
  Lanes t[3];
  const u32* value[3] = {};
  ByteMask m[3] = {};
  int n = 0;
  for (; n < 3 && c.src[n].kind != Src::none; ++n) {
    value[n] = vsrc(w, c, n, t[n].x);
    m[n] = planes_of(w, c, n);
  }
  u64 planes[4] = {};
  for (u64 left = exec; left; left &= left - 1) {
    const int i = std::countr_zero(left);
    u32 v[3] = {}, u[3] = {};
    for (int k = 0; k < n; ++k) v[k] = value[k][i], u[k] = undefined_bits(m[k], i);
    if (!(u[0] | u[1] | u[2])) continue;
    const u32 r = c.rule(c, v, u);
    for (int k = 0; k < 4; ++k) planes[k] |= u64{(r >> (8 * k) & 255) != 0} << i;
  }
  set_planes(w.vund[c.dst], exec, planes);
}

void cndmask_marks(Wave& w, const Code& c, u64 exec) {
  const int at = c.src[3].kind == Src::sgpr ? c.src[3].index : kVcc;
  const u64 mask = c.src[3].kind == Src::konst ? c.src[3].value : w.pair(at);
  const u64 unknown = c.src[3].kind == Src::konst ? 0 : pair_marks(w, at);
  const ByteMask a = planes_of(w, c, 0), b = planes_of(w, c, 1);
  u64 planes[4];
  for (int k = 0; k < 4; ++k) planes[k] = (mask & b.b[k]) | (~mask & a.b[k]) | unknown;
  set_planes(w.vund[c.dst], exec, planes);
}

// v_pk_*_f32, v_pk_mov_b32, v_mov_b64: the two results depend on their own dwords only.
bool per_dword(Wave& w, const Code& c, u64 exec) {
  const Inst& in = *c.inst;
  if (c.dst_dwords != 2) return false;
  u64 r[2] = {};
  if (in.op == Op::v_mov_b64) {
    for (int h = 0; h < 2; ++h) {
      const ByteMask m = planes_of(w, c, 0, h);
      r[h] = any_undefined(m);
    }
  } else if (in.op == Op::v_pk_mov_b32) {
    for (int h = 0; h < 2; ++h) r[h] = any_undefined(planes_of(w, c, h, in.op_sel >> h & 1));
  } else if (in.op == Op::v_pk_fma_f32 || in.op == Op::v_pk_mul_f32 || in.op == Op::v_pk_add_f32) {
    for (int h = 0; h < 2; ++h)
      for (int i = 0; i < 3 && c.src[i].kind != Src::none; ++i)
        r[h] |= any_undefined(planes_of(w, c, i, (h ? in.op_sel_hi : in.op_sel) >> i & 1));
  } else {
    return false;
  }
  for (int h = 0; h < 2; ++h) {
    const u64 planes[4] = {r[h], r[h], r[h], r[h]};
    set_planes(w.vund[c.dst + h], exec, planes);
  }
  return true;
}

void report_exec(Wave& w, const Code& c) {
  report(w, c, "uninitialised", "EXEC gets bits that come from a value never written");
  w.sund[kExec] = w.sund[kExec + 1] = 0;
}

void slow_valu(Wave& w, const Code& c, u64 exec) {
  const bool vector = c.dst_kind == Src::vgpr;
  const int sources = 3;
  if (c.inst->op == Op::v_cndmask_b32 && vector) return cndmask_marks(w, c, exec);
  if (vector && c.rule) return by_rule(w, c, exec);
  if (vector && per_dword(w, c, exec)) return;
  const u64 any = undefined_lanes(w, c, sources);
  if (vector) {
    ByteMask kept = w.vund[c.dst];
    u64 planes[4] = {any, any, any, any};
    const u32 sel = c.inst->op_sel;
    if ((c.flags & kHalfDst) && ((sel & 8) || (c.flags & kReadsDst)))
      for (int k = 0; k < 2; ++k) planes[sel & 8 ? k : k + 2] = kept.b[sel & 8 ? k : k + 2];
    if (c.flags & kByteDst)
      for (u32 k = 0; k < 4; ++k)
        if (k != (sel >> 2 & 3)) planes[k] = kept.b[k];
    for (int r = 0; r < c.vdsts; ++r)
      for (int k = 0; k < c.vdst[r].count; ++k) set_planes(w.vund[c.vdst[r].first + k], exec, planes);
  }
  for (int r = 0; r < c.sdsts; ++r) set_pair_marks(w, c.sdst[r].first, any & exec);
  if (w.sund[kExec] | w.sund[kExec + 1]) report_exec(w, c);
}

}  // namespace

void shadow_none(Wave&, const Code&) {}

void shadow_valu(Wave& w, const Code& c) {
  const u64 exec = (c.flags & kWholeWave) ? kAllLanes : w.exec();
  u64 any = 0;
  for (int r = 0; r < c.vranges; ++r)
    for (int k = 0; k < c.vsrc[r].count; ++k) any |= any_undefined(w.vund[c.vsrc[r].first + k]);
  any &= exec;
  u32 scalars = 0;
  for (int r = 0; r < c.sranges; ++r)
    for (int k = 0; k < c.ssrc[r].count; ++k) scalars |= w.sund[c.ssrc[r].first + k];
  if (any || scalars) return slow_valu(w, c, exec);
  for (int r = 0; r < c.vdsts; ++r)
    for (int k = 0; k < c.vdst[r].count; ++k)
      for (u64& plane : w.vund[c.vdst[r].first + k].b) plane &= ~exec;
  for (int r = 0; r < c.sdsts; ++r)
    for (int k = 0; k < c.sdst[r].count; ++k) w.sund[c.sdst[r].first + k] = 0;
}

void shadow_salu(Wave& w, const Code& c) {
  u32 any = 0;
  for (int r = 0; r < c.sranges; ++r)
    for (int k = 0; k < c.ssrc[r].count; ++k) any |= w.sund[c.ssrc[r].first + k];
  any |= c.reads_scc && w.scc_und;
  u32 out = any ? ~0u : 0u;
  if (any && c.rule) {
    out = 0;
    u32 r[2] = {};
    for (int word = 0; word < c.dst_dwords; ++word) {
      u32 v[3] = {}, u[3] = {};
      for (int i = 0; i < 2; ++i) {
        const Src& s = c.src[i];
        if (s.kind == Src::none) continue;
        v[i] = s.kind == Src::sgpr ? w.s[s.index + word] : static_cast<u32>(s.value >> (32 * word));
        u[i] = scalar_marks(w, s, word);
      }
      out |= r[word] = c.rule(c, v, u);
    }
    for (int word = 0; word < c.dst_dwords; ++word) w.sund[c.dst + word] = r[word];
  } else {
    for (int r = 0; r < c.sdsts; ++r)
      for (int k = 0; k < c.sdst[r].count; ++k) w.sund[c.sdst[r].first + k] = out;
  }
  if (c.writes_scc) w.scc_und = out != 0;
  if (w.sund[kExec] | w.sund[kExec + 1]) report_exec(w, c);
}

void shadow_branch(Wave& w, const Code& c) {
  bool bad = false;
  switch (c.inst->op) {
    case Op::s_cbranch_scc0:
    case Op::s_cbranch_scc1: bad = w.scc_und; break;
    case Op::s_cbranch_vccz:
    case Op::s_cbranch_vccnz: {
      const u64 unknown = pair_marks(w, kVcc);
      bad = unknown && !(w.vcc() & ~unknown);
      if (bad) set_pair_marks(w, kVcc, 0);
      break;
    }
    case Op::s_setpc_b64:
    case Op::s_swappc_b64: bad = scalar_marks(w, c.src[0]) | scalar_marks(w, c.src[0], 1); break;
    default: break;
  }
  if (!bad) return;
  w.scc_und = false;
  report(w, c, "uninitialised", "the branch depends on a value that was never written");
}

void shadow_address(Wave& w, const Code& c) {
  const Inst& in = *c.inst;
  const Src& a = c.src[0];
  const bool vector = in.enc != Enc::smem && (in.enc != Enc::mubuf || in.offen || in.idxen) && in.op != Op::ds_swizzle_b32;
  const u64 exec = w.exec();
  for (int k = 0; vector && a.kind == Src::vgpr && k < a.dwords; ++k) {
    const u64 bad = any_undefined(w.vund[a.index + k]) & exec;
    if (!bad) continue;
    report(w, c, "uninitialised", "v" + std::to_string(a.index + k) + " is used as an address but was never (wholly) written", std::countr_zero(bad));
    for (u64& plane : w.vund[a.index + k].b) plane &= ~exec;
  }
  for (int i = 2; i < 4; ++i)
    for (int k = 0; c.src[i].kind == Src::sgpr && k < c.src[i].dwords; ++k) {
      if (!w.sund[c.src[i].index + k]) continue;
      report(w, c, "uninitialised", "s" + std::to_string(c.src[i].index + k) + " is used as an address but was never written");
      w.sund[c.src[i].index + k] = 0;
    }
  if (in.lds && w.sund[kM0]) {
    report(w, c, "uninitialised", "M0 is used as an LDS address but was never written");
    w.sund[kM0] = 0;
  }
}

Handler shadow_for(const Inst& in, const Entry& entry) {
  if (entry.shadow) return entry.shadow;
  if (in.enc == Enc::sopp || in.op == Op::s_setpc_b64 || in.op == Op::s_swappc_b64) return shadow_branch;
  if (is_scalar(in.enc)) return shadow_salu;
  if (is_memory(in.enc) || in.enc == Enc::ds || in.enc == Enc::smem) return shadow_address;
  return shadow_valu;
}

}  // namespace flymono
