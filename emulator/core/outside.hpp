// Memory that other processes and threads change while a launch runs.
//
// Invariants
//  - An access of a lane is made of the widest naturally aligned host accesses (8 bytes at most), each of them atomic:
//    a word and its tag in one aligned pair are never seen apart. Loads acquire, stores release, so stores become
//    visible in program order; a wait or cache write-back after a store is a full fence, as it is for system scope.
#pragma once

#include "base.hpp"

namespace flymono {

namespace outside {

template <class T>
T* at(u64 address) { return reinterpret_cast<T*>(address); }

inline void load(void* to, u64 from, u32 bytes) {
  u8* out = static_cast<u8*>(to);
  auto part = [&]<class T>(T) {
    const T x = __atomic_load_n(at<const T>(from), __ATOMIC_ACQUIRE);
    std::memcpy(out, &x, sizeof x);
    out += sizeof x, from += sizeof x, bytes -= sizeof x;
  };
  while (bytes) {
    if (bytes >= 8 && from % 8 == 0) part(u64{});
    else if (bytes >= 4 && from % 4 == 0) part(u32{});
    else if (bytes >= 2 && from % 2 == 0) part(u16{});
    else part(u8{});
  }
}

inline void store(u64 to, const void* from, u32 bytes) {
  const u8* in = static_cast<const u8*>(from);
  auto part = [&]<class T>(T x) {
    std::memcpy(&x, in, sizeof x);
    __atomic_store_n(at<T>(to), x, __ATOMIC_RELEASE);
    in += sizeof x, to += sizeof x, bytes -= sizeof x;
  };
  while (bytes) {
    if (bytes >= 8 && to % 8 == 0) part(u64{});
    else if (bytes >= 4 && to % 4 == 0) part(u32{});
    else if (bytes >= 2 && to % 2 == 0) part(u16{});
    else part(u8{});
  }
}

// Replaces *p by next(*p) in one step and gives what was there.
template <class T, class F>
T update(T* p, F next) {
  T seen = __atomic_load_n(p, __ATOMIC_ACQUIRE);
  while (!__atomic_compare_exchange_n(p, &seen, next(seen), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return seen;
}

}  // namespace outside

}  // namespace flymono
