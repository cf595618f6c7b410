// Small types and lane helpers that every part of the machine uses.
//
// Invariants
//  - A vector register is 64 consecutive u32 (one per lane), 64-byte aligned; lane masks are u64, bit i = lane i.
//  - The AVX-512 paths compute what the portable loops beside them compute.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#if defined(__AVX512F__) && defined(__AVX512DQ__)
#include <immintrin.h>
#define FLYMONO_AVX512 1
#endif

namespace flymono {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
typedef u64 __attribute__((may_alias)) u64_alias;  // the 64-bit view of an SGPR pair

inline constexpr int kLanes = 64;
inline constexpr u64 kAllLanes = ~u64{0};

// Unified scalar register file: index = source code of the ISA.
inline constexpr int kVcc = 106, kTtmp = 108, kM0 = 124, kExec = 126, kScalars = 128;

inline float f32(u32 x) { return std::bit_cast<float>(x); }
inline u32 bits(float x) { return std::bit_cast<u32>(x); }
inline double f64(u64 x) { return std::bit_cast<double>(x); }
inline u64 bits64(double x) { return std::bit_cast<u64>(x); }

// dst[i] = src[i] for the lanes of `mask`.
inline void blend(u32* dst, const u32* src, u64 mask) {
#ifdef FLYMONO_AVX512
  for (int i = 0; i < 4; ++i)
    _mm512_mask_storeu_epi32(dst + 16 * i, static_cast<__mmask16>(mask >> (16 * i)), _mm512_loadu_si512(src + 16 * i));
#else
  for (int i = 0; i < kLanes; ++i) dst[i] = (mask >> i & 1) ? src[i] : dst[i];
#endif
}

// out[i] = mask bit i ? b[i] : a[i]
inline void select(u32* out, const u32* a, const u32* b, u64 mask) {
#ifdef FLYMONO_AVX512
  for (int i = 0; i < 4; ++i)
    _mm512_storeu_si512(out + 16 * i, _mm512_mask_blend_epi32(static_cast<__mmask16>(mask >> (16 * i)),
                                                              _mm512_loadu_si512(a + 16 * i), _mm512_loadu_si512(b + 16 * i)));
#else
  for (int i = 0; i < kLanes; ++i) out[i] = (mask >> i & 1) ? b[i] : a[i];
#endif
}

// Lane mask from 64 words that are all-ones or zero.
inline u64 movemask(const u32* r) {
  u64 m = 0;
#ifdef FLYMONO_AVX512
  for (int i = 0; i < 4; ++i) m |= u64{_mm512_movepi32_mask(_mm512_loadu_si512(r + 16 * i))} << (16 * i);
#else
  for (int i = 0; i < kLanes; ++i) m |= u64{r[i] >> 31} << i;
#endif
  return m;
}

inline void broadcast(u32* out, u32 value) {
  for (int i = 0; i < kLanes; ++i) out[i] = value;
}

// Zeroed memory that costs nothing until it is touched (and little then: huge pages where the system has them).
class ZeroPages {
 public:
  ZeroPages() = default;
  explicit ZeroPages(std::size_t bytes);
  ZeroPages(ZeroPages&& other) noexcept : at_(other.at_), bytes_(other.bytes_) { other.at_ = nullptr; }
  ZeroPages& operator=(ZeroPages&& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ZeroPages();
  void* get() const { return at_; }

 private:
  void* at_ = nullptr;
  std::size_t bytes_ = 0;
};

// A small deterministic generator (splitmix64): the only source of randomness of a run.
struct Random {
  u64 state = 0;
  u64 next() {
    u64 z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  u64 below(u64 n) { return n ? next() % n : 0; }
};

}  // namespace flymono
