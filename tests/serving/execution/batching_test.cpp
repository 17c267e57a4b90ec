// Requests merged into steps: how many, in what order, and what becomes of those that wait too long.
#include "fixture.h"

namespace sluice::serving::test {
namespace {

std::string door_config(const std::string& batching, int most = 8) {
  return "max_batch_size: " + std::to_string(most) + R"(
    input { name: "x" data_type: TYPE_FP32 dims: [1] }
    output { name: "y" data_type: TYPE_FP32 dims: [1] }
    dynamic_batching { )" +
         batching + " }";
}

class BatchingTest : public DoorTest {
 protected:
  std::string doors() { return family("doors", door, {1, 2, 4, 8}, 1); }
  // An executor with a step that is inside, until the door opens.
  std::shared_ptr<Executor> busy(const std::string& batching, int most = 8) {
    auto executor = make(doors(), door_config(batching, most));
    first_.emplace(*executor, at_door(1));
    EXPECT_EQ(entered(), 1);
    return executor;
  }
  std::vector<uint64_t> batches(const Executor& executor) {
    std::vector<uint64_t> sizes;
    const inference::ModelStatistics stats = executor.statistics();
    for (const auto& batch : stats.batch_stats())
      for (uint64_t i = 0; i < batch.compute_infer().count(); ++i) sizes.push_back(batch.batch_size());
    return sizes;
  }
  std::optional<Call> first_;
};

TEST_F(BatchingTest, RequestsThatWaitAreMerged) {
  const auto executor = busy("");
  std::vector<Call> calls;
  for (int i = 0; i < 64; ++i) calls.emplace_back(*executor, at_door(static_cast<float>(i + 10)));
  EXPECT_EQ(executor->pending(), 65u);
  open_door();
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(calls[i].floats(), Floats{static_cast<float>(i + 10)});
    EXPECT_EQ(calls[i].get().outputs[0].shape, (std::vector<int64_t>{1, 1}));
  }
  const inference::ModelStatistics stats = executor->statistics();
  EXPECT_EQ(stats.inference_count(), 65u);
  EXPECT_LE(stats.execution_count(), 10u);  // one, and 64 in batches of eight
  uint64_t executions = 0, rows = 0;
  for (const auto& batch : stats.batch_stats()) {
    executions += batch.compute_infer().count();
    rows += batch.compute_infer().count() * batch.batch_size();
  }
  EXPECT_EQ(executions, stats.execution_count());
  EXPECT_EQ(rows, stats.inference_count());
}

TEST_F(BatchingTest, ABatchHasTheBitsOfItsRequests) {
  std::vector<float> w(16);
  for (int i = 0; i < 16; ++i) w[i] = 0.1f * static_cast<float>(i * i % 7) - 0.3f;
  const std::string path = family("p", product, {1, 2, 4, 8}, 4, {{"w", api::Tensor::from(w, {4, 4})}});
  const std::string text = R"(max_batch_size: 8
    input { name: "x" data_type: TYPE_FP32 dims: [4] }
    output { name: "y" data_type: TYPE_FP32 dims: [4] })";
  const auto merged = make(path, text + " dynamic_batching { max_queue_delay_microseconds: 60000000 }");
  const auto alone = make(path, text);
  const auto row = [](int i) { return Floats{0.5f + static_cast<float>(i), 1.25f, -3, 1e-3f * static_cast<float>(i)}; };
  std::vector<Call> calls;
  Floats all;
  for (int i = 0; i < 8; ++i) {
    calls.emplace_back(*merged, request(floats("x", {1, 4}, row(i))));
    for (const float x : row(i)) all.push_back(x);
  }
  // As the plan for eight rows computes them; one for a single row may round otherwise.
  const Floats wanted = Call(*alone, request(floats("x", {8, 4}, all))).floats();
  for (size_t i = 0; i < 8; ++i) {
    const Floats got = calls[i].floats(),
                 single = Call(*alone, request(floats("x", {1, 4}, row(static_cast<int>(i))))).floats();
    EXPECT_EQ(got, Floats(wanted.begin() + 4 * i, wanted.begin() + 4 * i + 4));
    for (size_t j = 0; j < 4; ++j) EXPECT_NEAR(got[j], single[j], 1e-6);
  }
  EXPECT_EQ(merged->statistics().execution_count(), 1u);
  EXPECT_EQ(alone->statistics().execution_count(), 9u);
}

TEST_F(BatchingTest, RequestsOfSeveralRowsAreMergedAndCut) {
  const auto executor = make(family("d", doubling, {1, 4, 8}, 3), R"(max_batch_size: 8
    input { name: "x" data_type: TYPE_FP32 dims: [3] }
    output { name: "y" data_type: TYPE_FP32 dims: [3] }
    dynamic_batching { max_queue_delay_microseconds: 60000000 })");
  const Call two(*executor, request(floats("x", {2, 3}, {1, 2, 3, 4, 5, 6})));
  const Call one(*executor, request(floats("x", {1, 3}, {7, 8, 9})));
  const Call five(*executor, request(floats("x", {5, 3}, Floats(15, 10))));
  EXPECT_EQ(two.floats(), (Floats{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(one.floats(), (Floats{14, 16, 18}));
  EXPECT_EQ(five.floats(), Floats(15, 20));
  EXPECT_EQ(five.get().outputs[0].shape, (std::vector<int64_t>{5, 3}));
  EXPECT_EQ(executor->statistics().execution_count(), 1u);
}

TEST_F(BatchingTest, APlanOfFixedRowsIsFilledUp) {
  const auto executor = make(bundle("d4", doubling(4)), R"(max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [3] }
    output { name: "y" data_type: TYPE_FP32 dims: [3] })");
  EXPECT_EQ(Call(*executor, request(floats("x", {1, 3}, {1, 2, 3}))).floats(), (Floats{2, 4, 6}));
  EXPECT_EQ(Call(*executor, request(floats("x", {4, 3}, Floats(12, 1)))).floats(), Floats(12, 2));
}

TEST_F(BatchingTest, APlanOfOneRowTakesBatches) {
  for (const char* batching : {"", "dynamic_batching { preserve_ordering: true }"}) {
    const auto executor = make(bundle("d1", doubling(1)), R"(max_batch_size: 16
      input { name: "x" data_type: TYPE_FP32 dims: [3] } output { name: "y" data_type: TYPE_FP32 dims: [3] })" +
                                                              std::string(batching));
    Floats x, y;
    for (int i = 0; i < 48; ++i) {
      x.push_back(static_cast<float>(i));
      y.push_back(2 * static_cast<float>(i));
    }
    const Call call(*executor, request(floats("x", {16, 3}, x)));
    EXPECT_EQ(call.floats(), y);
    EXPECT_EQ(call.get().outputs[0].shape, (std::vector<int64_t>{16, 3}));
    const inference::ModelStatistics stats = executor->statistics();
    EXPECT_EQ(stats.inference_count(), 16u);
    EXPECT_EQ(stats.execution_count(), 16u);
    EXPECT_EQ(stats.inference_stats().success().count(), 1u);
    EXPECT_EQ(Call(*executor, request(floats("x", {17, 3}, Floats(51)))).code(), Code::kInvalidArgument);
    const Call cancelled(*executor, request(floats("x", {16, 3}, x)));
    cancelled.cancel();
    EXPECT_TRUE(!cancelled.code() || cancelled.code() == Code::kCancelled);
    EXPECT_TRUE(executor->drain(std::chrono::minutes(5)));
  }
}

TEST_F(BatchingTest, WaitsForMoreAsLongAsItMay) {
  const auto executor = make(doors(), door_config("max_queue_delay_microseconds: 20000"));
  const auto begin = Clock::now();
  const Call call(*executor, at_door(5));
  EXPECT_EQ(call.floats(), Floats{5});
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(20));
}

TEST_F(BatchingTest, PreferredSizesRunAtOnce) {
  const auto executor =
      make(doors(), door_config("preferred_batch_size: [2, 4] max_queue_delay_microseconds: 3600000000"));
  const auto send = [&](float x) { return Call(*executor, at_door(x)); };
  const Call one = send(10), two = send(11);
  EXPECT_EQ(one.floats(), Floats{10});
  EXPECT_EQ(two.floats(), Floats{11});
  const Call three = send(12);
  EXPECT_FALSE(three.answered());
  const Call four = send(13);
  EXPECT_EQ(three.floats(), Floats{12});
  EXPECT_EQ(four.floats(), Floats{13});
  EXPECT_EQ(batches(*executor), (std::vector<uint64_t>{2, 2}));
}

TEST_F(BatchingTest, PrioritiesOvertake) {
  const auto executor = busy("priority_levels: 2 default_priority_level: 2", 1);
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::shared_ptr<RequestHandle>> handles;
  std::condition_variable changed;
  const auto send = [&](int number, uint64_t priority) {
    InferRequest request = at_door(static_cast<float>(number));
    if (priority > 0) request.parameters["priority"] = priority;
    handles.push_back(executor->infer(std::move(request), [&, number](InferResponse response, bool) {
      const std::lock_guard lock(mutex);
      EXPECT_FALSE(response.error);
      order.push_back(number);
      changed.notify_all();
    }));
  };
  send(10, 0);  // may be in the pipeline already
  send(11, 0);
  send(12, 2);
  send(13, 1);
  send(14, 1);
  open_door();
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return order.size() == 5; });
  const auto at = [&](int number) { return std::find(order.begin(), order.end(), number) - order.begin(); };
  EXPECT_LT(at(13), at(12));
  EXPECT_LT(at(13), at(14));
  EXPECT_LT(at(14), at(12));
  EXPECT_LT(at(11), at(12));
  lock.unlock();
  InferRequest wrong = at_door(0);
  wrong.parameters["priority"] = uint64_t{3};
  EXPECT_EQ(Call(*executor, std::move(wrong)).error(), "infer: parameter 'priority': 3; the model has levels 1 to 2");
}

TEST_F(BatchingTest, AFullQueueRefusesAtOnce) {
  const auto executor = busy("default_queue_policy { max_queue_size: 3 }", 1);
  std::vector<Call> calls;
  while (calls.empty() || !calls.back().answered()) {
    calls.emplace_back(*executor, at_door(7));
    ASSERT_LE(calls.size(), 8u);  // three wait, and some are in the pipeline
  }
  EXPECT_EQ(calls.back().code(), Code::kOverloaded);
  EXPECT_EQ(calls.back().error(), "model 'm': 3 requests wait; the queue holds 3");
  ASSERT_TRUE(calls.back().get().error->retry_after().has_value());
  EXPECT_GE(calls.back().get().error->retry_after()->count(), 1);
  EXPECT_EQ(executor->failures().at("REJECTED"), 1u);
  open_door();
  calls.pop_back();
  for (const Call& call : calls) EXPECT_EQ(call.floats(), Floats{7});
}

TEST_F(BatchingTest, WaitingTooLongIsRefused) {
  const auto executor = busy("default_queue_policy { default_timeout_microseconds: 1000 }", 1);
  std::vector<Call> calls;
  for (int i = 0; i < 4; ++i) calls.emplace_back(*executor, at_door(7));
  // While the door is closed: nobody has to be free to refuse it.
  EXPECT_EQ(calls.back().code(), Code::kTimeout);
  EXPECT_EQ(calls.back().error(), "model 'm': the request waited in the queue for longer than its timeout");
  open_door();
  EXPECT_EQ(first_->floats(), Floats{1});
}

TEST_F(BatchingTest, ATimeoutOfTheRequestCountsWhereItMay) {
  for (const bool may : {true, false}) {
    const auto executor = busy(may ? "default_queue_policy { allow_timeout_override: true }" : "", 1);
    std::vector<Call> calls;
    for (int i = 0; i < 4; ++i) {
      InferRequest request = at_door(7);
      request.parameters["timeout"] = int64_t{1000};
      calls.emplace_back(*executor, std::move(request));
    }
    if (may) {
      EXPECT_EQ(calls.back().code(), Code::kTimeout);
    }
    open_door();
    if (!may) {
      EXPECT_EQ(calls.back().floats(), Floats{7});
    }
    EXPECT_EQ(first_->floats(), Floats{1});
  }
}

TEST_F(BatchingTest, DelayedRequestsComeBehindOthers) {
  const auto executor = busy(R"(priority_levels: 1 default_priority_level: 1
    priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 1 allow_timeout_override: true } })",
                             1);
  std::vector<Call> calls;
  for (int i = 0; i < 6; ++i) calls.emplace_back(*executor, at_door(static_cast<float>(i + 10)));
  EXPECT_FALSE(calls.back().answered());
  open_door();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(calls[i].floats(), Floats{static_cast<float>(i + 10)});
}

TEST_F(BatchingTest, WhatWaitsOrRunsCanBeCancelled) {
  const auto executor = busy("");
  const Call waits(*executor, at_door(7)), stays(*executor, at_door(8));
  waits.cancel();
  EXPECT_EQ(waits.code(), Code::kCancelled);
  first_->cancel();  // its step is inside, and goes on
  EXPECT_EQ(first_->code(), Code::kCancelled);
  open_door();
  EXPECT_EQ(stays.floats(), Floats{8});
  stays.cancel();
  EXPECT_EQ(executor->failures().at("CANCELED"), 2u);
  EXPECT_EQ(executor->pending(), 0u);
}

TEST_F(BatchingTest, AnswersKeepTheOrderOfRequests) {
  const auto executor = busy("preserve_ordering: true priority_levels: 2 default_priority_level: 2", 1);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> order;
  std::vector<std::shared_ptr<RequestHandle>> handles;
  for (int i = 0; i < 20; ++i) {
    InferRequest request = at_door(static_cast<float>(i + 10));
    request.parameters["priority"] = static_cast<uint64_t>(i % 2 + 1);
    handles.push_back(executor->infer(std::move(request), [&, i](InferResponse, bool) {
      const std::lock_guard lock(mutex);
      order.push_back(i);
      changed.notify_all();
    }));
  }
  handles[5]->cancel();
  open_door();
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return order.size() == 20; });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(order[i], i);
}

TEST_F(BatchingTest, DrainWaitsAndThenCancels) {
  auto executor = busy("");
  const Call waits(*executor, at_door(7));
  EXPECT_FALSE(executor->drain(std::chrono::milliseconds(1)));
  EXPECT_EQ(waits.code(), Code::kUnavailable);
  EXPECT_EQ(first_->code(), Code::kUnavailable);
  EXPECT_TRUE(executor->drain(std::chrono::seconds(100)));
  open_door();
  EXPECT_EQ(Call(*executor, at_door(9)).floats(), Floats{9});
}

TEST_F(BatchingTest, ConfigsThatContradictThemselvesAreRefused) {
  const auto refused = [&](const std::string& batching, int most = 8) {
    return refusal(doors(), door_config(batching, most));
  };
  EXPECT_EQ(refused("", 0), "config: dynamic_batching: max_batch_size is 0; the model has no batches");
  EXPECT_EQ(refused("preferred_batch_size: 9"),
            "config: dynamic_batching: preferred_batch_size: 9; must be of 1 to max_batch_size, 8");
  EXPECT_EQ(refused("priority_levels: 2"),
            "config: dynamic_batching: default_priority_level: 0; must be of 1 to priority_levels, 2");
  EXPECT_EQ(refused("", 9),
            "model 'm': input 'x': max_batch_size is 9; the bundle takes at most 8 rows: x: float32(batch<=8, 1)");
}

// TensorFlow Serving's five knobs.
TEST_F(BatchingTest, AFileOfParametersSaysHowRequestsAreMerged) {
  const auto write = [&](const std::string& text) { std::ofstream(dir_ / "batching.txt") << text; };
  std::string text = door_config("");
  text = text.substr(0, text.find("dynamic_batching")) +
         "parameters { key: 'batching_parameters_file' value { string_value: 'batching.txt' } }";
  write(R"(max_batch_size { value: 4 }  # rows
           batch_timeout_micros { value: 20000000 }
           max_enqueued_batches { value: 2 }
           num_batch_threads { value: 1 }
           allowed_batch_sizes: 2 allowed_batch_sizes: 4)");
  const auto executor = make(doors(), text);
  std::vector<Call> calls;
  for (int i = 0; i < 4; ++i) calls.emplace_back(*executor, at_door(static_cast<float>(i == 0 ? 1 : i + 10)));
  EXPECT_EQ(entered(), 1);  // four are a batch: it runs
  // A full batch goes into the pipeline behind it; two wait; what is more is refused.
  int refused = 0;
  for (int i = 0; i < 20; ++i) {
    calls.emplace_back(*executor, at_door(static_cast<float>(i + 20)));
    refused += calls.back().answered() && calls.back().code() == Code::kOverloaded;
  }
  EXPECT_GE(refused, 20 - 12);
  EXPECT_LE(refused, 20 - 8);
  open_door();
  int right = 0;
  for (const Call& call : calls) right += call.answered() && call.get().error ? 0 : call.floats().size() == 1;
  EXPECT_EQ(right, 24 - refused);
  EXPECT_EQ(executor->statistics().execution_count(), static_cast<uint64_t>(right + 3) / 4);
  const auto refusal_of = [&](const std::string& file) {
    write(file);
    return refusal(doors(), text);
  };
  EXPECT_EQ(refusal_of("max_batch_size { value: 9 }"),
            "config: batching_parameters_file: max_batch_size: 9; must be of 1 to 8");
  EXPECT_EQ(refusal_of("allowed_batch_sizes: 4"),
            "config: batching_parameters_file: allowed_batch_sizes end at 4; they must end at max_batch_size, 8");
  EXPECT_EQ(refusal_of("pad_variable_length_inputs: 1"),
            "config: batching_parameters_file: 'pad_variable_length_inputs' has no meaning here");
  EXPECT_EQ(refusal_of("rubbish"), "config: batching_parameters_file: 'rubbish': not a parameter and its value");
}

}  // namespace
}  // namespace sluice::serving::test
