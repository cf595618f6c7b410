// Branches, waits, barriers, sleep, end of program, hardware registers, clocks and scalar loads.
#include <algorithm>

#include "async.hpp"
#include "ds.hpp"
#include "lanes.hpp"
#include "outside.hpp"

namespace flymono {
namespace {

#define OP(name, body) t.add(#name, [](Wave& w, const Code& c) { (void)w; (void)c; body })

// Deterministic clocks: a core clock of one tick an executed instruction of the machine (plus skipped sleep), and the
// 100 MHz one at 1/21 of it.
u64 core_clock(const Wave& w) {
  const Machine& m = *w.grid->machine;
  if (m.held_clock) return *m.held_clock;
  return m.ticks + m.clock_skip + (w.executed - w.turn_start);
}

u32 hwreg(Wave& w, u32 id) {
  switch (id) {
    case 1: return 0xf0u | 1u << 8 | 1u << 9;  // MODE: round 0, denorm 3/3, DX10_CLAMP, IEEE
    case 2: return 0;                          // STATUS
    case 3: return 0;                          // TRAPSTS
    case 4: return w.id;                       // HW_ID: wave number only
    case 20: return w.wg->xcc;
    default: return 0xffffffff;
  }
}

void getreg(Wave& w, const Code& c) {
  const u32 word = static_cast<u32>(c.inst->imm), id = word & 63, offset = word >> 6 & 31, size = (word >> 11 & 31) + 1;
  if (id != 1 && id != 2 && id != 3 && id != 4 && id != 20)
    return fatal(w, c, "unimplemented", "s_getreg of hardware register " + std::to_string(id));
  const u32 mask = size == 32 ? ~0u : (1u << size) - 1;
  w.s[c.dst] = hwreg(w, id) >> offset & mask;
}

void setreg(Wave& w, const Code& c) {  // accepted where it changes nothing: the modes that the kernels start with
  const u32 word = static_cast<u32>(c.inst->imm), id = word & 63, offset = word >> 6 & 31, size = (word >> 11 & 31) + 1;
  const u32 mask = size == 32 ? ~0u : (1u << size) - 1;
  if (id != 1 || (s32(w, c, 0) & mask) != (hwreg(w, id) >> offset & mask))
    fatal(w, c, "unimplemented", "s_setreg that changes hardware register " + std::to_string(id));
}

void leave_barrier(Wave& w) {
  Workgroup& g = *w.wg;
  if (!g.live || g.arrived < g.live) return;
  g.arrived = 0;
  ++g.epoch;
  for (u32 i = 0; i < w.grid->waves_per_group; ++i)
    if (g.waves[i].state == State::barrier) g.waves[i].state = State::running;
}

void barrier(Wave& w, const Code& c) {
  w.poll_code = c.index;
  w.state = State::barrier;
  if (w.check) note_early_writes(w);
  ++w.wg->arrived;
  leave_barrier(w);
}

void end(Wave& w, const Code&) {
  w.state = State::done;
  --w.wg->live;
  leave_barrier(w);
}

// From here on only what this wait retires is guarded by it: an older wait's registers would be retired here anyway.
void begin_guarding(Wave& w, const Code& c) {
  std::fill(std::begin(w.guarded), std::end(w.guarded), 0);
  w.guard_code = c.index;
  w.any_guarded = true;
}

void waitcnt(Wave& w, const Code& c) {
  const u32 imm = static_cast<u32>(c.inst->imm);
  if (w.stored_outside && ((imm & 15) | (imm >> 14 & 3) << 4) != 63) settle_outside(w);
  if (!w.check) return;
  const u32 vm = (imm & 15) | (imm >> 14 & 3) << 4, lgkm = imm >> 8 & 15;
  w.waiting = w.grid->machine->options.trace_guards;
  if (w.waiting) begin_guarding(w, c);
  if (vm != 63) wait_vm(w, vm);
  if (lgkm != 15) wait_lgkm(w, lgkm);
  w.waiting = false;
}

void sleep(Wave& w, const Code& c) {
  w.sleep_code = c.index;
  w.sleeps = static_cast<u64>(c.inst->imm & 127) * 64;
  w.state = State::sleeping;
}

void trap(Wave& w, const Code& c) {
  fatal(w, c, "trap", "s_trap " + std::to_string(c.inst->imm & 255) + ": the kernel gave up by itself");
}

void jump(Wave& w, const Code& c, u64 address) {
  // Program counters are offsets from the start of .text; s_getpc hands out such offsets.
  const auto at = w.grid->program->index_of.find(static_cast<u32>(address));
  if (address >> 32 || at == w.grid->program->index_of.end())
    return fatal(w, c, "bad-jump", "jump to " + hex(address) + ", which is no instruction of this code object");
  w.ip = at->second;
}

void scalar_result(Wave& w, const Code& c, u32 dwords, u32 weight) {
  if (!w.check) return;
  for (u32 i = 0; i < dwords; ++i) w.sund[c.dst + i] = 0;
  Pending p;
  p.cls = Pending::smem;
  p.weight = static_cast<u8>(weight);
  p.first = static_cast<u16>(512 + c.dst);
  p.count = static_cast<u16>(dwords);
  issue(w, c, std::move(p));
}

void load_scalars(Wave& w, const Code& c, u64 address, u32 dwords) {
  Grid& g = *w.grid;
  address &= ~u64{3};
  const u64 bytes = u64{dwords} * 4;
  Buffer* b = g.site[c.index];
  if (!b || address < b->lo || address + bytes > b->hi) b = g.site[c.index] = g.machine->memory.find(address, address + bytes);
  if (b) {
    if (b->external) outside::load(w.s + c.dst, address, static_cast<u32>(bytes)), ++g.machine->outside_loads;
    else std::memcpy(w.s + c.dst, reinterpret_cast<const void*>(address), bytes);
    b->traffic.requested[0][0] += bytes;
    b->traffic.accesses[0][0] += 1;
    b->mark(false, address, bytes);
  } else {
    report(w, c, "out-of-bounds", "scalar load of " + std::to_string(bytes) + " bytes at " + hex(address), -1, -1, address);
    std::memset(w.s + c.dst, 0, bytes);
  }
  w.poll_address = address;
  w.poll_code = c.index;
  w.seen_stores = g.machine->stores;
  scalar_result(w, c, dwords, dwords == 1 ? 1 : 2);
}

template <u32 N>
void s_load(Wave& w, const Code& c) {
  const u64 base = s64(w, c, 2);
  const u64 offset = c.src[3].kind == Src::none ? 0 : s32(w, c, 3);
  load_scalars(w, c, base + offset + static_cast<u64>(i64{c.inst->imm}), N);
}

template <u32 N>
void s_buffer_load(Wave& w, const Code& c) {
  const u32 r = c.src[2].index;
  const u64 base = (u64{w.s[r + 1] & 0xffffu} << 32) | w.s[r];
  const u32 stride = w.s[r + 1] >> 16 & 0x3fff;
  const u64 limit = u64{w.s[r + 2]} * (stride ? stride : 1);
  const u64 offset = (c.src[3].kind == Src::none ? 0 : s32(w, c, 3)) + static_cast<u64>(i64{c.inst->imm});
  if (offset + 4 * N <= limit) return load_scalars(w, c, base + offset, N);
  if (offset < limit) return fatal(w, c, "unimplemented", "scalar buffer load that is partly out of range");
  std::memset(w.s + c.dst, 0, 4 * N);
  scalar_result(w, c, N, N == 1 ? 1 : 2);
}

template <bool Real>
void clock64(Wave& w, const Code& c) {
  w.set_pair(c.dst, Real ? core_clock(w) / 21 : core_clock(w));
  scalar_result(w, c, 2, 2);
}

void nothing(Wave&, const Code&) {}

}  // namespace

u32 special_scalar(const Wave& w, flymono::Kind kind) {
  switch (kind) {
    case flymono::Kind::scc: return w.scc;
    case flymono::Kind::vccz: return w.vcc() == 0;
    case flymono::Kind::execz: return w.exec() == 0;
    default: return 0;
  }
}

void add_salu_control(Table& t) {
  OP(s_branch, w.ip = c.target;);
  OP(s_cbranch_scc0, if (!w.scc) w.ip = c.target;);
  OP(s_cbranch_scc1, if (w.scc) w.ip = c.target;);
  OP(s_cbranch_vccz, if (!w.vcc()) w.ip = c.target;);
  OP(s_cbranch_vccnz, if (w.vcc()) w.ip = c.target;);
  OP(s_cbranch_execz, if (!w.exec()) w.ip = c.target;);
  OP(s_cbranch_execnz, if (w.exec()) w.ip = c.target;);
  OP(s_getpc_b64, w.set_pair(c.dst, c.inst->pc + c.inst->size););
  OP(s_setpc_b64, jump(w, c, s64(w, c, 0)););
  OP(s_swappc_b64, const u64 to = s64(w, c, 0); w.set_pair(c.dst, c.inst->pc + c.inst->size); jump(w, c, to););
  for (const char* name : {"s_nop", "s_setprio", "s_icache_inv", "s_dcache_inv", "s_dcache_wb", "s_dcache_inv_vol",
                           "s_dcache_wb_vol", "s_ttracedata", "s_inst_prefetch", "s_clause", "s_wakeup", "s_incperflevel",
                           "s_decperflevel", "s_code_end"})
    t.add(name, nothing);
  t.add("s_waitcnt", waitcnt, kWaits);
  t.add("s_barrier", barrier);
  t.add("s_sleep", sleep);
  t.add("s_endpgm", end);
  t.add("s_endpgm_saved", end);
  t.add("s_trap", trap);
  t.add("s_getreg_b32", getreg);
  t.add("s_setreg_b32", setreg);
  t.add("s_setreg_imm32_b32", setreg);
}

void add_smem(Table& t) {
  t.add("s_load_dword", s_load<1>);
  t.add("s_load_dwordx2", s_load<2>);
  t.add("s_load_dwordx4", s_load<4>);
  t.add("s_load_dwordx8", s_load<8>);
  t.add("s_load_dwordx16", s_load<16>);
  t.add("s_buffer_load_dword", s_buffer_load<1>);
  t.add("s_buffer_load_dwordx2", s_buffer_load<2>);
  t.add("s_buffer_load_dwordx4", s_buffer_load<4>);
  t.add("s_buffer_load_dwordx8", s_buffer_load<8>);
  t.add("s_buffer_load_dwordx16", s_buffer_load<16>);
  t.add("s_memtime", clock64<false>);
  t.add("s_memrealtime", clock64<true>);
}

}  // namespace flymono
