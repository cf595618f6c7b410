// Addresses of vector memory instructions (buffer, global, flat): shared by loads, stores and atomics.
#pragma once

#include "async.hpp"
#include "lanes.hpp"

namespace flymono {

struct Reach {               // what the instruction may touch
  Buffer* buffer = nullptr;  // buffer of all lanes, or none when they differ
  u32 partial[kLanes];       // buffer loads and stores that end out of range: dwords inside, per lane
  bool is_partial = false;
};

// Lane addresses for an access of `bytes` a lane. Lanes out of the range of a buffer descriptor go to `zero`; lanes
// outside every registered buffer are reported and go to `zero` too. `dwords` > 1: range checks are per dword.
// False: the instruction cannot be executed (reported).
bool vector_addresses(Wave& w, const Code& c, u32 bytes, Access access, Span64& lanes, Reach& reach);
void count_traffic(Wave& w, const Code& c, u32 bytes, Access access, const Span64& lanes, const Reach& reach);
// Check mode: undefined bytes of the stored registers in the lanes of `mask` are a finding.
void check_stored(Wave& w, const Code& c, u32 row, u32 dwords, u32 bytes_of_last, u64 mask);
void note_store(Wave& w, const Code& c, u32 dwords);
// What follows the addresses of a load into registers: sampling now or at retirement.
void finish_load(Wave& w, const Code& c, u32 dwords, LoadFn fn, const Span64& lanes, bool sample_now);

}  // namespace flymono
