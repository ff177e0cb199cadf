// The sum y(x) = sum_k c_k f_k(x) / rms_k, rms_k = sqrt(mean f_k^2 + eps) over the batch, f_k as in block1d.h; its
// squared error and their gradients. With dy = dL/dy, A_k = <dy, f_k> and N samples
//
//   dL/dc_k = A_k / rms_k,    dL/df_k[n] = c_k / rms_k (dy[n] - A_k / (rms_k^2 N) f_k[n])
//
// No gradient is known before all samples of y are, so every f_k is kept, and activations are computed a second time.
#pragma once

#include <cmath>
#include <cstring>

#include "block1d.h"

namespace {

template <int H> struct Normalised : Bank<H> {
  using B = Bank<H>;
  using Work = typename B::Work;
  static constexpr int L = B::L;
  static constexpr int64_t P = B::P;

  static int chunk(const Data &data, int64_t s0) {
    return int(data.padded - s0 < SAMPLES ? data.padded - s0 : SAMPLES);
  }

  // f_k of every sample, 0 beyond the last; returns rms_k.
  static double function(const Data &data, const float *p, double eps, Work &work, float *f) {
    double square = 0;
    for (int64_t s0 = 0; s0 < data.padded; s0 += SAMPLES) {
      alignas(64) float share[SAMPLES * L] = {};
      const int count = chunk(data, s0);
      B::forward(p, 1.0f, data.x + s0, count, work.a1, work.a2, share);
      for (int s = 0; s < count; ++s) {
        const float value = s0 + s < data.samples ? sum<L>(load<L>(share + s * L)) + p[B::B3] : 0.0f;
        f[s0 + s] = value;
        square += double(value) * double(value);
      }
    }
    return std::sqrt(square / double(data.samples) + eps);
  }

  // Adds to g the gradients of one component from dL/df = a dy + b f.
  static void backward(const Data &data, const float *p, float a, float b, const float *dy, const float *f, Work &work,
                       float *g) {
    for (int i = 0; i < H; ++i)
      for (int j = 0; j < H; ++j) work.wt[j * H + i] = p[B::W2 + i * H + j];
    for (int64_t s0 = 0; s0 < data.padded; s0 += SAMPLES) {
      alignas(64) float unused[SAMPLES * L] = {};
      float df[SAMPLES];
      const int count = chunk(data, s0);
      B::forward(p, 1.0f, data.x + s0, count, work.a1, work.a2, unused);
      for (int s = 0; s < count; ++s) {
        df[s] = a * dy[s0 + s] + b * f[s0 + s];
        g[B::B3] += df[s];
      }
      B::backward(p, work.wt, 1.0f, data.x + s0, df, count, work.a1, work.a2, g);
    }
  }

  // Floats of Work::f that K components need.
  static int64_t values(int64_t K, int64_t padded) { return (K + 1) * padded; }

  // As Bank::squares, with coefficients c; writes dL/dc to work.along.
  static double squares(const Data &data, const float *p, int64_t k_used, const double *c, double eps, Work &work) {
    const double N = double(data.samples);
    float *const dy = work.f + k_used * data.padded;
    double *const rms = work.gate.data();
    std::memset(dy, 0, sizeof(float) * data.padded);
    for (int64_t k = 0; k < k_used; ++k) {
      float *const f = work.f + k * data.padded;
      rms[k] = function(data, p + k * P, eps, work, f);
      const float a = float(c[k] / rms[k]);
      for (int64_t n = 0; n < data.samples; ++n) dy[n] += a * f[n];  // y, until the next loop
    }
    double loss = 0;
    for (int64_t n = 0; n < data.samples; ++n) {
      const float residual = dy[n] - data.target[n];
      loss += residual * residual;
      dy[n] = residual * float(2.0 / N);
    }
    for (int64_t k = 0; k < k_used; ++k) {
      const float *const f = work.f + k * data.padded;
      double along = 0;
      for (int64_t n = 0; n < data.samples; ++n) along += double(dy[n]) * double(f[n]);
      work.along[k] = along / rms[k];
      const double a = c[k] / rms[k], b = -a * along / (rms[k] * rms[k] * N);
      if (c[k] != 0) backward(data, p + k * P, float(a), float(b), dy, f, work, work.g + k * P);
    }
    return loss;
  }
};

}  // namespace
