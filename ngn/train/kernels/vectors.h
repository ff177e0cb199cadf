// Vectors of L floats and their tanh, for whatever vector unit there is. Included by one file of code only.
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

// The smaller of two, the second where one is NaN: one instruction on x86, which g++ does not find for vectors.
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

// Eight floats to look up entries of, which stay in a register where there is an instruction for it.
struct Eight {
#if defined(__AVX512F__)
  __m512 all;
  explicit Eight(const float *from) : all(_mm512_castps256_ps512(_mm256_loadu_ps(from))) {}
  // Entry at[i], below 8, in place i.
  Vec<16>::V operator[](Vec<16>::I at) const { return _mm512_permutexvar_ps((__m512i)at, all); }
#elif defined(__AVX2__)
  __m256 all;
  explicit Eight(const float *from) : all(_mm256_loadu_ps(from)) {}
  Vec<8>::V operator[](Vec<8>::I at) const { return _mm256_permutevar8x32_ps(all, (__m256i)at); }
#else
  const float *all;
  explicit Eight(const float *from) : all(from) {}
  Vec<NATIVE>::V operator[](Vec<NATIVE>::I at) const {
    Vec<NATIVE>::V found;
    for (int i = 0; i < NATIVE; ++i) found[i] = all[at[i]];
    return found;
  }
#endif
};

// Integers from -128 to 127, as bytes in memory.
inline Vec<NATIVE>::I widen(const int8_t *from) {
#if defined(__AVX512F__)
  return (Vec<16>::I)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from));
#elif defined(__AVX2__)
  return (Vec<8>::I)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from));
#else
  Vec<NATIVE>::I v;
  for (int i = 0; i < NATIVE; ++i) v[i] = from[i];
  return v;
#endif
}
inline void narrow(int8_t *to, Vec<NATIVE>::I v) {
#if defined(__AVX512F__)
  _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8((__m512i)v));
#elif defined(__AVX2__)
  const __m256i all = (__m256i)v;
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  _mm_storel_epi64((__m128i *)to, _mm_packs_epi16(words, words));
#else
  for (int i = 0; i < NATIVE; ++i) to[i] = int8_t(v[i]);
#endif
}

// tanh x = 1 - 2 / (1 + 2^(x 2 log2 e)): the power from a polynomial on [-1/2, 1/2] and its exponent bits, the reciprocal
// from exponent bits refined twice. Error below 2.5e-7 (tested). A rational form was 10 % faster at 4e-7, but late in a
// training, when residuals are small, its gradients were ten times less accurate than torch's. NaN stays NaN.
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
