// Answers in parts: each step of a request is a response, told before the next step has run.
#include <numeric>

#include "fixture.h"

namespace sluice::serving::test {
namespace {

// y = x, next = x + x, behind a door.
std::string doubling_door() {
  return "graph \"steps\" {\n  %0 = input \"x\" : float32(1, 1)\n  %1 = door(%0) : float32(1, 1)\n"
         "  %2 = add(%1, %1) : float32(1, 1)\n  output \"y\" = %1\n  output \"next\" = %2\n}\n";
}
std::string steps_config(const std::string& more = "", const std::string& feedback = "next:x") {
  return R"(input { name: "x" data_type: TYPE_FP32 dims: [1, 1] } output { name: "y" data_type: TYPE_FP32 dims: [1, 1] }
    output { name: "next" data_type: TYPE_FP32 dims: [1, 1] } model_transaction_policy { decoupled: true }
    parameters { key: "feedback" value { string_value: ")" +
         feedback + "\" } } " + more;
}

// All responses to a request.
class Parts {
 public:
  Parts(Executor& executor, InferRequest request)
      : handle_(executor.infer(std::move(request), [state = state_](InferResponse response, bool last) {
          const std::lock_guard lock(state->mutex);
          EXPECT_FALSE(state->over);
          state->responses.push_back(std::move(response));
          state->over = last;
          state->changed.notify_all();
        })) {}
  // Waits until so many are there.
  InferResponse at(size_t index) const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->responses.size() > index || state_->over; });
    return index < state_->responses.size() ? state_->responses[index] : InferResponse{};
  }
  std::vector<InferResponse> all() const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->over; });
    return state_->responses;
  }
  bool over() const {
    const std::lock_guard lock(state_->mutex);
    return state_->over;
  }
  void cancel() const { handle_->cancel(); }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<InferResponse> responses;
    bool over = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::shared_ptr<RequestHandle> handle_;
};

class DecoupledTest : public DoorTest {
 protected:
  std::shared_ptr<Executor> steps(const std::string& more = "") {
    return make(bundle("steps", doubling_door()), steps_config(more));
  }
  static InferRequest from(float x, int64_t most) {
    InferRequest request = at_door(x);
    request.parameters["max_tokens"] = most;
    return request;
  }
};

TEST_F(DecoupledTest, TheFirstResponseComesBeforeTheLastStepHasRun) {
  const auto executor = steps();
  const Parts parts(*executor, from(0.25, 3));
  EXPECT_EQ(values_of(parts.at(0).outputs.at(0)), Floats{0.25});
  EXPECT_EQ(values_of(parts.at(1).outputs.at(0)), Floats{0.5});
  EXPECT_EQ(entered(), 1);  // the third step is inside
  EXPECT_FALSE(parts.over());
  open_door();
  const std::vector<InferResponse> all = parts.all();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(values_of(all[2].outputs.at(0)), Floats{1});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all[i].outputs.size(), 1u);  // what is fed back is told to who asks for it
    EXPECT_EQ(std::get<bool>(all[i].parameters.at("triton_final_response")), i == 2);
  }
  EXPECT_EQ(executor->statistics().execution_count(), 3u);
  EXPECT_EQ(executor->pending(), 0u);
}

TEST_F(DecoupledTest, ResponsesAreCountedByTheirNumber) {
  options_.metrics.histograms = true;
  const auto executor = steps();
  EXPECT_EQ(executor->statistics().response_stats_size(), 0);
  EXPECT_EQ(Parts(*executor, from(0.125, 2)).all().size(), 2u);
  EXPECT_EQ(Parts(*executor, from(0.125, 1)).all().size(), 1u);
  const Parts cancelled(*executor, from(0.5, 100));
  EXPECT_EQ(entered(), 1);
  cancelled.cancel();
  open_door();
  EXPECT_EQ(cancelled.all().size(), 2u);
  const auto statistics = executor->statistics();
  ASSERT_EQ(statistics.response_stats_size(), 2);
  const auto& first = statistics.response_stats().at("0");
  const auto& second = statistics.response_stats().at("1");
  EXPECT_EQ(first.success().count(), 3u);
  EXPECT_EQ(first.compute_infer().count(), 3u);
  EXPECT_EQ(first.compute_output().count(), 3u);
  EXPECT_GT(first.compute_infer().ns(), 0u);
  EXPECT_EQ(first.success().ns(), first.compute_infer().ns() + first.compute_output().ns());
  EXPECT_EQ(second.success().count(), 1u);
  EXPECT_EQ(second.cancel().count(), 1u);
  EXPECT_EQ(second.fail().count(), 0u);
  EXPECT_TRUE(second.has_empty_response());  // clients expect all of them
  // The histogram counts the first response of each request alone.
  const auto histogram = executor->latencies().first_response;
  ASSERT_TRUE(histogram.has_value());
  EXPECT_EQ(std::accumulate(histogram->counts.begin(), histogram->counts.end(), uint64_t{0}), 3u);
}

TEST_F(DecoupledTest, WhatIsFedBackIsToldToWhoAsksForIt) {
  const auto executor = steps();
  InferRequest request = from(0.125, 2);
  request.outputs = {{"next", 0, {}}, {"y", 0, {}}};
  const std::vector<InferResponse> all = Parts(*executor, std::move(request)).all();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(values_of(all[1].outputs.at(0)), Floats{0.5});
  EXPECT_EQ(values_of(all[1].outputs.at(1)), Floats{0.25});
}

TEST_F(DecoupledTest, ACancelledRequestRunsNoFurtherStep) {
  const auto executor = steps();
  const Parts parts(*executor, from(0.5, 100));
  EXPECT_EQ(values_of(parts.at(0).outputs.at(0)), Floats{0.5});
  EXPECT_EQ(entered(), 1);
  parts.cancel();
  open_door();
  const std::vector<InferResponse> all = parts.all();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].error->code(), Code::kCancelled);
}

TEST_F(DecoupledTest, AStepThatFailsEndsIt) {
  const auto executor = steps();
  const std::vector<InferResponse> all = Parts(*executor, from(0.75, 100)).all();  // 0.75, 1.5, 3
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[2].error->code(), Code::kInternal);
  EXPECT_NE(std::string(all[2].error->what()).find("3 is not liked"), std::string::npos);
}

TEST_F(DecoupledTest, ItsEndAnswersWhoIsAtIt) {
  auto executor = steps();
  const Parts parts(*executor, from(1.0f / 1024, 1000));  // nobody waits at the door before the eleventh step
  EXPECT_EQ(entered(), 1);
  open_door();
  executor = nullptr;
  EXPECT_TRUE(parts.all().back().error.has_value());
}

TEST_F(DecoupledTest, RequestsThatContradictItAreRefused) {
  const auto executor = steps(R"(parameters { key: "max_responses" value { string_value: "5" } })");
  const auto error = [&](InferRequest request) {
    const std::vector<InferResponse> all = Parts(*executor, std::move(request)).all();
    return all.back().error ? std::string(all.back().error->what()) : "";
  };
  EXPECT_EQ(error(from(0.25, 6)), "infer: parameter 'max_tokens' must be a number of 1 to 5");
  EXPECT_EQ(error(from(0.25, 0)), "infer: parameter 'max_tokens' must be a number of 1 to 5");
  InferRequest classes = from(0.25, 1);
  classes.outputs = {{"next", 1, {}}};
  EXPECT_NE(error(std::move(classes)).find("needed for the next step"), std::string::npos);
}

TEST_F(DecoupledTest, ConfigsThatContradictThemselvesAreRefused) {
  const std::string path = bundle("steps", doubling_door());
  const std::string here = "model 'm': parameters.";
  EXPECT_EQ(refusal(path, steps_config("", "next")), here + "feedback: 'next'; must be like 'next:x,state:state'");
  EXPECT_EQ(refusal(path, steps_config("", "z:x")), here + "feedback: the model has no output 'z'");
  EXPECT_EQ(refusal(path, steps_config("", "y:z")), here + "feedback: the model has no input 'z'");
  EXPECT_NE(refusal(path, steps_config("", "")).find("feedback: it is missing"), std::string::npos);
  EXPECT_EQ(refusal(path, steps_config(R"(parameters { key: "stop" value { string_value: "y" } })")),
            here + "stop: 'y'; must be an output and a whole number, as in 'token:0'");
  EXPECT_EQ(refusal(path, steps_config(R"(parameters { key: "max_responses" value { string_value: "x" } })")),
            here + "max_responses: 'x'; must be a number of 1 to 65536");
}

TEST_F(DecoupledTest, AnOutputMayEndIt) {
  const std::string path = bundle("down",
                                  "graph \"down\" {\n  %0 = input \"n\" : int64(1,)\n"
                                  "  %1 = input \"by\" : int64(1,)\n  %2 = add(%0, %1) : int64(1,)\n"
                                  "  output \"left\" = %2\n}\n");
  const auto executor = make(path, R"(input { name: "n" data_type: TYPE_INT64 dims: [1] }
    input { name: "by" data_type: TYPE_INT64 dims: [1] }
    output { name: "left" data_type: TYPE_INT64 dims: [1] } model_transaction_policy { decoupled: true }
    parameters { key: "feedback" value { string_value: "left:n" } }
    parameters { key: "stop" value { string_value: "left:0" } })");
  InferRequest down = request(tensor<int64_t>("n", DataType::TYPE_INT64, {1}, {4}));
  down.inputs.push_back(tensor<int64_t>("by", DataType::TYPE_INT64, {1}, {-1}));  // of every step
  const std::vector<InferResponse> all = Parts(*executor, std::move(down)).all();
  ASSERT_EQ(all.size(), 4u);
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(values_of<int64_t>(all[static_cast<size_t>(i)].outputs.at(0)), std::vector<int64_t>{3 - i});
}

}  // namespace
}  // namespace sluice::serving::test
