#include <cmath>
#include <iterator>
#include <numbers>

#include "kernels/cpu/loop_macros.h"

namespace sluice::cpu {
namespace {

constexpr double kInvSqrt2 = 1 / std::numbers::sqrt2;
constexpr double kSqrt2OverPi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
constexpr double kCubic = 0.044715;

// The same formulas in float and double, over these.
SLUICE_INLINE float exp_(float x) { return exp_f(x); }
SLUICE_INLINE double exp_(double x) { return std::exp(x); }
SLUICE_INLINE float tanh_(float x) { return tanh_f(x); }
SLUICE_INLINE double tanh_(double x) { return std::tanh(x); }
SLUICE_INLINE float erf_(float x) { return erf_f(x); }
SLUICE_INLINE double erf_(double x) { return std::erf(x); }
template <class T>
SLUICE_INLINE T sigmoid_(T x) {
  return T(1) / (T(1) + exp_(-x));
}
template <class T>
SLUICE_INLINE T cdf(T x) {
  return T(0.5) * (T(1) + erf_(x * T(kInvSqrt2)));
}
template <class T>
SLUICE_INLINE T gelu_tanh_part(T x) {
  return tanh_(x * T(kSqrt2OverPi) * (T(1) + T(kCubic) * x * x));
}
template <class T>
SLUICE_INLINE T gelu_slope(T x) {
  return cdf(x) + x * exp_(T(-0.5) * x * x) * T(kInvSqrt2 * std::numbers::inv_sqrtpi);
}
template <class T>
SLUICE_INLINE T gelu_tanh_slope(T x) {
  const T t = gelu_tanh_part(x);
  return T(0.5) * (T(1) + t + x * (T(1) - t * t) * T(kSqrt2OverPi) * (T(1) + T(3 * kCubic) * x * x));
}
template <class T>
SLUICE_INLINE T silu_slope(T x) {
  const T s = sigmoid_(x);
  return s * (T(1) + x * (T(1) - s));
}

#define ONE(NAME, EXPRESSION)                                       \
  SLUICE_LOOP1(SLUICE_CLONES, NAME##_f32, float, float, EXPRESSION) \
  SLUICE_LOOP1(, NAME##_f64, double, double, EXPRESSION)
#define TWO(NAME, EXPRESSION)                                       \
  SLUICE_LOOP2(SLUICE_CLONES, NAME##_f32, float, float, EXPRESSION) \
  SLUICE_LOOP2(, NAME##_f64, double, double, EXPRESSION)

ONE(relu, a < 0 ? 0 : a)
SLUICE_LOOP1(, relu_i64, int64_t, int64_t, a < 0 ? 0 : a)
ONE(sigmoid, sigmoid_(a))
ONE(silu, a* sigmoid_(a))
ONE(gelu, a* cdf(a))
ONE(gelu_tanh, a*(gelu_tanh_part(a) + 1) / 2)
TWO(relu_backward, b > 0 ? a : 0)
TWO(sigmoid_backward, a* b*(1 - b))
TWO(tanh_backward, a*(1 - b * b))
TWO(silu_backward, a* silu_slope(b))
TWO(gelu_backward, a* gelu_slope(b))
TWO(gelu_tanh_backward, a* gelu_tanh_slope(b))

#define SET(OP, NAME, INPUTS, HEAVY) \
  { .op = OP, .inputs = INPUTS, .f32 = NAME##_f32, .f64 = NAME##_f64, .heavy = HEAVY }

const LoopSet kSets[] = {
    {.op = "relu", .inputs = 1, .f32 = relu_f32, .f64 = relu_f64, .i64 = relu_i64},
    SET("sigmoid", sigmoid, 1, true),
    SET("silu", silu, 1, true),
    SET("gelu", gelu, 1, true),
    SET("gelu:tanh", gelu_tanh, 1, true),
    SET("relu_backward", relu_backward, 2, false),
    SET("sigmoid_backward", sigmoid_backward, 2, false),
    SET("tanh_backward", tanh_backward, 2, false),
    SET("silu_backward", silu_backward, 2, true),
    SET("gelu_backward", gelu_backward, 2, true),
    SET("gelu_backward:tanh", gelu_tanh_backward, 2, true),
};

}  // namespace

LoopSpan activation_loops() { return {std::begin(kSets), std::end(kSets)}; }

}  // namespace sluice::cpu
