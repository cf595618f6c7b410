#include "vmem.hpp"

#include <algorithm>

namespace flymono {
namespace {

bool buffer_addresses(Wave& w, const Code& c, u32 bytes, Span64& lanes, Reach& reach) {
  const Inst& in = *c.inst;
  const u32 r = c.src[2].index;
  const u32 word1 = w.s[r + 1], records = w.s[r + 2], word3 = w.s[r + 3];
  const u32 stride = word1 >> 16 & 0x3fff;
  if ((word1 >> 31) || (word3 >> 23 & 1) || (word3 >> 30)) {
    fatal(w, c, "unimplemented", "buffer descriptor with swizzle, thread id or a type (words " + hex(word1) + ", " + hex(word3) + ")");
    return false;
  }
  const u64 base = ((u64{word1 & 0xffffu} << 32) | w.s[r]) + s32(w, c, 3);
  const u32 imm = static_cast<u32>(in.imm);
  const u64 exec = w.exec();
  const u32* index = in.idxen ? w.row(c.src[0].index) : nullptr;
  const u32* offset = in.offen ? w.row(c.src[0].index + (in.idxen ? 1 : 0)) : nullptr;
  Lanes zero{};
  if (!offset) offset = zero.x;
  const bool structured = in.idxen;
  const u32 dwords = bytes / 4;
  u64 in_range = 0;
  for (int i = 0; i < kLanes; ++i) {
    const u64 at = u64{offset[i]} + imm;
    lanes.address[i] = base + at;
    if (!structured) in_range |= u64{at < records} << i;
  }
  if (structured)
    for (int i = 0; i < kLanes; ++i) {
      lanes.address[i] += u64{stride} * index[i];
      in_range |= u64{index[i] < records} << i;
    }
  else if (dwords > 1)  // the tail of an access may be out of range although its start is not
    for (u64 left = exec & in_range; left; left &= left - 1) {
      const int i = std::countr_zero(left);
      const u64 at = u64{offset[i]} + imm;
      if (at + bytes <= records) continue;
      if (!reach.is_partial) std::fill(reach.partial, reach.partial + kLanes, dwords);
      reach.is_partial = true;
      reach.partial[i] = static_cast<u32>((records - at + 3) / 4);
    }
  lanes.mask = exec & in_range;
  lanes.zero = exec & ~in_range;
  return true;
}

bool flat_addresses(Wave& w, const Code& c, Span64& lanes) {
  const u64 imm = static_cast<u64>(i64{c.inst->imm});
  const u32* lo = w.row(c.src[0].index);
  if (c.inst->enc == Enc::scratch) {
    fatal(w, c, "unimplemented", "scratch memory: the kernel spills or has a private array");
    return false;
  }
  if (c.src[2].kind != Src::none) {
    const u64 base = s64(w, c, 2) + imm;
    for (int i = 0; i < kLanes; ++i) lanes.address[i] = base + lo[i];
  } else {
    const u32* hi = w.row(c.src[0].index + 1);
    for (int i = 0; i < kLanes; ++i) lanes.address[i] = (u64{hi[i]} << 32 | lo[i]) + imm;
  }
  lanes.mask = w.exec();
  lanes.zero = 0;
  return true;
}

// Lanes that do not lie in one buffer together: look each up, report those that lie in none.
void check_each(Wave& w, const Code& c, u32 bytes, Access access, Span64& lanes) {
  Memory& memory = w.grid->machine->memory;
  u64 bad = 0;
  for (u64 left = lanes.mask; left; left &= left - 1) {
    const int i = std::countr_zero(left);
    const Buffer* b = memory.find(lanes.address[i], lanes.address[i] + bytes);
    if (b && (b->writable || access == Access::load)) {
      lanes.outside |= b->external;
      continue;
    }
    if (!bad) {
      const char* what = access == Access::load ? "load" : access == Access::store ? "store" : "atomic";
      const std::string where = std::string(what) + " of " + std::to_string(bytes) + " bytes at " + hex(lanes.address[i]);
      report(w, c, b ? "read-only" : "out-of-bounds",
             b ? where + ", in a buffer registered as read-only" : where + ", outside every registered buffer", i, -1,
             lanes.address[i]);
    }
    bad |= u64{1} << i;
  }
  lanes.mask &= ~bad;
  lanes.zero |= bad;
}

}  // namespace

bool vector_addresses(Wave& w, const Code& c, u32 bytes, Access access, Span64& lanes, Reach& reach) {
  const bool ok = c.inst->enc == Enc::mubuf ? buffer_addresses(w, c, bytes, lanes, reach) : flat_addresses(w, c, lanes);
  if (!ok) return false;
  lanes.contiguous = lanes.outside = false;
  if (!lanes.mask) return true;
  const u64 first = lanes.address[std::countr_zero(lanes.mask)];
  u64 lo = ~u64{0}, hi = 0, low_bits = 0;
  if (lanes.mask == kAllLanes) {
    u64 differ = 0;
    for (int i = 0; i < kLanes; ++i) {
      const u64 a = lanes.address[i];
      lo = a < lo ? a : lo;
      hi = a > hi ? a : hi;
      low_bits |= a;
      differ |= a ^ (first + static_cast<u64>(i) * bytes);
    }
    lanes.contiguous = differ == 0;
  } else {
    for (int i = 0; i < kLanes; ++i) {
      const u64 a = (lanes.mask >> i & 1) ? lanes.address[i] : first;
      lo = a < lo ? a : lo;
      hi = a > hi ? a : hi;
      low_bits |= a;
    }
  }
  const u64 align = bytes >= 4 ? 3 : bytes == 2 ? 1 : 0;
  if (low_bits & align) {
    if (w.check) report(w, c, "misaligned", "address is no multiple of " + std::to_string(align + 1), -1, -1, first);
    if (bytes >= 4 && c.inst->enc == Enc::mubuf) {
      for (u64& a : lanes.address) a &= ~u64{3};
      lo &= ~u64{3};
      hi &= ~u64{3};
    }
  }
  Buffer*& site = w.grid->site[c.index];
  Buffer* b = site;
  if (!b || lo < b->lo || hi + bytes > b->hi) {
    b = w.grid->machine->memory.find(lo, hi + bytes);
    if (b) site = b;
  }
  if (b && (b->writable || access == Access::load)) {
    reach.buffer = b;
    lanes.outside = b->external;
  } else if (!reach.is_partial) {
    check_each(w, c, bytes, access, lanes);
    if (lanes.mask != kAllLanes) lanes.contiguous = false;
  } else {
    check_each(w, c, 4, access, lanes);  // only the dwords in range are touched
    lanes.contiguous = false;
  }
  return true;
}

void count_traffic(Wave& w, const Code& c, u32 bytes, Access access, const Span64& lanes, const Reach& reach) {
  if (!lanes.mask) return;
  const Inst& in = *c.inst;
  const u32 scope = u32{in.sc0 && access != Access::atomic} | u32{in.sc1} << 1 | u32{in.nt} << 2;
  const auto kind = static_cast<std::size_t>(access);
  Memory& memory = w.grid->machine->memory;
  w.poll_address = lanes.address[std::countr_zero(lanes.mask)];
  w.poll_code = c.index;
  w.seen_stores = w.grid->machine->stores;
  if (lanes.outside && access != Access::store) ++w.grid->machine->outside_loads;
  if (reach.buffer && !reach.is_partial) {
    Traffic& t = reach.buffer->traffic;
    const auto n = static_cast<u64>(std::popcount(lanes.mask));
    t.requested[kind][scope] += n * bytes;
    t.accesses[kind][scope] += n;
    if (lanes.contiguous) return reach.buffer->mark(access != Access::load, lanes.address[0], u64{bytes} * kLanes);
  }
  u64 start = 0, end = 0;
  Buffer* at = nullptr;
  for (u64 left = lanes.mask; left; left &= left - 1) {
    const int i = std::countr_zero(left);
    const u64 a = lanes.address[i];
    const u32 n = reach.is_partial ? reach.partial[i] * 4 : bytes;
    Buffer* b = reach.buffer ? reach.buffer : memory.find(a, a + n);
    if (!b) continue;
    if (!reach.buffer || reach.is_partial) {
      b->traffic.requested[kind][scope] += n;
      b->traffic.accesses[kind][scope] += 1;
    }
    if (b == at && a == end) {
      end += n;
      continue;
    }
    if (at) at->mark(access != Access::load, start, end - start);
    at = b;
    start = a;
    end = a + n;
  }
  if (at) at->mark(access != Access::load, start, end - start);
}

void check_stored(Wave& w, const Code& c, u32 row, u32 dwords, u32 bytes_of_last, u64 mask) {
  for (u32 d = 0; d < dwords; ++d) {
    const ByteMask& m = w.vund[row + d];
    const u32 planes = d + 1 == dwords ? bytes_of_last : 4;
    u64 bad = 0;
    for (u32 k = 0; k < planes; ++k) bad |= m.b[k];
    bad &= mask;
    if (!bad) continue;
    report(w, c, "uninitialised", "v" + std::to_string(row + d) + " is stored to memory but was never (wholly) written",
           std::countr_zero(bad));
    return;
  }
}

void note_store(Wave& w, const Code& c, u32 dwords) {
  ++w.grid->machine->stores;
  if (!w.check) return;
  sample_all(w);
  Pending p;
  p.cls = Pending::vm;
  issue(w, c, std::move(p));
  const bool soffset = c.inst->enc == Enc::mubuf && c.src[3].kind == Src::sgpr;
  if (dwords > 2 && !soffset) {
    w.wide_store = c.next;
    w.wide_data = {c.src[1].index, static_cast<u16>(dwords)};
  }
}

void finish_load(Wave& w, const Code& c, u32 dwords, LoadFn fn, const Span64& lanes, bool sample_now) {
  if (!w.check) return fn(w, c, lanes);
  const u64 written = lanes.mask | lanes.zero;
  for (u32 d = 0; d < dwords; ++d)
    for (u64& plane : w.vund[c.dst + d].b) plane &= ~written;
  Pending p;
  p.cls = Pending::vm;
  p.first = c.dst;
  p.count = static_cast<u16>(dwords);
  if (sample_now || !defer_load(w)) {
    if (w.deferred) sample_all(w);  // older loads of the same registers come first
    fn(w, c, lanes);
  } else {
    p.load = fn;
    p.lanes = keep_lanes(w, lanes);
  }
  issue(w, c, std::move(p));
  if (c.inst->enc == Enc::flat) {
    Pending q;
    q.cls = Pending::smem;  // unordered on lgkmcnt
    issue(w, c, std::move(q));
  }
}

}  // namespace flymono
