// From Inst to Code: handlers, operand positions, constants spread over lanes, register use sets.
#include <algorithm>
#include <stdexcept>

#include "decode.hpp"
#include "shadow.hpp"

namespace flymono {

Handler dpp_handler();
Handler sdwa_handler();
Handler clamp_handler();

Table::Table() : entries_(static_cast<std::size_t>(Op::count_)) {
  add_salu(*this);
  add_salu_control(*this);
  add_smem(*this);
  add_valu_int(*this);
  add_valu_int64(*this);
  add_valu_cmp(*this);
  add_valu_float(*this);
  add_valu_packed(*this);
  add_trans(*this);
  add_convert(*this);
  add_lane(*this);
  add_mfma(*this);
  add_ds(*this);
  add_ds_atomic(*this);
  add_vmem(*this);
  add_vmem_atomic(*this);
}

void Table::add(std::string_view name, Handler fn, u32 flags, BitRule rule, Handler shadow) {
  static const std::map<std::string_view, Op> by_name = [] {
    std::map<std::string_view, Op> m;
    for (std::size_t i = 0; i < static_cast<std::size_t>(Op::count_); ++i) m.emplace(mnemonic(static_cast<Op>(i)), static_cast<Op>(i));
    return m;
  }();
  const auto at = by_name.find(name);
  if (at != by_name.end()) entries_[static_cast<std::size_t>(at->second)] = {fn, flags, rule, shadow};
}

const Table& table() {
  static const Table t;  // read-only once made
  return t;
}

std::string text_of(const Inst& inst) { return disassemble(inst); }

namespace {

void unimplemented(Wave& w, const Code& c) {
  const std::string& why = w.grid->program->errors[c.index];
  fatal(w, c, "unimplemented", why.empty() ? std::string(mnemonic(c.inst->op)) + " is not implemented with these modifiers or at all" : why);
}

bool any_of(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](auto p) { return name.starts_with(p); });
}

struct Builder {
  Program& program;
  const Options& options;
  u32 agpr_base, rows;
  const std::vector<Stage>& stages;

  int scalar_of(const Operand& o) const {  // unified scalar index, or -1
    using K = flymono::Kind;
    switch (o.kind) {
      case K::sgpr: return o.index;
      case K::vcc: return kVcc + o.hi;
      case K::exec: return kExec + o.hi;
      case K::m0: return kM0;
      case K::ttmp: return kTtmp + o.index;
      default: return -1;
    }
  }

  const u32* spread(u64 value) {
    auto [at, fresh] = program.constant_of.try_emplace(value, nullptr);
    if (fresh) {
      program.constants.push_back(std::make_unique<u32[]>(2 * kLanes));
      u32* k = program.constants.back().get();
      broadcast(k, static_cast<u32>(value));
      broadcast(k + kLanes, static_cast<u32>(value >> 32));
      at->second = k;
    }
    return at->second;
  }

  u64 modified(const Operand& o, u32 sign_bit) const {
    u64 v = o.value;
    if (o.abs) v &= ~(u64{1} << sign_bit);
    if (o.neg) v ^= u64{1} << sign_bit;
    return v;
  }

  Src source(const Operand& o, u32 sign_bit, bool raw) {
    using K = flymono::Kind;
    Src s;
    s.dwords = o.dwords;
    s.sel = o.sel;
    s.neg = o.neg;
    s.abs = o.abs;
    s.sext = o.sext;
    const int scalar = scalar_of(o);
    if (o.kind == K::none) return s;
    if (o.kind == K::vgpr || o.kind == K::agpr) {
      s.kind = Src::vgpr;
      s.index = static_cast<u16>(o.index + (o.kind == K::agpr ? agpr_base : 0));
      s.plain = raw || (!o.neg && !o.abs);
    } else if (scalar >= 0) {
      s.kind = Src::sgpr;
      s.index = static_cast<u16>(scalar);
    } else if (o.kind == K::constant) {
      s.kind = Src::konst;
      s.value = raw ? o.value : modified(o, sign_bit);
      s.k = spread(s.value);
    } else {
      s.kind = Src::special;
      s.special_kind = o.kind;
    }
    return s;
  }

  void use(Code& c, u32 first, u32 count) {
    for (u32 r = first; r < first + count && r < 640; ++r) c.uses[r >> 6] |= u64{1} << (r & 63);
  }
  void reads(Code& c, const Src& s) {
    if (s.kind == Src::vgpr) {
      if (c.vranges < 6) c.vsrc[c.vranges++] = {s.index, s.dwords};
      use(c, s.index, s.dwords);
    } else if (s.kind == Src::sgpr) {
      if (c.sranges < 6) c.ssrc[c.sranges++] = {s.index, s.dwords};
      use(c, 512u + s.index, s.dwords);
    }
  }
  void writes(Code& c, u8 kind, u16 first, u16 count) {
    if (kind == Src::vgpr) c.vdst[c.vdsts++] = {first, count}, use(c, first, count);
    if (kind == Src::sgpr) c.sdst[c.sdsts++] = {first, count}, use(c, 512u + first, count);
  }

  void destination(const Operand& o, u16& index, u8& kind) {
    const Src s = source(o, 31, true);
    kind = static_cast<u8>(s.kind == Src::vgpr || s.kind == Src::sgpr ? s.kind : Src::none);
    index = s.index;
  }

  void scalar_implied(Code& c, std::string_view name) {
    const Enc e = c.inst->enc;
    if (name.starts_with("s_cbranch_vcc")) reads(c, source({.kind = flymono::Kind::vcc, .dwords = 2}, 31, true));
    if (e != Enc::sop1 && e != Enc::sop2 && e != Enc::sopk && e != Enc::sopc) return;
    c.reads_scc = any_of(name, {"s_addc_", "s_subb_", "s_cselect", "s_cmov"});
    c.writes_scc = !any_of(name, {"s_mul", "s_mov", "s_cselect", "s_cmov", "s_bfm", "s_pack", "s_ff", "s_flbit", "s_brev", "s_sext",
                                  "s_bitset", "s_getpc", "s_getreg", "s_setreg", "s_swappc", "s_setpc"});
    if (name.find("saveexec") != name.npos || name.find("wrexec") != name.npos) writes(c, Src::sgpr, kExec, 2);
  }

  void operands(Code& c, const Entry& entry, std::string_view name) {
    const Inst& in = *c.inst;
    const bool mask_only = in.enc == Enc::sopk && name.starts_with("s_cmpk");
    c.sign_bit = entry.flags & kF64 ? 63 : entry.flags & kF16 ? 15 : 31;
    const bool raw = in.enc == Enc::mai || in.enc == Enc::mai_scale || in.sdwa.on;
    // DPP and SDWA wrappers apply the modifiers of what they move themselves
    for (int i = 0; i < 4; ++i) c.src[i] = source(in.src[i], c.sign_bit, raw || (in.dpp.on && i == 0));
    for (int i = 0; i < 2; ++i) c.scale[i] = source(in.scale[i], 31, true);
    destination(in.dst, c.dst, c.dst_kind);
    destination(in.dst2, c.dst2, c.dst2_kind);
    c.dst_dwords = in.dst.kind == flymono::Kind::none ? 0 : in.dst.dwords;
    for (const Src& s : c.src) reads(c, s);
    for (const Src& s : c.scale) reads(c, s);
    const bool keeps = (entry.flags & kReadsDst) || ((entry.flags & kHalfDst) && (in.op_sel & 8)) || (in.sdwa.on && in.sdwa.dst_unused == 2);
    if (keeps && c.dst_kind != Src::none) reads(c, source(in.dst, 31, true));
    if (entry.flags & kReadsVcc) reads(c, source({.kind = flymono::Kind::vcc, .dwords = 2}, 31, true));
    if (c.dst_kind != Src::none && !mask_only) writes(c, c.dst_kind, c.dst, c.dst_dwords);
    if (c.dst2_kind != Src::none) writes(c, c.dst2_kind, c.dst2, in.dst2.dwords);
    if (name.starts_with("v_cmpx")) writes(c, Src::sgpr, kExec, 2);
    if (in.lds) reads(c, source({.kind = flymono::Kind::m0}, 31, true));
    const bool memory = in.enc == Enc::mubuf || in.enc == Enc::global || in.enc == Enc::flat || in.enc == Enc::scratch;
    if (memory && c.dst_kind == Src::vgpr) c.load_class = 1;
    if (in.enc == Enc::ds && c.dst_kind == Src::vgpr) c.load_class = 2;
    scalar_implied(c, name);
  }

  bool fits(const Code& c) const {
    for (int r = 0; r < c.vranges; ++r)
      if (u32{c.vsrc[r].first} + c.vsrc[r].count > rows) return false;
    for (int r = 0; r < c.vdsts; ++r)
      if (u32{c.vdst[r].first} + c.vdst[r].count > rows) return false;
    return true;
  }

  const Code* plain_of(const Code& c, bool scratch_sources, bool scratch_dst) {
    program.plain.push_back(c);
    Code& p = program.plain.back();
    const int sources = c.inst->dpp.on ? 1 : 2;
    for (int i = 0; scratch_sources && i < sources; ++i) {
      if (p.src[i].kind == Src::none) continue;
      const Src old = p.src[i];
      p.src[i] = Src{.kind = Src::vgpr, .plain = true, .dwords = 1, .index = static_cast<u16>(rows + static_cast<u32>(i))};
      if (old.kind == Src::vgpr)  // the marks are read where the value is
        for (int r = 0; r < p.vranges; ++r)
          if (p.vsrc[r].first == old.index) p.vsrc[r] = {p.src[i].index, 1};
      if (old.kind == Src::sgpr && p.vranges < 6) p.vsrc[p.vranges++] = {p.src[i].index, 1};
    }
    if (scratch_dst) {
      p.dst = static_cast<u16>(rows + 2);
      p.vdst[0].first = p.dst;
    }
    return &p;
  }

  void wrap(Code& c) {
    const Inst& in = *c.inst;
    if (!in.dpp.on && !in.sdwa.on && !in.clamp) return;
    const bool part = in.sdwa.on && in.sdwa.dst_sel != 6 && c.dst_kind == Src::vgpr;
    const bool clamp_ok = (c.flags & kClamp) && !in.dpp.on && !in.sdwa.on;
    if ((in.clamp && !clamp_ok) || (part && c.dst_dwords != 1)) {
      c.fn = unimplemented;
      return;
    }
    c.plain = plain_of(c, in.dpp.on || in.sdwa.on, part);
    c.fn = in.dpp.on ? dpp_handler() : in.sdwa.on ? sdwa_handler() : clamp_handler();
    c.shadow = shadow_none;
  }

  Code build(u32 index) {
    const Inst& in = program.insts[index];
    Code c;
    c.inst = &in;
    c.index = index;
    c.next = index + 1;
    const std::string_view name = mnemonic(in.op);
    const Entry& entry = table()[in.op];
    c.fn = entry.fn ? entry.fn : unimplemented;
    c.rule = entry.rule;
    c.flags = entry.flags;
    operands(c, entry, name);
    c.shadow = entry.fn ? shadow_for(in, entry) : shadow_none;
    if (in.omod && in.op != Op::v_bitop3_b32 && in.enc != Enc::vop3p) c.fn = unimplemented, c.shadow = shadow_none;
    if (!program.errors[index].empty() || !fits(c)) {
      if (program.errors[index].empty()) program.errors[index] = "uses a vector register beyond the " + std::to_string(rows) + " that the kernel allocates";
      c.fn = unimplemented;
      c.shadow = shadow_none;
    }
    if (entry.fn && c.fn == entry.fn) wrap(c);
    const auto at = program.index_of.find(in.target);
    c.target = at == program.index_of.end() ? static_cast<u32>(program.insts.size()) : at->second;
    for (std::size_t s = 0; s < stages.size(); ++s)
      if (in.pc >= stages[s].lo && in.pc < stages[s].hi) c.stage = static_cast<u16>(s + 1);
    return c;
  }
};

}  // namespace

Program load(Arch arch, const std::vector<u8>& text) {
  Listing listing = decode_all(arch, text);
  Program program;
  program.insts = std::move(listing.insts);
  program.errors.resize(program.insts.size());
  std::map<u32, std::string> why;
  for (auto& e : listing.errors) why[e.pc] = e.what;
  for (std::size_t i = 0; i < program.insts.size(); ++i)
    if (const auto at = why.find(program.insts[i].pc); at != why.end()) program.errors[i] = at->second;
  return program;
}

void prepare(Program& program, const Options& options, u32 accum_offset, u32 rows, const std::vector<Stage>& stages) {
  program.code.clear();
  program.plain.clear();
  program.errors.resize(program.insts.size());
  program.index_of.clear();
  for (u32 i = 0; i < program.insts.size(); ++i) program.index_of[program.insts[i].pc] = i;
  Builder builder{program, options, accum_offset, rows, stages};
  program.code.reserve(program.insts.size() + 1);
  for (u32 i = 0; i < program.insts.size(); ++i) program.code.push_back(builder.build(i));
}

}  // namespace flymono
