#include <cmath>
#include <iterator>

#include "kernels/cpu/loop_macros.h"

namespace sluice::cpu {
namespace {

#define COMPARE(NAME, EXPRESSION)                                  \
  SLUICE_LOOP2(SLUICE_CLONES, NAME##_f32, float, bool, EXPRESSION) \
  SLUICE_LOOP2(, NAME##_f64, double, bool, EXPRESSION)             \
  SLUICE_LOOP2(, NAME##_i64, int64_t, bool, EXPRESSION)
#define TEST(NAME, FLOAT, INTEGER)                            \
  SLUICE_LOOP1(SLUICE_CLONES, NAME##_f32, float, bool, FLOAT) \
  SLUICE_LOOP1(, NAME##_f64, double, bool, FLOAT)             \
  SLUICE_LOOP1(, NAME##_i64, int64_t, bool, INTEGER)

COMPARE(eq, a == b)
COMPARE(ne, a != b)
COMPARE(lt, a < b)
COMPARE(le, a <= b)
COMPARE(gt, a > b)
COMPARE(ge, a >= b)
COMPARE(logical_and, (a != 0) & (b != 0))
COMPARE(logical_or, (a != 0) | (b != 0))
COMPARE(logical_xor, (a != 0) != (b != 0))
TEST(logical_not, a == 0, a == 0)
TEST(isnan, a != a, (static_cast<void>(a), false))
TEST(isinf, std::fabs(a) == INFINITY, (static_cast<void>(a), false))

#define SET(NAME, INPUTS) \
  { .op = #NAME, .inputs = INPUTS, .f32 = NAME##_f32, .f64 = NAME##_f64, .i64 = NAME##_i64, .gives_bool = true }

const LoopSet kSets[] = {SET(eq, 2),          SET(ne, 2),          SET(lt, 2),          SET(le, 2),
                         SET(gt, 2),          SET(ge, 2),          SET(logical_and, 2), SET(logical_or, 2),
                         SET(logical_xor, 2), SET(logical_not, 1), SET(isnan, 1),       SET(isinf, 1)};

}  // namespace

LoopSpan comparison_loops() { return {std::begin(kSets), std::end(kSets)}; }

}  // namespace sluice::cpu
