// Outstanding memory operations of a wave (check mode only): issue, retire, and what touching their registers means.
//
// Invariants
//  - VM operations return in order, DS operations among themselves too; scalar loads (and flat) in any order, so that
//    only lgkmcnt(0) retires anything while one of them is out.
//  - An operation's registers are in Wave::pend from issue to retirement; a deferred load is sampled at retirement.
//  - Counters are finite: the 64th VM and the 16th LGKM operation issue only when an older one has returned.
#pragma once

#include "machine.hpp"

namespace flymono {

void issue(Wave& w, const Code& c, Pending p);
void wait_vm(Wave& w, u32 left);
void wait_lgkm(Wave& w, u32 left);
// Samples every deferred load now (before this wave's own store could change what it sees).
void sample_all(Wave& w);
// The instruction touches a register of an outstanding load: report it and let the load return.
void touch_pending(Wave& w, const Code& c);
// A wait after stores to external memory: they are visible to others before anything that follows.
void settle_outside(Wave& w);
bool defer_load(Wave& w);  // the sampling policy
std::unique_ptr<Span64> keep_lanes(Wave& w, const Span64& lanes);

}  // namespace flymono
