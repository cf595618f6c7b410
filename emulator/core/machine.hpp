// The machine: waves, workgroups, prepared instructions, and what a run records.
//
// Invariants
//  - No global state: a Machine owns memory, options and grids; a Wave reaches everything through its Grid.
//  - A Wave is a resumable interpreter: its whole state is in Wave, so that any scheduler may run it.
//  - Code is an Inst prepared for execution: a handler, resolved operands, register use sets. It is read-only while
//    a grid runs; per-instruction counts live in Grid::counts.
//  - In check mode every register byte and every scalar bit carries an "undefined" mark, and destinations of
//    outstanding loads are in Wave::pend until a wait retires them.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base.hpp"
#include "inst.hpp"
#include "memory.hpp"

namespace flymono {

struct Wave;
struct Code;
struct Grid;
class Machine;
class OutsideWait;
class Roster;
using Handler = void (*)(Wave&, const Code&);
// Undefined bits of a 32-bit result from values and undefined bits of up to three sources (one lane).
using BitRule = u32 (*)(const Code&, const u32 value[3], const u32 undefined[3]);

enum class Mfma : u8 { exact, fma, cdna3, perturb };
enum class Trans : u8 { exact, ulp };
enum class Sampling : u8 { late, early, random };
enum class Order : u8 { linear, reversed, random, starve };

struct Options {
  Arch arch = Arch::gfx942;
  bool check = true;
  u64 seed = 0;
  Order order = Order::linear;
  u32 starved = 0;          // workgroup that runs only when no other can (Order::starve)
  Sampling sampling = Sampling::late;
  Mfma mfma = Mfma::exact;
  Trans trans = Trans::exact;
  u32 quantum = 4096;       // instructions a wave runs before the next one gets its turn
  u32 xcds = 8, xcd_offset = 0;
  u32 idle_rounds = 64;     // rounds without any store, barrier or end before "all waiting"
  bool clock_on_standstill = false;  // then the clock jumps, so that waits bounded by it end, before it is a finding
  u32 max_findings = 20;
  u64 max_instructions = 0; // 0: no limit
  bool lds_race = false;    // report LDS bytes shared between waves without a barrier
  std::vector<u64> roster;  // addresses of the ranks' records (roster.hpp), this one's first; or none
  double patience = 600;    // seconds that a launch waits on external memory while no rank works, before it is a finding
  bool trace_guards = false;  // note which waits retire a load whose register is used before the next wait
};

struct Finding {
  std::string kind, message, kernel, buffer, region, text, other_text;
  i64 workgroup = -1, wave = -1, lane = -1, pc = -1, other_pc = -1;
  u64 count = 1;
};

struct Src {
  enum Kind : u8 { none, vgpr, sgpr, konst, special };
  Kind kind = none;
  bool plain = false;        // a VGPR read as it stands
  u8 dwords = 1, sel = 6;
  bool neg = false, abs = false, sext = false, hi = false;
  flymono::Kind special_kind{};
  u16 index = 0;             // VGPR row, or scalar register
  const u32* k = nullptr;    // constants: 64 lanes of the low dword, then 64 of the high one
  u64 value = 0;
};

struct Range {
  u16 first = 0, count = 0;
};

struct Code {
  Handler fn = nullptr;      // executes
  Handler shadow = nullptr;  // check mode: moves or reports "undefined" marks, before fn
  const Code* plain = nullptr;  // DPP, SDWA, clamp: the same operation on whole registers of the right lanes
  BitRule rule = nullptr;
  const Inst* inst = nullptr;
  u32 index = 0, next = 0, target = 0;
  u16 stage = 0;
  u16 dst = 0, dst2 = 0;     // VGPR row or scalar register
  u8 dst_kind = 0, dst2_kind = 0, dst_dwords = 0, sign_bit = 31;
  u8 vranges = 0, sranges = 0;
  u8 load_class = 0;         // 1: VM load, 2: DS load; such a load may overwrite the result of an older one of its class
  bool reads_scc = false, writes_scc = false;
  Src src[4];
  Src scale[2];
  Range vsrc[6], ssrc[6];    // registers read (rows / scalars), for the marks
  u32 flags = 0;             // Flag bits of the table
  u8 vdsts = 0, sdsts = 0;
  Range vdst[2], sdst[3];    // registers written
  alignas(64) u64 uses[10] = {};  // bits 0..511 VGPR rows, 512..639 scalars: read or written
};

struct ByteMask {
  alignas(32) u64 b[4];      // plane k: lanes whose byte k is undefined
};

// The lanes and addresses of one memory instruction.
struct Span64 {
  u64 mask = 0, zero = 0;    // lanes that access memory; active lanes out of range, which load 0
  bool outside = false;      // some lane is in an external buffer
  bool contiguous = false;   // all 64 lanes, each right behind the one before
  u32 lds_base = 0;          // loads to LDS: where lane 0 goes
  alignas(64) u64 address[kLanes];
};
using LoadFn = void (*)(Wave&, const Code&, const Span64&);

// A memory operation that no wait has retired yet.
struct Pending {
  enum Class : u8 { vm, ds, smem };
  Class cls = vm;
  u8 weight = 1;             // counter steps
  u8 bytes = 0;              // LDS writes: bytes a lane, with their addresses in `lanes`
  u16 first = 0, count = 0;  // destination registers: VGPR rows, or 512 + scalar
  u32 code = 0, seq = 0;
  LoadFn load = nullptr;     // set while the value has not been sampled
  std::unique_ptr<Span64> lanes;
};

// An LDS write that was outstanding when its wave arrived at the last barrier: other waves must not read it yet.
struct EarlyWrite {
  u32 code = 0, bytes = 0;
  u64 mask = 0;
  u32 at[kLanes];
};

enum class State : u8 { running, sleeping, barrier, done };

struct Workgroup {
  u32 id = 0, live = 0, arrived = 0, epoch = 0, xcc = 0;
  u32 early_writes = 0;                // entries of Wave::early in all its waves
  std::vector<u8> lds;
  std::vector<u64> lds_undefined;      // one bit a byte
  std::vector<u32> lds_writer, lds_reader;  // per dword: epoch << 8 | wave + 1 (lds_race)
  Wave* waves = nullptr;
};

struct Wave {
  alignas(64) u32 s[kScalars] = {};
  u32* v = nullptr;          // rows of 64 lanes; the last kScratchRows are the interpreter's own
  ByteMask* vund = nullptr;
  u32 rows = 0, scc = 0, ip = 0;
  State state = State::running;
  u8 id = 0;
  u16 stage = 0xffff;
  u32 agpr_base = 0;
  Workgroup* wg = nullptr;
  Grid* grid = nullptr;
  // check mode
  bool any_pend = false, scc_und = false;
  u32 sund[kScalars] = {};
  alignas(64) u64 pend[10] = {};
  std::vector<u32> owner;    // seq of the load that owns a pending register
  std::deque<Pending> vm, lgkm;
  std::vector<EarlyWrite> early;
  u32 lgkm_count = 0, unordered = 0, next_seq = 1, deferred = 0;
  bool waiting = false, any_guarded = false;  // trace_guards: inside a wait; registers that the last wait retired
  u64 guarded[10] = {};
  u32 guard_code = 0;
  u32 wide_store = 0xffffffff;  // ip after a >64-bit store without soffset: its data is still being read
  Range wide_data;
  // what it does, for reports and the scheduler
  bool check = false, stored_outside = false;  // a store to external memory that no wait has followed
  u64 executed = 0, turn_start = 0, seen_stores = 0, poll_address = 0, sleeps = 0;
  u32 poll_code = 0, sleep_code = 0;

  u64 exec() const { return *reinterpret_cast<const u64_alias*>(s + kExec); }
  void set_exec(u64 x) { *reinterpret_cast<u64_alias*>(s + kExec) = x; }
  u64 vcc() const { return *reinterpret_cast<const u64_alias*>(s + kVcc); }
  void set_vcc(u64 x) { *reinterpret_cast<u64_alias*>(s + kVcc) = x; }
  u64 pair(int i) const { u64 x; std::memcpy(&x, s + i, 8); return x; }
  void set_pair(int i, u64 x) { std::memcpy(s + i, &x, 8); }
  u32* row(u32 r) { return v + std::size_t{r} * kLanes; }
};
inline constexpr u32 kScratchRows = 4;

struct Program {
  std::vector<Inst> insts;
  std::vector<std::string> errors;     // per instruction: why it did not decode, or empty
  std::vector<Code> code;
  std::deque<Code> plain;              // what Code::plain points to
  std::vector<std::unique_ptr<u32[]>> constants;
  std::map<u64, const u32*> constant_of;
  std::map<u32, u32> index_of;         // pc -> index
  u32 max_vgpr = 0, max_agpr = 0;      // highest register used + 1
};

struct Stage {
  std::string name;
  u32 lo = 0, hi = 0;
};

struct Span {                // of one workgroup in one stage, in machine ticks
  u64 first = 0, last = 0, instructions = 0;
};

struct Grid {
  Machine* machine = nullptr;
  std::string kernel;
  u32 rank = 0;
  Grid* after = nullptr;               // the launch before on this rank
  Program* program = nullptr;
  u32 workgroups = 0, waves_per_group = 1, lds_bytes = 0;
  std::vector<Stage> stages;
  std::vector<u64> counts;             // executions per instruction
  std::vector<Buffer*> site;           // buffer an instruction hit last
  std::vector<bool> guards;            // trace_guards: waits that guarded a use
  std::vector<Span> spans;             // [workgroup][stage]
  std::vector<std::unique_ptr<Workgroup>> groups;
  std::vector<Wave> waves;
  std::vector<u32> order;
  u32* registers = nullptr;            // all VGPR rows of all waves
  ZeroPages storage, marks;
  std::vector<std::unique_ptr<Span64>> spare;  // recycled Pending::lanes
};

struct LaunchSpec {
  std::string kernel;
  u32 rank = 0;                        // launches of one rank run one after the other, ranks side by side
  u32 entry = 0;                       // index of the first instruction
  u32 workgroups = 1, workitems = 64, lds_bytes = 0, vgprs = 256, accum_offset = 256;
  u64 kernarg = 0;
  std::vector<Stage> stages;
  // kernel descriptor: user SGPR layout
  bool dispatch_ptr = false, queue_ptr = false, kernarg_ptr = true, dispatch_id = false, private_size = false;
  u32 preload_dwords = 0, preload_offset = 0;
  bool id_x = true, id_y = false, id_z = false, info = false;
};

class Machine {
 public:
  explicit Machine(Options o);
  ~Machine();
  Options options;
  Memory memory;
  Random random;
  std::vector<Finding> findings;
  u64 ticks = 0, stores = 0, clock_skip = 0, dropped_findings = 0;
  u64 outside_loads = 0;               // loads from external memory
  std::optional<u64> held_clock;       // the clock while it is not driven by instructions
  bool stop = false;
  std::function<void(u64)> progress;   // called now and then with executed instructions; may throw to stop

  Grid& add_grid(Program& program, const LaunchSpec& spec);
  void run();                          // until every wave of every grid has ended or `stop`
  void report(Finding f, bool fatal = false);
  std::vector<std::unique_ptr<Grid>> grids;

 private:
  bool round(Grid& grid, bool wake_all);
  std::vector<Grid*> active() const;   // grids that run now: the first unfinished one of each rank
  bool jump_clock();                   // at a standstill. False: waits are not bounded by the clock
  void report_waiting(Grid& grid);
  void visit_order(Grid& grid);
  u32 burst();
  void moved();
  void wait_outside(const std::vector<Grid*>& now);
  void report_gone();
  void report_patience();
  std::unique_ptr<Roster> roster_;
  u64 beaten_ = 0;                     // stores at the last beat
  std::unique_ptr<OutsideWait> outside_;
  u32 jumps_ = 0;                      // of the clock, since the last progress
};

// Interpreter: at most `budget` instructions, or until the wave yields.
void run_wave(Wave& wave, u32 budget);

// A finding at the current instruction of a wave.
void report(Wave& w, const Code& c, const char* kind, std::string message, int lane = -1, i64 other = -1, u64 address = 0);
void fatal(Wave& w, const Code& c, const char* kind, std::string message);
std::string hex(u64 value);
std::string text_of(const Inst& inst);

// Decodes all of .text; what does not decode is an error only where it is executed.
Program load(Arch arch, const std::vector<u8>& text);

// Prepares every instruction of a program for a kernel with this accum_offset.
// `rows` VGPR rows exist; the interpreter's scratch rows follow them.
void prepare(Program& program, const Options& options, u32 accum_offset, u32 rows, const std::vector<Stage>& stages);

}  // namespace flymono
