#pragma once
// float32 trigonometry without branches or calls, as vector_math.h; sines are good to two units in the last place for
// all numbers, huge ones too.
#include <cmath>
#include <cstdint>

#include "kernels/cpu/math/vector_math.h"

namespace sluice::cpu {

// 2^e modulo 2 pi for the exponents of float's integers, as a sum: `high` has so few digits that its product with a
// 24-bit integer is exact.
struct PowersModTwoPi {
  static constexpr int kCount = 106;  // the last one is of infinity and NaN
  double high[kCount] = {}, low[kCount] = {};

  constexpr PowersModTwoPi() {
    // Fixed-point numbers of 192 bits, 4 of them before the point: 2 pi, and the power.
    constexpr uint64_t kTwoPi[3] = {0x6487ed5110b4611a, 0x62633145c06e0e68, 0x948127044533e63a};
    uint64_t t[3] = {uint64_t{1} << 60, 0, 0};
    constexpr uint64_t kRest = (uint64_t{1} << 35) - 1;
    for (int e = 0; e + 1 < kCount; ++e) {
      high[e] = static_cast<double>(t[0] >> 35) / (1 << 25);
      low[e] = static_cast<double>((t[0] & kRest) << 28 | t[1] >> 36) / (1 << 30) / (1 << 30) / (1 << 28);
      t[0] = t[0] << 1 | t[1] >> 63;
      t[1] = t[1] << 1 | t[2] >> 63;
      t[2] <<= 1;
      const bool more = t[0] != kTwoPi[0] ? t[0] > kTwoPi[0] : t[1] >= kTwoPi[1];
      if (!more) continue;
      const uint64_t borrow2 = t[2] < kTwoPi[2], borrow1 = t[1] < kTwoPi[1] + borrow2;
      t[2] -= kTwoPi[2];
      t[1] -= kTwoPi[1] + borrow2;
      t[0] -= kTwoPi[0] + borrow1;
    }
  }
};
inline constexpr PowersModTwoPi kPowersModTwoPi;

// x = n pi/2 + r with |r| <= pi/4, modulo 2 pi; of what is not finite, some r.
SLUICE_INLINE float reduce_half_pi(float x, int32_t& n) {
  const int32_t bits = to_bits(x);
  int64_t e = ((bits >> 23) & 255) - 150;  // x is an integer of 24 bits times 2^e
  e = e < 0 ? 0 : e;
  const float integer = from_bits((bits & static_cast<int32_t>(0x807fffff)) | 0x4b000000);
  const float v = e > 0 ? integer : x;
  const double high = static_cast<double>(v) * kPowersModTwoPi.high[e],
               low = static_cast<double>(v) * kPowersModTwoPi.low[e];
  constexpr double kRound = 6755399441055744.0;  // adding 1.5 * 2^52 rounds to an integer
  const double whole = ((high + low) * 0.63661977236758134 + kRound) - kRound;
  n = static_cast<int32_t>(whole);
  return static_cast<float>((high - whole * 0x1.921fb5p+0) + (low - whole * 0x1.110b4611a6263p-26));
}

SLUICE_INLINE float sin_reduced(float r) {
  const float z = r * r;
  const float y = r + r * z * (-0.16666655f + z * (0.00833216f + z * -0.00019514f));
  return r == 0.f ? r : y;  // keeps the sign of zero
}
SLUICE_INLINE float cos_reduced(float r) {
  const float z = r * r;
  return 1.f - 0.5f * z + z * z * (4.16666463e-02f + z * (-1.38873370e-03f + z * 2.44348386e-05f));
}

// `y`, or NaN where x is not finite.
SLUICE_INLINE float where_finite(float x, float y) { return (to_bits(x) & 0x7f800000) == 0x7f800000 ? x - x : y; }

// sin(r + quarters pi/2) for |r| <= pi/4.
SLUICE_INLINE float sin_of_quarters(float r, int32_t quarters) {
  const int32_t odd = -(quarters & 1);
  const int32_t y = (to_bits(cos_reduced(r)) & odd) | (to_bits(sin_reduced(r)) & ~odd);
  return from_bits(y ^ static_cast<int32_t>(static_cast<uint32_t>(quarters & 2) << 30));
}

// sin(x + quarters pi/2).
SLUICE_INLINE float sin_turned(float x, int32_t quarters) {
  int32_t n;
  const float r = reduce_half_pi(x, n);
  return where_finite(x, sin_of_quarters(r, n + quarters));
}

SLUICE_INLINE float sin_f(float x) { return sin_turned(x, 0); }
SLUICE_INLINE float cos_f(float x) { return sin_turned(x, 1); }

SLUICE_INLINE float tan_f(float x) {
  int32_t n;
  const float r = reduce_half_pi(x, n);
  const float s = sin_reduced(r), c = cos_reduced(r);
  const bool odd = (n & 1) != 0;
  const float up = odd ? -c : s, down = odd ? s : c;
  return where_finite(x, up / down);
}

// atan(t) for 0 <= t <= 1.
SLUICE_INLINE float atan_below_one(float t) {
  const bool upper = t > 0.414213562f;
  const float u = upper ? (t - 1.f) / (t + 1.f) : t;
  const float z = u * u;
  float p = -0.0603771496f;
  p = p * z + 0.105786822f;
  p = p * z - 0.142416181f;
  p = p * z + 0.199983781f;
  p = p * z - 0.333333138f;
  return (upper ? 0.785398163f : 0.f) + (u * z * p + u);
}

SLUICE_INLINE float atan_f(float x) {
  const float a = std::fabs(x);
  const float y = atan_below_one(a > 1.f ? 1.f / a : a);
  return std::copysign(a > 1.f ? 1.57079633f - y : y, x);
}

SLUICE_INLINE float atan2_f(float y, float x) {
  const float a = std::fabs(y), b = std::fabs(x);
  const float less = a < b ? a : b, more = a < b ? b : a;
  const float ratio = less == more ? (more == 0.f ? 0.f : 1.f) : less / more;  // two infinities are equal
  float angle = atan_below_one(ratio);
  angle = a > b ? 1.57079633f - angle : angle;
  angle = to_bits(x) < 0 ? 3.14159265f - angle : angle;
  return x != x || y != y ? x + y : std::copysign(angle, y);
}

// asin(s) for 0 <= s <= 1/2.
SLUICE_INLINE float asin_below_half(float s) {
  const float z = s * s;
  float p = 0.0375651866f;
  p = p * z + 0.0144026149f;
  p = p * z + 0.0318176076f;
  p = p * z + 0.0445157215f;
  p = p * z + 0.0750051066f;
  p = p * z + 0.166666597f;
  return s * z * p + s;
}

// The half of the angle whose cosine is a, and a itself, have small sines.
SLUICE_INLINE float asin_f(float x) {
  const float a = std::fabs(x);
  const bool upper = a > 0.5f;
  const float y = asin_below_half(upper ? std::sqrt(0.5f - 0.5f * a) : a);
  return std::copysign(upper ? 1.57079633f - 2.f * y : y, x);
}

SLUICE_INLINE float acos_f(float x) {
  const float a = std::fabs(x);
  const bool upper = a > 0.5f;
  const float y = asin_below_half(upper ? std::sqrt(0.5f - 0.5f * a) : a);
  const float steep = x < 0.f ? 3.14159265f - 2.f * y : 2.f * y;
  return upper ? steep : 1.57079633f - std::copysign(y, x);
}

// Polynomials in what -log(1 - x^2) is near, as the expression in double (base/scalar/special_functions.inc).
SLUICE_INLINE float erfinv_f(float x) {
  const float w = -log_f((1.f - x) * (1.f + x));
  const float v = w - 2.5f, z = std::sqrt(w) - 3.f;
  float near = 2.81022636e-08f;
  near = near * v + 3.43273939e-07f;
  near = near * v - 3.5233877e-06f;
  near = near * v - 4.39150654e-06f;
  near = near * v + 0.00021858087f;
  near = near * v - 0.00125372503f;
  near = near * v - 0.00417768164f;
  near = near * v + 0.246640727f;
  near = near * v + 1.50140941f;
  float far = -0.000200214257f;
  far = far * z + 0.000100950558f;
  far = far * z + 0.00134934322f;
  far = far * z - 0.00367342844f;
  far = far * z + 0.00573950773f;
  far = far * z - 0.0076224613f;
  far = far * z + 0.00943887047f;
  far = far * z + 1.00167406f;
  far = far * z + 2.83297682f;
  const float y = (w < 5.f ? near : far) * x;
  const float edge = std::fabs(x) == 1.f ? std::copysign(INFINITY, x) : NAN;
  return std::fabs(x) < 1.f ? y : edge;
}

}  // namespace sluice::cpu
