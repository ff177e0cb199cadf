// Many training steps for stacks of models of ordered groups. Each group has one boundary t and the coefficients
// c_k = w_k g_k(t). The template parameter `Model` computes outputs from them. The loss is the mean squared error over
// one full batch.
//
// The equations are those of ngn/gate.py and ngn/train/optim.py. Only components with a gate of at least 1e-15 are
// computed. The gradients of the others count as zero. Adam continues for every component that ever had a gradient (for
// the others it would add zero to zero).
//
// The body is float32; boundaries, gates, penalty and norms are float64. NaN and infinity must keep their IEEE meaning,
// because they show divergence: never use -ffast-math.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "vectors.h"

// A struct that contains its own declaration as text, without comments. libraries.py makes the ctypes struct from it.
#define NGN_DESCRIBED(NAME, ...) \
  struct NAME { __VA_ARGS__ };   \
  static const char NAME##_declaration[] = #__VA_ARGS__

// The work of one call, for R replicas, G groups and P floats per replica. Arrays are row-major.
NGN_DESCRIBED(
    Job,
    int64_t replicas, groups, parameters, hidden, samples, padded;  // padded: samples, rounded up
    int64_t steps, first, threads, gated, clip_scope;  // gated: 0 fixed counts, 1 learned boundaries, 2 boundaries that the
                                                       // caller moves; clip_scope: 0 none, 1 joint, 2 separate, 3 body
    double clip, delta, cutoff, weight_decay, beta1, beta2, eps;
    const int64_t *candidates, *offset, *bare;  // [G]: K; index of its first float (a multiple of 16, like P); number
                                                // of leading components without parameters
    const float *x, *target;                    // [width of the data, padded]
    const double *w;                            // [R, sum of K]
    const double *lambda0, *alpha_max, *beta_start, *beta_end, *kappa;  // [R, G]
    const double *lr, *lr_boundary;                             // [R]
    const double *shapes;                                       // [steps, 4]: of lambda, alpha, beta, body rate
    float *p, *m, *v;                                           // [R, P]: parameters and Adam's moments
    double *tau;                                                // [R, G, 3]: tau and its moments
    int64_t *touched;                                           // [R, G]: leading components with moments
    double *objective, *task, *t;  // [R, steps], the last [R, steps, G]: before each update
    double *slopes;                // [R, G]: dL/dtau of the last step, before clipping
);

extern "C" {
const char *ngn_job_declaration() { return Job_declaration; }
int64_t ngn_job_size() { return sizeof(Job); }
}

namespace {

constexpr double PI = 3.14159265358979323846;

// Calls one(r, work) for every replica, in up to `threads` threads. Each thread has its own work = make().
template <class Make, class F> void each(int64_t replicas, int64_t threads, const Make &make, const F &one) {
  using Work = decltype(make());
  if (threads > replicas) threads = replicas;
  std::vector<Work> works;
  for (int64_t i = 0; i < threads; ++i) works.push_back(make());
  std::atomic<int64_t> next{0};
  const auto work_on = [&](Work &work) {
#if defined(__SSE__)
    // Moments of components that left the window decay forever. Flush denormal numbers, which would be slow.
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
#endif
    for (int64_t r; (r = next++) < replicas;) one(r, work);
#if defined(__SSE__)
    _mm_setcsr(before);
#endif
  };
  std::vector<std::thread> pool;
  try {
    for (int64_t i = 1; i < threads; ++i) pool.emplace_back(work_on, std::ref(works[i]));
  } catch (const std::system_error &) {  // the system gave fewer threads: they do all the work
  }
  work_on(works[0]);
  for (auto &thread : pool) thread.join();
}

// A Model has:
//   * SIZE, the floats of a component, and OUT, the entries of an output;
//   * Work, the memory of a thread: `c`, `gate` and `along` = dL/dc for all components in the order of the groups, and
//     `g`, the gradients in the layout of the parameters;
//   * norm(g, n), which returns the squared norm of n components;
//   * squares(job, p, used, work), which returns the sum of squared residuals with `used` components of each group. It
//     adds the gradients of the mean to work.g, which must be zero there, and writes work.along.
template <class Model> struct Training {
  using Work = typename Model::Work;

  // Calls f(first float, components, floats) for the `touched` leading components of every group. The floats start at a
  // whole vector and are rounded up to whole vectors. So no loop has a remainder, which might round differently.
  template <class F> static void stretches(const Job &job, const int64_t *touched, const F &f) {
    for (int64_t g = 0; g < job.groups; ++g)
      if (const int64_t n = touched[g] - job.bare[g]; n > 0) f(job.offset[g], n, (n * Model::SIZE + 15) / 16 * 16);
  }

  // One boundary before a step: the number of components to compute, the penalty and its derivative.
  struct Boundary {
    int64_t used;
    double t, dt_dtau, beta, penalty, slope;
  };

  static Boundary boundary(const Job &job, int64_t at, int64_t K, const double *shape) {
    if (!job.gated) return {K, double(K - 1), 0, 0, 0, 0};  // a fixed count has t = K - 1
    const double tau = job.tau[3 * at];
    const double price = job.lambda0[at] * shape[0];
    const double alpha = std::max(job.alpha_max[at], job.kappa[at] * price) * shape[1];
    const double beta = job.beta_start[at] + (job.beta_end[at] - job.beta_start[at]) * shape[2];
    const double e = std::exp(tau);
    const double t = tau > 700.0 ? tau : std::log1p(e), dt_dtau = tau > 700.0 ? 1.0 : e / (e + 1.0);
    const double off = t - std::floor(t + 0.5), sine = std::sin(PI * off);
    Boundary b{K, t, dt_dtau, beta, price * t + alpha * sine * sine, price + alpha * PI * 2.0 * sine * std::cos(PI * off)};
    const double furthest = t + job.delta - std::log(job.cutoff) / beta;
    if (std::isfinite(furthest)) {
      const double leading = std::floor(furthest) + 1.0;
      b.used = leading < 1.0 ? 1 : leading > double(K) ? K : int64_t(leading);
    }
    return b;
  }

  // Does all steps of one replica.
  static void advance(const Job &job, int64_t r, Work &work) {
    const int64_t G = job.groups;
    float *const p = job.p + r * job.parameters;
    int64_t all = 0;
    std::vector<int64_t> first(G), used(G), touched(G);
    for (int64_t g = 0; g < G; all += job.candidates[g++]) first[g] = all;
    const double *const w = job.w + r * all;
    std::vector<Boundary> boundaries(G);
    std::vector<double> dtau(G);
    for (int64_t n = 0; n < job.steps; ++n) {
      const double *const shape = job.shapes + 4 * n;
      double penalty = 0;
      for (int64_t g = 0; g < G; ++g) {
        const int64_t K = job.candidates[g], at = r * G + g;
        const Boundary b = boundaries[g] = boundary(job, at, K, shape);
        used[g] = b.used;
        penalty += b.penalty;
        for (int64_t k = 0; k < b.used; ++k) {
          const int64_t i = first[g] + k;
          work.gate[i] = job.gated ? 1.0 / (1.0 + std::exp(-b.beta * (b.t - double(k) + job.delta))) : 1.0;
          work.c[i] = float(w[i] * work.gate[i]);
        }
        if (b.used > job.touched[at]) job.touched[at] = b.used;
        touched[g] = job.weight_decay != 0 ? K : job.touched[at];
        job.t[(r * job.steps + n) * G + g] = b.t;
      }
      stretches(job, touched.data(), [&](int64_t at, int64_t, int64_t floats) {
        std::memset(work.g + at, 0, sizeof(float) * floats);
      });
      const double loss = Model::squares(job, p, used.data(), work);
      for (int64_t g = 0; g < G; ++g) {
        const Boundary &b = boundaries[g];
        double slope = b.slope;
        for (int64_t i = first[g]; i < first[g] + b.used; ++i)  // fma fixes the rounding for every compiler
          slope = std::fma(w[i] * b.beta * work.gate[i] * (1.0 - work.gate[i]), work.along[i], slope);
        job.slopes[r * G + g] = job.gated ? slope * b.dt_dtau : 0.0;
        dtau[g] = job.gated == 2 ? 0.0 : job.slopes[r * G + g];
      }
      const double task = double(float(loss / double(job.samples * Model::OUT)));
      job.objective[r * job.steps + n] = task + penalty;
      job.task[r * job.steps + n] = task;
      update(job, r, n, touched.data(), work.g, dtau.data());
    }
  }

  // Returns min(1, clip / (norm + 1e-6)), or NaN for a NaN norm.
  static double factor(double clip, double square) {
    const double f = clip / (std::sqrt(square) + 1e-6);
    return f > 1.0 ? 1.0 : f;
  }

  static void update(const Job &job, int64_t r, int64_t n, const int64_t *touched, const float *g, const double *dtau) {
    double body_factor = 1.0, tau_factor = 1.0;
    if (job.clip_scope) {
      double body = 0, own = 0;
      stretches(job, touched, [&](int64_t at, int64_t n, int64_t) { body += Model::norm(g + at, n); });
      for (int64_t i = 0; i < job.groups; ++i) own += dtau[i] * dtau[i];
      body_factor = factor(job.clip, job.clip_scope == 1 ? body + own : body);
      tau_factor = job.clip_scope == 1 ? body_factor : job.clip_scope == 2 ? factor(job.clip, own) : 1.0;
    }
    const double step = double(job.first + n + 1);
    const double correct1 = 1.0 - std::pow(job.beta1, step), correct2 = std::sqrt(1.0 - std::pow(job.beta2, step));
    const float scale = float(body_factor), decay = float(job.weight_decay), near1 = float(1.0 - job.beta1);
    const float keep2 = float(job.beta2), near2 = float(1.0 - job.beta2), root = float(correct2), eps = float(job.eps);
    const float rate = float(job.lr[r] * job.shapes[4 * n + 3] / correct1);
    stretches(job, touched, [&](int64_t at, int64_t, int64_t floats) {
      float *const p = job.p + r * job.parameters + at, *const m = job.m + r * job.parameters + at;
      float *const v = job.v + r * job.parameters + at;
      const float *const own = g + at;
      for (int64_t i = 0; i < floats; ++i) {
        const float grad = own[i] * scale + decay * p[i];
        m[i] += near1 * (grad - m[i]);
        v[i] = keep2 * v[i] + near2 * grad * grad;
        p[i] -= rate * (m[i] / (std::sqrt(v[i]) / root + eps));
      }
    });
    for (int64_t i = 0; job.gated && i < job.groups; ++i) {
      double *const tau = job.tau + 3 * (r * job.groups + i);
      const double grad = dtau[i] * tau_factor;
      tau[1] += (1.0 - job.beta1) * (grad - tau[1]);
      tau[2] = job.beta2 * tau[2] + (1.0 - job.beta2) * grad * grad;
      tau[0] -= job.lr_boundary[r] / correct1 * (tau[1] / (std::sqrt(tau[2]) / correct2 + job.eps));
    }
  }

  static void run(const Job &job) {
    each(job.replicas, job.threads, [&] { return Model::work(job); },
         [&](int64_t r, Work &work) { advance(job, r, work); });
  }
};

// Returns 0 on success, 1 if the hidden width is not compiled, 2 if memory ran out.
template <template <int> class Kernel, class Call> int64_t run(const Call &call) {
  try {
    switch (call.hidden) {
      case 8: return Kernel<8>::run(call), 0;
      case 16: return Kernel<16>::run(call), 0;
      case 32: return Kernel<32>::run(call), 0;
      case 64: return Kernel<64>::run(call), 0;
    }
    return 1;
  } catch (const std::bad_alloc &) {
    return 2;
  }
}

}  // namespace
