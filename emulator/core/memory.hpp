// Host memory as device memory: the buffers a launch may touch, and what it asked of each.
//
// Invariants
//  - Device addresses are host addresses; nothing outside a registered buffer is ever dereferenced.
//  - Buffers do not overlap; `find` returns the buffer that holds all of [lo, hi) or none.
//  - An external buffer is shared with other processes or threads: every access to it is an atomic one of the host
//    (outside.hpp), and what it holds may change at any time.
//  - Traffic is counted when an access issues: requested bytes by scope, unique bytes by a bitmap of bytes.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base.hpp"

namespace flymono {

struct Region {  // a named part of a buffer, for reports
  std::string label;
  u64 offset = 0, bytes = 0;
};

enum class Access : u8 { load, store, atomic };

struct Traffic {
  // [access][scope]: scope = sc0 | sc1 << 1 | nt << 2; scalar loads count as scope 0
  std::array<std::array<u64, 8>, 3> requested{};
  std::array<std::array<u64, 8>, 3> accesses{};  // lane accesses
  std::vector<u64> loaded, stored;               // one bit a byte, made on the first access
};

struct Buffer {
  std::string name;
  u64 lo = 0, hi = 0;
  bool writable = true, external = false;
  bool counted = true;  // which bytes are touched is noted; off for ranges far larger than what a launch uses
  std::vector<Region> regions;
  Traffic traffic;

  const Region* region(u64 address) const;
  // Marks [at, at + n) as touched; `at` is an address inside the buffer.
  void mark(bool store, u64 at, u64 n) {
    if (!counted) return;
    std::vector<u64>& map = store ? traffic.stored : traffic.loaded;
    const u64 first = at - lo, bit = first & 63;
    if (map.empty() || bit + n > 64) return mark_long(map, first, n);
    map[first >> 6] |= (n == 64 ? ~u64{0} : (u64{1} << n) - 1) << bit;
  }
  u64 unique(bool store) const;
  u64 unique_touched() const;  // loaded or stored

 private:
  void mark_long(std::vector<u64>& map, u64 first, u64 n);
};

class Memory {
 public:
  // Throws std::invalid_argument when the range is empty or overlaps another buffer.
  Buffer& add(std::string name, u64 address, u64 bytes, bool writable, bool external = false);
  void remove(const std::string& name);
  Buffer* by_name(const std::string& name);
  Buffer* find(u64 lo, u64 hi);
  Buffer* nearest(u64 address);  // for messages
  void reset_traffic();
  const std::vector<std::unique_ptr<Buffer>>& buffers() const { return buffers_; }

 private:
  std::vector<std::unique_ptr<Buffer>> buffers_;  // sorted by address
};

}  // namespace flymono
