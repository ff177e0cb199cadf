// 3x3 convolutions of padded images, each with 2x2 max-pooling and ReLU. Channels lie along L lanes, of which a vector
// register holds a part (PART); parts without a channel are left out.
#pragma once

#include <cstdint>

#include "vectors.h"

namespace {

constexpr int L = 16;
constexpr int PART = NATIVE;
using V = Vec<PART>::V;
using I = Vec<PART>::I;
inline V get(const float *p) { return load<PART>(p); }
inline void put(float *p, V v) { store<PART>(p, v); }
constexpr int8_t NONE = 4;  // no pixel of a pooling window passes a gradient: the ReLU is shut

// P parts of the channels of two rows of T pixels each of a 3x3 convolution, from the padded input at x: `channels` of
// them, STRIDE floats a pixel.
template <int STRIDE, int T, int P>
inline void pixels(const float *x, int64_t row, int64_t channels, const float *W, const float *b, V (&sums)[P][2][T]) {
  const int64_t depth = STRIDE < L ? STRIDE : channels;  // an image is packed, which lets the loop unroll
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 28
    for (int t = 0; t < 2 * T; ++t) sums[p][t / T][t % T] = get(b + p * PART);
  for (int dr = 0; dr < 3; ++dr)
    for (int dc = 0; dc < 3; ++dc)
      for (int64_t i = 0; i < depth; ++i, W += L) {
        const float *const top = x + dr * row + dc * STRIDE + i, *const bottom = top + row;
        V w[P];
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) w[p] = get(W + p * PART);
#pragma GCC unroll 28
        for (int t = 0; t < 2 * T; ++t) {
          const float pixel = (t < T ? top : bottom)[t % T * STRIDE];
#pragma GCC unroll 2
          for (int p = 0; p < P; ++p) sums[p][t / T][t % T] += pixel * w[p];
        }
      }
}

// P parts of the channels of a convolution, pooling and ReLU of columns begin to end, T at once, of a padded H x W
// input: values to out (`wide` floats a row, L a pixel), places to at.
template <int STRIDE, int T, int P>
void convolve(int64_t begin, int64_t end, const float *x, int64_t row, int64_t H, int64_t W, int64_t channels,
              const float *w, const float *b, float *out, int64_t wide, int8_t *at) {
  for (int64_t r = 0; r < H; r += 2)
    for (int64_t s = begin; s < end; s += T) {
      V sums[P][2][T];
      pixels<STRIDE, T, P>(x + r * row + s * STRIDE, row, channels, w, b, sums);
#pragma GCC unroll 7
      for (int t = 0; t < T; t += 2)
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) {
          // The first of equals, as torch has it. Background makes ties common.
          V top = sums[p][0][t];
          I where{};
          const V others[3] = {sums[p][0][t + 1], sums[p][1][t], sums[p][1][t + 1]};
          for (int q = 0; q < 3; ++q) {
            const I larger = others[q] > top;
            top = larger ? others[q] : top;
            where = larger ? I{} + (q + 1) : where;
          }
          where = top > 0.0f ? where : I{} + NONE;
          top = top < 0.0f ? V{} : top;  // NaN stays NaN
          put(out + r / 2 * wide + (s + t) / 2 * L + p * PART, top);
          narrow(at + (r / 2 * (W / 2) + (s + t) / 2) * L + p * PART, where);
        }
    }
}

// All `made` channels, as much at once as the registers hold.
template <int STRIDE>
void convolve(int64_t made, const float *x, int64_t row, int64_t H, int64_t W, int64_t channels, const float *w,
              const float *b, float *out, int64_t wide, int8_t *at) {
  int64_t part = 0;
  const auto columns = [&](auto how, int64_t begin, int64_t end) {
    how(begin, end, x, row, H, W, channels, w + part, b + part, out + part, wide, at + part);
  };
#if defined(__AVX512F__)
  if (W % 14 == 0) return columns(convolve<STRIDE, 14, 1>, 0, W);
  if (W % 8 == 0) return columns(convolve<STRIDE, 8, 1>, 0, W);
#endif
  // Sixteen registers: what was fastest on AVX2, of images and of what the first convolution gives.
  if (STRIDE < L)
    for (; part + PART < made; part += 2 * PART) columns(convolve<STRIDE, 2, 2>, 0, W);
  const int64_t sixes = STRIDE < L ? 0 : (W % 6 == 2 && W > 2 ? W / 6 - 1 : W / 6) * 6;
  const int64_t fours = sixes + (W - sixes) / 4 * 4;
  for (; part < made; part += PART) {
    columns(convolve<STRIDE, 6, 1>, 0, sixes);
    columns(convolve<STRIDE, 4, 1>, sixes, fours);
    columns(convolve<STRIDE, 2, 1>, fours, W);
  }
}

}  // namespace
