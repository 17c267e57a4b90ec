// One request at a time: checks, names, types, shapes, statistics.
#include "fixture.h"

namespace sluice::serving::test {
namespace {

constexpr const char* kPlain = R"(
  input { name: "x" data_type: TYPE_FP32 dims: [2, 3] }
  output { name: "y" data_type: TYPE_FP32 dims: [2, 3] })";

using RequestsTest = ExecutionTest;

TEST_F(RequestsTest, ARequestIsAnswered) {
  const auto executor = make(bundle("b", doubling(2)), kPlain);
  InferRequest one = request(floats("x", {2, 3}, {1, 2, 3, 4, 5, 6}));
  one.id = "seven";
  const Call call(*executor, std::move(one));
  EXPECT_EQ(call.floats(), (Floats{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(call.get().model, "m");
  EXPECT_EQ(call.get().version, "1");
  EXPECT_EQ(call.get().id, "seven");
  EXPECT_EQ(call.get().outputs[0].name, "y");
  EXPECT_EQ(call.get().outputs[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(executor->pending(), 0u);
  EXPECT_TRUE(executor->ready());
}

TEST_F(RequestsTest, ManyThreadsAreAnswered) {
  const auto executor = make(bundle("b", doubling(2)), kPlain);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const float x = static_cast<float>(t * 1000 + i);
        const Call call(*executor, request(floats("x", {2, 3}, {x, 0, 0, 0, 0, x})));
        ASSERT_EQ(call.floats(), (Floats{2 * x, 0, 0, 0, 0, 2 * x}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const inference::ModelStatistics stats = executor->statistics();
  EXPECT_EQ(stats.inference_count(), 800u);
  EXPECT_EQ(stats.execution_count(), 800u);
  EXPECT_EQ(stats.inference_stats().success().count(), 800u);
}

}  // namespace
}  // namespace sluice::serving::test
