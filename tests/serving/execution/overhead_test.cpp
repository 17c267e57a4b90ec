// What an executor adds to a step, printed: serving_execution_tests --gtest_also_run_disabled_tests
// --gtest_filter='*Overhead*'. Not a test, since a busy machine has other figures.
#include <algorithm>

#include "fixture.h"

namespace sluice::serving::test {
namespace {

using OverheadTest = ExecutionTest;

template <class F>
double median_us(F&& f) {
  std::vector<double> us;
  for (int i = 0; i < 5000; ++i) {
    const auto begin = Clock::now();
    f();
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::nth_element(us.begin(), us.begin() + 2500, us.end());
  return us[2500];
}

TEST_F(OverheadTest, DISABLED_OfASmallRequest) {
  const std::string path = bundle("b", doubling(2));
  const auto plain = make(path, R"(
    input { name: "x" data_type: TYPE_FP32 dims: [2, 3] }
    output { name: "y" data_type: TYPE_FP32 dims: [2, 3] })");
  const auto batching = make(family("d", doubling, {1, 2, 4}, 3), R"(max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [3] } output { name: "y" data_type: TYPE_FP32 dims: [3] }
    dynamic_batching { })");
  api::Session session = api::Session::load(engine_, path, {.zero_copy = true});
  const Floats x(6, 1);
  for (int round = 0; round < 3; ++round) {
    std::printf("session %.1f us, executor %.1f us, with batching %.1f us\n", median_us([&] {
                  session.hand_over({api::Tensor(api::DType::kFloat32, {2, 3}, memory_of(x.data(), 24))}).get();
                }),
                median_us([&] {
                  Call(*plain, request(floats("x", {2, 3}, x))).get();
                }),
                median_us([&] {
                  Call(*batching, request(floats("x", {2, 3}, x))).get();
                }));
  }
}

}  // namespace
}  // namespace sluice::serving::test
