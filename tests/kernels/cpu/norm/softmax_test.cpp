#include "kernels/network_kernels.h"

namespace sluice {
namespace {

const NamedAttrs kLast = {{"dim", int64_t{-1}}};
NamedAttrs reduction(const char* name) {
  return {{"ignore_index", int64_t{-100}}, {"label_smoothing", 0.0}, {"reduction", std::string(name)}};
}

std::vector<double> softmax_by_definition(const std::vector<double>& x) {
  double sum = 0;
  std::vector<double> y;
  for (double v : x) y.push_back(std::exp(v)), sum += y.back();
  for (double& v : y) v /= sum;
  return y;
}

TEST(SoftmaxTest, MatchesTheDefinitionForEveryLength) {
  for (int64_t n : {1, 2, 7, 16, 33, 100}) {
    auto x = noise(n, static_cast<uint32_t>(n));
    for (auto& v : x) v *= 8;
    const auto expected = softmax_by_definition(x);
    expect_near(run_call({"softmax", {TestTensor(dense({1, n}), x)}, {dense({1, n})}, kLast})[0].read(), expected,
                2e-6);
    const auto logs = run_call({"log_softmax", {TestTensor(dense({1, n}), x)}, {dense({1, n})}, kLast})[0].read();
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(logs[i], std::log(expected[i]), 1e-5);
    // The same along a middle dim: (1, n, 3) holds x three times, side by side.
    std::vector<double> wide;
    for (double v : x) wide.insert(wide.end(), 3, v);
    const auto got =
        run_call({"softmax", {TestTensor(dense({1, n, 3}), wide)}, {dense({1, n, 3})}, {{"dim", int64_t{1}}}})[0]
            .read();
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i / 3], 2e-6);
  }
}

TEST(SoftmaxTest, MaskedEntriesGetExactlyZero) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto y = run_call({"softmax", {TestTensor(dense({1, 3}), {0.5, -inf, 0.5})}, {dense({1, 3})}, kLast})[0].read();
  EXPECT_EQ(y, (std::vector<double>{0.5, 0, 0.5}));
}

TEST(CrossEntropyTest, MatchesLogSoftmax) {
  const auto x = noise(3 * 5, 11);
  const TestTensor logits(dense({3, 5}), x), target(dense({3}, DType::kInt64), {4, 0, 2});
  const auto logs = run_call({"log_softmax", {logits}, {dense({3, 5})}, kLast})[0].read();
  const std::vector<double> each = {-logs[4], -logs[5], -logs[12]};
  expect_near(run_call({"cross_entropy", {logits, target, std::nullopt}, {dense({3})}, reduction("none")})[0].read(),
              each, 1e-6);
  expect_near(run_call({"cross_entropy", {logits, target, std::nullopt}, {dense({})}, reduction("mean")})[0].read(),
              {(each[0] + each[1] + each[2]) / 3}, 1e-6);
}

TEST(CrossEntropyTest, IgnoredSamplesDoNotCount) {
  const TestTensor logits = random_tensor(dense({3, 5}), 12), target(dense({3}, DType::kInt64), {1, -100, 3});
  const auto dx = run_call({"cross_entropy_backward",
                            {TestTensor(dense({}), {1}), logits, target, std::nullopt},
                            {dense({3, 5})},
                            reduction("mean")})[0]
                      .read();
  for (size_t i = 5; i < 10; ++i) EXPECT_EQ(dx[i], 0);
  double first = 0;
  for (size_t i = 0; i < 5; ++i) first += std::abs(dx[i]);
  EXPECT_GT(first, 0.1);
}

TEST(CrossEntropyTest, NamesABadTarget) {
  const TestTensor logits = random_tensor(dense({2, 5}), 13), target(dense({2}, DType::kInt64), {1, 5});
  const std::string expected =
      "cross_entropy: target is not a class: 5 at sample 1; it must be at least 0 and below 5, or ignore_index -100";
  EXPECT_EQ(test::message_of([&] {
              run_call({"cross_entropy", {logits, target, std::nullopt}, {dense({})}, reduction("mean")});
            }),
            expected);
  EXPECT_EQ(test::message_of([&] {
              run_call({"cross_entropy_backward",
                        {TestTensor(dense({}), {1}), logits, target, std::nullopt},
                        {dense({2, 5})},
                        reduction("sum")});
            }),
            expected);
}

}  // namespace
}  // namespace sluice
