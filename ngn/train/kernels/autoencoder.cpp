// One step's loss and gradients of the manifold study's autoencoder (experiments/tasks/manifold.py): GELU layers, rank-one terms
// with a gated posterior (ngn/components/latent.py), GELU layers, a linear map.
//
// A few samples at a time go forward and backward through everything, in cache. Features lie along the vector lanes.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "gelu.h"
#include "products.h"

// One call's work; mirrored field by field in autoencoder.py. Arrays are row-major. N samples, K <= 16 terms; `inputs` and
// `width` are multiples of 16.
struct Step {
  int64_t samples, inputs, width, layers, terms;  // layers: of the encoder, and as many of the decoder
  double kl;
  const float *x, *noise;              // [N, inputs], [N, K]
  const float *gate, *deviation, *w;   // [K]: g_k, the posterior's standard deviation, the ordering weight
  const float *const *own;             // W [in, out] and b [out] of each layer of the encoder, A [K, width],
                                       // B [K, width], W and b of each layer of the decoder, W and b of the output
  float *const *gradients;             // as own; filled with zeros here
  double *along_gate, *along_deviation;  // [K]: the gradients of the loss without what the posterior's variance costs
  double *loss;                        // [2]: mean squared error; kl/2 sum_k g_k^2 mean mu_k^2
};

namespace {

constexpr int64_t TILE = 64;  // samples in flight
constexpr int64_t TERMS = 16;  // at most; arrays over terms are that long

// The memory of a call, in pieces of whole vectors.
class Arena {
 public:
  explicit Arena(int64_t floats) : block(new float[floats + 16]()) {
    next = (float *)(((uintptr_t)block.get() + 63) & ~(uintptr_t)63);
  }
  float *take(int64_t floats) {
    float *const here = next;
    next += floats;
    return here;
  }

 private:
  std::unique_ptr<float[]> block;
  float *next;
};

// An affine map of the model, with its gradients and its transposed weights.
struct Affine {
  int64_t in, out;
  const float *W, *b;
  float *dW, *db;
  float *Wt;
  float *a, *slope;  // [TILE, out]: what GELU makes of it in this tile, and GELU's slope there

  void transpose() const {
    for (int64_t i = 0; i < in; ++i)
      for (int64_t o = 0; o < out; ++o) Wt[o * in + i] = W[i * out + o];
  }

  void forward(const float *x, int64_t n, float *z) const { product<false>(x, in, 1, W, n, out, in, b, z); }

  // a = gelu(x W + b).
  void activate(const float *x, int64_t n) const {
    forward(x, n, a);
    for (int64_t i = 0; i < n * out; i += L) {
      V slopes;
      store<L>(a + i, gelu<L>(load<L>(a + i), slopes));
      store<L>(slope + i, slopes);
    }
  }

  // Adds the gradients of W and b, from d = dL/dz [n, out].
  void gradients(const float *x, const float *d, int64_t n) const {
    product<true>(x, 1, in, d, in, out, n, nullptr, dW);
    for (int64_t o = 0; o < out; o += L) {
      V sums{};
      for (int64_t i = 0; i < n; ++i) sums += load<L>(d + i * out + o);
      store<L>(db + o, load<L>(db + o) + sums);
    }
  }

  void back(const float *d, int64_t n, float *dx) const { product<false>(d, out, 1, Wt, n, in, out, nullptr, dx); }
};

// Backward through GELU layers from d = dL/da of the last one; dL/dx ends in d if `through`.
void descend(const Affine *layers, int64_t count, const float *x, int64_t n, float *d, float *spare, bool through) {
  for (int64_t l = count - 1; l >= 0; --l) {
    const Affine &layer = layers[l];
    for (int64_t i = 0; i < n * layer.out; i += L) store<L>(d + i, load<L>(d + i) * load<L>(layer.slope + i));
    layer.gradients(l > 0 ? layers[l - 1].a : x, d, n);
    if (l == 0 && !through) return;
    layer.back(d, n, spare);
    std::memcpy(d, spare, sizeof(float) * n * layer.in);
  }
}

void step(const Step &job) {
  const int64_t D = job.inputs, H = job.width, K = job.terms, N = job.samples, count = job.layers;
  const int64_t maps = 2 * count + 1, widest = H > D ? H : D;
  Arena arena(maps * (widest * widest + 2 * TILE * widest) + 6 * TERMS * H + (4 * widest + 5 * TERMS) * TILE);
  const std::unique_ptr<Affine[]> all(new Affine[maps]);
  for (int64_t i = 0, at = 0; i < maps; ++i, at += 2) {
    if (i == count) at += 2;  // A and B
    Affine &m = all[i];
    m.in = i == 0 ? D : H, m.out = i + 1 == maps ? D : H;
    m.W = job.own[at], m.b = job.own[at + 1], m.dW = job.gradients[at], m.db = job.gradients[at + 1];
    m.Wt = arena.take(widest * widest), m.a = arena.take(TILE * widest), m.slope = arena.take(TILE * widest);
    std::memset(m.dW, 0, sizeof(float) * m.in * m.out);
    std::memset(m.db, 0, sizeof(float) * m.out);
    m.transpose();
  }
  const Affine *const encoder = all.get(), *const decoder = encoder + count, &output = all[maps - 1];
  const float *const A = job.own[2 * count], *const B = job.own[2 * count + 1];
  float *const At = arena.take(H * TERMS), *const Apadded = arena.take(TERMS * H), *const dAt = arena.take(H * TERMS);
  float *const wB = arena.take(TERMS * H), *const wBt = arena.take(H * TERMS), *const dwB = arena.take(TERMS * H);
  float gate[TERMS] = {}, deviation[TERMS] = {};
  for (int64_t k = 0; k < K; ++k) {
    gate[k] = job.gate[k], deviation[k] = job.deviation[k];
    for (int64_t h = 0; h < H; ++h) {
      Apadded[k * H + h] = At[h * TERMS + k] = A[k * H + h];
      wB[k * H + h] = wBt[h * TERMS + k] = job.w[k] * B[k * H + h];
    }
  }
  float *const d = arena.take(TILE * widest), *const spare = arena.take(TILE * widest);
  float *const v = arena.take(TILE * widest), *const y = arena.take(TILE * widest);
  float *const mu = arena.take(TILE * TERMS), *const z = arena.take(TILE * TERMS), *const dz = arena.take(TILE * TERMS);
  float *const noise = arena.take(TILE * TERMS), *const dmu = arena.take(TILE * TERMS);
  const float each = float(2.0 / double(N)), price = float(job.kl / double(N));
  double squares = 0, means = 0;
  for (int64_t k = 0; k < K; ++k) job.along_gate[k] = job.along_deviation[k] = 0;
  for (int64_t s = 0; s < N; s += TILE) {
    const int64_t n = N - s < TILE ? N - s : TILE;
    const float *const x = job.x + s * D;
    for (int64_t l = 0; l < count; ++l) encoder[l].activate(l ? encoder[l - 1].a : x, n);
    const float *const h = encoder[count - 1].a;
    product<false>(h, H, 1, At, n, TERMS, H, nullptr, mu);
    V kept{};
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < K; ++k) noise[i * TERMS + k] = job.noise[(s + i) * K + k];
      for (int64_t k = 0, at = i * TERMS; k < TERMS; k += L, at += L) {
        const V mean = load<L>(gate + k) * load<L>(mu + at);
        kept += mean * mean;
        store<L>(z + at, mean + load<L>(deviation + k) * load<L>(noise + at));
      }
    }
    means += sum<L>(kept);
    product<false>(z, TERMS, 1, wB, n, H, TERMS, nullptr, v);
    for (int64_t l = 0; l < count; ++l) decoder[l].activate(l ? decoder[l - 1].a : v, n);
    output.forward(decoder[count - 1].a, n, y);
    V residuals{};
    for (int64_t i = 0; i < n * D; i += L) {
      const V r = load<L>(y + i) - load<L>(x + i);
      residuals += r * r;
      store<L>(y + i, each * r);
    }
    squares += sum<L>(residuals);

    output.gradients(decoder[count - 1].a, y, n);
    output.back(y, n, d);
    descend(decoder, count, v, n, d, spare, true);
    product<true>(z, 1, TERMS, d, TERMS, H, n, nullptr, dwB);
    product<false>(d, H, 1, wBt, n, TERMS, H, nullptr, dz);
    for (int64_t k = 0; k < TERMS; k += L) {
      const V own = load<L>(gate + k);
      V along_gate{}, along_deviation{};
      for (int64_t i = 0, at = k; i < n; ++i, at += TERMS) {
        const V m = load<L>(mu + at), slope = load<L>(dz + at);
        const V dmean = slope + price * (own * m);
        along_gate += dmean * m;
        along_deviation += slope * load<L>(noise + at);
        store<L>(dmu + at, dmean * own);
      }
      for (int64_t i = 0; i < L && k + i < K; ++i) {
        job.along_gate[k + i] += double(along_gate[i]);
        job.along_deviation[k + i] += double(along_deviation[i]);
      }
    }
    product<true>(h, 1, H, dmu, H, TERMS, n, nullptr, dAt);
    product<false>(dmu, TERMS, 1, Apadded, n, H, TERMS, nullptr, d);
    descend(encoder, count, x, n, d, spare, false);
  }
  float *const dA = job.gradients[2 * count], *const dB = job.gradients[2 * count + 1];
  for (int64_t k = 0; k < K; ++k)
    for (int64_t h = 0; h < H; ++h) {
      dA[k * H + h] = dAt[h * TERMS + k];
      dB[k * H + h] = job.w[k] * dwB[k * H + h];
    }
  job.loss[0] = squares / double(N);
  job.loss[1] = 0.5 * job.kl * means / double(N);
}

}  // namespace

extern "C" {

// Returns 0, or 2 if memory ran out.
int64_t ngn_autoencoder_step(const Step *job) {
  try {
    return step(*job), 0;
  } catch (const std::bad_alloc &) {
    return 2;
  }
}

// gelu and its slope of n floats, a multiple of 16; for tests.
void ngn_gelu(const float *x, float *y, float *slope, int64_t n) {
  for (int64_t i = 0; i < n; i += L) {
    V slopes;
    store<L>(y + i, gelu<L>(load<L>(x + i), slopes));
    store<L>(slope + i, slopes);
  }
}
}
