// The requests that wait: in one place each, and of a sequence one at a time.
#include "serving/execution/model/waiting.h"

#include <gtest/gtest.h>

#include "serving/execution/scheduling.h"
#include "support.h"

namespace sluice::serving::test {
namespace {

using std::chrono::microseconds;

class WaitingTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kMost = 8;

  // A model of y = f(x), whose requests are merged as `text` says, in steps of up to `rows`.
  void open(const std::string& text, int rows = 4) {
    const std::string ports =
        " input { name: 'x' data_type: TYPE_FP32 dims: [1] } "
        "output { name: 'y' data_type: TYPE_FP32 dims: [1] } ";
    config_ = model_config("max_batch_size: " + std::to_string(rows) + ports + text);
    inputs_ = {float_port("x", rows, 1)};
    outputs_ = {float_port("y", rows, 1)};
    if (config_.has_sequence_batching()) inputs_.push_back(float_port("s", rows, 1));
    waiting_ = std::make_unique<WaitingRequests>(config_, batching_of(config_), kMost);
    ports_ = std::make_unique<ModelPorts>(config_, inputs_, outputs_, "",
                                          PortRoles{SequencePorts::made(config_, inputs_), {}});
    waiting_->open(*ports_);
  }
  // The same with sequences, whose state is y.
  void open_sequences(const std::string& strategy, int rows = 2, int instances = 1) {
    open(
        "sequence_batching { max_sequence_idle_microseconds: 1000 "
        "state { input_name: 's' output_name: 'y' data_type: TYPE_FP32 dims: [1] } " +
            strategy + " }",
        rows);
    sequence_ports_ = std::make_unique<SequencePorts>(config_, inputs_, outputs_, "");
    waiting_->open_sequences(*ports_, *sequence_ports_, instances);
  }

  static JobPtr rows(int64_t count) {
    const auto job = std::make_shared<Job>();
    job->rows = count;
    job->inputs = {float_tensor(count, 1, std::vector<float>(static_cast<size_t>(count)))};
    return job;
  }
  static JobPtr of(uint64_t sequence, bool start = false, bool end = false) {
    const JobPtr job = rows(1);
    job->inputs.resize(2);
    job->options.sequence_id = sequence;
    job->options.sequence_start = start;
    job->options.sequence_end = end;
    return job;
  }
  bool admit(const JobPtr& job) {
    job->queued = now_;
    return waiting_->admit(job, now_);
  }
  void admit_all(const std::vector<JobPtr>& jobs) {
    for (const JobPtr& job : jobs) ASSERT_TRUE(admit(job));
  }
  // The step that an idle instance runs now.
  Batch take(int instance = 0) {
    Batch batch;
    const size_t jobs = waiting_->choose(instance, true, now_).jobs;
    for (size_t i = 0; i < jobs; ++i) waiting_->move_next(instance, batch, now_);
    return batch;
  }
  // The states that a request leaves, for WaitingRequests::finished().
  static std::vector<std::vector<api::Tensor>> leaving(float state) {
    std::vector<std::vector<api::Tensor>> states(1);
    states[0].push_back(float_tensor(1, 1, {state}));
    return states;
  }
  using Jobs = std::vector<JobPtr>;

  const Clock::time_point now_ = Clock::now();
  inference::ModelConfig config_;
  std::vector<api::Port> inputs_, outputs_;
  std::unique_ptr<WaitingRequests> waiting_;
  std::unique_ptr<ModelPorts> ports_;
  std::unique_ptr<SequencePorts> sequence_ports_;
};

TEST_F(WaitingTest, AStepTakesTheRowsOfSeveralOneBehindTheOther) {
  open("dynamic_batching { }");
  const JobPtr a = rows(1), b = rows(2), c = rows(1);
  admit_all({a, b, c});
  EXPECT_TRUE(waiting_->any());
  EXPECT_EQ(waiting_->queue().rows(), 4);
  const Batch step = take();
  EXPECT_EQ(step.jobs, (Jobs{a, b, c}));
  EXPECT_EQ(step.at, (std::vector<int64_t>{0, 1, 3}));
  EXPECT_EQ(step.rows, 4);
  EXPECT_EQ(step.end, 4);
  EXPECT_EQ(a->state, Job::State::kRunning);
  EXPECT_EQ(a->started, now_);
  EXPECT_FALSE(waiting_->any());
}

TEST_F(WaitingTest, WithoutRoomARequestIsNotTakenIn) {
  open("dynamic_batching { default_queue_policy { max_queue_size: 1 } }");
  EXPECT_TRUE(admit(rows(1)));
  EXPECT_FALSE(admit(rows(1)));
  EXPECT_EQ(waiting_->queue().size(), 1u);
}

TEST_F(WaitingTest, ARequestIsRemovedOnce) {
  open("dynamic_batching { }");
  const JobPtr a = rows(1), b = rows(1);
  admit_all({a, b});
  EXPECT_TRUE(waiting_->remove(a));
  EXPECT_FALSE(waiting_->remove(a));
  EXPECT_EQ(waiting_->clear(), Jobs{b});
  EXPECT_FALSE(waiting_->any());
}

TEST_F(WaitingTest, OnesThatWaitTooLongAreOver) {
  open("dynamic_batching { default_queue_policy { default_timeout_microseconds: 1000 } }");
  const JobPtr a = rows(1);
  admit_all({a});
  EXPECT_EQ(waiting_->next_deadline(), now_ + microseconds(1000));
  EXPECT_TRUE(waiting_->expire(now_ + microseconds(999)).empty());
  EXPECT_EQ(waiting_->expire(now_ + microseconds(1000)), Jobs{a});
  EXPECT_EQ(a->state, Job::State::kOver);
  EXPECT_FALSE(waiting_->any());
  EXPECT_EQ(waiting_->next_deadline(), Clock::time_point::max());
}

TEST_F(WaitingTest, OneRequestOfASequenceIsDueAtATimeWithTheStateOfTheOneBefore) {
  for (const char* strategy : {"oldest { max_candidate_sequences: 2 }", "direct { }"}) {
    open_sequences(strategy);
    EXPECT_TRUE(waiting_->stateful());
    const JobPtr a = of(1, true), b = of(1), c = of(1), d = of(1);
    admit_all({a, b, c, d});
    EXPECT_EQ(take().jobs, Jobs{a});
    EXPECT_EQ(floats_in(a->inputs[1]), std::vector<float>{0}) << strategy;
    EXPECT_FALSE(waiting_->any()) << strategy << ": the others wait for the one that runs";
    waiting_->finished({a}, leaving(7));
    waiting_->finished({a});
    EXPECT_EQ(take().jobs, Jobs{b}) << strategy << ": a request goes on once";
    EXPECT_EQ(floats_in(b->inputs[1]), std::vector<float>{7}) << strategy;
    EXPECT_FALSE(waiting_->any());
    waiting_->finished({b});
    EXPECT_EQ(take().jobs, Jobs{c});
    EXPECT_EQ(floats_in(c->inputs[1]), std::vector<float>{7}) << strategy << ": b has failed";
    EXPECT_EQ(waiting_->clear(), Jobs{d});
  }
}

TEST_F(WaitingTest, TheNextOfASequenceIsDueWhenTheOneBeforeIsRemoved) {
  for (const char* strategy : {"oldest { max_candidate_sequences: 2 }", "direct { }"}) {
    open_sequences(strategy);
    const JobPtr a = of(1, true), b = of(1), c = of(1);
    admit_all({a, b, c});
    EXPECT_TRUE(waiting_->remove(a)) << strategy << ": it is due";
    EXPECT_TRUE(waiting_->remove(c)) << strategy << ": it is in its line";
    EXPECT_FALSE(waiting_->remove(c));
    EXPECT_EQ(take().jobs, Jobs{b}) << strategy;
    EXPECT_FALSE(waiting_->remove(b)) << strategy << ": it runs";
    waiting_->finished({b});
    EXPECT_FALSE(waiting_->any());
  }
}

TEST_F(WaitingTest, ClearTakesOutWhatIsDueAndWhatIsInLine) {
  for (const char* strategy : {"oldest { max_candidate_sequences: 1 }", "direct { }"}) {
    open_sequences(strategy, 1);
    const JobPtr a = of(1, true), b = of(1), c = of(2, true);
    admit_all({a, b, c});
    EXPECT_EQ(waiting_->clear(), (Jobs{a, b, c})) << strategy;
    EXPECT_FALSE(waiting_->any());
    EXPECT_TRUE(waiting_->clear().empty());
  }
}

TEST_F(WaitingTest, ADirectSequenceKeepsItsRow) {
  open_sequences("direct { }", 2, 2);
  const JobPtr a = of(1, true), b = of(2, true);
  admit_all({a, b});
  EXPECT_TRUE(waiting_->none_for(1)) << "both are of the first instance";
  EXPECT_FALSE(waiting_->none_for(0));
  const JobPtr c = of(3, true);
  admit_all({c});
  EXPECT_FALSE(waiting_->none_for(1));
  const Batch both = take(0);
  EXPECT_EQ(both.at, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(take(1).jobs, Jobs{c});
  waiting_->finished({a, b});
  const JobPtr next = of(2);
  admit_all({next});
  const Batch alone = take(0);
  EXPECT_EQ(alone.jobs, Jobs{next});
  EXPECT_EQ(alone.at, std::vector<int64_t>{1});
  EXPECT_EQ(alone.rows, 1);
  EXPECT_EQ(alone.end, 2) << "the row before it is nobody's";
}

TEST_F(WaitingTest, DirectOnesWaitUntilEnoughRowsAreUsed) {
  open_sequences("direct { max_queue_delay_microseconds: 500 minimum_slot_utilization: 1 }");
  const JobPtr a = of(1, true), b = of(2, true);
  admit_all({a});
  const BatchChoice early = waiting_->choose(0, true, now_);
  EXPECT_EQ(early.jobs, 0u);
  EXPECT_EQ(early.wait, now_ + microseconds(500));
  EXPECT_EQ(waiting_->choose(0, true, now_ + microseconds(500)).jobs, 1u);
  admit_all({b});
  EXPECT_EQ(waiting_->choose(0, true, now_).jobs, 2u);
  EXPECT_EQ(waiting_->choose(0, false, now_).jobs, 0u) << "a step of these rows is under way";
}

TEST_F(WaitingTest, ASequenceThatIsIdleForTooLongEnds) {
  open_sequences("oldest { max_candidate_sequences: 1 }");
  const JobPtr a = of(1, true), other = of(2, true);
  admit_all({a, other});
  take();
  EXPECT_EQ(waiting_->sequence_deadline(), Clock::time_point::max());
  waiting_->finished({a});
  const Clock::time_point idle = waiting_->sequence_deadline();
  ASSERT_LT(idle, Clock::time_point::max());
  EXPECT_EQ(waiting_->next_deadline(), idle);
  EXPECT_TRUE(waiting_->expire(idle).empty());
  EXPECT_EQ(take().jobs, Jobs{other}) << "its place is free";
  EXPECT_NE(what_of([&] { admit(of(1)); }), "no error");
}

TEST_F(WaitingTest, ARequestThatItsSequenceDoesNotTakeIsRefused) {
  open_sequences("direct { }");
  EXPECT_EQ(what_of([&] { admit(rows(2)); }), "infer: 2 rows; a request of a sequence has one");
  EXPECT_NE(what_of([&] { admit(rows(1)); }).find("every request needs one"), std::string::npos);
  EXPECT_FALSE(waiting_->any());
}

TEST_F(WaitingTest, AConfigThatContradictsItselfIsRefused) {
  EXPECT_EQ(what_of([&] { open_sequences("direct { minimum_slot_utilization: 2 }"); }),
            "model 'm': sequence_batching: minimum_slot_utilization must be of 0 to 1");
  EXPECT_EQ(what_of([&] { open_sequences("oldest { max_candidate_sequences: -1 }"); }),
            "model 'm': sequence_batching: max_candidate_sequences must not be negative");
}

}  // namespace
}  // namespace sluice::serving::test
