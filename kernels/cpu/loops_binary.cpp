#include <cmath>
#include <iterator>
#include <limits>

#include "kernels/cpu/loop_macros.h"

namespace sluice::cpu {
namespace {

// Integers wrap as in two's complement; the arithmetic is done unsigned.
SLUICE_INLINE uint64_t u(int64_t v) { return static_cast<uint64_t>(v); }

template <class T>
SLUICE_INLINE T larger(T a, T b) {
  return a != a ? a : (b != b ? b : (a > b ? a : b));
}
template <class T>
SLUICE_INLINE T smaller(T a, T b) {
  return a != a ? a : (b != b ? b : (a < b ? a : b));
}

template <class T>
SLUICE_INLINE T remainder_of(T a, T b) {
  const T r = std::fmod(a, b);
  return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}

// As Python's float floor division: exact where a - remainder is a multiple of b.
template <class T>
SLUICE_INLINE T floor_quotient(T a, T b) {
  if (b == 0) return a / b;
  const T r = std::fmod(a, b);
  T q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return std::copysign(T(0), a / b);
  const T whole = std::floor(q);
  return q - whole > T(0.5) ? whole + 1 : whole;
}

// -1 as a divisor is apart, since the smallest integer divided by it overflows.
SLUICE_INLINE int64_t mod_i(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }
SLUICE_INLINE int64_t remainder_i(int64_t a, int64_t b) {
  const int64_t r = mod_i(a, b);
  return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}
SLUICE_INLINE int64_t floor_quotient_i(int64_t a, int64_t b) {
  if (b == -1) return static_cast<int64_t>(0 - u(a));
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
SLUICE_INLINE int64_t power_i(int64_t a, int64_t b) {
  uint64_t result = 1, base = u(a);
  for (; b > 0; b >>= 1, base *= base)
    if (b & 1) result *= base;
  return static_cast<int64_t>(result);
}

#define FLOATS(NAME, EXPRESSION)                                    \
  SLUICE_LOOP2(SLUICE_CLONES, NAME##_f32, float, float, EXPRESSION) \
  SLUICE_LOOP2(, NAME##_f64, double, double, EXPRESSION)
#define NUMBERS(NAME, EXPRESSION, I64) \
  FLOATS(NAME, EXPRESSION)             \
  SLUICE_LOOP2(, NAME##_i64, int64_t, int64_t, I64)

// Integer loops that some values of b have no result for.
#define CHECKED(NAME, BAD, ERROR, EXPRESSION)                    \
  static int NAME(const void* const* in, void* out, int64_t n) { \
    const int64_t* x = static_cast<const int64_t*>(in[0]);       \
    const int64_t* w = static_cast<const int64_t*>(in[1]);       \
    int64_t* y = static_cast<int64_t*>(out);                     \
    for (int64_t i = 0; i < n; ++i) {                            \
      const int64_t a = x[i], b = w[i];                          \
      if (BAD) return ERROR;                                     \
      y[i] = EXPRESSION;                                         \
    }                                                            \
    return kLoopOk;                                              \
  }

NUMBERS(add, a + b, static_cast<int64_t>(u(a) + u(b)))
NUMBERS(sub, a - b, static_cast<int64_t>(u(a) - u(b)))
NUMBERS(mul, a* b, static_cast<int64_t>(u(a) * u(b)))
NUMBERS(maximum, larger(a, b), a > b ? a : b)
NUMBERS(minimum, smaller(a, b), a < b ? a : b)
FLOATS(div, a / b)
FLOATS(pow, std::pow(a, b))
FLOATS(fmod, std::fmod(a, b))
FLOATS(remainder, remainder_of(a, b))
FLOATS(floor_divide, floor_quotient(a, b))
FLOATS(atan2, std::atan2(a, b))
CHECKED(pow_i64, b < 0, kNegativeExponent, power_i(a, b))
CHECKED(fmod_i64, b == 0, kDivisionByZero, mod_i(a, b))
CHECKED(remainder_i64, b == 0, kDivisionByZero, remainder_i(a, b))
CHECKED(floor_divide_i64, b == 0, kDivisionByZero, floor_quotient_i(a, b))
SLUICE_LOOP2(, bitwise_and_i64, int64_t, int64_t, a& b)
SLUICE_LOOP2(, bitwise_or_i64, int64_t, int64_t, a | b)
SLUICE_LOOP2(, bitwise_xor_i64, int64_t, int64_t, a ^ b)

#define FLOAT_SET(NAME, HEAVY) \
  { .op = #NAME, .inputs = 2, .f32 = NAME##_f32, .f64 = NAME##_f64, .i64 = nullptr, .heavy = HEAVY }
#define NUMBER_SET(NAME, HEAVY) \
  { .op = #NAME, .inputs = 2, .f32 = NAME##_f32, .f64 = NAME##_f64, .i64 = NAME##_i64, .heavy = HEAVY }
#define INTEGER_SET(NAME) \
  { .op = #NAME, .inputs = 2, .f32 = nullptr, .f64 = nullptr, .i64 = NAME##_i64 }

const LoopSet kSets[] = {
    NUMBER_SET(add, false),      NUMBER_SET(sub, false),   NUMBER_SET(mul, false),         NUMBER_SET(maximum, false),
    NUMBER_SET(minimum, false),  FLOAT_SET(div, false),    NUMBER_SET(pow, true),          NUMBER_SET(fmod, true),
    NUMBER_SET(remainder, true), FLOAT_SET(atan2, true),   NUMBER_SET(floor_divide, true), INTEGER_SET(bitwise_and),
    INTEGER_SET(bitwise_or),     INTEGER_SET(bitwise_xor),
};

}  // namespace

LoopSpan binary_loops() { return {std::begin(kSets), std::end(kSets)}; }

}  // namespace sluice::cpu
