// The sum y(x) = sum_k c_k [W3_k . tanh(W2_k tanh(W1_k x + b1_k) + b2_k) + b3_k], its squared error and the gradients.
//
// One pass over the samples:
//
//   * Hidden units lie along the vector lanes. So the three products with W2 (forward, backward, its gradient) are
//     broadcast multiply-adds into registers, and no gradient needs a horizontal sum.
//   * y of a sample depends only on that sample. So forward and backward passes cover SAMPLES samples at a time, and
//     their activations stay in the core's own caches.
//   * One thread computes a replica, and no arithmetic crosses replicas: its results do not depend on the others.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "vectors.h"

namespace {

constexpr int REGISTERS = NATIVE == 8 ? 8 : 16;  // accumulators that fit next to the operands
constexpr int SAMPLES = 32;                      // samples per pass, with the activations of all components
constexpr int TILE = 8;                          // every number of samples is a multiple of this

// Inputs and targets, [padded]: the number of samples, rounded up to a multiple of TILE.
struct Data {
  const float *x, *target;
  int64_t samples, padded;
};

constexpr int64_t stride(int64_t H) { return H * H + 4 * H + 16; }

template <int H> struct Bank {
  static constexpr int L = NATIVE < H ? NATIVE : H, NV = H / L;
  static constexpr int64_t P = stride(H);
  static constexpr int W1 = 0, B1 = H, W2 = 2 * H, B2 = 2 * H + H * H, W3 = B2 + H, B3 = W3 + H;  // offsets
  static constexpr int T = NV >= REGISTERS ? 1 : (8 < REGISTERS / NV ? 8 : REGISTERS / NV);       // samples a tile
  static constexpr int ROWS = H < REGISTERS / NV ? H : (NV >= REGISTERS ? 1 : REGISTERS / NV);    // of dW2 a pass
  static_assert(TILE % T == 0 && SAMPLES % TILE == 0 && H % ROWS == 0, "tiles have to fit");
  using V = typename Vec<L>::V;

  // Rows of `count` samples times a matrix: out[s] = bias + sum_i in[s][i] M[i], for T samples at once.
  static inline void product(const float *in, const float *M, const float *bias, V (&out)[T][NV]) {
    for (int s = 0; s < T; ++s)
      for (int v = 0; v < NV; ++v) out[s][v] = bias ? load<L>(bias + v * L) : V{};
#pragma GCC unroll 64
    for (int i = 0; i < H; ++i)
#pragma GCC unroll 8
      for (int s = 0; s < T; ++s)
#pragma GCC unroll 16
        for (int v = 0; v < NV; ++v) out[s][v] += in[s * H + i] * load<L>(M + i * H + v * L);
  }

  // Activations of one component for n samples, and its term c W3.a2 of y, not yet summed over the lanes.
  static void forward(const float *p, float c, const float *x, int n, float *a1, float *a2, float *y) {
    for (int s = 0; s < n; ++s)
#pragma GCC unroll 16
      for (int v = 0; v < NV; ++v)
        store<L>(a1 + s * H + v * L, tanh_<L>(load<L>(p + B1 + v * L) + x[s] * load<L>(p + W1 + v * L)));
    V w3[NV];
    for (int v = 0; v < NV; ++v) w3[v] = c * load<L>(p + W3 + v * L);
    for (int s = 0; s < n; s += T) {
      V z[T][NV];
      product(a1 + s * H, p + W2, p + B2, z);
#pragma GCC unroll 8
      for (int i = 0; i < T; ++i) {
        V share = load<L>(y + (s + i) * L);
#pragma GCC unroll 16
        for (int v = 0; v < NV; ++v) {
          const V a = tanh_<L>(z[i][v]);
          store<L>(a2 + (s + i) * H + v * L, a);
          share += a * w3[v];
        }
        store<L>(y + (s + i) * L, share);
      }
    }
  }

  // Adds to g the gradients of one component over n samples, from dy = dL/dy. W3 in g gets sum_s dy a2, without c.
  // Overwrites a2. Wt is W2 transposed. With c = 0, it adds nothing else.
  static void backward(const float *p, const float *Wt, float c, const float *x, const float *dy, int n,
                       const float *a1, float *a2, float *g) {
    V w3[NV], g3[NV], gb[NV], g1[NV];
    for (int v = 0; v < NV; ++v) {
      w3[v] = c * load<L>(p + W3 + v * L);
      g3[v] = load<L>(g + W3 + v * L);
      gb[v] = load<L>(g + B2 + v * L);
    }
    for (int s = 0; s < n; ++s)
#pragma GCC unroll 16
      for (int v = 0; v < NV; ++v) {
        const V a = load<L>(a2 + s * H + v * L), dz = (dy[s] * w3[v]) * (1.0f - a * a);
        g3[v] += dy[s] * a;
        gb[v] += dz;
        store<L>(a2 + s * H + v * L, dz);
      }
    for (int v = 0; v < NV; ++v) store<L>(g + W3 + v * L, g3[v]);
    if (c == 0.0f) return;
    for (int v = 0; v < NV; ++v) {
      store<L>(g + B2 + v * L, gb[v]);
      gb[v] = load<L>(g + B1 + v * L);
      g1[v] = load<L>(g + W1 + v * L);
    }
    for (int s = 0; s < n; s += T) {
      V da[T][NV];
      product(a2 + s * H, Wt, nullptr, da);
#pragma GCC unroll 8
      for (int i = 0; i < T; ++i)
#pragma GCC unroll 16
        for (int v = 0; v < NV; ++v) {
          const V a = load<L>(a1 + (s + i) * H + v * L), dz = da[i][v] * (1.0f - a * a);
          gb[v] += dz;
          g1[v] += x[s + i] * dz;
        }
    }
    for (int v = 0; v < NV; ++v) {
      store<L>(g + B1 + v * L, gb[v]);
      store<L>(g + W1 + v * L, g1[v]);
    }
    for (int row = 0; row < H; row += ROWS) {
      V acc[ROWS][NV];
      for (int i = 0; i < ROWS; ++i)
        for (int v = 0; v < NV; ++v) acc[i][v] = load<L>(g + W2 + (row + i) * H + v * L);
      for (int s = 0; s < n; ++s)
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 16
          for (int v = 0; v < NV; ++v) acc[i][v] += a1[s * H + row + i] * load<L>(a2 + s * H + v * L);
      for (int i = 0; i < ROWS; ++i)
        for (int v = 0; v < NV; ++v) store<L>(g + W2 + (row + i) * H + v * L, acc[i][v]);
    }
  }

  // The memory of one thread. For each component k: coefficient c, gradient g, and along = <dL/dy, f_k>.
  struct Work {
    std::unique_ptr<float[]> block;
    float *a1, *a2, *g, *wt;
    std::vector<double> gate, along;
    std::vector<float> c;
    explicit Work(int64_t K) : block(new float[K * (2 * SAMPLES * H + P + H * H) + 16]), gate(K), along(K), c(K) {
      const uintptr_t at = ((uintptr_t)block.get() + 63) & ~(uintptr_t)63;
      a1 = (float *)at;
      a2 = a1 + K * SAMPLES * H;
      g = a2 + K * SAMPLES * H;
      wt = g + K * P;
    }
  };

  // Returns the sum of squared residuals of the k_used leading components p with the coefficients work.c. Adds the
  // gradients of the mean to work.g, which must be zero, and writes work.along.
  static double squares(const Data &data, const float *p, int64_t k_used, Work &work) {
    float bias = 0;
    for (int64_t k = 0; k < k_used; ++k) {
      bias += p[k * P + B3] * work.c[k];
      for (int i = 0; i < H; ++i)
        for (int j = 0; j < H; ++j) work.wt[k * H * H + j * H + i] = p[k * P + W2 + i * H + j];
    }
    double loss = 0, dy_sum = 0;
    for (int64_t s0 = 0; s0 < data.padded; s0 += SAMPLES) {
      const int count = int(data.padded - s0 < SAMPLES ? data.padded - s0 : SAMPLES);
      const float *const x = data.x + s0;
      alignas(64) float y[SAMPLES * L] = {};
      float dy[SAMPLES];
      for (int64_t k = 0; k < k_used; ++k)
        forward(p + k * P, work.c[k], x, count, work.a1 + k * SAMPLES * H, work.a2 + k * SAMPLES * H, y);
      for (int s = 0; s < count; ++s) {
        const bool real = s0 + s < data.samples;
        const float residual = real ? sum<L>(load<L>(y + s * L)) + bias - data.target[s0 + s] : 0.0f;
        dy[s] = residual * float(2.0 / double(data.samples));
        loss += residual * residual;
        dy_sum += dy[s];
      }
      for (int64_t k = 0; k < k_used; ++k)
        backward(p + k * P, work.wt + k * H * H, work.c[k], x, dy, count, work.a1 + k * SAMPLES * H,
                 work.a2 + k * SAMPLES * H, work.g + k * P);
    }
    // <dy, f_k> = W3_k . (a2_k^T dy) + b3_k sum(dy), without computing f_k. Then c_k completes the last layer.
    for (int64_t k = 0; k < k_used; ++k) {
      float *const g = work.g + k * P;
      double along = double(p[k * P + B3]) * dy_sum;
      for (int j = 0; j < H; ++j) along += double(p[k * P + W3 + j]) * double(g[W3 + j]);
      work.along[k] = along;
      for (int j = 0; j < H; ++j) g[W3 + j] *= work.c[k];
      g[B3] = work.c[k] * float(dy_sum);
    }
    return loss;
  }
};

}  // namespace
