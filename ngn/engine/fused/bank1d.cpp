// Stacks of y(x) = sum_k c_k f_k(x), f_k as in block1d.h, on the mean squared error over one full batch: whole stretches
// of training with c_k = w_k g_k(t), or the gradients of a single step for coefficients that somebody else computes and
// for f_k that may be normalised (normalised1d.h).
//
// The equations of ngn/gate.py, ngn/components/mlp.py and ngn/engine/optim.py. In training only components with a gate
// of at least 1e-15 are computed. The gradients of the others count as zero, and Adam goes on for every component that
// ever had one (for the rest it would add zero to zero).
//
// The body is float32; boundary, gates, penalty and norms are float64. NaN and infinity keep their IEEE meaning
// (-ffast-math must not be used), because they are how divergence is seen.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>

#include "block1d.h"
#include "normalised1d.h"

// One call's work; mirrored field by field in bank1d.py. R replicas, K candidates, P = stride(H) floats a component:
// W1[H] b1[H] W2[H][H] b2[H] W3[H] b3[1] and 15 zeros. Arrays are row-major.
struct Job {
  int64_t replicas, candidates, hidden, samples, padded;  // padded: samples rounded up to a multiple of 8
  int64_t steps, first, threads, gated, clip_scope;       // clip_scope: 0 none, 1 joint, 2 separate, 3 body
  double clip, delta, cutoff, weight_decay, beta1, beta2, eps;
  const float *x, *target;                                             // [padded]
  const double *w;                                                     // [R, K]
  const double *lambda0, *alpha_max, *beta_start, *beta_end;           // [R]
  const double *lr, *lr_boundary;                                      // [R]
  const double *shapes;                                                // [steps, 4]: of lambda, alpha, beta, body rate
  float *p, *m, *v;                                                    // [R, K, P]: parameters and Adam's moments
  double *tau;                                                         // [R, 3]: tau and its moments
  int64_t *touched;                                                    // [R]: leading components with moments
  double *objective, *task, *t;                                        // [R, steps]: before each update
};

// One call's work; mirrored field by field in step1d.py. R replicas, K candidates of width h in the arrays of the bank:
// W1 [R, K, 1, h], b1 [R, K, h], W2 [R, K, h, h], b2 [R, K, h], W3 [R, K, h, 1], b3 [R, K, 1]. H >= h is compiled.
struct Step {
  int64_t replicas, candidates, used, width, hidden, samples, padded, threads;
  double eps;               // of the components' rms; below 0 they are not normalised
  const float *x, *target;  // [padded]
  const float *own[6];
  const double *c;  // [R, used]
  float *gradients[6];
  double *along;  // [R, used]: dL/dc
  float *task;    // [R]: L
};

namespace {

constexpr double PI = 3.14159265358979323846;

template <int H> struct Training : Bank<H> {
  using B = Bank<H>;
  using V = typename B::V;
  using Work = typename B::Work;
  static constexpr int L = B::L;
  static constexpr int64_t P = B::P;

  static double square_norm(const float *g, int64_t n) {
    double total = 0;
    for (int64_t k = 0; k < n; ++k) {
      V part{};
      for (int64_t i = 0; i < P; i += L) part += load<L>(g + k * P + i) * load<L>(g + k * P + i);
      total += sum<L>(part);
    }
    return total;
  }

  // Steps of one replica.
  static void advance(const Job &job, int64_t r, Work &work) {
    const int64_t K = job.candidates;
    float *const p = job.p + r * K * P, *const m = job.m + r * K * P, *const v = job.v + r * K * P;
    double *const tau = job.tau + 3 * r;
    const double *const w = job.w + r * K;
    for (int64_t n = 0; n < job.steps; ++n) {
      const double *const shape = job.shapes + 4 * n;
      int64_t k_used = K;
      double t = double(K - 1), dt_dtau = 0, beta = 0, penalty = 0, slope = 0;  // a fixed count stands at t = K - 1
      if (job.gated) {
        const double price = job.lambda0[r] * shape[0], alpha = job.alpha_max[r] * shape[1];
        beta = job.beta_start[r] + (job.beta_end[r] - job.beta_start[r]) * shape[2];
        const double e = std::exp(tau[0]);
        t = tau[0] > 700.0 ? tau[0] : std::log1p(e);
        dt_dtau = tau[0] > 700.0 ? 1.0 : e / (e + 1.0);
        const double off = t - std::floor(t + 0.5), sine = std::sin(PI * off);
        penalty = price * t + alpha * sine * sine;
        slope = price + alpha * PI * 2.0 * sine * std::cos(PI * off);
        const double furthest = t + job.delta - std::log(job.cutoff) / beta;
        if (std::isfinite(furthest)) {
          const double leading = std::floor(furthest) + 1.0;
          k_used = leading < 1.0 ? 1 : leading > double(K) ? K : int64_t(leading);
        }
      }
      for (int64_t k = 0; k < k_used; ++k) {
        work.gate[k] = job.gated ? 1.0 / (1.0 + std::exp(-beta * (t - double(k) + job.delta))) : 1.0;
        work.c[k] = float(w[k] * work.gate[k]);
      }
      if (k_used > job.touched[r]) job.touched[r] = k_used;
      const int64_t touched = job.weight_decay != 0 ? K : job.touched[r];
      std::memset(work.g, 0, sizeof(float) * touched * P);
      const double loss = B::squares({job.x, job.target, job.samples, job.padded}, p, k_used, work);
      for (int64_t k = 0; k < k_used; ++k)  // fma, so that no compiler has a choice of rounding
        slope = std::fma(w[k] * beta * work.gate[k] * (1.0 - work.gate[k]), work.along[k], slope);
      const double dtau = job.gated ? slope * dt_dtau : 0.0;
      const double task = double(float(loss / double(job.samples)));
      job.objective[r * job.steps + n] = task + penalty;
      job.task[r * job.steps + n] = task;
      job.t[r * job.steps + n] = t;
      update(job, r, n, touched, work.g, dtau, p, m, v, tau);
    }
  }

  // min(1, clip / (norm + 1e-6)); NaN for a NaN norm.
  static double factor(double clip, double square) {
    const double f = clip / (std::sqrt(square) + 1e-6);
    return f > 1.0 ? 1.0 : f;
  }

  static void update(const Job &job, int64_t r, int64_t n, int64_t touched, const float *g, double dtau, float *p,
                     float *m, float *v, double *tau) {
    double body_factor = 1.0, tau_factor = 1.0;
    if (job.clip_scope) {
      const double body = square_norm(g, touched), own = dtau * dtau;
      body_factor = factor(job.clip, job.clip_scope == 1 ? body + own : body);
      tau_factor = job.clip_scope == 1 ? body_factor : job.clip_scope == 2 ? factor(job.clip, own) : 1.0;
    }
    const double step = double(job.first + n + 1);
    const double correct1 = 1.0 - std::pow(job.beta1, step), correct2 = std::sqrt(1.0 - std::pow(job.beta2, step));
    const float scale = float(body_factor), decay = float(job.weight_decay), near1 = float(1.0 - job.beta1);
    const float keep2 = float(job.beta2), near2 = float(1.0 - job.beta2), root = float(correct2), eps = float(job.eps);
    const float rate = float(job.lr[r] * job.shapes[4 * n + 3] / correct1);
    for (int64_t i = 0; i < touched * P; ++i) {
      const float grad = g[i] * scale + decay * p[i];
      m[i] += near1 * (grad - m[i]);
      v[i] = keep2 * v[i] + near2 * grad * grad;
      p[i] -= rate * (m[i] / (std::sqrt(v[i]) / root + eps));
    }
    if (job.gated) {
      const double grad = dtau * tau_factor;
      tau[1] += (1.0 - job.beta1) * (grad - tau[1]);
      tau[2] = job.beta2 * tau[2] + (1.0 - job.beta2) * grad * grad;
      tau[0] -= job.lr_boundary[r] / correct1 * (tau[1] / (std::sqrt(tau[2]) / correct2 + job.eps));
    }
  }

  static void run(const Job &job) {
    B::each(job.replicas, job.threads, job.candidates, 0, [&](int64_t r, Work &work) { advance(job, r, work); });
  }
};

template <int H> struct Gradients : Bank<H> {
  using B = Bank<H>;
  using Work = typename B::Work;
  static constexpr int64_t P = B::P;

  // Calls f(array, offset in it, offset in the packed component, length) for every stretch that one component has.
  template <class F> static void stretches(int64_t h, const F &f) {
    f(0, 0, B::W1, h), f(1, 0, B::B1, h), f(3, 0, B::B2, h), f(4, 0, B::W3, h), f(5, 0, B::B3, 1);
    for (int64_t i = 0; i < h; ++i) f(2, i * h, B::W2 + i * H, h);
  }

  // Loss, dL/dc and the gradients of one replica; those of components beyond the used ones are zero.
  static void step(const Step &step, int64_t r, Work &work) {
    const int64_t used = step.used, h = step.width, sizes[6] = {h, h, h * h, h, h, 1};
    std::memset(work.p, 0, sizeof(float) * used * P);
    std::memset(work.g, 0, sizeof(float) * used * P);
    const auto at = [&](int i, int64_t k) { return (r * step.candidates + k) * sizes[i]; };
    for (int64_t k = 0; k < used; ++k) {
      work.c[k] = float(step.c[r * used + k]);
      stretches(h, [&](int i, int64_t from, int64_t to, int64_t n) {
        std::memcpy(work.p + k * P + to, step.own[i] + at(i, k) + from, sizeof(float) * n);
      });
    }
    const Data data{step.x, step.target, step.samples, step.padded};
    const double loss = step.eps < 0
                            ? B::squares(data, work.p, used, work)
                            : Normalised<H>::squares(data, work.p, used, step.c + r * used, step.eps, work);
    step.task[r] = float(loss / double(step.samples));
    for (int64_t k = 0; k < used; ++k) {
      step.along[r * used + k] = work.along[k];
      stretches(h, [&](int i, int64_t to, int64_t from, int64_t n) {
        std::memcpy(step.gradients[i] + at(i, k) + to, work.g + k * P + from, sizeof(float) * n);
      });
    }
    for (int i = 0; i < 6; ++i)
      std::memset(step.gradients[i] + at(i, used), 0, sizeof(float) * (step.candidates - used) * sizes[i]);
  }

  static void run(const Step &all) {
    const int64_t values = all.eps < 0 ? 0 : Normalised<H>::values(all.used, all.padded);
    B::each(all.replicas, all.threads, all.used, values, [&](int64_t r, Work &work) { step(all, r, work); });
  }
};

// Returns 0; 1 if the hidden width is not compiled in, 2 if memory ran out.
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

extern "C" {

void ngn_bank1d_tanh(const float *in, float *out, int64_t n) {  // n: a multiple of 16
  for (int64_t i = 0; i < n; i += NATIVE) store<NATIVE>(out + i, tanh_<NATIVE>(load<NATIVE>(in + i)));
}

// Advances every replica by job->steps.
int64_t ngn_bank1d_advance(const Job *job) { return run<Training>(*job); }

// Loss and gradients of every replica, for given coefficients.
int64_t ngn_bank1d_gradients(const Step *step) { return run<Gradients>(*step); }
}
