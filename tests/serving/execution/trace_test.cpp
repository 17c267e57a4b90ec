// The work of the engine for traced requests is joined to them by their numbers.
#include "serving/core/trace.h"

#include <gmock/gmock.h>

#include "fixture.h"

namespace sluice::serving::test {
namespace {

// Records of requests that are over, and of which all is known.
struct Records {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint64_t, std::vector<std::shared_ptr<const StepTrace>>> steps;

  std::shared_ptr<RequestTrace> begin(uint64_t id) {
    auto trace = RequestTrace::make(id, Transport::kInProcess, [this](const RequestTrace& over) {
      const std::lock_guard lock(mutex);
      EXPECT_GT(over.at_ns(Stamp::kRequestEnd), 0);
      steps[over.id()] = over.steps();
      changed.notify_all();
    });
    trace->with_steps = true;
    return trace;
  }
  void wait_for(size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return steps.size() == count; });
  }
};

class EngineTraces : public ExecutionTest {
 protected:
  std::shared_ptr<Executor> doubled(const std::string& more) {
    return make(family("d", doubling, {1, 4}, 3), R"(max_batch_size: 4
      input { name: "x" data_type: TYPE_FP32 dims: [3] } output { name: "y" data_type: TYPE_FP32 dims: [3] })" +
                                                      more);
  }
  InferRequest traced(uint64_t id, int64_t rows = 1) {
    InferRequest request = this->request(floats("x", {rows, 3}, Floats(static_cast<size_t>(rows) * 3, 1)));
    request.trace = records.begin(id);
    return request;
  }
  Records records;
};

std::multiset<std::string> names(const StepTrace& step, api::TraceEvent::Kind kind) {
  std::multiset<std::string> all;
  for (const api::TraceEvent& e : step.events) {
    const api::Trace::Plan& plan = step.plans->at(static_cast<size_t>(e.plan));
    if (e.kind != kind) continue;
    const bool of_kernel = kind == api::TraceEvent::Kind::kKernel;
    all.insert(of_kernel ? plan.kernels.at(static_cast<size_t>(e.kernel))
                         : plan.actors.at(static_cast<size_t>(e.actor)));
  }
  return all;
}

TEST_F(EngineTraces, AStepIsThatOfAllItsRequests) {
  const auto executor =
      doubled("dynamic_batching { preferred_batch_size: [3] max_queue_delay_microseconds: 600000000 }");
  {  // a request is over when nobody has its response
    const Call first(*executor, traced(7)), second(*executor, request(floats("x", {1, 3}, {1, 1, 1}))),
        third(*executor, traced(9));
    for (const Call* call : {&first, &second, &third}) EXPECT_EQ(call->floats(), (Floats{2, 2, 2}));
  }
  records.wait_for(2);
  ASSERT_EQ(records.steps.at(7).size(), 1u);
  ASSERT_EQ(records.steps.at(9).size(), 1u);
  EXPECT_EQ(records.steps.at(7)[0], records.steps.at(9)[0]);
  const StepTrace& step = *records.steps.at(7)[0];
  EXPECT_THAT(step.ids, testing::ElementsAre(7, 9)) << "the second is not traced";
  EXPECT_EQ(step.number, 0u);
  const auto firings = names(step, api::TraceEvent::Kind::kFiring);
  const api::Trace::Plan& plan = step.plans->at(static_cast<size_t>(step.events.at(0).plan));
  EXPECT_EQ(firings, (std::multiset<std::string>(plan.actors.begin(), plan.actors.end()))) << "each actor once";
  EXPECT_EQ(names(step, api::TraceEvent::Kind::kKernel).size(), 1u);
  for (const api::TraceEvent& e : step.events) EXPECT_LE(e.begin_ns, e.end_ns);
}

TEST_F(EngineTraces, StepsOfOthersAreNotTold) {
  const auto executor = doubled("");
  for (const uint64_t id : {1u, 2u}) {
    EXPECT_EQ(Call(*executor, request(floats("x", {1, 3}, {1, 1, 1}))).floats(), (Floats{2, 2, 2}));
    EXPECT_EQ(Call(*executor, traced(id)).floats(), (Floats{2, 2, 2}));
  }
  records.wait_for(2);
  for (const uint64_t id : {1u, 2u}) {
    ASSERT_EQ(records.steps.at(id).size(), 1u);
    EXPECT_THAT(records.steps.at(id)[0]->ids, testing::ElementsAre(id));
    EXPECT_EQ(records.steps.at(id)[0]->number, id * 2 - 1);
    EXPECT_EQ(names(*records.steps.at(id)[0], api::TraceEvent::Kind::kKernel).size(), 1u);
  }
}

TEST_F(EngineTraces, ALargeRequestHasAllItsSteps) {
  const auto executor = make(bundle("pairs", doubling(2)), R"(max_batch_size: 4
      input { name: "x" data_type: TYPE_FP32 dims: [3] } output { name: "y" data_type: TYPE_FP32 dims: [3] })");
  EXPECT_EQ(Call(*executor, traced(5, 4)).floats(), Floats(12, 2));  // of two rows each
  records.wait_for(1);
  std::set<uint64_t> numbers;
  for (const auto& step : records.steps.at(5)) numbers.insert(step->number);
  EXPECT_EQ(numbers, (std::set<uint64_t>{0, 1}));
}

TEST_F(EngineTraces, ARequestThatIsRefusedHasNone) {
  const auto executor = doubled("");
  InferRequest wrong = this->request(floats("x", {1, 2}, {1, 1}));
  wrong.trace = records.begin(3);
  EXPECT_EQ(Call(*executor, std::move(wrong)).code(), Code::kInvalidArgument);
  records.wait_for(1);
  EXPECT_TRUE(records.steps.at(3).empty());
}

// Its end waits for nothing that could still be told.
TEST_F(EngineTraces, TheEndOfAModelEndsItsRecords) {
  auto executor = doubled("");
  EXPECT_EQ(Call(*executor, traced(4)).floats(), (Floats{2, 2, 2}));
  executor = nullptr;
  records.wait_for(1);
  ASSERT_EQ(records.steps.at(4).size(), 1u);
  EXPECT_EQ(names(*records.steps.at(4)[0], api::TraceEvent::Kind::kKernel).size(), 1u);
}

}  // namespace
}  // namespace sluice::serving::test
