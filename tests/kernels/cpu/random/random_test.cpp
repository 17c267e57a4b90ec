#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernels/cpu/random/philox.h"
#include "tests/kernels/kernel_runner.h"

namespace sluice {
namespace {

TestTensor state(int64_t seed, int64_t step) {
  return TestTensor(dense({2}, DType::kInt64), {static_cast<double>(seed), static_cast<double>(step)});
}

std::pair<double, double> moments(const std::vector<double>& v) {
  double mean = 0, square = 0;
  for (double x : v) mean += x / static_cast<double>(v.size());
  for (double x : v) square += (x - mean) * (x - mean) / static_cast<double>(v.size());
  return {mean, std::sqrt(square)};
}

// The published test vector of Philox4x32-10 for zero counter and key.
TEST(Philox, KnownAnswer) {
  const int64_t zero[2] = {0, 0};
  uint32_t words[cpu::kPhiloxGroup];
  cpu::PhiloxStream(zero, 0).words(0, words);
  EXPECT_EQ(words[0], 0x6627e8d5u);
  EXPECT_EQ(words[16], 0xe169c58du);
  EXPECT_EQ(words[32], 0xbc57ac4cu);
  EXPECT_EQ(words[48], 0x9b00dbd8u);
}

TEST(Random, UniformAndNormalHaveTheirMoments) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    const std::vector<double> u = run_kernel("uniform", {state(1, 2)}, dense({100000}, dtype),
                                             {{"low", -1.0}, {"high", 3.0}, {"salt", int64_t{0}}});
    const auto [mean, deviation] = moments(u);
    EXPECT_NEAR(mean, 1, 0.02);
    EXPECT_NEAR(deviation, 4 / std::sqrt(12.0), 0.01);
    for (double x : u) ASSERT_TRUE(x >= -1 && x < 3);
    const auto [m, d] = moments(run_kernel("normal", {state(1, 2)}, dense({100001}, dtype),
                                           {{"mean", 2.0}, {"std", 0.5}, {"salt", int64_t{0}}}));
    EXPECT_NEAR(m, 2, 0.01);
    EXPECT_NEAR(d, 0.5, 0.01);
  }
}

TEST(Random, DependsOnSeedStepAndSaltOnly) {
  const auto draw = [](int64_t seed, int64_t step, int64_t salt, TensorSpec out, int threads = 1) {
    return run_kernel("uniform", {state(seed, step)}, out, {{"low", 0.0}, {"high", 1.0}, {"salt", salt}}, threads);
  };
  const Shape shape{50, 700};
  const std::vector<double> base = draw(7, 3, 1, dense(shape));
  EXPECT_EQ(base, draw(7, 3, 1, scrambled(shape)));
  EXPECT_EQ(base, draw(7, 3, 1, dense(shape), 2));
  for (const std::vector<double>& other :
       {draw(8, 3, 1, dense(shape)), draw(7, 4, 1, dense(shape)), draw(7, 3, 2, dense(shape))}) {
    int equal = 0;
    for (size_t i = 0; i < base.size(); ++i) equal += base[i] == other[i];
    EXPECT_LT(equal, 20);
  }
  const std::vector<double> shorter = draw(7, 3, 1, dense({33}));
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), base.begin()));
}

TEST(Random, IntegersCoverTheirRange) {
  const std::vector<double> v = run_kernel("randint", {state(1, 1)}, dense({5000}, DType::kInt32),
                                           {{"low", int64_t{-3}}, {"high", int64_t{4}}, {"salt", int64_t{0}}});
  EXPECT_EQ(std::set<double>(v.begin(), v.end()), (std::set<double>{-3, -2, -1, 0, 1, 2, 3}));
}

TEST(Random, DropoutScalesWhatItKeeps) {
  const Shape shape{64, 333};
  const TestTensor x(scrambled(shape), {1});
  const auto run = [&](double p, TensorSpec out, int threads) {
    return run_kernel("dropout", {state(3, 4), x}, out, {{"p", p}, {"salt", int64_t{9}}}, threads);
  };
  const std::vector<double> y = run(0.25, dense(shape), 1);
  int kept = 0;
  for (double v : y) {
    ASSERT_TRUE(v == 0 || std::fabs(v - 1 / 0.75) < 1e-6);
    kept += v != 0;
  }
  EXPECT_NEAR(kept / static_cast<double>(y.size()), 0.75, 0.01);
  EXPECT_EQ(y, run(0.25, scrambled(shape), 2));
  for (double v : run(0, dense(shape), 1)) ASSERT_EQ(v, 1);
  for (double v : run(1, dense(shape), 1)) ASSERT_EQ(v, 0);
  const std::vector<double> mask =
      run_kernel("bernoulli", {state(3, 4)}, dense(shape), {{"p", 0.75}, {"salt", int64_t{9}}});
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(mask[i] != 0, y[i] != 0);
}

}  // namespace
}  // namespace sluice
