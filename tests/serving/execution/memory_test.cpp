// Everything that a request and its answer hold counts in its share, from before it is there until it is gone.
#include "fixture.h"

namespace sluice::serving::test {
namespace {

constexpr uint64_t kRow = 3 * sizeof(float);
constexpr const char* kBatched = R"(
  max_batch_size: 4
  input { name: "x" data_type: TYPE_FP32 dims: [3] }
  output { name: "y" data_type: TYPE_FP32 dims: [3] })";

class AnswerMemory : public ExecutionTest {
 protected:
  InferRequest counted_request(int64_t rows, uint64_t limit = UINT64_MAX) {
    InferRequest made = request(floats("x", {rows, 3}, Floats(static_cast<size_t>(rows) * 3, 1)));
    made.memory = std::make_shared<MemoryShare>(budget, limit);
    return made;
  }
  // The thread that has answered lets go of the last of it behind the answer.
  void expect_held(uint64_t least, uint64_t most) const {
    const auto until = Clock::now() + std::chrono::seconds(120);
    const auto fits = [&] { return budget->held() >= least && budget->held() <= most; };
    while (!fits() && Clock::now() < until) std::this_thread::yield();
    EXPECT_TRUE(fits()) << budget->held() << " bytes; must be " << least << " to " << most;
  }
  void expect_held(uint64_t bytes) const { expect_held(bytes, bytes); }
  std::shared_ptr<MemoryBudget> budget = std::make_shared<MemoryBudget>(1 << 20);
};

TEST_F(AnswerMemory, AnAnswerCountsAsLongAsSomebodyHasAPartOfIt) {
  const auto executor = make(bundle("b", doubling(4)), kBatched);
  Tensor kept;
  {
    const Call call(*executor, counted_request(1));
    kept = call.get().outputs.at(0);
    EXPECT_EQ(kept.bytes, kRow);
  }
  expect_held(4 * kRow);  // a step has four rows, of which this one keeps all
  kept = {};
  expect_held(0);
}

TEST_F(AnswerMemory, RowsOfABatchShareOneCount) {
  const auto executor = make(bundle("b", doubling(4)), std::string(kBatched) +
                                                           "dynamic_batching { preferred_batch_size: [4] "
                                                           "max_queue_delay_microseconds: 60000000 }");
  Tensor kept;
  {
    std::vector<Call> calls;
    for (int i = 0; i < 4; ++i) calls.emplace_back(*executor, counted_request(1));
    for (const Call& call : calls) kept = call.get().outputs.at(0);
  }
  expect_held(4 * kRow);
  kept = {};
  expect_held(0);
}

TEST_F(AnswerMemory, AnAnswerThatDoesNotFitIsRefusedBeforeItIsComputed) {
  const auto executor = make(bundle("b", doubling(4)), kBatched);
  const Call never(*executor, counted_request(2, 100));
  EXPECT_EQ(never.code(), Code::kTooLarge);
  MemoryShare others(budget, UINT64_MAX);
  others.take(budget->limit());
  const Call now(*executor, counted_request(2));
  EXPECT_EQ(now.code(), Code::kOverloaded);
  EXPECT_EQ(executor->statistics().execution_count(), 0u);
  others.give(budget->limit());
  expect_held(0);
}

// Both the parts and the whole are there for a moment; then the whole alone.
TEST_F(AnswerMemory, AnAnswerThatIsJoinedCountsOnce) {
  const auto executor = make(bundle("b", doubling(2)), kBatched);
  Tensor kept;
  {
    const Call call(*executor, counted_request(4));
    EXPECT_EQ(call.error(), "");
    kept = call.get().outputs.at(0);
    EXPECT_EQ(kept.bytes, 4 * kRow);
  }
  expect_held(kept.bytes, 64);  // at multiples of 64 bytes
  kept = {};
  expect_held(0);
}

TEST_F(AnswerMemory, WhatTheCacheAnswersCounts) {
  options_.response_cache_bytes = 1 << 20;
  const auto executor = make(bundle("b", doubling(4)), std::string(kBatched) + "response_cache { enable: true }");
  Tensor kept;
  for (int i = 0; i < 2; ++i) {
    const Call call(*executor, counted_request(4));
    EXPECT_EQ(call.error(), "");
    kept = call.get().outputs.at(0);
  }
  EXPECT_EQ(executor->statistics().inference_stats().cache_hit().count(), 1u);
  expect_held(4 * kRow);
  kept = {};
  expect_held(0);
}

TEST_F(AnswerMemory, CancelledRequestsHoldNothing) {
  const auto executor = make(bundle("b", doubling(4)), std::string(kBatched) +
                                                           "dynamic_batching { preferred_batch_size: [4] "
                                                           "max_queue_delay_microseconds: 60000000 }");
  {
    const Call call(*executor, counted_request(1));
    EXPECT_GT(budget->held(), 0u);
    call.cancel();
    EXPECT_EQ(call.code(), Code::kCancelled);
  }
  expect_held(0);
}

}  // namespace
}  // namespace sluice::serving::test
