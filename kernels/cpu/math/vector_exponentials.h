#pragma once
// float32 relatives of the exponential function and the logarithm without branches or calls, as vector_math.h.
#include <cmath>
#include <cstdint>

#include "kernels/cpu/math/vector_math.h"

namespace sluice::cpu {

SLUICE_INLINE float exp2_f(float x) {
  float c = x < -152.f ? -152.f : x;
  c = c > 129.f ? 129.f : c;
  const float shifted = c + 12582912.f;  // adding 1.5 * 2^23 rounds to an integer
  const int32_t n = to_bits(shifted) - 0x4b400000;
  const float p = expm1_reduced((c - (shifted - 12582912.f)) * 0.693147181f) + 1.f;
  const int32_t half = n >> 1;  // two factors, since 2^n alone may leave the range of normal numbers
  return p * power_of_two(half) * power_of_two(n - half);
}

SLUICE_INLINE float log2_f(float x) {
  float exponent, m;
  const float tail = log_reduced(x, exponent, m);
  return as_logarithm(((m * 0.442695041f + tail * 1.44269504f) + m) + exponent, x);
}

// log10(2) and log10(e) are sums: the first part has so few digits that its product with an exponent is exact.
SLUICE_INLINE float log10_f(float x) {
  float exponent, m;
  const float tail = log_reduced(x, exponent, m);
  const float rest = exponent * 4.60503906e-06f + (m * 7.00731903e-04f + tail * 0.434294482f);
  return as_logarithm((rest + m * 0.43359375f) + exponent * 0.301025391f, x);
}

// log(1 + x) for 0 <= x <= 1. Without the cases of other numbers, loops over log(1 + e^x) are vectorised.
SLUICE_INLINE float log1p_of_share_f(float x) {
  const float u = 1.f + x;
  const float lost = (x - (u - 1.f)) / u;  // what rounding u dropped
  float exponent, m;
  const float tail = log_reduced(u, exponent, m) - exponent * 2.12194440e-4f;
  return (m + tail) + exponent * 0.693359375f + lost;
}

// e^a / 2 as the product of two roots, since e^a alone is infinite before its half is.
SLUICE_INLINE float half_exp_f(float a) {
  const float root = exp_f(0.5f * a);
  return (0.5f * root) * root;
}

SLUICE_INLINE float sinh_f(float x) {
  const float a = std::fabs(x);
  const float t = expm1_f(a > 88.f ? 88.f : a);
  const float y = a > 88.f ? half_exp_f(a) : 0.5f * (t + t / (t + 1.f));
  return std::copysign(a == a ? y : a, x);
}

SLUICE_INLINE float cosh_f(float x) {
  const float a = std::fabs(x);
  const float t = exp_f(a > 88.f ? 88.f : a);
  const float y = a > 88.f ? half_exp_f(a) : 0.5f * t + 0.5f / t;
  return a == a ? y : a;
}

SLUICE_INLINE float atanh_f(float x) {
  const float a = std::fabs(x);
  return std::copysign(0.5f * log1p_f(2.f * a / (1.f - a)), x);
}

// Through double, because e^(-x^2) has as many times the error of x^2 as x^2 is large. The polynomial is
// e^(a^2) erfc(a) (1 + 2 a) in (a - 2.5) / (a + 2.5), for a up to where erfc vanishes in float32.
SLUICE_INLINE float erfc_f(float x) {
  const double given = static_cast<double>(std::fabs(x));
  const double a = given > 10.2 ? 10.2 : given;
  const double u = (a - 2.5) / (a + 2.5);
  double p = 7.8641421028198818e-05;
  p = p * u + 0.00061336501642631554;
  p = p * u + 0.00034410700191784302;
  p = p * u - 0.0044187585406716672;
  p = p * u + 0.00097928730806394969;
  p = p * u + 0.032776595714705502;
  p = p * u - 0.10297357194888833;
  p = p * u + 0.15762795151151582;
  p = p * u - 0.099024198335501537;
  p = p * u - 0.12235670175393931;
  p = p * u + 1.2648381811493044;
  const double far = exp2_for_float(a * a * -1.4426950408889634) * p / (1. + 2. * a);
  const float y = static_cast<float>(given > 10.2 ? 0. : x < 0.f ? 2. - far : far);
  return x == x ? (x < 0.f && given > 10.2 ? 2.f : y) : x;
}

}  // namespace sluice::cpu
