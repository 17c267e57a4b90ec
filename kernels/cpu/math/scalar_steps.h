#pragma once
// The entries of base/scalar as functions of float: add_step(a, b), gelu_tanh_step(a), lt_step(a, b). Kernels that are
// made at run time have it as text (kernels/cpu/generated).
#include "kernels/cpu/math/scalar_math.h"

namespace sluice::cpu::scalar {

#define STEP1(NAME, RESULT, ...)              \
  SLUICE_INLINE RESULT NAME##_step(float a) { \
    using T [[maybe_unused]] = float;         \
    return static_cast<RESULT>(__VA_ARGS__);  \
  }
#define STEP2(NAME, RESULT, ...)                       \
  SLUICE_INLINE RESULT NAME##_step(float a, float b) { \
    using T [[maybe_unused]] = float;                  \
    return static_cast<RESULT>(__VA_ARGS__);           \
  }
#define FLOATS1(NAME, WEIGHT, ...) STEP1(NAME, float, __VA_ARGS__)
#define FLOATS2(NAME, WEIGHT, ...) STEP2(NAME, float, __VA_ARGS__)
#define NUMBERS1(NAME, WEIGHT, FLOATS, ...) STEP1(NAME, float, FLOATS)
#define NUMBERS2(NAME, WEIGHT, FLOATS, ...) STEP2(NAME, float, FLOATS)
#define CHECKED2(NAME, ...)
#define TEST1(NAME, FLOATS, ...) STEP1(NAME, bool, FLOATS)
#define TEST2(NAME, ...) STEP2(NAME, bool, __VA_ARGS__)
#define VARIANT1(NAME, MODE, WEIGHT, ...) STEP1(NAME##_##MODE, float, __VA_ARGS__)
#define VARIANT2(NAME, MODE, WEIGHT, ...) STEP2(NAME##_##MODE, float, __VA_ARGS__)
#define INTEGERS2(NAME, ...)
#define COMPLEX1(NAME, ...)
#define COMPLEX2(NAME, ...)
#define COMPLEX_TEST1(NAME, ...)
#define COMPLEX_TEST2(NAME, ...)
#define REAL_OF1(NAME, ...)
#include "base/scalar/activation.inc"
#include "base/scalar/binary.inc"
#include "base/scalar/comparison.inc"
#include "base/scalar/special.inc"
#include "base/scalar/unary.inc"
#include "base/scalar/undefine.inc"
#undef STEP1
#undef STEP2

// Compilers do not know that it is zero, and so cannot round a product and the sum behind it as one.
[[maybe_unused]] static volatile const int32_t kZero = 0;
SLUICE_INLINE float rounded(float v, int32_t zero) { return from_bits(to_bits(v) ^ zero); }

}  // namespace sluice::cpu::scalar
