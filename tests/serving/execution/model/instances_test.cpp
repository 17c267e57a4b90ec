// Instances: who has room, who is stuck, and the session of each.
#include "serving/execution/model/instances.h"

#include "serving/execution/fixture.h"
#include "support.h"

namespace sluice::serving::test {
namespace {

using std::chrono::milliseconds;

class InstancePartsTest : public ExecutionTest {
 protected:
  void add(int count) {
    for (int i = 0; i < count; ++i) instances_.add(session(), std::make_shared<Flight>()).depth = 2;
  }
  std::shared_ptr<api::Session> session() {
    return std::make_shared<api::Session>(api::Session::load(engine_, bundle("b", doubling(1))));
  }
  static std::vector<api::Tensor> inputs(int64_t columns = 3) {
    return {float_tensor(1, columns, Floats(static_cast<size_t>(columns), 1))};
  }

  Instances instances_;
  const Clock::time_point now_ = Clock::now();
};

TEST_F(InstancePartsTest, TheLeastBusyHasRoomAndNobodyWhoLooksAfterIt) {
  add(3);
  EXPECT_EQ(instances_.least_busy(), &instances_[0]);
  instances_[0].begins_step(now_);
  EXPECT_EQ(instances_.least_busy(), &instances_[1]);
  instances_[1].woken = true;
  EXPECT_EQ(instances_.least_busy(), &instances_[2]);
  instances_[2].breaks("broken");
  EXPECT_EQ(instances_.least_busy(), &instances_[0]) << "it has room for a second step";
  instances_[0].begins_step(now_);
  EXPECT_FALSE(instances_[0].has_room());
  EXPECT_EQ(instances_.least_busy(), nullptr);
  instances_[0].ends_step(now_);
  instances_[0].state = Instance::State::kDown;
  EXPECT_EQ(instances_.least_busy(), nullptr);
}

TEST_F(InstancePartsTest, OneThatIsDownComesBackAndOneThatIsGoneDoesNot) {
  add(2);
  EXPECT_EQ(instances_.up(), 2u);
  instances_[0].state = Instance::State::kGone;
  instances_[1].state = Instance::State::kDown;
  EXPECT_FALSE(instances_.any_up());
  EXPECT_TRUE(instances_.any_left());
  instances_[1].breaks("broken");
  instances_[1].suspect = true;
  const auto flight = std::make_shared<Flight>();
  instances_[1].starts_anew(flight);
  EXPECT_EQ(instances_.up(), 1u);
  EXPECT_EQ(instances_[1].flying, flight);
  EXPECT_EQ(instances_[1].broken, "");
  EXPECT_FALSE(instances_[1].suspect);
  instances_[1].state = Instance::State::kGone;
  EXPECT_FALSE(instances_.any_left());
}

TEST_F(InstancePartsTest, AStepThatTakesTooLongBreaksItsInstance) {
  add(2);
  const StepPace pace(model_config("parameters { key: 'step_timeout_ms' value { string_value: '100' } }"));
  const JobPtr job = std::make_shared<Job>();
  instances_[1].flying->take_off(batch_of({job}));
  instances_[1].begins_step(now_);
  Clock::time_point next = Clock::time_point::max();
  EXPECT_TRUE(instances_.break_stuck(pace, now_ + milliseconds(99), next).empty());
  EXPECT_EQ(next, now_ + milliseconds(100));
  EXPECT_TRUE(instances_.broken().empty());
  EXPECT_EQ(instances_.jobs(), std::vector<JobPtr>{job});
  EXPECT_EQ(instances_.break_stuck(pace, now_ + milliseconds(100), next), std::vector<JobPtr>{job});
  EXPECT_EQ(job->state, Job::State::kOver);
  EXPECT_EQ(instances_[1].broken, "a step took longer than 100 ms");
  EXPECT_EQ(instances_.broken(), std::vector<int>{1});
  EXPECT_TRUE(instances_.break_stuck(pace, now_ + milliseconds(200), next).empty()) << "it is broken already";
}

TEST_F(InstancePartsTest, TheTimeOfAStepBeginsWhenTheOneBeforeItEnds) {
  add(1);
  Instance& one = instances_[0];
  one.begins_step(now_);
  one.begins_step(now_ + milliseconds(10));
  EXPECT_EQ(one.busy_since, now_);
  one.ends_step(now_ + milliseconds(30));
  EXPECT_EQ(one.busy_since, now_ + milliseconds(30));
  EXPECT_EQ(one.running, 1);
}

TEST_F(InstancePartsTest, TheFirstReasonToEndIsKept) {
  add(1);
  instances_[0].breaks("first");
  instances_[0].breaks("second");
  EXPECT_EQ(instances_[0].broken, "first");
}

TEST_F(InstancePartsTest, AStepThatIsSubmittedIsInTheAir) {
  add(1);
  const BatchPtr step = batch_of({std::make_shared<Job>()});
  instances_[0].session.submit(0, step, inputs(), "model 'm'");
  EXPECT_EQ(floats_in(step->result->get().at(0)), Floats(3, 2));
  EXPECT_EQ(instances_[0].flying->land(""), step);
  EXPECT_FALSE(step->traced);
  EXPECT_FALSE(instances_[0].session.collect_traces().next) << "nobody asked for a record";
}

TEST_F(InstancePartsTest, ASubmissionThatFailsTurnsItsStepBack) {
  add(1);
  EXPECT_THROW(instances_[0].session.submit(0, batch_of({std::make_shared<Job>()}), inputs(5), "model 'm'"),
               api::Error);
  EXPECT_TRUE(instances_[0].flying->end().empty());
}

TEST_F(InstancePartsTest, BehindItsEndItHasNoSession) {
  add(1);
  InstanceSession& one = instances_[0].session;
  EXPECT_GT(one.counters()->bytes, 0u);
  EXPECT_TRUE(one.stop());
  EXPECT_EQ(one.take_away(), instances_[0].flying);
  EXPECT_EQ(one.take_away(), nullptr);
  EXPECT_TRUE(one.stop());
  EXPECT_FALSE(one.counters());
  EXPECT_EQ(one.next_failed(), nullptr);
  const BatchPtr step = batch_of({std::make_shared<Job>()});
  EXPECT_EQ(what_of([&] { one.submit(0, step, inputs(), "model 'm'"); }), "model 'm': its instance has ended");
  EXPECT_TRUE(instances_.jobs().empty());
  const auto flight = std::make_shared<Flight>();
  one.put(session(), flight);
  one.submit(0, step, inputs(), "model 'm'");
  step->result->get();
  EXPECT_EQ(flight->land(""), step);
}

TEST_F(InstancePartsTest, AStepThatFailedIsLookedAtByItsInstance) {
  add(1);
  const BatchPtr step = batch_of({std::make_shared<Job>()});
  instances_[0].flying->take_off(step);
  instances_[0].flying->land("broken");
  EXPECT_EQ(instances_[0].session.next_failed(), step);
  EXPECT_EQ(instances_[0].session.next_failed(), nullptr);
}

}  // namespace
}  // namespace sluice::serving::test
