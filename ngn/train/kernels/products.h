// Products of matrices whose sizes are small multiples of 16, for what stays in a core's caches.
#pragma once

#include <cstdint>

#include "vectors.h"

namespace {

constexpr int L = NATIVE;
using V = Vec<L>::V;
#if defined(__AVX512F__)
constexpr int ROWS = 6, COLUMNS = 4;  // of a product's tile: 24 of 32 registers
#else
constexpr int ROWS = 6, COLUMNS = 2;  // 12 of 16 registers
#endif

// M rows and C vectors of c (+)= a b: c [m, ldc], b [k, ldb], and element (m, k) of a at a[m * am + k * ak].
// The sums start at what c holds, at the row `start`, or (null) at zero.
template <int M, int C, bool ADD>
inline void block(const float *a, int64_t am, int64_t ak, const float *b, int64_t ldb, int64_t K, const float *start,
                  float *c, int64_t ldc) {
  V sums[M][C];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int n = 0; n < C; ++n)
      sums[m][n] = ADD ? load<L>(c + m * ldc + n * L) : start ? load<L>(start + n * L) : V{};
  for (int64_t k = 0; k < K; ++k) {
    V row[C];
#pragma GCC unroll 8
    for (int n = 0; n < C; ++n) row[n] = load<L>(b + k * ldb + n * L);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
      for (int n = 0; n < C; ++n) sums[m][n] += a[m * am + k * ak] * row[n];
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int n = 0; n < C; ++n) store<L>(c + m * ldc + n * L, sums[m][n]);
}

template <int M, bool ADD>
inline void rows(const float *a, int64_t am, int64_t ak, const float *b, int64_t N, int64_t K, const float *start,
                 float *c) {
  int64_t n = 0;
  for (; n + COLUMNS * L <= N; n += COLUMNS * L)
    block<M, COLUMNS, ADD>(a, am, ak, b + n, N, K, start ? start + n : nullptr, c + n, N);
  for (; n < N; n += L) block<M, 1, ADD>(a, am, ak, b + n, N, K, start ? start + n : nullptr, c + n, N);
}

// c [m, N] (+)= a b with b [K, N].
template <bool ADD>
void product(const float *a, int64_t am, int64_t ak, const float *b, int64_t M, int64_t N, int64_t K,
             const float *start, float *c) {
  int64_t m = 0;
  for (; m + ROWS <= M; m += ROWS) rows<ROWS, ADD>(a + m * am, am, ak, b, N, K, start, c + m * N);
  for (; m + 2 <= M; m += 2) rows<2, ADD>(a + m * am, am, ak, b, N, K, start, c + m * N);
  for (; m < M; ++m) rows<1, ADD>(a + m * am, am, ak, b, N, K, start, c + m * N);
}

}  // namespace
