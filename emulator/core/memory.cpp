#include "memory.hpp"

#include <algorithm>
#include <stdexcept>

namespace flymono {

const Region* Buffer::region(u64 address) const {
  const Region* best = nullptr;  // the smallest named part that holds the address
  for (const Region& r : regions)
    if (address >= lo + r.offset && address < lo + r.offset + r.bytes && (!best || r.bytes < best->bytes)) best = &r;
  return best;
}

void Buffer::mark_long(std::vector<u64>& map, u64 first, u64 n) {
  if (map.empty()) map.resize((hi - lo + 63) / 64 + 1);
  while (n) {
    const u64 bit = first & 63, take = std::min<u64>(n, 64 - bit);
    map[first >> 6] |= (take == 64 ? ~u64{0} : (u64{1} << take) - 1) << bit;
    first += take;
    n -= take;
  }
}

u64 Buffer::unique(bool store) const {
  u64 total = 0;
  for (u64 word : store ? traffic.stored : traffic.loaded) total += static_cast<u64>(std::popcount(word));
  return total;
}

u64 Buffer::unique_touched() const {
  const std::vector<u64>&a = traffic.loaded, &b = traffic.stored;
  u64 total = 0;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i)
    total += static_cast<u64>(std::popcount((i < a.size() ? a[i] : 0) | (i < b.size() ? b[i] : 0)));
  return total;
}

Buffer& Memory::add(std::string name, u64 address, u64 bytes, bool writable, bool external) {
  if (!bytes) throw std::invalid_argument("buffer " + name + " is empty");
  auto buffer = std::make_unique<Buffer>();
  buffer->name = std::move(name);
  buffer->lo = address;
  buffer->hi = address + bytes;
  buffer->writable = writable;
  buffer->external = external;
  for (const auto& other : buffers_) {
    if (other->name == buffer->name) throw std::invalid_argument("buffer " + buffer->name + " is registered twice");
    if (other->lo < buffer->hi && buffer->lo < other->hi)
      throw std::invalid_argument("buffer " + buffer->name + " overlaps buffer " + other->name);
  }
  auto at = std::upper_bound(buffers_.begin(), buffers_.end(), address, [](u64 a, const auto& b) { return a < b->lo; });
  return **buffers_.insert(at, std::move(buffer));
}

void Memory::remove(const std::string& name) {
  std::erase_if(buffers_, [&](const auto& b) { return b->name == name; });
}

Buffer* Memory::by_name(const std::string& name) {
  for (const auto& b : buffers_)
    if (b->name == name) return b.get();
  return nullptr;
}

Buffer* Memory::nearest(u64 address) {
  auto at = std::upper_bound(buffers_.begin(), buffers_.end(), address, [](u64 a, const auto& b) { return a < b->lo; });
  if (at != buffers_.begin()) return std::prev(at)->get();
  return at == buffers_.end() ? nullptr : at->get();
}

Buffer* Memory::find(u64 lo, u64 hi) {
  auto at = std::upper_bound(buffers_.begin(), buffers_.end(), lo, [](u64 a, const auto& b) { return a < b->lo; });
  if (at == buffers_.begin()) return nullptr;
  Buffer* b = std::prev(at)->get();
  return lo >= b->lo && hi <= b->hi && lo <= hi ? b : nullptr;
}

void Memory::reset_traffic() {
  for (const auto& b : buffers_) b->traffic = Traffic{};
}

}  // namespace flymono
