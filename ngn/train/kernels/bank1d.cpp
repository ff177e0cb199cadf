// Stacks of y(x) = sum_k c_k f_k(x), f_k as in block1d.h, on the mean squared error over one full batch: whole stretches
// of training with c_k = w_k g_k(t), or the gradients of a single step for coefficients that somebody else computes and
// for f_k that may be normalised (normalised1d.h).
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>

#include "block1d.h"
#include "normalised1d.h"
#include "training.h"

// One call's work; mirrored field by field in step1d.py. R replicas, K candidates of width h in the arrays of the bank:
// W1 [R, K, 1, h], b1 [R, K, h], W2 [R, K, h, h], b2 [R, K, h], W3 [R, K, h, 1], b3 [R, K, 1]. H >= h is compiled.
struct Step {
  int64_t replicas, candidates, used, width, hidden, samples, padded, threads, flat;  // flat: see Bank::squares
  double eps;               // of the components' rms; below 0 they are not normalised
  const float *x, *target;  // [padded]
  const float *own[6];
  const double *c;  // [R, used]
  float *gradients[6];
  double *along;  // [R, used]: dL/dc
  float *task;    // [R]: L
};

namespace {

// A bank as a model that is trained whole. A component holds W1[H] b1[H] W2[H][H] b2[H] W3[H] b3[1] and 15 zeros.
template <int H> struct Whole : Bank<H> {
  using B = Bank<H>;
  using V = typename B::V;
  using Work = typename B::Work;
  static constexpr int L = B::L, OUT = 1;
  static constexpr int64_t SIZE = B::P;

  static Work work(const Job &job) { return Work(job.candidates[0], 0); }

  static double norm(const float *g, int64_t n) {
    double total = 0;
    for (int64_t k = 0; k < n; ++k) {
      V part{};
      for (int64_t i = 0; i < SIZE; i += L) part += load<L>(g + k * SIZE + i) * load<L>(g + k * SIZE + i);
      total += sum<L>(part);
    }
    return total;
  }

  static double squares(const Job &job, const float *p, const int64_t *used, Work &work) {
    return B::squares({job.x, job.target, job.samples, job.padded}, p, used[0], work);
  }
};

template <int H> using Advance = Training<Whole<H>>;

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
                            ? B::squares(data, work.p, used, work, step.flat)
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
    each(all.replicas, all.threads, [&] { return Work(all.used, values); },
         [&](int64_t r, Work &work) { step(all, r, work); });
  }
};

}  // namespace

extern "C" {

void ngn_bank1d_tanh(const float *in, float *out, int64_t n) {  // n: a multiple of 16
  for (int64_t i = 0; i < n; i += NATIVE) store<NATIVE>(out + i, tanh_<NATIVE>(load<NATIVE>(in + i)));
}

// Advances every replica by job->steps.
int64_t ngn_bank1d_advance(const Job *job) { return run<Advance>(*job); }

// Loss and gradients of every replica, for given coefficients.
int64_t ngn_bank1d_gradients(const Step *step) { return run<Gradients>(*step); }
}
