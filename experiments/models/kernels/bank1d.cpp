// Many training steps for stacks of y(x) = sum_k c_k f_k(x), with c_k = w_k g_k(t) and f_k as in block1d.h. The loss is
// the mean squared error over one full batch.
#include <cstdint>

#include "block1d.h"
#include "training.h"

namespace {

// A bank as a `Model` of training.h. A component holds W1[H] b1[H] W2[H][H] b2[H] W3[H] b3[1] and 15 zeros.
template <int H> struct Whole : Bank<H> {
  using B = Bank<H>;
  using V = typename B::V;
  using Work = typename B::Work;
  static constexpr int L = B::L, OUT = 1;
  static constexpr int64_t SIZE = B::P;

  static Work work(const Job &job) { return Work(job.candidates[0]); }

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

}  // namespace

extern "C" {

void ngn_bank1d_tanh(const float *in, float *out, int64_t n) {  // n: a multiple of 16
  for (int64_t i = 0; i < n; i += NATIVE) store<NATIVE>(out + i, tanh_<NATIVE>(load<NATIVE>(in + i)));
}

// Advances every replica by job->steps steps.
int64_t ngn_bank1d_advance(const Job *job) { return run<Advance>(*job); }
}
