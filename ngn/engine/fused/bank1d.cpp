// Trains stacks of y(x) = sum_k w_k g_k(t) [W3_k . tanh(W2_k tanh(W1_k x + b1_k) + b2_k) + b3_k] with full-batch Adam.
//
// The equations of ngn/gate.py, ngn/components/mlp.py and ngn/engine/optim.py, in one pass over the samples a step:
//
//   * hidden units lie along the vector lanes, so the three products with W2 (forward, backward, its gradient) are
//     broadcast multiply-adds into registers and no gradient needs a horizontal sum;
//   * y of a sample depends on that sample alone, so forward and backward are done for SAMPLES samples at a time and
//     their activations never leave the core's own caches;
//   * only components with a gate of at least 1e-15 are computed. The gradients of the others count as zero, and Adam
//     goes on for every component that ever had one (for the rest it would add zero to zero);
//   * a replica is one thread's work and no arithmetic crosses replicas: its numbers depend on nothing beside it.
//
// The body is float32; boundary, gates, penalty and norms are float64. NaN and infinity keep their IEEE meaning
// (-ffast-math must not be used), because they are how divergence is seen.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>
#if defined(__SSE__)
#include <immintrin.h>
#endif

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

namespace {

#if defined(__AVX512F__)
constexpr int NATIVE = 16;
#elif defined(__AVX__)
constexpr int NATIVE = 8;
#else
constexpr int NATIVE = 4;
#endif
constexpr int REGISTERS = NATIVE == 8 ? 8 : 16;  // accumulators that fit beside operands
constexpr int SAMPLES = 32;                      // samples whose activations of all components are in flight
constexpr int TILE = 8;                          // all sample counts are multiples of this
constexpr double PI = 3.14159265358979323846;

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

  // Activations of one component for n samples, and its share c W3.a2 of y, still spread over the lanes.
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

  // Adds to g the gradients of one component over n samples, from dy = dL/dy; g's W3 gets sum_s dy a2 without c.
  // a2 is overwritten. Wt is W2 transposed.
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
    for (int v = 0; v < NV; ++v) {
      store<L>(g + W3 + v * L, g3[v]);
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

  // Memory of one thread.
  struct Work {
    std::unique_ptr<float[]> block;
    float *a1, *a2, *g, *wt;
    std::vector<double> gate;
    std::vector<float> c;
    explicit Work(int64_t K)
        : block(new float[K * (2 * SAMPLES * H + P + H * H) + 16]), gate(K), c(K) {
      const uintptr_t at = ((uintptr_t)block.get() + 63) & ~(uintptr_t)63;
      a1 = (float *)at;
      a2 = a1 + K * SAMPLES * H;
      g = a2 + K * SAMPLES * H;
      wt = g + K * P;
    }
  };

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
      float bias = 0;
      for (int64_t k = 0; k < k_used; ++k) {
        work.gate[k] = job.gated ? 1.0 / (1.0 + std::exp(-beta * (t - double(k) + job.delta))) : 1.0;
        work.c[k] = float(w[k] * work.gate[k]);
        bias += p[k * P + B3] * work.c[k];
        for (int i = 0; i < H; ++i)
          for (int j = 0; j < H; ++j) work.wt[k * H * H + j * H + i] = p[k * P + W2 + i * H + j];
      }
      if (k_used > job.touched[r]) job.touched[r] = k_used;
      const int64_t touched = job.weight_decay != 0 ? K : job.touched[r];
      std::memset(work.g, 0, sizeof(float) * touched * P);
      double loss = 0, dy_sum = 0;
      for (int64_t s0 = 0; s0 < job.padded; s0 += SAMPLES) {
        const int count = int(job.padded - s0 < SAMPLES ? job.padded - s0 : SAMPLES);
        const float *const x = job.x + s0;
        alignas(64) float y[SAMPLES * L] = {};
        float dy[SAMPLES];
        for (int64_t k = 0; k < k_used; ++k)
          forward(p + k * P, work.c[k], x, count, work.a1 + k * SAMPLES * H, work.a2 + k * SAMPLES * H, y);
        for (int s = 0; s < count; ++s) {
          const bool real = s0 + s < job.samples;
          const float residual = real ? sum<L>(load<L>(y + s * L)) + bias - job.target[s0 + s] : 0.0f;
          dy[s] = residual * float(2.0 / double(job.samples));
          loss += residual * residual;
          dy_sum += dy[s];
        }
        for (int64_t k = 0; k < k_used; ++k)
          backward(p + k * P, work.wt + k * H * H, work.c[k], x, dy, count, work.a1 + k * SAMPLES * H,
                   work.a2 + k * SAMPLES * H, work.g + k * P);
      }
      // <dy, f_k> = W3_k . (a2_k^T dy) + b3_k sum(dy): f_k itself is not needed. Then c_k completes the last layer.
      for (int64_t k = 0; k < k_used; ++k) {
        float *const g = work.g + k * P;
        double along = double(p[k * P + B3]) * dy_sum;
        for (int j = 0; j < H; ++j) along += double(p[k * P + W3 + j]) * double(g[W3 + j]);
        slope += w[k] * beta * work.gate[k] * (1.0 - work.gate[k]) * along;
        for (int j = 0; j < H; ++j) g[W3 + j] *= work.c[k];
        g[B3] = work.c[k] * float(dy_sum);
      }
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
    const int64_t threads = job.threads < job.replicas ? job.threads : job.replicas;
    std::vector<Work> works;
    for (int64_t i = 0; i < threads; ++i) works.emplace_back(job.candidates);
    std::atomic<int64_t> next{0};
    const auto work_on = [&](Work &work) {
#if defined(__SSE__)
      // Moments of components that left the window decay for ever; as denormal numbers they would be slow.
      const unsigned before = _mm_getcsr();
      _mm_setcsr(before | 0x8040);
#endif
      for (int64_t r; (r = next++) < job.replicas;) advance(job, r, work);
#if defined(__SSE__)
      _mm_setcsr(before);
#endif
    };
    std::vector<std::thread> pool;
    try {
      for (int64_t i = 1; i < threads; ++i) pool.emplace_back(work_on, std::ref(works[i]));
    } catch (const std::system_error &) {  // fewer threads than asked for: those there are do the work
    }
    work_on(works[0]);
    for (auto &thread : pool) thread.join();
  }
};

}  // namespace

extern "C" {

void ngn_bank1d_tanh(const float *in, float *out, int64_t n) {  // n: a multiple of 16
  for (int64_t i = 0; i < n; i += NATIVE) store<NATIVE>(out + i, tanh_<NATIVE>(load<NATIVE>(in + i)));
}

// Advances every replica by job->steps. Returns 0; 1 if the hidden width is not compiled in, 2 if memory ran out.
int64_t ngn_bank1d_advance(const Job *job) {
  try {
    switch (job->hidden) {
      case 8: return Bank<8>::run(*job), 0;
      case 16: return Bank<16>::run(*job), 0;
      case 32: return Bank<32>::run(*job), 0;
      case 64: return Bank<64>::run(*job), 0;
    }
    return 1;
  } catch (const std::bad_alloc &) {
    return 2;
  }
}
}
