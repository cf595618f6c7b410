// Waves of all workgroups take turns; everything is resident, nothing is preempted for ever.
//
// Invariants
//  - A wave that sleeps runs again when anything was stored since it last looked at memory; when nobody can run, all
//    sleepers run for `idle_rounds` rounds, and then the grid is stuck: that is a finding, not a hang.
//  - With `clock_on_standstill` a stuck grid's clock jumps first, each time twice as far, until something happens.
//  - The order of turns is a function of options and seed only.
//  - While a launch only polls external memory, its clock is held: it goes on with real time if no rank has work, and
//    stands still while one has. Such a launch is not stuck; it ends when a rank is gone, or nobody works for `patience`.
#include <algorithm>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "machine.hpp"
#include "roster.hpp"

namespace flymono {
namespace {

constexpr u64 kPolls = 8;                   // rounds of nothing but polls of external memory before the thread yields
constexpr double kTicksPerSecond = 21e8;    // of the core clock, 21 for one of the 100 MHz clock
constexpr u32 kFirstJump = 24, kJumps = 34;  // 2^24 ticks of the 100 MHz clock (0.2 s); 90 years in all
constexpr u64 kSpinLimit = 400'000'000;  // instructions without any store, barrier or end: a spin without sleep

void give_registers(Grid& g, u32 rows, bool check) {
  const std::size_t per_wave = std::size_t{rows + kScratchRows} * kLanes, waves = g.waves.size();
  g.storage = ZeroPages(per_wave * waves * sizeof(u32));
  g.registers = static_cast<u32*>(g.storage.get());
  ByteMask* marks = nullptr;
  if (check) {
    const std::size_t n = (rows + kScratchRows) * waves;
    g.marks = ZeroPages(n * sizeof(ByteMask));
    marks = static_cast<ByteMask*>(g.marks.get());
    std::fill(marks, marks + n, ByteMask{{kAllLanes, kAllLanes, kAllLanes, kAllLanes}});
  }
  for (std::size_t i = 0; i < waves; ++i) {
    g.waves[i].v = g.registers + per_wave * i;
    g.waves[i].rows = rows;
    if (check) g.waves[i].vund = marks + (rows + kScratchRows) * i;
  }
}

// Initial scalars in the order of the launch ABI: user SGPRs, then workgroup ids.
void set_scalars(Wave& w, const LaunchSpec& s, u32 group) {
  u32 at = 0;
  auto put = [&](u32 value) {
    w.s[at] = value;
    w.sund[at++] = 0;
  };
  auto put64 = [&](u64 value) {
    put(static_cast<u32>(value));
    put(static_cast<u32>(value >> 32));
  };
  if (s.dispatch_ptr) put64(0);
  if (s.queue_ptr) put64(0);
  if (s.kernarg_ptr) put64(s.kernarg);
  if (s.dispatch_id) put64(0);
  if (s.private_size) put(0);
  for (u32 i = 0; i < s.preload_dwords; ++i) {
    u32 value;
    std::memcpy(&value, reinterpret_cast<const void*>(s.kernarg + 4 * (s.preload_offset + i)), 4);
    put(value);
  }
  if (s.id_x) put(group);
  if (s.id_y) put(0);
  if (s.id_z) put(0);
  if (s.info) put(0);
}

}  // namespace

Machine::Machine(Options o)
    : options(std::move(o)), random{options.seed * 0x9E3779B97F4A7C15ull + 1}, outside_(std::make_unique<OutsideWait>()) {
  if (!options.roster.empty()) roster_ = std::make_unique<Roster>(options.roster);
}

Machine::~Machine() = default;

Grid& Machine::add_grid(Program& program, const LaunchSpec& s) {
  auto owned = std::make_unique<Grid>();
  Grid& g = *owned;
  g.machine = this;
  g.kernel = s.kernel;
  g.rank = s.rank;
  for (auto& before : grids)
    if (before->rank == s.rank) g.after = before.get();
  g.program = &program;
  g.workgroups = s.workgroups;
  g.waves_per_group = (s.workitems + kLanes - 1) / kLanes;
  g.lds_bytes = s.lds_bytes;
  g.stages = s.stages;
  g.counts.assign(program.code.size() + 1, 0);
  g.guards.assign(program.code.size(), false);
  g.site.assign(program.code.size() + 1, nullptr);
  g.spans.assign(std::size_t{s.workgroups} * (s.stages.size() + 1), Span{});
  g.waves = std::vector<Wave>(std::size_t{s.workgroups} * g.waves_per_group);
  give_registers(g, s.vgprs, options.check);
  for (u32 id = 0; id < s.workgroups; ++id) {
    g.groups.push_back(std::make_unique<Workgroup>());
    Workgroup& wg = *g.groups.back();
    wg.id = id;
    wg.live = g.waves_per_group;
    wg.xcc = options.xcds ? (id + options.xcd_offset) % options.xcds : 0;
    wg.lds.assign(s.lds_bytes, 0);
    wg.waves = &g.waves[std::size_t{id} * g.waves_per_group];
    if (options.check) {
      wg.lds_undefined.assign(s.lds_bytes / 64 + 2, kAllLanes);
      if (options.lds_race) wg.lds_writer.assign(s.lds_bytes / 4 + 1, 0), wg.lds_reader.assign(s.lds_bytes / 4 + 1, 0);
    }
    for (u32 i = 0; i < g.waves_per_group; ++i) {
      Wave& w = wg.waves[i];
      w.grid = &g;
      w.wg = &wg;
      w.id = static_cast<u8>(i);
      w.ip = s.entry;
      w.check = options.check;
      w.agpr_base = s.accum_offset;
      if (options.check) {
        w.owner.assign(640, 0);
        std::fill(std::begin(w.sund), std::end(w.sund), ~0u);
        w.sund[kExec] = w.sund[kExec + 1] = 0;
        w.scc_und = true;
      }
      const u32 here = std::min<u32>(kLanes, s.workitems - i * kLanes);
      w.set_exec(here == kLanes ? kAllLanes : (u64{1} << here) - 1);
      set_scalars(w, s, id);
      for (u32 lane = 0; lane < kLanes; ++lane) w.v[lane] = i * kLanes + lane;  // v0: work-item id x
      if (options.check) w.vund[0] = ByteMask{};
    }
  }
  for (u32 i = 0; i < s.workgroups; ++i) g.order.push_back(i);
  if (options.order == Order::reversed) std::reverse(g.order.begin(), g.order.end());
  grids.push_back(std::move(owned));
  return g;
}

void Machine::visit_order(Grid& g) {
  if (options.order != Order::random) return;
  for (std::size_t i = g.order.size(); i > 1; --i) std::swap(g.order[i - 1], g.order[random.below(i)]);
}

// Bursts of all lengths: short ones find races between neighbours, long ones those between distant places.
u32 Machine::burst() {
  const u64 longest = std::min<u64>(options.quantum, u64{1} << random.below(13));
  return 1 + static_cast<u32>(random.below(longest));
}

// One turn for everybody who can run. True: somebody did.
bool Machine::round(Grid& g, bool wake_all) {
  visit_order(g);
  bool ran = false;
  const bool shuffled = options.order == Order::random;
  for (u32 id : g.order) {
    if (options.order == Order::starve && id == options.starved && !wake_all) continue;
    Workgroup& wg = *g.groups[id];
    if (roster_ && stores != beaten_) roster_->beat(), beaten_ = stores;
    // A workgroup keeps its turn while its own waves pass barriers: good for locality, and any order is legal.
    for (int pass = 0; pass < (shuffled ? 1 : 16) && wg.live; ++pass) {
      bool here = false;
      const u32 first = shuffled ? static_cast<u32>(random.below(g.waves_per_group)) : 0;
      for (u32 k = 0; k < g.waves_per_group; ++k) {
        Wave& w = wg.waves[(first + k) % g.waves_per_group];
        if (w.state == State::sleeping && (stores != w.seen_stores || (wake_all && pass == 0))) w.state = State::running;
        if (w.state != State::running) continue;
        run_wave(w, shuffled ? burst() : options.quantum);
        here = true;
        if (stop) return true;
      }
      ran |= here;
      if (!here) break;
    }
  }
  return ran;
}

namespace {
bool finished(const Grid& g) {
  return std::all_of(g.groups.begin(), g.groups.end(), [](const auto& wg) { return wg->live == 0; });
}
}  // namespace

std::vector<Grid*> Machine::active() const {
  std::vector<Grid*> now;
  for (const auto& g : grids)
    if (!finished(*g) && (!g->after || finished(*g->after))) now.push_back(g.get());
  return now;
}

bool Machine::jump_clock() {
  if (!options.clock_on_standstill || jumps_ == kJumps) return false;
  (held_clock ? *held_clock : clock_skip) += u64{21} << (kFirstJump + jumps_++);
  return true;
}

// Something happened: time goes on where it stopped, and others see that this rank works.
void Machine::moved() {
  if (held_clock) clock_skip = *held_clock - ticks;
  held_clock.reset();
  outside_->end();
  if (roster_) roster_->beat();
}

// A turn in which all that ran were polls of external memory.
void Machine::wait_outside(const std::vector<Grid*>& now) {
  if (!held_clock) held_clock = ticks + clock_skip;
  outside_->begin();
  outside_->pause();
  const double passed = outside_->due();
  if (passed == 0) return;
  if (progress) progress(ticks);
  const Roster::Peers peers = roster_ ? roster_->look() : Roster::Peers::resting;
  if (peers == Roster::Peers::working) return;
  if (peers == Roster::Peers::resting) *held_clock += static_cast<u64>(passed * kTicksPerSecond);
  outside_->resting += passed;
  // A rank that is gone may have stored its last after the polls before this look; what is missing at the next one too
  // will never come.
  const bool gone = peers == Roster::Peers::gone;
  if (gone ? ++outside_->gone == 1 : outside_->resting <= options.patience) return;
  if (jump_clock()) return;
  gone ? report_gone() : report_patience();
  for (Grid* g : now) report_waiting(*g);
}

void Machine::report_gone() {
  Finding f;
  f.kind = "rank-gone";
  f.message = "rank " + std::to_string(roster_->gone()) + " (process " + std::to_string(roster_->gone_pid()) + ") has ended, and this launch waits for it";
  report(std::move(f), true);
}

void Machine::report_patience() {
  Finding f;
  f.kind = "all-resting";
  f.message = "waits on memory of other ranks for " + std::to_string(static_cast<u64>(outside_->resting)) + " s in which no rank had work";
  report(std::move(f), true);
}

void Machine::run() {
  u64 last_outside = 0, idle = 0, quiet_rounds = 0, last_stores = 0, last_passed = 0, quiet_since = ticks, shown = 0;
  while (!stop) {
    bool ran = false;
    const std::vector<Grid*> now = active();
    if (now.empty()) return;
    // A starved workgroup also gets its turn when the others run but get nowhere: they may spin on it without sleeping.
    const bool wake = options.order == Order::starve && quiet_rounds > 4;
    // A random schedule lets ranks drift apart, up to a whole launch where the kernels admit it.
    for (Grid* g : now)
      if (options.order != Order::random || now.size() == 1 || random.next() & 1) ran |= round(*g, wake);
    if (stop) return;
    u64 passed = 0;
    for (auto& g : grids)
      for (auto& wg : g->groups) passed += wg->epoch + (g->waves_per_group - wg->live);
    if (stores != last_stores || passed != last_passed) idle = 0, quiet_rounds = 0, quiet_since = ticks, jumps_ = 0, moved();
    else ++quiet_rounds;
    const bool polled = outside_loads != last_outside;
    last_outside = outside_loads;
    if (polled && quiet_rounds > kPolls) {
      wait_outside(now);
      if (stop) return;
      quiet_since = ticks;
    }
    last_stores = stores;
    last_passed = passed;
    if (!ran) {
      bool busy = false;  // a starved workgroup that is not waiting, only slow
      for (Grid* g : now)
        for (const Wave& w : g->waves) busy |= w.state == State::running;
      if (!busy && !polled && ++idle > options.idle_rounds) {
        if (!jump_clock()) {
          for (Grid* g : now) report_waiting(*g);
          return;
        }
        idle = 0, quiet_since = ticks;
      }
      if (!held_clock) clock_skip += 64;
      for (Grid* g : now) ran |= round(*g, true);
    }
    if (!ran || ticks - quiet_since > kSpinLimit) {
      for (Grid* g : now) report_waiting(*g);
      return;
    }
    if (options.max_instructions && ticks > options.max_instructions) {
      Finding f;
      f.kind = "budget";
      f.message = "stopped after " + std::to_string(ticks) + " instructions (the limit of this launch)";
      return report(std::move(f), true);
    }
    if (progress && ticks - shown > 2'000'000) progress(shown = ticks);
  }
}

// Every waiting wave, grouped by where it waits and what it polls.
void Machine::report_waiting(Grid& g) {
  struct Where {
    State state;
    u32 code, poll;
    u64 address;
    auto operator<=>(const Where&) const = default;
  };
  std::map<Where, std::vector<const Wave*>> where;
  for (const Wave& w : g.waves) {
    if (w.state == State::done) continue;
    const bool barrier = w.state == State::barrier;
    where[{w.state, barrier ? w.poll_code : w.ip ? w.ip - 1 : 0, w.poll_code, barrier ? 0 : w.poll_address}].push_back(&w);
  }
  u32 listed = 0;
  for (const auto& [at, waves] : where) {
    Finding f;
    f.kind = "all-waiting";
    f.kernel = g.kernel;
    f.workgroup = waves[0]->wg->id;
    f.wave = waves[0]->id;
    f.pc = g.program->insts[at.code].pc;
    f.text = text_of(g.program->insts[at.code]);
    f.count = waves.size();
    f.message = std::to_string(waves.size()) + (at.state == State::barrier ? " waves wait at a barrier" : at.state == State::sleeping
                ? " waves sleep in a poll" : " waves spin");
    if (at.address) {
      f.other_pc = g.program->insts[at.poll].pc;
      f.other_text = text_of(g.program->insts[at.poll]);
      f.message += " on address " + hex(at.address);
      if (const Buffer* b = memory.find(at.address, at.address + 1)) {
        f.buffer = b->name;
        f.message += " = " + b->name + " + " + std::to_string(at.address - b->lo);
        if (const Region* r = b->region(at.address)) {
          f.region = r->label;
          f.message += " (" + r->label + " + " + std::to_string(at.address - b->lo - r->offset) + ")";
        }
      }
    }
    f.message += "; waves";
    std::string names;
    for (std::size_t i = 0; i < waves.size() && i < 16; ++i)
      names += " " + std::to_string(waves[i]->wg->id) + "." + std::to_string(waves[i]->id);
    f.message += names + (waves.size() > 16 ? " ..." : "");
    if (++listed <= 64) findings.push_back(std::move(f));
    else ++dropped_findings;
  }
  stop = true;
}

void Machine::report(Finding f, bool fatal) {
  stop |= fatal;
  for (Finding& old : findings)
    if (old.kind == f.kind && old.pc == f.pc && old.other_pc == f.other_pc) {
      ++old.count;
      return;
    }
  if (findings.size() >= options.max_findings) {
    ++dropped_findings;
    stop = true;  // what follows is most likely a consequence
    return;
  }
  findings.push_back(std::move(f));
}

}  // namespace flymono
