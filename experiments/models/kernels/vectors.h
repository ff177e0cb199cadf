// Vectors of L floats and their tanh, for any vector unit. Include it in one source file only.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(__SSE__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int NATIVE = 16;
#elif defined(__AVX__)
constexpr int NATIVE = 8;
#else
constexpr int NATIVE = 4;
#endif

// Vectors of L floats: V and I in registers, U for memory (any alignment, may alias float).
template <int L> struct Vec;
#define NGN_VEC(L)                                                                   \
  template <> struct Vec<L> {                                                        \
    typedef float V __attribute__((vector_size(L * 4)));                             \
    typedef int32_t I __attribute__((vector_size(L * 4)));                           \
    typedef float U __attribute__((vector_size(L * 4), aligned(4), may_alias));      \
  }
NGN_VEC(4); NGN_VEC(8); NGN_VEC(16);

template <int L> inline typename Vec<L>::V load(const float *p) { return *(const typename Vec<L>::U *)p; }
template <int L> inline void store(float *p, typename Vec<L>::V v) { *(typename Vec<L>::U *)p = v; }

template <int L> inline float sum(typename Vec<L>::V v) {
  float a[L];
  store<L>(a, v);
  for (int n = L / 2; n; n /= 2)
    for (int i = 0; i < n; ++i) a[i] += a[i + n];
  return a[0];
}

// The smaller of two values, or the second if one is NaN. On x86 this is one instruction, which g++ does not find.
template <class V> inline V least(V a, V b) { return a < b ? a : b; }
template <class V> inline V most(V a, V b) { return a > b ? a : b; }
#if defined(__AVX512F__)
inline Vec<16>::V least(Vec<16>::V a, Vec<16>::V b) { return _mm512_min_ps(a, b); }
inline Vec<16>::V most(Vec<16>::V a, Vec<16>::V b) { return _mm512_max_ps(a, b); }
#endif
#if defined(__AVX__)
inline Vec<8>::V least(Vec<8>::V a, Vec<8>::V b) { return _mm256_min_ps(a, b); }
inline Vec<8>::V most(Vec<8>::V a, Vec<8>::V b) { return _mm256_max_ps(a, b); }
#endif

// tanh x = 1 - 2 / (1 + 2^(x 2 log2 e)). The power comes from a polynomial on [-1/2, 1/2] and the exponent bits, the
// reciprocal from the exponent bits and two refinements. The error is below 2.5e-7 (tested). A rational form was 10 %
// faster with an error of 4e-7. But late in a training, when residuals are small, its gradients were ten times less
// accurate than torch's. NaN stays NaN.
template <int L> inline typename Vec<L>::V tanh_(typename Vec<L>::V x) {
  using V = typename Vec<L>::V;
  using I = typename Vec<L>::I;
  x = most(V{} - 26.0f, least(V{} + 26.0f, x * 2.88539008f));
  const V n = x + 12582912.0f, f = x - (n - 12582912.0f);
  V e = f * 0.00132764713f + 0.00967554096f;
  e = e * f + 0.0555071309f;
  e = e * f + 0.240221202f;
  e = e * f + 0.693146944f;
  e = e * f + 1.00000012f;
  const V d = 1.0f + (V)((I)e + ((I)n << 23));
  V y = (V)((I{} + 0x7EF31D00) - (I)d);
  y = y * (2.0013f - d * y);
  e = 1.0f - d * y;
  y = y + y * (e * e + e);
  return 1.0f - 2.0f * y;
}

}  // namespace
