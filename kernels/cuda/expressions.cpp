#include "kernels/cuda/expressions.h"

namespace sluice::cuda {

const char* const kExpressionFunctions =
    R"(template <class T> __device__ inline T larger(T a, T b) { return a != a ? a : (b != b ? b : (a > b ? a : b)); }
template <class T> __device__ inline T smaller(T a, T b) { return a != a ? a : (b != b ? b : (a < b ? a : b)); }
template <class T> __device__ inline T remainder_of(T a, T b) {
  const T r = fmod(a, b);
  return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}
template <class T> __device__ inline T floor_quotient(T a, T b) {
  if (b == 0) return a / b;
  const T r = fmod(a, b);
  T q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return copysign((T)0, a / b);
  const T whole = floor(q);
  return q - whole > (T)0.5 ? whole + 1 : whole;
}
__device__ inline i64 mod_i(i64 a, i64 b) { return b == -1 ? 0 : a % b; }
__device__ inline i64 remainder_i(i64 a, i64 b) {
  const i64 r = mod_i(a, b);
  return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}
__device__ inline i64 floor_quotient_i(i64 a, i64 b) {
  if (b == -1) return (i64)(0 - (u64)a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
__device__ inline i64 power_i(i64 a, i64 b) {
  u64 result = 1, base = (u64)a;
  for (; b > 0; b >>= 1, base *= base)
    if (b & 1) result *= base;
  return (i64)result;
}
template <class T> __device__ inline T sigmoid_of(T x) { return (T)1 / ((T)1 + exp(-x)); }
template <class T> __device__ inline T cdf(T x) { return (T)0.5 * ((T)1 + erf(x * (T)0.70710678118654752440)); }
template <class T> __device__ inline T gelu_tanh_part(T x) {
  return tanh(x * (T)0.79788456080286535588 * ((T)1 + (T)0.044715 * x * x));
}
template <class T> __device__ inline T gelu_slope(T x) {
  return cdf(x) + x * exp((T)-0.5 * x * x) * (T)0.39894228040143267794;
}
template <class T> __device__ inline T gelu_tanh_slope(T x) {
  const T t = gelu_tanh_part(x);
  return (T)0.5 * ((T)1 + t + x * ((T)1 - t * t) * (T)0.79788456080286535588 * ((T)1 + (T)0.134145 * x * x));
}
template <class T> __device__ inline T silu_slope(T x) {
  const T s = sigmoid_of(x);
  return s * ((T)1 + x * ((T)1 - s));
}
)";

namespace {

constexpr Expression kExpressions[] = {
    {"neg", 1, "-a", "(i64)(0 - (u64)a)"},
    {"abs", 1, "fabs(a)", "a < 0 ? (i64)(0 - (u64)a) : a"},
    {"sign", 1, "a > 0 ? (T)1 : (a < 0 ? (T)-1 : (T)0)", "(a > 0) - (a < 0)"},
    {"exp", 1, "exp(a)"},
    {"expm1", 1, "expm1(a)"},
    {"log", 1, "log(a)"},
    {"log1p", 1, "log1p(a)"},
    {"sqrt", 1, "sqrt(a)"},
    {"rsqrt", 1, "(T)1 / sqrt(a)"},
    {"reciprocal", 1, "(T)1 / a"},
    {"sin", 1, "sin(a)"},
    {"cos", 1, "cos(a)"},
    {"tanh", 1, "tanh(a)"},
    {"erf", 1, "erf(a)"},
    {"floor", 1, "floor(a)", "a"},
    {"ceil", 1, "ceil(a)", "a"},
    {"round", 1, "rint(a)", "a"},
    {"trunc", 1, "trunc(a)", "a"},

    {"add", 2, "a + b", "(i64)((u64)a + (u64)b)"},
    {"sub", 2, "a - b", "(i64)((u64)a - (u64)b)"},
    {"mul", 2, "a * b", "(i64)((u64)a * (u64)b)"},
    {"maximum", 2, "larger(a, b)", "a > b ? a : b"},
    {"minimum", 2, "smaller(a, b)", "a < b ? a : b"},
    {"div", 2, "a / b"},
    {"pow", 2, "pow(a, b)", "power_i(a, b)", false, "b < 0"},
    {"fmod", 2, "fmod(a, b)", "mod_i(a, b)", false, "b == 0"},
    {"remainder", 2, "remainder_of(a, b)", "remainder_i(a, b)", false, "b == 0"},
    {"floor_divide", 2, "floor_quotient(a, b)", "floor_quotient_i(a, b)", false, "b == 0"},
    {"atan2", 2, "atan2(a, b)"},
    {"bitwise_and", 2, nullptr, "a & b"},
    {"bitwise_or", 2, nullptr, "a | b"},
    {"bitwise_xor", 2, nullptr, "a ^ b"},

    {"eq", 2, "a == b", "a == b", true},
    {"ne", 2, "a != b", "a != b", true},
    {"lt", 2, "a < b", "a < b", true},
    {"le", 2, "a <= b", "a <= b", true},
    {"gt", 2, "a > b", "a > b", true},
    {"ge", 2, "a >= b", "a >= b", true},
    {"logical_and", 2, "a != 0 && b != 0", "a != 0 && b != 0", true},
    {"logical_or", 2, "a != 0 || b != 0", "a != 0 || b != 0", true},
    {"logical_xor", 2, "(a != 0) != (b != 0)", "(a != 0) != (b != 0)", true},
    {"logical_not", 1, "a == 0", "a == 0", true},
    {"isnan", 1, "a != a", "false", true},
    {"isinf", 1, "a == a && a - a != a - a", "false", true},

    {"relu", 1, "a < 0 ? (T)0 : a", "a < 0 ? 0 : a"},
    {"sigmoid", 1, "sigmoid_of(a)"},
    {"silu", 1, "a * sigmoid_of(a)"},
    {"gelu", 1, "a * cdf(a)"},
    {"gelu:tanh", 1, "a * (gelu_tanh_part(a) + 1) / 2"},
    {"relu_backward", 2, "b > 0 ? a : (T)0"},
    {"sigmoid_backward", 2, "a * b * (1 - b)"},
    {"tanh_backward", 2, "a * (1 - b * b)"},
    {"silu_backward", 2, "a * silu_slope(b)"},
    {"gelu_backward", 2, "a * gelu_slope(b)"},
    {"gelu_backward:tanh", 2, "a * gelu_tanh_slope(b)"},
};

}  // namespace

std::span<const Expression> expressions() { return kExpressions; }

const Expression* find_expression(std::string_view name) {
  for (const Expression& e : kExpressions) {
    if (name == e.op) return &e;
  }
  return nullptr;
}

}  // namespace sluice::cuda
