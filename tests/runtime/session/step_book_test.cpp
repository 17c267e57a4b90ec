// A session knows the states of its steps, and what has failed.
#include "runtime/session/step_book.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

Status failure(const std::string& what) { return {ErrorKind::kValue, what}; }

TEST(StepBook, AStateIsUsedAgainOnceNobodyElseHoldsIt) {
  StepBook book(2);
  std::shared_ptr<StepState> held = book.new_state({});
  const StepState* const first = held.get();
  EXPECT_TRUE(held->pooled);
  EXPECT_EQ(book.unused_state(), nullptr) << "its handle is still there";
  held.reset();
  EXPECT_EQ(book.unused_state().get(), first);
}

TEST(StepBook, StatesThatCallersKeepAreNotPooledWithoutBound) {
  StepBook book(2);
  std::vector<std::shared_ptr<StepState>> handles;
  size_t pooled = 0;
  for (int i = 0; i < 10; ++i) {
    handles.push_back(book.new_state({}));
    pooled += handles.back()->pooled;
  }
  EXPECT_EQ(pooled, 4u);
}

TEST(StepBook, KnowsAStepFromItsEntryUntilItIsRemoved) {
  StepBook book(2);
  const std::shared_ptr<StepState> state = book.new_state({});
  state->reset(5);
  state->tag = "mine";
  book.enter(5, state);
  EXPECT_EQ(book.state(5), state);
  EXPECT_EQ(book.state(4), nullptr);
  EXPECT_EQ(book.tag_of(5), " ('mine')");
  EXPECT_EQ(book.tag_of(3), "") << "step 5 lies in the place of step 3";
  EXPECT_EQ(book.remove(5), state);
  EXPECT_EQ(book.state(5), nullptr);
  EXPECT_EQ(book.remove(5), nullptr);
}

TEST(StepBook, ResultsAreTakenOnlyFromStatesThatNobodyUses) {
  StepBook book(2);
  auto allocator = make_host_allocator();
  std::shared_ptr<StepState> held = book.new_state({});
  held->outputs.resize(2);
  for (OutputTensor& output : held->outputs) output.storage = std::make_shared<Storage>(allocator, 64);
  const auto second = [](const StepState&, size_t output) { return output == 1; };
  EXPECT_EQ(book.take_result(second), nullptr);
  const std::shared_ptr<Storage> wanted = held->outputs[1].storage;
  held.reset();
  EXPECT_EQ(book.take_result(second), wanted);
  EXPECT_EQ(book.take_result(second), nullptr) << "it is gone, and the other may stay";
}

TEST(StepBook, FailuresOfAStepAndOfEarlierOnesAreItsOutcome) {
  StepBook book(4);
  book.add_failure(0, failure("of step 0"));
  book.add_failure(2, failure("of step 2"));
  EXPECT_EQ(book.take_failures(1, {}, false).message(), "of step 0") << "it had no handle to reach";
  EXPECT_TRUE(book.take_failures(1, {}, false).ok()) << "it is told once";
  EXPECT_EQ(book.take_failures(2, failure("as sinks say"), false).message(), "as sinks say");
  EXPECT_TRUE(book.take_failures(2, {}, false).ok());
}

TEST(StepBook, AmongRanksTheFirstFailureHereSaysMoreThanTheSinks) {
  StepBook book(4);
  book.add_failure(2, failure("here"));
  EXPECT_EQ(book.take_failures(2, failure("of the peer"), true).message(), "here");
  book.add_failure(2, failure("here"));
  EXPECT_EQ(book.take_failures(3, failure("of the peer"), true).message(), "of the peer");
}

TEST(StepBook, OfLateFailuresTheFirstIsKept) {
  StepBook book(4);
  EXPECT_FALSE(book.has_late_failure());
  book.add_late_failure({});
  EXPECT_FALSE(book.has_late_failure()) << "that was none";
  book.add_late_failure(failure("first"));
  book.add_late_failure(failure("second"));
  book.reset();
  EXPECT_EQ(book.take_late_failure().message(), "first");
  EXPECT_FALSE(book.has_late_failure());
}

TEST(StepBook, ResetForgetsFailuresAndCounts) {
  StepBook book(4);
  book.add_failure(1, failure("of step 1"));
  book.count_failed();
  EXPECT_EQ(book.failed(), 1u);
  book.reset();
  EXPECT_EQ(book.failed(), 0u);
  EXPECT_TRUE(book.take_failures(1, {}, false).ok());
}

}  // namespace
}  // namespace sluice
