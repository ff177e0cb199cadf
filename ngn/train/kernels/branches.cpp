// One step's cross-entropy and gradients of a sum of convolution branches (ngn/components/conv.py),
// y = sum_k c_k (V_k h_k + v_k), h = relu(pool(conv2(relu(pool(conv1(x)))))).
//
// Images one by one go forward and backward through all branches, in cache. Channels lie along L lanes, at most 16 of
// them, of which a vector register holds a part (PART); parts without a channel are left out. Of four pixels under a
// pooling window one at most has a gradient, and the second convolution's backward pass visits no others.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "convolution.h"

// One call's work; mirrored field by field in branches.py. Arrays are row-major. N samples, k <= K branches in use.
struct Step {
  int64_t samples, channels, height, width;  // of the images; height and width are multiples of 4
  int64_t first, second, outputs;            // channels after each convolution, classes
  int64_t used;                              // k
  const float *x;                            // [N, channels, height, width]
  const int64_t *labels;                     // [N]
  const float *own[6];                       // W1 [K, first, channels, 3, 3], b1 [K, first], W2 [K, second, first, 3, 3],
                                             // b2 [K, second], V [K, outputs, second * height / 4 * width / 4],
                                             // v [K, outputs]
  const float *c;                            // [k]
  float *gradients[6];                       // as own; the k leading ones are written
  double *along;                             // [k]: dL/dc
  double *loss;                              // [1]: mean over samples
};

namespace {

constexpr int MOST = 16;  // classes

struct Shape {
  int64_t C, H, W, C1, C2, O, P1, P2;  // P: pixels after each pooling
  explicit Shape(const Step &job)
      : C(job.channels), H(job.height), W(job.width), C1(job.first), C2(job.second), O(job.outputs),
        P1(H / 2 * (W / 2)), P2(H / 4 * (W / 4)) {}
  int64_t row0() const { return (W + 2) * C; }       // floats of a padded row of the image
  int64_t row1() const { return (W / 2 + 2) * L; }   // and of what the first convolution gives
  int64_t plane0() const { return (H + 2) * row0() + 2 * L; }  // a vector may be read past the end
  int64_t plane1() const { return (H / 2 + 2) * row1(); }
};

// A branch's parameters with channels along lanes, its gradients in the same form, and what it made of one image.
struct Branch {
  float *W1, *b1, *W2, *W2t, *b2, *V2, *v2;  // [9 C][L], [L], [9 C1][L out], [9 C2][L in], [L], [P2][O][L], [O]
  float *dW1, *db1, *dW2t, *db2, *dV, *dv;
  float *a1, *h;      // after each pooling and ReLU: padded [H/2 + 2][W/2 + 2][L], [P2][L]
  int8_t *at1, *at2;  // [P][L]: which pixel of the pooling window was the largest, or NONE
  float f[MOST];
  static int64_t parameters(const Shape &s) {
    return (9 * s.C + 1 + 9 * s.C1 + 1 + s.O * s.P2) * L + s.O + 9 * s.C2 * L;
  }
};

class Arena {
 public:
  explicit Arena(int64_t floats) : block(new float[floats + L]()) {
    next = (float *)(((uintptr_t)block.get() + 63) & ~(uintptr_t)63);
  }
  float *take(int64_t floats) {
    float *const here = next;
    next += (floats + L - 1) / L * L;
    return here;
  }
  int8_t *bytes(int64_t count) { return (int8_t *)take((count + 3) / 4); }

 private:
  std::unique_ptr<float[]> block;
  float *next;
};

void forward(const Shape &s, const float *image, Branch &k) {
  float *const inside = k.a1 + s.row1() + L;
  if (s.C == 1)
    convolve<1>(s.C1, image, s.row0(), s.H, s.W, s.C, k.W1, k.b1, inside, s.row1(), k.at1);
  else
    convolve<3>(s.C1, image, s.row0(), s.H, s.W, s.C, k.W1, k.b1, inside, s.row1(), k.at1);
  convolve<L>(s.C2, k.a1, s.row1(), s.H / 2, s.W / 2, s.C1, k.W2, k.b2, k.h, s.W / 4 * L, k.at2);
  for (int64_t o = 0; o < s.O; ++o) {
    float sums[L] = {};
    for (int64_t part = 0; part < s.C2; part += PART) {
      V own{};
      for (int64_t p = 0; p < s.P2; ++p) own += get(k.h + p * L + part) * get(k.V2 + (p * s.O + o) * L + part);
      put(sums + part, own);
    }
    k.f[o] = sum<L>(load<L>(sums)) + k.v2[o];
  }
}

// Every 4 x 4 patch of the padded image that a pooling window of the first convolution looks at, 16 floats a channel.
void cut(const Shape &s, const float *image, float *patches) {
  for (int64_t r = 0; r < s.H / 2; ++r)
    for (int64_t t = 0; t < s.W / 2; ++t)
      for (int64_t i = 0; i < s.C; ++i, patches += L)
        for (int64_t at = 0; at < L; ++at)
          patches[at] = image[(2 * r + at / 4) * s.row0() + (2 * t + at % 4) * s.C + i];
}

// Gradients of the weights of n of the first convolution's C input channels, from `first` on, from da, what the ReLU
// after it receives (padded as a1). Each channel's pixel lies elsewhere in its window, so what the weights of a tap saw
// is found in the patch by place.
template <int C, int n>
void backward_first(int64_t first, const Shape &s, const float *patches, const float *da, Branch &k) {
  for (int64_t part = 0; part < s.C1; part += PART) {
    V w[9 * n], bias = get(k.db1 + part);
    float *const dW1 = k.dW1 + first * L + part;
#pragma GCC unroll 27
    for (int i = 0; i < 9 * n; ++i) w[i] = get(dW1 + (i / n * C + i % n) * L);
    for (int64_t r = 0; r < s.H / 2; ++r)
      for (int64_t t = 0; t < s.W / 2; ++t) {
        const int64_t p = r * (s.W / 2) + t;
        const I where = widen(k.at1 + p * L + part);
        const V d = where == NONE ? V{} : get(da + (r + 1) * s.row1() + (t + 1) * L + part);
        const I corner = ((where & 2) << 1) + (where & 1);
        bias += d;
#pragma GCC unroll 3
        for (int i = 0; i < n; ++i) {
          const float *const patch = patches + (p * C + first + i) * L;
#pragma GCC unroll 9
          for (int tap = 0; tap < 9; ++tap) {
            const Eight rows(patch + tap / 3 * 4);  // the two that the tap can lie in
            w[tap * n + i] += rows[corner + tap % 3] * d;
          }
        }
      }
#pragma GCC unroll 27
    for (int i = 0; i < 9 * n; ++i) put(dW1 + (i / n * C + i % n) * L, w[i]);
    if (first == 0) put(k.db1 + part, bias);
  }
}

template <int C> void backward_first(const Shape &s, const float *patches, const float *da, Branch &k) {
#if defined(__AVX512F__)
  backward_first<C, C>(0, s, patches, da, k);
#else  // fewer registers
  for (int64_t first = 0; first < C; ++first) backward_first<C, 1>(first, s, patches, da, k);
#endif
}

// The pixels of the second convolution that receive a gradient, output channel after output channel.
struct Active {
  std::vector<int32_t> place;  // [L][P2]: where the 3x3 window begins in a1
  std::vector<float> value;
  int64_t count[L];
  explicit Active(const Shape &s) : place(L * s.P2), value(L * s.P2) {}
};

// Adds the gradients of one branch for one image; e = c dL/dy. `da` is scratch of the size of a1.
void backward(const Shape &s, const float *patches, const float *e, Branch &k, float *da, Active &active) {
  const int64_t outputs = s.O;
  for (int64_t o = 0; o < outputs; ++o) k.dv[o] += e[o];
  for (int64_t o = 0; o < s.C2; ++o) active.count[o] = 0;
  for (int64_t p = 0; p < s.P2; ++p) {
    float values[L];
    for (int64_t part = 0; part < s.C2; part += PART) {
      const V h = get(k.h + p * L + part);
      V dh{};
      const float *last = k.V2 + p * outputs * L + part;
      float *own = k.dV + p * outputs * L + part;
      for (int64_t o = 0; o < outputs; ++o, last += L, own += L) {
        dh += e[o] * get(last);
        put(own, get(own) + e[o] * h);
      }
      put(values + part, dh);
    }
    const int64_t r = p / (s.W / 4) * 2, t = p % (s.W / 4) * 2;
    const int8_t *const at = k.at2 + p * L;
    for (int64_t o = 0; o < s.C2; ++o) {  // without a branch: every second one would be a surprise
      int64_t &n = active.count[o];
      active.place[o * s.P2 + n] = int32_t((r + (at[o] >> 1 & 1)) * s.row1() + (t + (at[o] & 1)) * L);
      active.value[o * s.P2 + n] = values[o];
      n += at[o] != NONE;
    }
  }
  std::memset(da, 0, sizeof(float) * s.plane1());
  const int64_t row = s.row1();
  for (int64_t o = 0; o < s.C2; ++o) {
    const int64_t count = active.count[o];
    const float *const a1 = k.a1, *const values = &active.value[o * s.P2];
    const int32_t *const places = &active.place[o * s.P2];
    float bias = 0;
    for (int64_t n = 0; n < count; ++n) bias += values[n];
    k.db2[o] += bias;
    for (int64_t part = 0; part < s.C1; part += PART) {
      V w[9], g[9];
#pragma GCC unroll 9
      for (int i = 0; i < 9; ++i) {
        w[i] = get(k.W2t + (i * s.C2 + o) * L + part);
        g[i] = get(k.dW2t + (i * s.C2 + o) * L + part);
      }
      for (int64_t n = 0; n < count; ++n) {
        const int64_t place = places[n] + part;
        const float value = values[n];
#pragma GCC unroll 9
        for (int i = 0; i < 9; ++i) {
          const int64_t at = place + i / 3 * row + i % 3 * L;
          g[i] += value * get(a1 + at);
          put(da + at, get(da + at) + value * w[i]);
        }
      }
#pragma GCC unroll 9
      for (int i = 0; i < 9; ++i) put(k.dW2t + (i * s.C2 + o) * L + part, g[i]);
    }
  }
  if (s.C == 1)
    backward_first<1>(s, patches, da, k);
  else
    backward_first<3>(s, patches, da, k);
}

// Calls f(element of the parameter, element with channels along lanes) for every entry of W1, W2 and V.
template <class F> void first_entries(const Shape &s, const F &f) {
  for (int64_t o = 0; o < s.C1; ++o)
    for (int64_t i = 0; i < s.C; ++i)
      for (int64_t q = 0; q < 9; ++q) f((o * s.C + i) * 9 + q, (q * s.C + i) * L + o);
}
template <class F> void second_entries(const Shape &s, const F &f) {
  for (int64_t o = 0; o < s.C2; ++o)
    for (int64_t i = 0; i < s.C1; ++i)
      for (int64_t q = 0; q < 9; ++q) f((o * s.C1 + i) * 9 + q, (q * s.C1 + i) * L + o, (q * s.C2 + o) * L + i);
}
template <class F> void last_entries(const Shape &s, const F &f) {
  for (int64_t o = 0; o < s.O; ++o)
    for (int64_t i = 0; i < s.C2; ++i)
      for (int64_t p = 0; p < s.P2; ++p) f((o * s.C2 + i) * s.P2 + p, (p * s.O + o) * L + i);
}

Branch take(const Shape &s, Arena &arena) {
  Branch k;
  k.W1 = arena.take(9 * s.C * L), k.b1 = arena.take(L), k.W2 = arena.take(9 * s.C1 * L), k.W2t = arena.take(9 * s.C2 * L);
  k.b2 = arena.take(L), k.V2 = arena.take(s.O * s.P2 * L), k.v2 = arena.take(s.O);
  k.dW1 = arena.take(9 * s.C * L), k.db1 = arena.take(L), k.dW2t = arena.take(9 * s.C2 * L), k.db2 = arena.take(L);
  k.dV = arena.take(s.O * s.P2 * L), k.dv = arena.take(s.O);
  k.a1 = arena.take(s.plane1()), k.h = arena.take(s.P2 * L);
  k.at1 = arena.bytes(s.P1 * L), k.at2 = arena.bytes(s.P2 * L);
  return k;
}

int64_t needed(const Shape &s) {
  return 2 * Branch::parameters(s) + s.plane1() + s.P2 * L + (s.P1 + s.P2) * L / 4 + 24 * L;
}

void pack(const Step &job, const Shape &s, int64_t n, Branch &k) {
  const float *const W1 = job.own[0] + n * 9 * s.C * s.C1, *const W2 = job.own[2] + n * 9 * s.C1 * s.C2;
  const float *const Vn = job.own[4] + n * s.O * s.C2 * s.P2;
  first_entries(s, [&](int64_t from, int64_t to) { k.W1[to] = W1[from]; });
  second_entries(s, [&](int64_t from, int64_t to, int64_t other) { k.W2[to] = k.W2t[other] = W2[from]; });
  last_entries(s, [&](int64_t from, int64_t to) { k.V2[to] = Vn[from]; });
  std::memcpy(k.b1, job.own[1] + n * s.C1, sizeof(float) * s.C1);
  std::memcpy(k.b2, job.own[3] + n * s.C2, sizeof(float) * s.C2);
  std::memcpy(k.v2, job.own[5] + n * s.O, sizeof(float) * s.O);
}

void unpack(const Step &job, const Shape &s, int64_t n, const Branch &k) {
  float *const W1 = job.gradients[0] + n * 9 * s.C * s.C1, *const W2 = job.gradients[2] + n * 9 * s.C1 * s.C2;
  float *const Vn = job.gradients[4] + n * s.O * s.C2 * s.P2;
  first_entries(s, [&](int64_t to, int64_t from) { W1[to] = k.dW1[from]; });
  second_entries(s, [&](int64_t to, int64_t, int64_t from) { W2[to] = k.dW2t[from]; });
  last_entries(s, [&](int64_t to, int64_t from) { Vn[to] = k.dV[from]; });
  std::memcpy(job.gradients[1] + n * s.C1, k.db1, sizeof(float) * s.C1);
  std::memcpy(job.gradients[3] + n * s.C2, k.db2, sizeof(float) * s.C2);
  std::memcpy(job.gradients[5] + n * s.O, k.dv, sizeof(float) * s.O);
}

void step(const Step &job) {
  const Shape s(job);
  Arena arena(s.plane0() + s.plane1() + s.P1 * s.C * L + job.used * needed(s) + 4 * L);
  float *const image = arena.take(s.plane0()), *const da = arena.take(s.plane1());
  float *const patches = arena.take(s.P1 * s.C * L);
  std::vector<Branch> branches;
  for (int64_t n = 0; n < job.used; ++n) {
    branches.push_back(take(s, arena));
    pack(job, s, n, branches.back());
    job.along[n] = 0;
  }
  Active active(s);
  double loss = 0;
  for (int64_t n = 0; n < job.samples; ++n) {
    const float *const own = job.x + n * s.C * s.H * s.W;
    for (int64_t i = 0; i < s.C; ++i)
      for (int64_t r = 0; r < s.H; ++r)
        for (int64_t t = 0; t < s.W; ++t)
          image[(r + 1) * s.row0() + (t + 1) * s.C + i] = own[(i * s.H + r) * s.W + t];
    cut(s, image, patches);
    double y[MOST] = {}, largest = -HUGE_VAL, total = 0;
    for (int64_t k = 0; k < job.used; ++k) {
      forward(s, image, branches[k]);
      for (int64_t o = 0; o < s.O; ++o) y[o] += double(job.c[k]) * double(branches[k].f[o]);
    }
    for (int64_t o = 0; o < s.O; ++o) largest = y[o] > largest ? y[o] : largest;
    for (int64_t o = 0; o < s.O; ++o) total += std::exp(y[o] - largest);
    loss += largest + std::log(total) - y[job.labels[n]];
    double dy[MOST];
    for (int64_t o = 0; o < s.O; ++o)
      dy[o] = (std::exp(y[o] - largest) / total - double(o == job.labels[n])) / double(job.samples);
    for (int64_t k = 0; k < job.used; ++k) {
      float e[MOST];
      for (int64_t o = 0; o < s.O; ++o) {
        job.along[k] += dy[o] * double(branches[k].f[o]);
        e[o] = float(double(job.c[k]) * dy[o]);
      }
      backward(s, patches, e, branches[k], da, active);
    }
  }
  for (int64_t n = 0; n < job.used; ++n) unpack(job, s, n, branches[n]);
  *job.loss = loss / double(job.samples);
}

}  // namespace

extern "C" {

// Returns 0, or 2 if memory ran out.
int64_t ngn_branches_step(const Step *job) {
  try {
    return step(*job), 0;
  } catch (const std::bad_alloc &) {
    return 2;
  }
}
}
