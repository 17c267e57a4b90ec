#include <cmath>
#include <iterator>

#include "kernels/cpu/loop_macros.h"

namespace sluice::cpu {
namespace {

#define FLOATS(NAME, F32, F64)                               \
  SLUICE_LOOP1(SLUICE_CLONES, NAME##_f32, float, float, F32) \
  SLUICE_LOOP1(, NAME##_f64, double, double, F64)
#define NUMBERS(NAME, F32, F64, I64) \
  FLOATS(NAME, F32, F64)             \
  SLUICE_LOOP1(, NAME##_i64, int64_t, int64_t, I64)

NUMBERS(neg, -a, -a, static_cast<int64_t>(0 - static_cast<uint64_t>(a)))
NUMBERS(abs, std::fabs(a), std::fabs(a), a < 0 ? static_cast<int64_t>(0 - static_cast<uint64_t>(a)) : a)
NUMBERS(sign, a > 0 ? 1.f : (a < 0 ? -1.f : 0.f), a > 0 ? 1 : (a < 0 ? -1 : 0), (a > 0) - (a < 0))
FLOATS(exp, exp_f(a), std::exp(a))
FLOATS(expm1, expm1_f(a), std::expm1(a))
FLOATS(log, log_f(a), std::log(a))
FLOATS(log1p, log1p_f(a), std::log1p(a))
FLOATS(sqrt, std::sqrt(a), std::sqrt(a))
FLOATS(rsqrt, 1.f / std::sqrt(a), 1 / std::sqrt(a))
FLOATS(reciprocal, 1.f / a, 1 / a)
FLOATS(sin, std::sin(a), std::sin(a))
FLOATS(cos, std::cos(a), std::cos(a))
FLOATS(tanh, tanh_f(a), std::tanh(a))
FLOATS(erf, erf_f(a), std::erf(a))
NUMBERS(floor, std::floor(a), std::floor(a), a)
NUMBERS(ceil, std::ceil(a), std::ceil(a), a)
NUMBERS(round, std::nearbyint(a), std::nearbyint(a), a)
NUMBERS(trunc, std::trunc(a), std::trunc(a), a)

#define FLOAT_SET(NAME, HEAVY) \
  { .op = #NAME, .inputs = 1, .f32 = NAME##_f32, .f64 = NAME##_f64, .i64 = nullptr, .heavy = HEAVY }
#define NUMBER_SET(NAME) \
  { .op = #NAME, .inputs = 1, .f32 = NAME##_f32, .f64 = NAME##_f64, .i64 = NAME##_i64 }

const LoopSet kSets[] = {
    NUMBER_SET(neg),         NUMBER_SET(abs),
    NUMBER_SET(sign),        FLOAT_SET(exp, true),
    FLOAT_SET(expm1, true),  FLOAT_SET(log, true),
    FLOAT_SET(log1p, true),  FLOAT_SET(sqrt, false),
    FLOAT_SET(rsqrt, false), FLOAT_SET(reciprocal, false),
    FLOAT_SET(sin, true),    FLOAT_SET(cos, true),
    FLOAT_SET(tanh, true),   FLOAT_SET(erf, true),
    NUMBER_SET(floor),       NUMBER_SET(ceil),
    NUMBER_SET(round),       NUMBER_SET(trunc),
};

}  // namespace

LoopSpan unary_loops() { return {std::begin(kSets), std::end(kSets)}; }

}  // namespace sluice::cpu
