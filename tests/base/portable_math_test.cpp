// Functions of float that have the same bits on every machine: near to the true ones, and every way in is theirs.
#include "base/portable_math.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>

namespace sluice {
namespace {

namespace portable {
using u32 = uint32_t;
u32 bits_of_float(float x) { return std::bit_cast<u32>(x); }
float float_of_bits(u32 bits) { return std::bit_cast<float>(bits); }
#define PORTABLE(NAME, PARAMETERS, ...) \
  float NAME PARAMETERS { __VA_ARGS__ }
#include "base/scalar/portable.inc"
}  // namespace portable

// How many of float's steps the result is from the true one; of results below the normal numbers, steps of those.
double steps_off(float got, double wanted) {
  const auto rounded = static_cast<float>(wanted);
  if (std::isnan(wanted) || std::isinf(rounded) || !std::isfinite(got))
    return std::isnan(wanted) == std::isnan(got) && (std::isnan(got) || got == rounded) ? 0 : 1e9;
  const int exponent = std::max(std::ilogb(static_cast<double>(rounded == 0 ? 1e-45f : rounded)), -126);
  return std::fabs(static_cast<double>(got) - wanted) / std::ldexp(1.0, exponent - 23);
}

struct Case {
  const char* name;
  float (*own)(float);
  double (*wanted)(double);
};
constexpr Case kCases[] = {
    {"exp", portable::exp, std::exp},       {"exp2", portable::exp2, std::exp2}, {"expm1", portable::expm1, std::expm1},
    {"log", portable::log, std::log},       {"log2", portable::log2, std::log2}, {"log10", portable::log10, std::log10},
    {"log1p", portable::log1p, std::log1p}, {"tanh", portable::tanh, std::tanh}, {"erf", portable::erf, std::erf}};

TEST(PortableMath, IsWithinThreeStepsOfTheTrueFunctions) {
  constexpr uint64_t kStride = 20011;  // of all floats, NaN and infinities among them
  for (const Case& one : kCases) {
    ASSERT_NE(find_portable_function(one.name), nullptr) << one.name;
    double worst = 0;
    float at = 0;
    const auto look = [&](float x) {
      const double off = steps_off(one.own(x), one.wanted(static_cast<double>(x)));
      if (off > worst) worst = off, at = x;
    };
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += kStride)
      look(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    for (const float x : {0.0f, -0.0f, 1.0f, -1.0f, 88.7f, 88.8f, -87.4f, -103.9f, 128.0f, -149.0f,
                          std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::denorm_min()})
      look(x);
    EXPECT_LE(worst, 3) << one.name << " of " << at << ": " << one.own(at);
    printf("count: steps that %s is off at most: %.2f\n", one.name, worst);
  }
}

TEST(PortableMath, PowersOfTwoAreExact) {
  for (int n = -149; n < 128; ++n) {
    const auto x = static_cast<float>(std::ldexp(1.0, n));
    EXPECT_EQ(portable::exp2(static_cast<float>(n)), x) << n;
    EXPECT_EQ(portable::log2(x), static_cast<float>(n)) << n;
  }
}

TEST(PortableMath, NamesAreThoseOfCsMathematics) {
  const auto all = math_functions();
  EXPECT_THAT(std::vector<std::string>(all.begin(), all.end()), testing::IsSupersetOf({"exp", "sqrt", "atan2", "pow"}));
  EXPECT_EQ(find_portable_function("sin"), nullptr);
}

}  // namespace
}  // namespace sluice
