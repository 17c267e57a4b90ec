// Inputs of steps from those of requests, and answers from the results.
#include "serving/execution/model/step_data.h"

#include <gtest/gtest.h>

#include "serving/execution/fixture.h"
#include "support.h"

namespace sluice::serving::test {
namespace {

constexpr const char* kPorts =
    " input { name: 'x' data_type: TYPE_FP32 dims: [2] } "
    "output { name: 'y' data_type: TYPE_FP32 dims: [2] } ";
constexpr uint64_t kRowBytes = 2 * sizeof(float);

class StepDataTest : public ::testing::Test {
 protected:
  // A model of y = f(x), of two numbers a row: the bundle takes `rows`, or up to so many where `any`.
  void open(int most, int64_t rows, bool any, std::vector<int64_t> allowed = {}) {
    config_ = model_config("max_batch_size: " + std::to_string(most) + kPorts);
    data_ = std::make_unique<StepData>(config_, "", "model 'm'");
    data_->allow_batches(std::move(allowed));
    data_->open({float_port("x", rows, 2, any)}, {float_port("y", rows, 2, any)}, "");
  }
  // A request with rows of these numbers, prepared.
  JobPtr job(const Floats& values, MemoryPtr memory = nullptr, std::vector<RequestedOutput> wanted = {}) const {
    const auto made = std::make_shared<Job>();
    made->request.inputs.push_back(floats("x", {static_cast<int64_t>(values.size()) / 2, 2}, values));
    made->request.memory = std::move(memory);
    made->request.outputs = std::move(wanted);
    data_->prepare(*made);
    return made;
  }
  std::vector<InferResponse> shown(Batch& batch, const api::Tensor& output) {
    return data_->show(batch, {output}, answers_).responses;
  }

  inference::ModelConfig config_;
  std::unique_ptr<StepData> data_;
  Statistics statistics_{model_config(), LatencyOptions()};
  Answers answers_{"m", "1", false, statistics_};
};

TEST_F(StepDataTest, ARequestThatFillsItsStepGivesItsMemory) {
  open(4, 4, true);
  const JobPtr alone = job({1, 2, 3, 4});
  const void* memory = alone->inputs[0].raw();
  const BatchPtr step = batch_of({alone});
  EXPECT_EQ(data_->gather(*step).at(0).raw(), memory);
  EXPECT_EQ(step->step_rows, 2);
}

TEST_F(StepDataTest, RowsOfSeveralLieOneBehindTheOther) {
  open(4, 4, true);
  const BatchPtr step = batch_of({job({1, 2}), job({3, 4, 5, 6})});
  const std::vector<api::Tensor> inputs = data_->gather(*step);
  EXPECT_EQ(inputs.at(0).shape(), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(floats_in(inputs[0]), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(step->step_rows, 3);
  for (const JobPtr& one : step->jobs) EXPECT_TRUE(one->inputs.empty()) << "their memory is let go of";
}

TEST_F(StepDataTest, RowsOfNobodyAreZero) {
  open(4, 4, false);
  const BatchPtr step = batch_of({job({1, 2})});
  step->at = {2};  // as a sequence has its row
  step->end = 3;
  EXPECT_EQ(floats_in(data_->gather(*step).at(0)), (Floats{0, 0, 0, 0, 1, 2, 0, 0}));
  EXPECT_EQ(step->step_rows, 4);
}

TEST_F(StepDataTest, BatchesAreFilledUpToTheNextAllowedSize) {
  open(4, 4, true, {2, 4});
  for (const auto& [rows, size] : std::vector<std::pair<size_t, int64_t>>{{1, 2}, {2, 2}, {3, 4}, {4, 4}}) {
    const BatchPtr step = batch_of({job(Floats(rows * 2, 1))});
    EXPECT_EQ(data_->gather(*step).at(0).shape()[0], size) << rows;
  }
}

TEST_F(StepDataTest, EachAnswerIsASliceOfTheResult) {
  open(4, 4, true);
  const BatchPtr step = batch_of({job({0, 0}), job({0, 0, 0, 0})});
  const api::Tensor result = float_tensor(3, 2, {1, 2, 3, 4, 5, 6});
  const std::vector<InferResponse> answers = shown(*step, result);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].model, "m");
  EXPECT_EQ(floats_in(answers[0].outputs.at(0)), (Floats{1, 2}));
  EXPECT_EQ(floats_in(answers[1].outputs.at(0)), (Floats{3, 4, 5, 6}));
  EXPECT_EQ(answers[1].outputs[0].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(answers[1].outputs[0].data.get(), static_cast<uint8_t*>(result.raw()) + kRowBytes);
}

TEST_F(StepDataTest, AnErrorIsThatOfItsRequestAlone) {
  open(4, 4, true);
  // Classes are texts, for which this request's share has no room beside the result.
  const JobPtr narrow = job({0, 0}, nullptr, {{"y", 2, {}}}), wide = job({0, 0});
  narrow->request.memory = std::make_shared<MemoryShare>(std::make_shared<MemoryBudget>(1000), kRowBytes);
  data_->count_answer(*narrow);
  const BatchPtr step = batch_of({narrow, wide});
  const std::vector<InferResponse> answers = shown(*step, float_tensor(2, 2, {1, 2, 3, 4}));
  ASSERT_TRUE(answers[0].error);
  EXPECT_EQ(answers[0].error->code(), Code::kTooLarge);
  EXPECT_FALSE(answers[1].error);
  EXPECT_EQ(floats_in(answers[1].outputs.at(0)), (Floats{3, 4}));
}

TEST_F(StepDataTest, AStepCountsAsLongAsAPartOfItsResultIsThere) {
  open(4, 4, false);
  const auto share = std::make_shared<MemoryShare>(std::make_shared<MemoryBudget>(1000), 1000);
  Tensor kept;
  {
    const JobPtr one = job({1, 2}, share);
    const uint64_t before = share->held();
    data_->count_answer(*one);
    EXPECT_EQ(share->held() - before, kRowBytes);
    const BatchPtr step = batch_of({one});
    data_->gather(*step);
    EXPECT_EQ(share->held() - before, 4 * kRowBytes) << "rows of nobody count for the first request";
    kept = shown(*step, float_tensor(4, 2, Floats(8))).at(0).outputs.at(0);
  }
  EXPECT_EQ(share->held(), 4 * kRowBytes) << "a row keeps the result";
  kept = {};
  EXPECT_EQ(share->held(), 0u);
}

TEST_F(StepDataTest, PartsOfALargeRequestHaveItsRowsAndAreJoined) {
  open(8, 2, false);
  const JobPtr large = job({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const std::vector<JobPtr> parts = data_->cut(*large);
  ASSERT_EQ(parts.size(), 3u);
  std::vector<InferResponse> answers;
  for (const JobPtr& part : parts) {
    EXPECT_TRUE(part->part);
    EXPECT_EQ(part->outputs, large->outputs);
    EXPECT_EQ(part->inputs[0].shape()[0], part->rows);
    const Floats values = floats_in(part->inputs[0]);
    answers.emplace_back().outputs.push_back(floats("y", {part->rows, 2}, values));
  }
  EXPECT_EQ(parts[2]->rows, 1);
  EXPECT_EQ(parts[1]->inputs[0].raw(), static_cast<uint8_t*>(large->inputs[0].raw()) + 2 * kRowBytes) << "no copy";
  const std::vector<Tensor> whole = data_->join(*large, answers);
  EXPECT_EQ(whole.at(0).shape, (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(floats_in(whole[0]), (Floats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

// With two states: y, which clients see, and n, which they do not.
class StepStatesTest : public StepDataTest {
 protected:
  void open_states(int rows) {
    const std::string state = " data_type: TYPE_FP32 dims: [2] } ";
    config_ = model_config("max_batch_size: " + std::to_string(rows) + kPorts +
                           "sequence_batching { state { input_name: 's' output_name: 'y'" + state +
                           "state { input_name: 't' output_name: 'n'" + state + "}");
    const std::vector<api::Port> inputs = {float_port("x", rows, 2), float_port("s", rows, 2),
                                           float_port("t", rows, 2)};
    const std::vector<api::Port> outputs = {float_port("y", rows, 2), float_port("n", rows, 2)};
    data_ = std::make_unique<StepData>(config_, "", "model 'm'");
    data_->open(inputs, outputs, "");
    data_->open_sequences(inputs, outputs);
  }
};

TEST_F(StepStatesTest, EachRequestLeavesItsRow) {
  open_states(2);
  const BatchPtr step = batch_of({job({0, 0}), job({0, 0})});
  const auto states = data_->states_after(*step, {float_tensor(2, 2, {1, 2, 3, 4}), float_tensor(2, 2, {5, 6, 7, 8})});
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(floats_in(states[0].at(0)), (Floats{1, 2}));
  EXPECT_EQ(floats_in(states[0].at(1)), (Floats{5, 6}));
  EXPECT_EQ(floats_in(states[1].at(0)), (Floats{3, 4}));
  EXPECT_EQ(floats_in(states[1].at(1)), (Floats{7, 8}));
}

TEST_F(StepStatesTest, AResultThatIsAllStateAndThatNobodySeesIsNotCopied) {
  open_states(1);
  const BatchPtr step = batch_of({job({0, 0})});
  const api::Tensor seen = float_tensor(1, 2, {1, 2}), unseen = float_tensor(1, 2, {3, 4});
  const auto states = data_->states_after(*step, {seen, unseen});
  EXPECT_NE(states.at(0).at(0).raw(), seen.raw());
  EXPECT_EQ(floats_in(states[0][0]), (Floats{1, 2}));
  EXPECT_EQ(states[0].at(1).raw(), unseen.raw());
}

}  // namespace
}  // namespace sluice::serving::test
