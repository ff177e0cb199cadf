// Models of learned depth on points of the plane. Samples lie along the vector lanes. So parameters are scalars, and a
// gradient is a vector of partial sums, which is summed once, at the end.
//
// As in block1d.h, forward and backward passes cover a few samples at a time, so that activations stay in the caches.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "training.h"
#include "vectors.h"

namespace {

constexpr int L = NATIVE;
constexpr int LAYERED = 4, CHAINED = 4;  // vectors of samples in flight
using V = Vec<NATIVE>::V;

// The memory of one thread: activations `a`, vectors of partial sums `sums`, and the members that training.h needs.
struct PlaneWork {
  std::unique_ptr<float[]> block;
  float *a, *sums, *g;
  std::vector<double> gate, along;
  std::vector<float> c;
  PlaneWork(const Job &job, int64_t components, int64_t activations, int64_t sums_each)
      : block(new float[activations + components * sums_each * L + job.parameters + 16]),
        gate(components), along(components), c(components) {
    a = (float *)(((uintptr_t)block.get() + 63) & ~(uintptr_t)63);
    sums = a + activations;
    g = sums + components * sums_each * L;
  }
};

inline int64_t components_of(const Job &job) {
  int64_t all = 0;
  for (int64_t g = 0; g < job.groups; ++g) all += job.candidates[g];
  return all;
}

// Replaces outputs y [2][NV] of the samples from s0 on by dL/dy, 0 beyond the last one. Returns the squared residuals.
template <int NV> inline double residuals(const Job &job, int64_t s0, V (&y)[2][NV]) {
  double loss = 0;
  for (int i = 0; i < 2; ++i)
    for (int v = 0; v < NV; ++v) {
      const int64_t at = s0 + v * L;
      float residual[L];
      store<L>(residual, y[i][v] - load<L>(job.target + i * job.padded + at));
      for (int64_t s = job.samples > at ? job.samples - at : 0; s < L; ++s) residual[s] = 0.0f;
      const V kept = load<L>(residual);
      loss += sum<L>(kept * kept);
      y[i][v] = kept * float(1.0 / double(job.samples));  // of the mean over samples and both entries
    }
  return loss;
}

// Sums the vectors of one component: `n` gradients, then dL/dc.
inline void total(const float *sums, int64_t n, float *g, double &along) {
  for (int64_t i = 0; i < n; ++i) g[i] = sum<L>(load<L>(sums + i * L));
  along = sum<L>(load<L>(sums + n * L));
}

// The common part of both models; a component has `FLOATS` floats.
template <int64_t FLOATS> struct Planar {
  static constexpr int OUT = 2;
  static constexpr int64_t SIZE = FLOATS;
  using Work = PlaneWork;

  static double norm(const float *g, int64_t n) {
    double square = 0;
    for (int64_t i = 0; i < n * SIZE; ++i) square += double(g[i]) * double(g[i]);
    return square;
  }
};

// h <- c_0 h + sum_k c_k tanh(h W_k + b_k) in every group with an identity. Other groups lack the first term.
// A component holds W[2][2] b[2]; identities hold nothing.
struct Layers : Planar<6> {
  static constexpr int NV = LAYERED, S = NV * L;

  // Activations: the inputs of each layer, [G][2][S], and the maps of all components, [sum of K][2][S].
  static Work work(const Job &job) {
    const int64_t all = components_of(job);
    return Work(job, all, (job.groups + all) * 2 * S, SIZE + 1);
  }

  // y = one layer of h. Its first component is number `first`.
  static void forward(const Job &job, const float *p, int64_t g, int64_t used, const float *c, const V (&h)[2][NV],
                      float *f, V (&y)[2][NV]) {
    const int64_t bare = job.bare[g];
    for (int i = 0; i < 2; ++i)
      for (int v = 0; v < NV; ++v) y[i][v] = bare ? c[0] * h[i][v] : V{};
    p += job.offset[g];
    for (int64_t k = bare; k < used; ++k, p += SIZE)
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j)
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) {
          const V a = tanh_<L>(p[4 + j] + p[j] * h[0][v] + p[2 + j] * h[1][v]);
          store<L>(f + (2 * k + j) * S + v * L, a);
          y[j][v] += c[k] * a;
        }
  }

  // d = dL/dh from d = dL/dy of one layer.
  static void backward(const Job &job, const float *p, int64_t g, int64_t used, const float *c, const V (&h)[2][NV],
                       const float *f, float *sums, V (&d)[2][NV]) {
    const int64_t bare = job.bare[g];
    V dh[2][NV];
    for (int i = 0; i < 2; ++i)
      for (int v = 0; v < NV; ++v) dh[i][v] = bare ? c[0] * d[i][v] : V{};
    if (bare) {
      V along = load<L>(sums + SIZE * L);
      for (int v = 0; v < NV; ++v) along += d[0][v] * h[0][v] + d[1][v] * h[1][v];
      store<L>(sums + SIZE * L, along);
    }
    p += job.offset[g];
    for (int64_t k = bare; k < used; ++k, p += SIZE) {
      float *const own = sums + k * (SIZE + 1) * L;
      V part[SIZE + 1];
#pragma GCC unroll 8
      for (int i = 0; i < SIZE + 1; ++i) part[i] = load<L>(own + i * L);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) {
        const V f0 = load<L>(f + 2 * k * S + v * L), f1 = load<L>(f + (2 * k + 1) * S + v * L);
        const V z0 = (c[k] * d[0][v]) * (1.0f - f0 * f0), z1 = (c[k] * d[1][v]) * (1.0f - f1 * f1);
        part[0] += h[0][v] * z0;
        part[1] += h[0][v] * z1;
        part[2] += h[1][v] * z0;
        part[3] += h[1][v] * z1;
        part[4] += z0;
        part[5] += z1;
        part[6] += d[0][v] * f0 + d[1][v] * f1;
        dh[0][v] += p[0] * z0 + p[1] * z1;
        dh[1][v] += p[2] * z0 + p[3] * z1;
      }
#pragma GCC unroll 8
      for (int i = 0; i < SIZE + 1; ++i) store<L>(own + i * L, part[i]);
    }
    std::memcpy(&d, &dh, sizeof(d));
  }

  static double squares(const Job &job, const float *p, const int64_t *used, Work &work) {
    const int64_t G = job.groups;
    float *const f = work.a + G * 2 * S;
    for (int64_t g = 0, first = 0; g < G; first += job.candidates[g++])
      std::memset(work.sums + first * (SIZE + 1) * L, 0, sizeof(float) * used[g] * (SIZE + 1) * L);
    double loss = 0;
    for (int64_t s0 = 0; s0 < job.samples; s0 += S) {
      V h[2][NV], y[2][NV];
      for (int i = 0; i < 2; ++i)
        for (int v = 0; v < NV; ++v) y[i][v] = load<L>(job.x + i * job.padded + s0 + v * L);
      int64_t first = 0;
      for (int64_t g = 0; g < G; first += job.candidates[g++]) {
        std::memcpy(&h, &y, sizeof(h));
        std::memcpy(work.a + g * 2 * S, &h, sizeof(h));
        forward(job, p, g, used[g], work.c.data() + first, h, f + first * 2 * S, y);
      }
      loss += residuals<NV>(job, s0, y);
      for (int64_t g = G; g-- > 0;) {
        first -= job.candidates[g];
        std::memcpy(&h, work.a + g * 2 * S, sizeof(h));
        backward(job, p, g, used[g], work.c.data() + first, h, f + first * 2 * S, work.sums + first * (SIZE + 1) * L, y);
      }
    }
    for (int64_t g = 0, first = 0; g < G; first += job.candidates[g++])
      for (int64_t k = 0; k < used[g]; ++k) {
        float none[SIZE];
        float *const own = k < job.bare[g] ? none : work.g + job.offset[g] + (k - job.bare[g]) * SIZE;
        total(work.sums + (first + k) * (SIZE + 1) * L, SIZE, own, work.along[first + k]);
      }
    return loss;
  }

  static void run(const Job &job) { Training<Layers>::run(job); }
};

// y = sum_k c_k u_k with u_k = tanh(tanh(v_k U_k + a_k) V_k + b_k), v_0 = x, v_k = x + u_{k-1}; one group.
// A component holds U[2][H] a[H] V[H][2] b[2].
template <int H> struct Chain : Planar<5 * H + 2> {
  using typename Planar<5 * H + 2>::Work;
  using Planar<5 * H + 2>::SIZE;
  static constexpr int NV = CHAINED, S = NV * L;
  static constexpr int64_t A = 2 * H, W = 3 * H, B = 5 * H;  // offsets of a, V, b

  // Activations of every component: the hidden units and u, [H + 2][S].
  static Work work(const Job &job) {
    const int64_t all = components_of(job);
    return Work(job, all, all * (H + 2) * S, SIZE + 1);
  }

  // Computes u from v, and stores activations in a.
  static void forward(const float *p, const V (&v)[2][NV], float *a, V (&u)[2][NV]) {
    for (int i = 0; i < 2; ++i)
      for (int n = 0; n < NV; ++n) u[i][n] = V{} + p[B + i];
    for (int j = 0; j < H; ++j)
#pragma GCC unroll 8
      for (int n = 0; n < NV; ++n) {
        const V unit = tanh_<L>(p[A + j] + p[j] * v[0][n] + p[H + j] * v[1][n]);
        store<L>(a + j * S + n * L, unit);
        u[0][n] += p[W + 2 * j] * unit;
        u[1][n] += p[W + 2 * j + 1] * unit;
      }
    for (int i = 0; i < 2; ++i)
      for (int n = 0; n < NV; ++n) {
        u[i][n] = tanh_<L>(u[i][n]);
        store<L>(a + (H + i) * S + n * L, u[i][n]);
      }
  }

  // d = dL/dv from d = dL/du.
  static void backward(const float *p, const V (&v)[2][NV], const float *a, float *sums, V (&d)[2][NV]) {
    V dv[2][NV], z[2][NV];
    for (int i = 0; i < 2; ++i) {
      V bias = load<L>(sums + (B + i) * L);
      for (int n = 0; n < NV; ++n) {
        const V u = load<L>(a + (H + i) * S + n * L);
        z[i][n] = d[i][n] * (1.0f - u * u);
        bias += z[i][n];
        dv[i][n] = V{};
      }
      store<L>(sums + (B + i) * L, bias);
    }
    for (int j = 0; j < H; ++j) {
      float *const at[5] = {sums + j * L, sums + (H + j) * L, sums + (A + j) * L, sums + (W + 2 * j) * L,
                            sums + (W + 2 * j + 1) * L};
      V part[5];
#pragma GCC unroll 8
      for (int i = 0; i < 5; ++i) part[i] = load<L>(at[i]);
#pragma GCC unroll 8
      for (int n = 0; n < NV; ++n) {
        const V unit = load<L>(a + j * S + n * L);
        const V slope = (p[W + 2 * j] * z[0][n] + p[W + 2 * j + 1] * z[1][n]) * (1.0f - unit * unit);
        part[0] += v[0][n] * slope;
        part[1] += v[1][n] * slope;
        part[2] += slope;
        part[3] += unit * z[0][n];
        part[4] += unit * z[1][n];
        dv[0][n] += p[j] * slope;
        dv[1][n] += p[H + j] * slope;
      }
#pragma GCC unroll 8
      for (int i = 0; i < 5; ++i) store<L>(at[i], part[i]);
    }
    std::memcpy(&d, &dv, sizeof(d));
  }

  // Returns v_k of the samples from s0 on.
  static void inputs(const Job &job, const float *a, int64_t k, int64_t s0, V (&v)[2][NV]) {
    for (int i = 0; i < 2; ++i)
      for (int n = 0; n < NV; ++n) {
        v[i][n] = load<L>(job.x + i * job.padded + s0 + n * L);
        if (k) v[i][n] += load<L>(a + ((k - 1) * (H + 2) + H + i) * S + n * L);
      }
  }

  static double squares(const Job &job, const float *p, const int64_t *windows, Work &work) {
    const int64_t used = windows[0];
    float *const a = work.a;
    std::memset(work.sums, 0, sizeof(float) * used * (SIZE + 1) * L);
    double loss = 0;
    for (int64_t s0 = 0; s0 < job.samples; s0 += S) {
      V v[2][NV], u[2][NV], y[2][NV] = {}, d[2][NV] = {};
      for (int64_t k = 0; k < used; ++k) {
        inputs(job, a, k, s0, v);
        forward(p + k * SIZE, v, a + k * (H + 2) * S, u);
        for (int i = 0; i < 2; ++i)
          for (int n = 0; n < NV; ++n) y[i][n] += work.c[k] * u[i][n];
      }
      loss += residuals<NV>(job, s0, y);
      for (int64_t k = used; k-- > 0;) {
        float *const sums = work.sums + k * (SIZE + 1) * L, *const own = a + k * (H + 2) * S;
        V along = load<L>(sums + SIZE * L);
        for (int i = 0; i < 2; ++i)
          for (int n = 0; n < NV; ++n) {
            along += y[i][n] * load<L>(own + (H + i) * S + n * L);
            d[i][n] += work.c[k] * y[i][n];
          }
        store<L>(sums + SIZE * L, along);
        inputs(job, a, k, s0, v);
        backward(p + k * SIZE, v, own, sums, d);
      }
    }
    for (int64_t k = 0; k < used; ++k)
      total(work.sums + k * (SIZE + 1) * L, SIZE, work.g + k * SIZE, work.along[k]);
    return loss;
  }
};

template <int H> using TrainedChain = Training<Chain<H>>;

}  // namespace
