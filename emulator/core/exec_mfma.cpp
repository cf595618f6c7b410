// Matrix instructions: operand layouts. EXEC is ignored; all operands are read before D is written.
//
// Layout of M x N x K with B blocks: with KL = K / (64 / (M * B)) items a lane, A[b,i,k] is item k % KL of lane
// i + M * (b + B * (k / KL)), and B[b,k,j] likewise; items are packed little-endian. D has four consecutive rows a
// lane, repeated. f8f6f4 with 8-bit data is the exception: two runs of 16 k a lane (see k_of).
#include <algorithm>
#include <cmath>

#include "mfma.hpp"
#include "shadow.hpp"

namespace flymono {
namespace {

enum class Type { e4m3fnuz, e4m3, e5m2fnuz, e5m2, e2m3, e3m2, e2m1, bf16, f16, f32, i8 };

constexpr int width(Type t) {
  switch (t) {
    case Type::f32: return 32;
    case Type::bf16:
    case Type::f16: return 16;
    case Type::e2m3:
    case Type::e3m2: return 6;
    case Type::e2m1: return 4;
    default: return 8;
  }
}
constexpr int lowest_exponent(Type t) {
  switch (t) {
    case Type::e4m3fnuz: return -7;
    case Type::e4m3: return -6;
    case Type::e5m2fnuz: return -15;
    case Type::e5m2:
    case Type::f16: return -14;
    case Type::e2m3:
    case Type::e2m1: return 0;
    case Type::e3m2: return -2;
    default: return -126;
  }
}

// N lanes at once, as the compiler's vector types: left to itself it does not vectorise the selections below.
template <int N>
struct Vectors {
  typedef u32 U __attribute__((vector_size(4 * N), aligned(4), may_alias));
  typedef float F __attribute__((vector_size(4 * N), aligned(4), may_alias));
  typedef double D __attribute__((vector_size(8 * N), aligned(8), may_alias));
};

template <class U>
inline U pick(U mask, U yes, U no) { return (mask & yes) | (~mask & no); }

// Values of N elements: exponent and mantissa moved into place of an f32, rebased by an exact multiplication.
template <Type T, int N>
inline typename Vectors<N>::F decode(typename Vectors<N>::U x) {
  using U = typename Vectors<N>::U;
  using F = typename Vectors<N>::F;
  const U nan = U{} + 0x7fc00000u, inf = U{} + 0x7f800000u;
  auto rebased = [](U pattern, float by) { return (U)((F)pattern * by); };
  if constexpr (T == Type::f32) return (F)x;
  if constexpr (T == Type::i8) {
    typedef int I __attribute__((vector_size(4 * N), aligned(4), may_alias));
    return __builtin_convertvector((I)(x << 24) >> 24, F);
  }
  if constexpr (T == Type::bf16) return (F)(x << 16);
  if constexpr (T == Type::f16) {
    const U special = (U)((x & 0x7c00) == 0x7c00);
    return (F)(pick(special, inf | (x & 0x3ff) << 13, rebased((x & 0x7fff) << 13, 0x1p112f)) | (x & 0x8000) << 16);
  }
  if constexpr (T == Type::e4m3) {
    const U r = rebased((x & 0x7f) << 20, 0x1p120f) | (x & 0x80) << 24;
    return (F)pick((U)((x & 0x7f) == 0x7f), nan, r);
  }
  if constexpr (T == Type::e4m3fnuz) {
    const U r = rebased((x & 0x7f) << 20, 0x1p119f) | (x & 0x80) << 24;
    return (F)pick((U)(x == 0x80), nan, r);
  }
  if constexpr (T == Type::e5m2) {
    const U r = rebased((x & 0x7f) << 21, 0x1p112f), special = pick((U)((x & 3) != 0), nan, inf);
    return (F)(pick((U)((x & 0x7c) == 0x7c), special, r) | (x & 0x80) << 24);
  }
  if constexpr (T == Type::e5m2fnuz) {
    const U r = rebased((x & 0x7f) << 21, 0x1p111f) | (x & 0x80) << 24;
    return (F)pick((U)(x == 0x80), nan, r);
  }
  if constexpr (T == Type::e2m3) return (F)(rebased((x & 0x1f) << 20, 0x1p126f) | (x & 0x20) << 26);
  if constexpr (T == Type::e3m2) return (F)(rebased((x & 0x1f) << 21, 0x1p124f) | (x & 0x20) << 26);
  if constexpr (T == Type::e2m1) return (F)(rebased((x & 7) << 22, 0x1p126f) | (x & 8) << 28);
}

// N elements of item `item` in consecutive lanes from `lane`, times `scale` where there is one.
template <Type T, int N, bool Scaled = false>
inline void decode_lanes(const u32* rows, int item, int lane, double* out, const double* scale = nullptr) {
  using U = typename Vectors<N>::U;
  using D = typename Vectors<N>::D;
  constexpr int w = width(T);
  constexpr u32 mask = w == 32 ? ~0u : (1u << (w & 31)) - 1;
  const int bit = item * w, shift = bit & 31;
  const u32* r = rows + (bit >> 5) * kLanes + lane;
  U x = *reinterpret_cast<const U*>(r) >> shift;
  if (w == 6 && shift + w > 32) x |= *reinterpret_cast<const U*>(r + kLanes) << (32 - shift);
  D d = __builtin_convertvector(decode<T, N>(x & mask), D);
  if constexpr (Scaled) d *= *reinterpret_cast<const D*>(scale);
  *reinterpret_cast<D*>(out) = d;
}

struct Matrices {            // decoded operands of one block
  alignas(64) double a[128 * 32], b[128 * 32];
  alignas(64) float c[32 * 32], d[32 * 32];
};

struct DLayout {
  int m, n, blocks;
  // register and first lane of row i of block b; the n columns follow in consecutive lanes
  void at(int b, int i, int& reg, int& lane) const {
    const int bi = std::max(1, 64 / (n * m / 4)), mi = 64 / bi / n, g = std::max(1, m / (4 * mi));
    reg = i % 4 + 4 * (i / (4 * mi) + g * (b / bi));
    lane = n * ((i / 4) % mi + mi * (b % bi));
  }
};

const u32* c_row(Wave& w, const Code& c, int reg) {
  const Src& s = c.src[2];
  return s.kind == Src::konst ? s.k : w.row(s.index + static_cast<u32>(reg));
}

void load_c(Wave& w, const Code& c, const DLayout& l, int block, u32* out) {
  for (int i = 0; i < l.m; ++i) {
    int reg, lane;
    l.at(block, i, reg, lane);
    std::memcpy(out + i * l.n, c_row(w, c, reg) + lane, static_cast<std::size_t>(l.n) * 4);
  }
}
void store_d(Wave& w, const Code& c, const DLayout& l, int block, const u32* in) {
  for (int i = 0; i < l.m; ++i) {
    int reg, lane;
    l.at(block, i, reg, lane);
    std::memcpy(w.row(c.dst + static_cast<u32>(reg)) + lane, in + i * l.n, static_cast<std::size_t>(l.n) * 4);
  }
}

bool plain_lanes(Wave& w, const Code& c) {
  if (!c.inst->cbsz && !c.inst->abid && !c.inst->blgp) return true;
  fatal(w, c, "unimplemented", "MFMA with cbsz, abid or blgp (broadcast of operand lanes)");
  return false;
}

bool supported_operands(Wave& w, const Code& c) {
  if (c.src[0].kind == Src::vgpr && c.src[1].kind == Src::vgpr && (c.src[2].kind == Src::vgpr || c.src[2].kind == Src::konst)) return true;
  fatal(w, c, "unimplemented", "MFMA with an operand that is no vector register");
  return false;
}

// A result of more than four registers is written while A and B are still read.
bool sound_overlap(Wave& w, const Code& c) {
  if (c.dst_dwords <= 4) return true;
  for (int i = 0; i < 2; ++i)
    if (c.src[i].index < c.dst + c.dst_dwords && c.dst < c.src[i].index + c.src[i].dwords) {
      report(w, c, "mfma-overlap", "a wide result overlaps the operand v" + std::to_string(c.src[i].index));
      return false;
    }
  return true;
}

template <Type TA, Type TB, int M, int N, int K, int Blocks>
void mfma(Wave& w, const Code& c) {
  if (!plain_lanes(w, c) || !supported_operands(w, c) || !sound_overlap(w, c)) return;
  constexpr int kl = K / (64 / (M * Blocks));
  static thread_local Matrices x;
  const u32 *ra = w.row(c.src[0].index), *rb = w.row(c.src[1].index);
  const DLayout layout{M, N, Blocks};
  alignas(64) u32 result[Blocks][M * N];
  for (int block = 0; block < Blocks; ++block) {
    for (int k = 0; k < K; ++k) {
      decode_lanes<TA, M>(ra, k % kl, M * (block + Blocks * (k / kl)), x.a + k * M);
      decode_lanes<TB, N>(rb, k % kl, N * (block + Blocks * (k / kl)), x.b + k * N);
    }
    if constexpr (TA == Type::i8) {
      alignas(64) u32 ci[M * N];
      load_c(w, c, layout, block, ci);
      for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
          double acc = 0;
          for (int k = 0; k < K; ++k) acc += x.a[k * M + i] * x.b[k * N + j];
          result[block][i * N + j] = ci[i * N + j] + static_cast<u32>(static_cast<i64>(acc));
        }
    } else {
      const Options& o = w.grid->machine->options;
      load_c(w, c, layout, block, reinterpret_cast<u32*>(x.c));
      MfmaTask t{M, N, K, x.a, x.b, x.c, x.d};
      t.group = width(TA) == 8 ? 16 : 8;
      t.even_odd = width(TA) == 8;
      t.low_a = lowest_exponent(TA);
      t.low_b = lowest_exponent(TB);
      t.fused = TA == Type::f32;
      t.seed = o.seed;
      mfma_run(o.mfma, t);
      std::memcpy(result[block], x.d, sizeof result[block]);
    }
  }
  for (int block = 0; block < Blocks; ++block) store_d(w, c, layout, block, result[block]);
}

// ---- f8f6f4 (gfx950)
// Logical k of item t in lane group g: 8-bit data come as two runs of 16, far apart; narrower data as 32 in a row.
int k_of(bool eight_bit, int groups, int g, int t) {
  if (!eight_bit) return 32 * g + t;
  return t < 16 ? 16 * g + t : 16 * groups + 16 * g + (t - 16);
}

inline double scale_value(u32 byte) { return byte == 255 ? NAN : f64(u64{byte + (1023 - 127)} << 52); }  // 2^(byte - 127)

// scales[kb][i]: one E8M0 byte for a row (column) and block of 32 k
void load_scales(Wave& w, const Code& c, int which, int edge, int blocks, double* out) {
  const Src& s = c.scale[which];
  const u32 byte = (c.inst->op_sel >> which & 1) | (c.inst->op_sel_hi >> which & 1) << 1;
  for (int kb = 0; kb < blocks; ++kb)
    for (int i = 0; i < edge; ++i) {
      u32 e = 127;
      if (s.kind == Src::vgpr) e = w.row(s.index)[i + edge * kb] >> (8 * byte) & 255;
      else if (s.kind == Src::konst) e = static_cast<u32>(s.value) >> 23 & 255;  // the exponent of the constant
      out[kb * edge + i] = scale_value(e);
    }
}

template <Type T, int Edge>
void decode_scaled(const u32* rows, const double* scales, double* out) {
  constexpr int groups = kLanes / Edge;
  for (int g = 0; g < groups; ++g)
    for (int t = 0; t < 32; ++t) {
      const int k = k_of(width(T) == 8, groups, g, t);
      decode_lanes<T, Edge, true>(rows, t, Edge * g, out + k * Edge, scales + k / 32 * Edge);
    }
}

template <int Edge>
bool decode_operand(Wave& w, const Code& c, int which, u32 format, double* out) {
  double scales[4 * 32];
  load_scales(w, c, which, Edge, Edge == 16 ? 4 : 2, scales);
  const u32* rows = w.row(c.src[which].index);
  switch (format) {
    case 0: decode_scaled<Type::e4m3, Edge>(rows, scales, out); return true;
    case 1: decode_scaled<Type::e5m2, Edge>(rows, scales, out); return true;
    case 2: decode_scaled<Type::e2m3, Edge>(rows, scales, out); return true;
    case 3: decode_scaled<Type::e3m2, Edge>(rows, scales, out); return true;
    case 4: decode_scaled<Type::e2m1, Edge>(rows, scales, out); return true;
    default: fatal(w, c, "unimplemented", "f8f6f4 operand format " + std::to_string(format)); return false;
  }
}

template <int Edge, int K>
void f8f6f4(Wave& w, const Code& c) {
  if (!supported_operands(w, c) || !sound_overlap(w, c)) return;
  static thread_local Matrices x;
  if (!decode_operand<Edge>(w, c, 0, c.inst->cbsz, x.a) || !decode_operand<Edge>(w, c, 1, c.inst->blgp, x.b)) return;
  const DLayout layout{Edge, Edge, 1};
  load_c(w, c, layout, 0, reinterpret_cast<u32*>(x.c));
  MfmaTask t{Edge, Edge, K, x.a, x.b, x.c, x.d};
  t.group = 32;              // no public model of this unit: groups of one scale block
  t.low_a = t.low_b = -300;
  t.seed = w.grid->machine->options.seed;
  mfma_run(w.grid->machine->options.mfma, t);
  store_d(w, c, layout, 0, reinterpret_cast<const u32*>(x.d));
}

// ---- marks: D[i][j] is undefined where row i of A, column j of B or C[i][j] is
u64 fold(u64 lanes, int edge) {  // which row or column any of its lanes names
  u64 r = 0;
  for (int at = 0; at < kLanes; at += edge) r |= lanes >> at;
  return r & (edge == 64 ? kAllLanes : (u64{1} << edge) - 1);
}

template <int M, int N, int Blocks>
void marks(Wave& w, const Code& c) {
  u64 any[5] = {};
  auto collect = [&](const Src& s) {
    u64 u = 0;
    for (int k = 0; s.kind == Src::vgpr && k < s.dwords; ++k) u |= any_undefined(w.vund[s.index + k]);
    return u;
  };
  for (int i = 0; i < 3; ++i) any[i] = collect(c.src[i]);
  for (int i = 0; i < 2; ++i) any[3 + i] = collect(c.scale[i]);
  const u32 regs = c.dst_dwords;
  if (!(any[0] | any[1] | any[2] | any[3] | any[4])) {
    for (u32 r = 0; r < regs; ++r) w.vund[c.dst + r] = ByteMask{};
    return;
  }
  if (Blocks > 1) {
    for (u32 r = 0; r < regs; ++r) w.vund[c.dst + r] = {{kAllLanes, kAllLanes, kAllLanes, kAllLanes}};
    return;
  }
  const u64 rows = fold(any[0] | any[3], M), columns = fold(any[1] | any[4], N);
  const DLayout layout{M, N, 1};
  u64 out[32] = {};
  for (int i = 0; i < M; ++i) {
    int reg, lane;
    layout.at(0, i, reg, lane);
    out[reg] |= ((rows >> i & 1) ? (N == 64 ? kAllLanes : (u64{1} << N) - 1) : columns) << lane;
  }
  for (u32 r = 0; r < regs; ++r) {
    const u64 from_c = c.src[2].kind == Src::vgpr ? any_undefined(w.vund[c.src[2].index + r]) : 0;
    const u64 u = out[r] | from_c;
    out[r] = u;
  }
  for (u32 r = 0; r < regs; ++r) w.vund[c.dst + r] = {{out[r], out[r], out[r], out[r]}};
}

template <Type TA, Type TB, int M, int N, int K, int Blocks = 1>
void add_one(Table& t, const char* name) {
  t.add(name, mfma<TA, TB, M, N, K, Blocks>, kWholeWave | kOwnMarks, nullptr, marks<M, N, Blocks>);
}

void add_fp8(Table& t) {
  // The flavour belongs to the arch: gfx942 is FNUZ, gfx950 OCP; one handler asks.
#define FP8(name, ta, tb, m, k)                                                                                       \
  t.add(name, [](Wave& w, const Code& c) {                                                                            \
    if (is_fnuz(w.grid->machine->options.arch)) mfma<Type::ta##fnuz, Type::tb##fnuz, m, m, k, 1>(w, c);                \
    else mfma<Type::ta, Type::tb, m, m, k, 1>(w, c);                                                                   \
  }, kWholeWave | kOwnMarks, nullptr, marks<m, m, 1>)
  FP8("v_mfma_f32_16x16x32_fp8_fp8", e4m3, e4m3, 16, 32);
  FP8("v_mfma_f32_16x16x32_fp8_bf8", e4m3, e5m2, 16, 32);
  FP8("v_mfma_f32_16x16x32_bf8_fp8", e5m2, e4m3, 16, 32);
  FP8("v_mfma_f32_16x16x32_bf8_bf8", e5m2, e5m2, 16, 32);
  FP8("v_mfma_f32_32x32x16_fp8_fp8", e4m3, e4m3, 32, 16);
  FP8("v_mfma_f32_32x32x16_fp8_bf8", e4m3, e5m2, 32, 16);
  FP8("v_mfma_f32_32x32x16_bf8_fp8", e5m2, e4m3, 32, 16);
  FP8("v_mfma_f32_32x32x16_bf8_bf8", e5m2, e5m2, 32, 16);
}

}  // namespace

void add_mfma(Table& t) {
  add_fp8(t);
  add_one<Type::f32, Type::f32, 16, 16, 4>(t, "v_mfma_f32_16x16x4_f32");
  add_one<Type::f32, Type::f32, 32, 32, 2>(t, "v_mfma_f32_32x32x2_f32");
  add_one<Type::bf16, Type::bf16, 16, 16, 16>(t, "v_mfma_f32_16x16x16_bf16");
  add_one<Type::f16, Type::f16, 16, 16, 16>(t, "v_mfma_f32_16x16x16_f16");
  add_one<Type::bf16, Type::bf16, 16, 16, 32>(t, "v_mfma_f32_16x16x32_bf16");
  add_one<Type::f16, Type::f16, 16, 16, 32>(t, "v_mfma_f32_16x16x32_f16");
  add_one<Type::bf16, Type::bf16, 32, 32, 8>(t, "v_mfma_f32_32x32x8_bf16");
  add_one<Type::f16, Type::f16, 32, 32, 8>(t, "v_mfma_f32_32x32x8_f16");
  add_one<Type::bf16, Type::bf16, 32, 32, 16>(t, "v_mfma_f32_32x32x16_bf16");
  add_one<Type::f16, Type::f16, 32, 32, 16>(t, "v_mfma_f32_32x32x16_f16");
  add_one<Type::bf16, Type::bf16, 4, 4, 4, 16>(t, "v_mfma_f32_4x4x4_16b_bf16");
  add_one<Type::f16, Type::f16, 4, 4, 4, 16>(t, "v_mfma_f32_4x4x4_16b_f16");
  add_one<Type::bf16, Type::bf16, 16, 16, 4, 4>(t, "v_mfma_f32_16x16x4_4b_bf16");
  add_one<Type::f16, Type::f16, 16, 16, 4, 4>(t, "v_mfma_f32_16x16x4_4b_f16");
  add_one<Type::i8, Type::i8, 16, 16, 32>(t, "v_mfma_i32_16x16x32_i8");
  add_one<Type::i8, Type::i8, 16, 16, 64>(t, "v_mfma_i32_16x16x64_i8");
  add_one<Type::i8, Type::i8, 32, 32, 16>(t, "v_mfma_i32_32x32x16_i8");
  add_one<Type::i8, Type::i8, 32, 32, 32>(t, "v_mfma_i32_32x32x32_i8");
  for (const char* name : {"v_mfma_scale_f32_16x16x128_f8f6f4", "v_mfma_f32_16x16x128_f8f6f4"})
    t.add(name, f8f6f4<16, 128>, kWholeWave | kOwnMarks, nullptr, marks<16, 16, 1>);
  for (const char* name : {"v_mfma_scale_f32_32x32x64_f8f6f4", "v_mfma_f32_32x32x64_f8f6f4"})
    t.add(name, f8f6f4<32, 64>, kWholeWave | kOwnMarks, nullptr, marks<32, 32, 1>);
}

}  // namespace flymono
