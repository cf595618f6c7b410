// Matrix instructions: shapes, and the numeric models that can be plugged in.
//
// Models (how D = C + sum_k A B is rounded)
//  exact    dot product in f64 (exact for 8-bit formats), one rounding to nearest even at the end
//  fma      one fused multiply-add a k, in increasing k, starting from C
//  cdna3    groups of products, aligned to the largest and truncated, as published for MI300X
//  perturb  exact, then moved by at most 2^-23 of the largest term (seeded): an adversary
#pragma once

#include "machine.hpp"

namespace flymono {

struct MfmaTask {            // one block: C and D are [M][N] row-major, a is [K][M], b is [K][N]
  int m, n, k;
  const double *a, *b;
  const float* c;
  float* d;
  // cdna3: products in a group, even and odd k apart (8-bit formats), lowest exponents of A and B
  int group = 8;
  bool even_odd = false;
  int low_a = -126, low_b = -126;
  bool fused = false;        // f32 inputs: the hardware itself is a chain of fused multiply-adds
  u64 seed = 0;
};

void mfma_run(Mfma model, const MfmaTask& task);

}  // namespace flymono
