// GELU in its exact form, gelu(z) = z Phi(z) with Phi the standard normal's distribution, and its slope
// Phi(z) + z phi(z), on vectors of L floats.
#pragma once

#include "vectors.h"

namespace {

// Phi(z), and e = exp(-z^2 / 2). Phi(-|z|) = e Q(t), t = 1 / (1 + 0.3 |z|): Q by a polynomial (relative error 6e-8,
// fitted in float64), the power of two by another and its exponent bits, the reciprocal from exponent bits refined
// twice. Errors of gelu and its slope below 4e-7 (tested; torch has 1e-6). Neither NaN nor infinity becomes finite unseen.
template <int L> inline typename Vec<L>::V normal(typename Vec<L>::V z, typename Vec<L>::V &e) {
  using V = typename Vec<L>::V;
  using I = typename Vec<L>::I;
  const V a = most(z, -z);
  V d = 1.0f + 0.3f * least(V{} + 14.0f, a);
  V t = (V)((I{} + 0x7EF31D00) - (I)d);
  t = t * (2.0013f - d * t);
  d = 1.0f - d * t;
  t = t + t * (d * d + d);
  V q = t * 0.0383342682f - 0.168951962f;
  q = q * t + 0.22821731f;
  q = q * t - 0.0759995927f;
  q = q * t + 0.142185054f;
  q = q * t + 0.0948329808f;
  q = q * t + 0.121882054f;
  q = q * t + 0.119493064f;
  q = q * t + 6.85290816e-06f;
  const V x = most(V{} - 125.0f, z * z * -0.721347520f);  // the exponent in base two
  const V n = x + 12582912.0f, f = x - (n - 12582912.0f);
  V p = f * 0.000153458117f + 0.00133999312f;
  p = p * f + 0.00961848896f;
  p = p * f + 0.0555032878f;
  p = p * f + 0.240226469f;
  p = p * f + 0.693147206f;
  p = p * f + 1.0f;
  e = (V)((I)p + ((I)n << 23));
  q = q * e;
  return z < 0.0f ? q : 1.0f - q;
}

// gelu(z), and its slope.
template <int L> inline typename Vec<L>::V gelu(typename Vec<L>::V z, typename Vec<L>::V &slope) {
  typename Vec<L>::V e;
  const typename Vec<L>::V phi = normal<L>(z, e);
  slope = phi + z * e * 0.398942280f;
  return z * phi;
}

}  // namespace
