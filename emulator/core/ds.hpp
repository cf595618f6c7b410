// What the LDS families share.
#pragma once

#include "async.hpp"
#include "lanes.hpp"

namespace flymono {

// Registers [row, row + dwords) come back with lgkmcnt.
void ds_issue(Wave& w, const Code& c, u32 row, u32 dwords);
// An LDS write is outstanding until lgkmcnt retires it; `last` is false for the first half of a two-address write.
void ds_issue_write(Wave& w, const Code& c, const u32* at, u64 mask, u32 bytes, bool last = true);
// A wave arrives at a barrier: which of its LDS writes no wait has retired.
void note_early_writes(Wave& w);
// A read of bytes that another wave wrote before a barrier, but did not wait for, is a finding.
void check_early_writes(Wave& w, const Code& c, const u32* at, u64 mask, u32 bytes);
// Lanes whose access lies inside the allocation (others are reported); `at` gets the byte addresses.
u64 lds_lanes(Wave& w, const Code& c, const u32* address, u32 offset, u32 bytes, u32 align, u32* at);
// Race bookkeeping (Options::lds_race).
void lds_access(Wave& w, const Code& c, const u32* at, u64 mask, u32 bytes, bool write);

}  // namespace flymono
