#pragma once
// float32 functions without branches or calls, so that compilers vectorise loops over them. Errors are a few units in
// the last place; the coefficients are minimax fits made for these ranges.
#include <cmath>
#include <cstdint>
#include <cstring>

// A function compiled for several instruction sets, chosen when the program starts. Sanitizers run before the chooser
// can, so under them there is one version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define SLUICE_CLONED 1
#define SLUICE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
// For loops whose time is that of memory: half a line at once is faster than a line, which mostly is one and a part of
// two.
#define SLUICE_LIGHT_CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define SLUICE_CLONED 0
#define SLUICE_CLONES
#define SLUICE_LIGHT_CLONES
#endif

namespace sluice::cpu {

#define SLUICE_INLINE inline __attribute__((always_inline))

SLUICE_INLINE float from_bits(int32_t bits) {
  float v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}
SLUICE_INLINE int32_t to_bits(float v) {
  int32_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  return bits;
}
SLUICE_INLINE float power_of_two(int32_t n) {
  return from_bits(static_cast<int32_t>(static_cast<uint32_t>(n + 127) << 23));
}

// x = n ln 2 + r with |r| <= ln 2 / 2; n comes back as a float and an integer. REQUIRES: |x| < 2^21.
SLUICE_INLINE float reduce_ln2(float x, int32_t& n) {
  const float shifted = x * 1.44269504f + 12582912.f;  // adding 1.5 * 2^23 rounds to an integer
  const float whole = shifted - 12582912.f;
  n = to_bits(shifted) - 0x4b400000;
  return (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
}

// exp(r) - 1 on |r| <= ln 2 / 2.
SLUICE_INLINE float expm1_reduced(float r) {
  float q = 0.000199077331f;
  q = q * r + 0.00139337534f;
  q = q * r + 0.00833328534f;
  q = q * r + 0.041666463f;
  q = q * r + 0.166666672f;
  q = q * r + 0.5f;
  return q * r * r + r;
}

SLUICE_INLINE float exp_f(float x) {
  float c = x < -104.f ? -104.f : x;
  c = c > 89.f ? 89.f : c;
  int32_t n;
  const float p = expm1_reduced(reduce_ln2(c, n)) + 1.f;
  const int32_t half = n >> 1;  // two factors, since 2^n alone may leave the range of normal numbers
  return p * power_of_two(half) * power_of_two(n - half);
}

SLUICE_INLINE float expm1_f(float x) {
  float c = x < -20.f ? -20.f : x;
  c = c > 89.f ? 89.f : c;
  int32_t n;
  const float q = expm1_reduced(reduce_ln2(c, n));
  const float s = power_of_two(n - 1);
  return 2.f * (s * q + (s - 0.5f));
}

// x = 2^exponent * (1 + m) with m within 0.42 of 0. Returns log(1 + m) - m. REQUIRES: x > 0, and finite.
SLUICE_INLINE float log_reduced(float x, float& exponent, float& m) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.f : x;
  const uint32_t bits = static_cast<uint32_t>(to_bits(scaled));
  const int32_t e = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;  // relative to sqrt(1/2)
  m = from_bits(static_cast<int32_t>(bits - (static_cast<uint32_t>(e) << 23))) - 1.f;
  exponent = static_cast<float>(e) - (tiny ? 23.f : 0.f);
  float p = 0.0733243749f;
  p = p * m - 0.116598874f;
  p = p * m + 0.116346769f;
  p = p * m - 0.123967074f;
  p = p * m + 0.142511547f;
  p = p * m - 0.166691512f;
  p = p * m + 0.200006887f;
  p = p * m - 0.249999806f;
  p = p * m + 0.333333313f;
  return m * m * (p * m - 0.5f);
}

// `y`, a logarithm of x, where x is positive and finite; else what all logarithms are there.
SLUICE_INLINE float as_logarithm(float y, float x) {
  y = x == INFINITY ? x : y;
  y = x == 0.f ? -INFINITY : y;
  return x >= 0.f ? y : NAN;
}

SLUICE_INLINE float log_f(float x) {
  float exponent, m;
  const float tail = log_reduced(x, exponent, m) - exponent * 2.12194440e-4f;
  return as_logarithm((m + tail) + exponent * 0.693359375f, x);
}

// 2^y, which is 0 in float32 where y is below -160, and infinite above 130.
SLUICE_INLINE double exp2_for_float(double y) {
  y = y < -160. ? -160. : y;
  y = y > 130. ? 130. : y;
  y = y == y ? y : 0.;
  const double shifted = y + 6755399441055744.;  // adding 1.5 * 2^52 rounds to an integer
  const double r = (y - (shifted - 6755399441055744.)) * 0.6931471805599453;
  const auto n = static_cast<int32_t>(shifted - 6755399441055744.);
  double p = 1. / 40320;
  p = p * r + 1. / 5040;
  p = p * r + 1. / 720;
  p = p * r + 1. / 120;
  p = p * r + 1. / 24;
  p = p * r + 1. / 6;
  p = p * r + 0.5;
  p = p * r + 1.;
  p = p * r + 1.;
  const int64_t scale_bits = static_cast<int64_t>(n + 1023) << 52;
  double scale;
  std::memcpy(&scale, &scale_bits, sizeof scale);
  return p * scale;
}

// Through double, which rounds once: powers overflow and vanish as they should, and errors of the logarithm do not
// show.
SLUICE_INLINE float pow_f(float a, float b) {
  const float x = std::fabs(a);
  const bool tiny = x < 1.17549435e-38f;
  const uint32_t bits = static_cast<uint32_t>(to_bits(tiny ? x * 8388608.f : x));
  const int32_t e = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;  // relative to sqrt(1/2)
  const double m = from_bits(static_cast<int32_t>(bits - (static_cast<uint32_t>(e) << 23)));
  // log2(m) = 2 / ln 2 * artanh(s), whose series ends where float32 does not see it.
  const double s = (m - 1) / (m + 1), z = s * s;
  double q = 1. / 13;
  q = q * z + 1. / 11;
  q = q * z + 1. / 9;
  q = q * z + 1. / 7;
  q = q * z + 1. / 5;
  q = q * z + 1. / 3;
  q = q * z + 1.;
  double log2 = static_cast<double>(e - (tiny ? 23 : 0)) + q * s * 2.8853900817779268;
  log2 = x == INFINITY ? static_cast<double>(INFINITY) : log2;
  log2 = x == 0.f ? -static_cast<double>(INFINITY) : log2;
  float result = static_cast<float>(exp2_for_float(log2 * static_cast<double>(b)));
  // A negative base: odd powers are negative, and there are none that are not whole.
  const bool whole = std::trunc(b) == b, odd = whole && std::trunc(b * 0.5f) != b * 0.5f;
  result = odd ? std::copysign(result, a) : result;
  result = a < 0.f && !whole && x != INFINITY ? NAN : result;
  result = a == a && b == b ? result : NAN;
  return b == 0.f || a == 1.f || (x == 1.f && std::fabs(b) == INFINITY) ? 1.f : result;
}

// A float whose remainders by others are asked for only where the quotient is below 2^22, so that float32 has its whole
// part and float64 the product.
struct NearFloat {
  float v;
  NearFloat() = default;
  template <class T>
  SLUICE_INLINE constexpr NearFloat(T x) : v(static_cast<float>(x)) {}  // NOLINT: a number
  SLUICE_INLINE constexpr operator float() const { return v; }          // NOLINT
};
SLUICE_INLINE bool quotient_is_near(float a, float b) {
  return std::fabs(a) < 4194304.f * std::fabs(b) && std::fabs(b) < INFINITY;
}
SLUICE_INLINE NearFloat fmod(NearFloat a, NearFloat b) {
  const double product = static_cast<double>(std::trunc(a.v / b.v)) * static_cast<double>(b.v);
  const float r = static_cast<float>(static_cast<double>(a.v) - product);
  // A quotient that was rounded up to a whole number leaves a remainder of the other sign.
  const float other = std::copysign(std::fabs(b.v), a.v);
  return std::copysign((r < 0.f) != (a.v < 0.f) && r != 0.f ? r + other : r, a.v);
}

SLUICE_INLINE float log1p_f(float x) {
  const float u = 1.f + x;
  const float lost = (x - (u - 1.f)) / u;  // what rounding u dropped
  return u == INFINITY || u == 0.f ? log_f(u) : log_f(u) + lost;
}

SLUICE_INLINE float tanh_f(float x) {
  const float a = std::fabs(x);
  const float t = expm1_f(2.f * (a > 10.f ? 10.f : a));
  return std::copysign(t / (t + 2.f), x);
}

SLUICE_INLINE float sigmoid_f(float x) { return 1.f / (1.f + exp_f(-x)); }

// Two polynomials: of x^2, and of |x| - 2.5 up to where the nearest float is 1.
SLUICE_INLINE float erf_f(float x) {
  const float a = std::fabs(x);
  const float s = x * x;
  float small = -0.0005631422f;
  small = small * s + 0.00491755137f;
  small = small * s - 0.0267113113f;
  small = small * s + 0.112801801f;
  small = small * s - 0.376123262f;
  small = small * s + 0.128379122f;
  const float z = a - 2.5f;
  float large = -9.11446968e-06f;
  large = large * z + 2.10671026e-05f;
  large = large * z + 6.18631448e-05f;
  large = large * z - 0.000279004129f;
  large = large * z + 0.000286502579f;
  large = large * z + 0.000570512033f;
  large = large * z - 0.00281812988f;
  large = large * z + 0.00610316659f;
  large = large * z - 0.00861535006f;
  large = large * z + 0.00835325303f;
  large = large * z - 0.00544664638f;
  large = large * z + 0.0021780794f;
  large = large * z + 0.999593068f;
  large = a > 3.84f ? 1.f : large;
  return a < 1.f ? small * x + x : std::copysign(large, x);
}

}  // namespace sluice::cpu
