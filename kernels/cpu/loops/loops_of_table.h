// The loops of one table of base/scalar, and the list of them. REQUIRES: SLUICE_SCALAR_TABLE is the table's path. No
// include guard: it belongs into the one file of each table.
#include "kernels/cpu/loops/loops.h"
#include "kernels/cpu/math/scalar_math.h"

namespace sluice::cpu {
namespace scalar {
namespace {

// Outputs may be inputs, element by element, which ivdep allows to vectorise.
#define LOOP1(ATTRIBUTES, NAME, TYPE, RESULT, ...)                          \
  ATTRIBUTES static int NAME(const void* const* in, void* out, int64_t n) { \
    using T [[maybe_unused]] = TYPE;                                        \
    const T* x = static_cast<const T*>(in[0]);                              \
    RESULT* y = static_cast<RESULT*>(out);                                  \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                  \
      [[maybe_unused]] const T a = x[i];                                    \
      y[i] = static_cast<RESULT>(__VA_ARGS__);                              \
    }                                                                       \
    return 0;                                                               \
  }
#define LOOP2_OF(ATTRIBUTES, NAME, TYPE, RESULT, BEFORE, A, B, ...)               \
  ATTRIBUTES static int NAME(const void* const* in, void* out, int64_t n) {       \
    using T [[maybe_unused]] = TYPE;                                              \
    const T *x = static_cast<const T*>(in[0]), *w = static_cast<const T*>(in[1]); \
    RESULT* y = static_cast<RESULT*>(out);                                        \
    BEFORE;                                                                       \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                        \
      const T a = A, b = B;                                                       \
      y[i] = static_cast<RESULT>(__VA_ARGS__);                                    \
    }                                                                             \
    return 0;                                                                     \
  }
#define LOOP2(ATTRIBUTES, NAME, TYPE, RESULT, ...) LOOP2_OF(ATTRIBUTES, NAME, TYPE, RESULT, , x[i], w[i], __VA_ARGS__)
// Loops of bools, into bools.
#define BOOLS1(NAME, ...)                                                            \
  SLUICE_LIGHT_CLONES static int NAME(const void* const* in, void* out, int64_t n) { \
    using T [[maybe_unused]] = int8_t;                                               \
    const T* x = static_cast<const T*>(in[0]);                                       \
    bool* y = static_cast<bool*>(out);                                               \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                           \
      [[maybe_unused]] const T a = x[i] != 0;                                        \
      y[i] = static_cast<bool>(__VA_ARGS__);                                         \
    }                                                                                \
    return 0;                                                                        \
  }
#define BOOLS2(NAME, ...) LOOP2_OF(SLUICE_LIGHT_CLONES, NAME, int8_t, bool, , x[i] != 0, w[i] != 0, __VA_ARGS__)
// Only light loops have a variant for an operand of one element: for others it costs little to fill a tile with it.
#define LOOPS_WITH_ONE(ATTRIBUTES, NAME, TYPE, ...)                                          \
  LOOP2_OF(ATTRIBUTES, NAME##_one_0, TYPE, TYPE, const T one = x[0], one, w[i], __VA_ARGS__) \
  LOOP2_OF(ATTRIBUTES, NAME##_one_1, TYPE, TYPE, const T one = w[0], x[i], one, __VA_ARGS__)
#define LOOPS_WITH_ONE_kLight(NAME, ...)                              \
  LOOPS_WITH_ONE(SLUICE_LIGHT_CLONES, NAME##_f32, float, __VA_ARGS__) \
  LOOPS_WITH_ONE(, NAME##_f64, double, __VA_ARGS__)
#define LOOPS_WITH_ONE_kHeavy(NAME, ...)
// Stops at an element that has no result.
#define CHECKED_LOOP2(NAME, EXPRESSION, ERROR, BAD)                                     \
  static int NAME(const void* const* in, void* out, int64_t n) {                        \
    const i64 *x = static_cast<const i64*>(in[0]), *w = static_cast<const i64*>(in[1]); \
    i64* y = static_cast<i64*>(out);                                                    \
    for (int64_t i = 0; i < n; ++i) {                                                   \
      const i64 a = x[i], b = w[i];                                                     \
      if (BAD) return static_cast<int>(ScalarError::ERROR);                             \
      y[i] = EXPRESSION;                                                                \
    }                                                                                   \
    return 0;                                                                           \
  }

// Remainders: a loop of vectors where every quotient is near (vector_math.h), else one of calls.
#define REMAINDERS2(NAME, ...)                                       \
  LOOP2(SLUICE_CLONES, NAME##_near, NearFloat, float, __VA_ARGS__)   \
  LOOP2(, NAME##_far, float, float, __VA_ARGS__)                     \
  static int NAME(const void* const* in, void* out, int64_t n) {     \
    return (all_near(in, n) ? NAME##_near : NAME##_far)(in, out, n); \
  }
SLUICE_CLONES [[maybe_unused]] static bool all_near(const void* const* in, int64_t n) {
  const float *x = static_cast<const float*>(in[0]), *w = static_cast<const float*>(in[1]);
  int32_t far = 0;
  for (int64_t i = 0; i < n; ++i) far |= quotient_is_near(x[i], w[i]) ? 0 : 1;
  return far == 0;
}

#define CLONES_kLight SLUICE_LIGHT_CLONES
#define CLONES_kHeavy SLUICE_CLONES
#define FLOATS1(NAME, WEIGHT, ...)                              \
  LOOP1(CLONES_##WEIGHT, NAME##_f32, float, float, __VA_ARGS__) \
  LOOP1(, NAME##_f64, double, double, __VA_ARGS__)
#define NUMBERS1(NAME, WEIGHT, FLOATS, ...) \
  FLOATS1(NAME, WEIGHT, FLOATS)             \
  LOOP1(, NAME##_i64, i64, i64, __VA_ARGS__)
#define TEST1(NAME, FLOATS, ...)                        \
  LOOP1(SLUICE_CLONES, NAME##_f32, float, bool, FLOATS) \
  LOOP1(, NAME##_f64, double, bool, FLOATS)             \
  LOOP1(, NAME##_i64, i64, bool, __VA_ARGS__)           \
  BOOLS1(NAME##_b8, __VA_ARGS__)
#define FLOATS2(NAME, WEIGHT, ...)                              \
  LOOP2(CLONES_##WEIGHT, NAME##_f32, float, float, __VA_ARGS__) \
  LOOP2(, NAME##_f64, double, double, __VA_ARGS__)              \
  LOOPS_WITH_ONE_##WEIGHT(NAME, __VA_ARGS__)
#define INTEGERS2(NAME, ...)                 \
  LOOP2(, NAME##_i64, i64, i64, __VA_ARGS__) \
  BOOLS2(NAME##_b8, __VA_ARGS__)
#define NUMBERS2(NAME, WEIGHT, FLOATS, ...) \
  FLOATS2(NAME, WEIGHT, FLOATS)             \
  LOOP2(, NAME##_i64, i64, i64, __VA_ARGS__)
#define CHECKED2(NAME, WEIGHT, FLOATS, INTEGERS, ERROR, BAD) \
  REMAINDERS2(NAME##_f32, FLOATS)                            \
  LOOP2(, NAME##_f64, double, double, FLOATS)                \
  CHECKED_LOOP2(NAME##_i64, INTEGERS, ERROR, BAD)
#define TEST2(NAME, ...)                                     \
  LOOP2(SLUICE_CLONES, NAME##_f32, float, bool, __VA_ARGS__) \
  LOOP2(, NAME##_f64, double, bool, __VA_ARGS__)             \
  LOOP2(, NAME##_i64, i64, bool, __VA_ARGS__)                \
  BOOLS2(NAME##_b8, __VA_ARGS__)
#define VARIANT1(NAME, MODE, WEIGHT, ...) FLOATS1(NAME##_##MODE, WEIGHT, __VA_ARGS__)
#define VARIANT2(NAME, MODE, WEIGHT, ...) FLOATS2(NAME##_##MODE, WEIGHT, __VA_ARGS__)
#define COMPLEX_LOOPS(LOOP, NAME, RESULT, RESULT_WIDE, ...)    \
  LOOP(, NAME##_c64, std::complex<float>, RESULT, __VA_ARGS__) \
  LOOP(, NAME##_c128, std::complex<double>, RESULT_WIDE, __VA_ARGS__)
#define COMPLEX1(NAME, WEIGHT, ...) COMPLEX_LOOPS(LOOP1, NAME, std::complex<float>, std::complex<double>, __VA_ARGS__)
#define COMPLEX2(NAME, WEIGHT, ...) COMPLEX_LOOPS(LOOP2, NAME, std::complex<float>, std::complex<double>, __VA_ARGS__)
#define COMPLEX_TEST1(NAME, ...) COMPLEX_LOOPS(LOOP1, NAME, bool, bool, __VA_ARGS__)
#define COMPLEX_TEST2(NAME, ...) COMPLEX_LOOPS(LOOP2, NAME, bool, bool, __VA_ARGS__)
#define REAL_OF1(NAME, WEIGHT, ...) COMPLEX_LOOPS(LOOP1, NAME, float, double, __VA_ARGS__)
#include SLUICE_SCALAR_TABLE
#include "base/scalar/undefine.inc"

#define COMPLEX1(NAME, ...) {#NAME, kComplexMode, nullptr, nullptr, nullptr, NAME##_c64, NAME##_c128},
#define COMPLEX2(NAME, ...) COMPLEX1(NAME, )
#define COMPLEX_TEST1(NAME, ...) COMPLEX1(NAME, )
#define COMPLEX_TEST2(NAME, ...) COMPLEX1(NAME, )
#define REAL_OF1(NAME, ...) COMPLEX1(NAME, )
#define FLOATS1(NAME, ...) {#NAME, "", NAME##_f32, NAME##_f64, nullptr},
#define NUMBERS1(NAME, ...) {#NAME, "", NAME##_f32, NAME##_f64, NAME##_i64},
#define TEST1(NAME, ...) \
  {.op = #NAME, .mode = "", .f32 = NAME##_f32, .f64 = NAME##_f64, .i64 = NAME##_i64, .b8 = NAME##_b8},
#define ONES_kLight(NAME) \
  {NAME##_f32_one_0, NAME##_f32_one_1}, { NAME##_f64_one_0, NAME##_f64_one_1 }
#define ONES_kHeavy(NAME) \
  {}, {}
#define BINARY(NAME, MODE, F, I64, WEIGHT) {#NAME, MODE, F##_f32, F##_f64, I64, nullptr, nullptr, ONES_##WEIGHT(F)},
#define FLOATS2(NAME, WEIGHT, ...) BINARY(NAME, "", NAME, nullptr, WEIGHT)
#define INTEGERS2(NAME, ...) {.op = #NAME, .mode = "", .i64 = NAME##_i64, .b8 = NAME##_b8},
#define NUMBERS2(NAME, WEIGHT, ...) BINARY(NAME, "", NAME, NAME##_i64, WEIGHT)
#define CHECKED2(NAME, ...) NUMBERS1(NAME, )
#define TEST2(NAME, ...) TEST1(NAME, )
#define VARIANT1(NAME, MODE, ...) {#NAME, #MODE, NAME##_##MODE##_f32, NAME##_##MODE##_f64, nullptr},
#define VARIANT2(NAME, MODE, WEIGHT, ...) BINARY(NAME, #MODE, NAME##_##MODE, nullptr, WEIGHT)
constexpr LoopSet kSets[] = {
#include SLUICE_SCALAR_TABLE
};
#include "base/scalar/undefine.inc"

}  // namespace
}  // namespace scalar
}  // namespace sluice::cpu
