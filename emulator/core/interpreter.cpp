// The inner loop of a wave, and findings.
#include <algorithm>

#include "async.hpp"
#include "shadow.hpp"

namespace flymono {
namespace {

u64 now(const Wave& w) { return w.grid->machine->ticks + (w.executed - w.turn_start); }

Span& span_of(Wave& w) { return w.grid->spans[std::size_t{w.wg->id} * (w.grid->stages.size() + 1) + w.stage]; }

void enter_stage(Wave& w, u16 stage) {
  if (w.stage != 0xffff) span_of(w).last = std::max(span_of(w).last, now(w));
  w.stage = stage;
  Span& s = span_of(w);
  if (!s.first) s.first = now(w) + 1;  // ticks count from 1 so that 0 means never
}

// A store of more than 64 bits reads its data one instruction longer than it issues.
void check_wide_store(Wave& w, const Code& c) {
  w.wide_store = 0xffffffff;
  const bool valu = c.inst->enc >= Enc::vop1 && c.inst->enc <= Enc::mai_scale;
  for (int r = 0; valu && r < c.vdsts; ++r)
    if (c.vdst[r].first < w.wide_data.first + w.wide_data.count && w.wide_data.first < c.vdst[r].first + c.vdst[r].count)
      report(w, c, "store-data-hazard", "overwrites v" + std::to_string(c.vdst[r].first) + " while the wide store before still reads it",
             -1, w.grid->program->code[c.index ? c.index - 1 : 0].inst->pc);
}

inline bool touches(const Wave& w, const Code& c) {
  u64 hit = 0;
  for (int i = 0; i < 10; ++i) hit |= w.pend[i] & c.uses[i];
  return hit != 0;
}

// A younger load of the same class may overwrite an older one's register unwaited, so loads prove nothing.
void note_guard(Wave& w, const Code& c) {
  if (c.load_class) return;
  u64 hit = 0;
  for (int i = 0; i < 10; ++i) hit |= w.guarded[i] & c.uses[i];
  if (!hit) return;
  w.grid->guards[w.guard_code] = true;
  w.any_guarded = false;
}

template <bool Check>
void loop(Wave& w, u32 budget) {
  Grid& g = *w.grid;
  const Code* code = g.program->code.data();
  const u32 size = static_cast<u32>(g.program->code.size());
  u64* counts = g.counts.data();
  const bool& stop = g.machine->stop;
  while (budget-- && w.state == State::running && !stop) {
    if (w.ip >= size) [[unlikely]] {
      Finding f;
      f.kind = "ran-off";
      f.message = "execution left the code (a branch target or a missing s_endpgm)";
      f.workgroup = w.wg->id;
      f.wave = w.id;
      g.machine->report(std::move(f), true);
      return;
    }
    const Code& c = code[w.ip];
    ++counts[w.ip];
    if (c.stage != w.stage) [[unlikely]] enter_stage(w, c.stage);
    if constexpr (Check) {
      if (w.any_pend && touches(w, c)) [[unlikely]] touch_pending(w, c);
      if (w.any_guarded) [[unlikely]] note_guard(w, c);
      if (w.wide_store == w.ip) [[unlikely]] check_wide_store(w, c);
      c.shadow(w, c);
    }
    w.ip = c.next;
    ++w.executed;
    c.fn(w, c);
  }
}

}  // namespace

void run_wave(Wave& w, u32 budget) {
  w.turn_start = w.executed;
  w.check ? loop<true>(w, budget) : loop<false>(w, budget);
  if (w.stage != 0xffff) span_of(w).last = std::max(span_of(w).last, now(w));
  w.grid->machine->ticks += w.executed - w.turn_start;
}

std::string hex(u64 value) {
  static const char* digits = "0123456789abcdef";
  std::string s;
  do s.insert(s.begin(), digits[value & 15]);
  while (value >>= 4);
  return "0x" + s;
}

static Finding located(Wave& w, const Code& c, const char* kind, std::string message) {
  Finding f;
  f.kind = kind;
  f.message = std::move(message);
  f.kernel = w.grid->kernel;
  f.workgroup = w.wg->id;
  f.wave = w.id;
  f.pc = c.inst->pc;
  f.text = text_of(*c.inst);
  return f;
}

void report(Wave& w, const Code& c, const char* kind, std::string message, int lane, i64 other, u64 address) {
  Finding f = located(w, c, kind, std::move(message));
  f.lane = lane;
  f.other_pc = other;
  const Program& p = *w.grid->program;
  if (const auto at = p.index_of.find(static_cast<u32>(other)); other >= 0 && at != p.index_of.end())
    f.other_text = text_of(p.insts[at->second]);
  if (address) {
    if (const Buffer* b = w.grid->machine->memory.nearest(address)) {
      f.buffer = b->name;
      const bool inside = address >= b->lo && address < b->hi;
      if (const Region* r = inside ? b->region(address) : nullptr) f.region = r->label;
      const u64 off = address >= b->lo ? address - b->lo : b->lo - address;
      f.message += "; " + std::string(inside ? "at byte " : "nearest buffer: ") + (inside ? std::to_string(off) + " of " + b->name
                   : b->name + " (" + std::to_string(b->hi - b->lo) + " bytes), " + std::to_string(off) + " bytes " +
                     (address >= b->lo ? "behind" : "before") + " its start");
    }
  }
  w.grid->machine->report(std::move(f));
}

void fatal(Wave& w, const Code& c, const char* kind, std::string message) {
  w.state = State::done;
  w.grid->machine->report(located(w, c, kind, std::move(message)), true);
}

}  // namespace flymono
