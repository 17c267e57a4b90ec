// Which steps may enter a session, who goes first, and in which order steps start.
#include "runtime/session/parts/admission.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice {
namespace {

// A feed whose register 7 has two slots, a step each, both of them free.
Admission two_slots(int max_in_flight, size_t backlog) {
  Admission::FedRegister fed{7, 1, 2};
  return {{fed}, max_in_flight, backlog};
}

TEST(Admission, TakesAsManyStepsAsHaveSlots) {
  Admission admission = two_slots(8, 0);
  for (uint64_t step = 0; step < 2; ++step) {
    ASSERT_TRUE(admission.has_capacity());
    EXPECT_EQ(admission.enter(), step);
  }
  EXPECT_FALSE(admission.has_capacity());
  admission.set_writable(7, 3);
  EXPECT_TRUE(admission.has_capacity()) << "a slot is free again";
  admission.enter();
  EXPECT_FALSE(admission.has_capacity());
}

TEST(Admission, TakesNoMoreThanMayBeInFlight) {
  Admission admission = two_slots(1, 0);
  admission.enter();
  EXPECT_FALSE(admission.has_capacity()) << "a slot is free, but a step is in flight";
  admission.publish(0);
  EXPECT_FALSE(admission.has_capacity());
  admission.finish();
  EXPECT_EQ(admission.in_flight(), 0u);
  EXPECT_TRUE(admission.has_capacity());
}

TEST(Admission, AStepOfSeveralFiringsNeedsSlotsForAll) {
  Admission admission({{7, 3, 2}}, 8, 0);
  EXPECT_FALSE(admission.has_slots(0)) << "two of three";
  admission.set_writable(7, 3);
  EXPECT_TRUE(admission.has_slots(0));
  EXPECT_FALSE(admission.has_slots(1));
}

TEST(Admission, EveryFeedMustHaveSlots) {
  Admission admission({{7, 1, 1}, {9, 1, 0}}, 8, 0);
  EXPECT_FALSE(admission.has_capacity());
  admission.set_writable(9, 1);
  EXPECT_TRUE(admission.has_capacity());
}

TEST(Admission, TheBacklogTakesStepsWithoutSlotsAndStartsThemInOrder) {
  Admission admission = two_slots(4, 2);
  for (uint64_t step = 0; step < 4; ++step) {
    ASSERT_TRUE(admission.has_capacity()) << step;
    admission.enter();
    if (step < 2) admission.publish(step);
  }
  EXPECT_FALSE(admission.has_capacity());
  admission.set_writable(7, 4);
  EXPECT_FALSE(admission.backlog_can_start()) << "the inputs of step 2 are not there yet";
  admission.put_in_backlog(3);
  EXPECT_FALSE(admission.backlog_can_start()) << "step 3 does not overtake step 2";
  admission.put_in_backlog(2);
  for (uint64_t step = 2; step < 4; ++step) {
    ASSERT_TRUE(admission.backlog_can_start());
    admission.take_from_backlog(step);
    admission.publish(step);
  }
  EXPECT_FALSE(admission.backlog_can_start());
  EXPECT_TRUE(admission.all_published());
}

TEST(Admission, AStepOfTheBacklogWaitsForItsSlots) {
  Admission admission = two_slots(3, 1);
  for (uint64_t step = 0; step < 3; ++step) admission.enter();
  admission.put_in_backlog(2);
  admission.publish(0);
  admission.publish(1);
  EXPECT_FALSE(admission.backlog_can_start());
  admission.set_writable(7, 3);
  EXPECT_TRUE(admission.backlog_can_start());
}

TEST(Admission, SubmissionsUnderWayAreThoseNeitherStartedNorInTheBacklog) {
  Admission admission = two_slots(3, 1);
  EXPECT_TRUE(admission.none_is_entering());
  admission.enter();
  EXPECT_FALSE(admission.none_is_entering());
  admission.publish(0);
  EXPECT_TRUE(admission.none_is_entering());
  admission.enter();
  admission.publish(1);
  admission.enter();
  EXPECT_FALSE(admission.none_is_entering());
  admission.put_in_backlog(2);
  EXPECT_TRUE(admission.none_is_entering()) << "it never starts, if the session ends";
  EXPECT_TRUE(admission.begin_emptying_backlog());
  EXPECT_FALSE(admission.begin_emptying_backlog()) << "one thread at a time";
  EXPECT_FALSE(admission.none_is_entering());
  admission.end_emptying_backlog();
  EXPECT_TRUE(admission.none_is_entering());
}

TEST(Admission, CallersStandInLineByPriorityAndThenByWhenTheyCame) {
  Admission admission = two_slots(1, 0);
  Admission::Waiter first(0), second(0), urgent(5);
  admission.stand_in_line(first);
  admission.stand_in_line(second);
  admission.stand_in_line(urgent);
  EXPECT_EQ(admission.waiting(), 3u);
  EXPECT_TRUE(admission.may_enter(urgent));
  EXPECT_FALSE(admission.may_enter(first)) << "it is not first in line";
  EXPECT_FALSE(admission.may_enter(5)) << "who comes now stands behind those of the same priority";
  EXPECT_TRUE(admission.may_enter(6));
  admission.leave_line(urgent, true);
  EXPECT_TRUE(admission.may_enter(first));
  EXPECT_FALSE(admission.may_enter(second));
  admission.leave_line(first, true);
  admission.leave_line(second, true);
}

TEST(Admission, WhoGivesUpOffersItsRoomToTheNext) {
  Admission admission = two_slots(1, 0);
  Mutex mutex;
  bool stands = false, entered = false;
  ConditionVariable standing;
  Admission::Waiter leaving(0);
  admission.stand_in_line(leaving);
  std::thread next([&] {
    Admission::Waiter waiter(0);
    MutexLock lock(mutex);
    admission.stand_in_line(waiter);
    stands = true;
    standing.notify_all();
    waiter.changed.wait(lock, [&] { return admission.may_enter(waiter); });  // for ever, were it not told
    entered = true;
    admission.leave_line(waiter, true);
  });
  {
    MutexLock lock(mutex);
    standing.wait(lock, [&] { return stands; });
    admission.leave_line(leaving, false);
  }
  next.join();
  EXPECT_TRUE(entered);
}

TEST(Admission, StepsThatStartAtOnceNeedNoRoom) {
  Admission admission = two_slots(1, 0);
  admission.enter_started(10);
  EXPECT_EQ(admission.in_flight(), 10u);
  EXPECT_TRUE(admission.all_published());
  EXPECT_FALSE(admission.has_capacity());
}

TEST(Admission, AfterResetNumbersBeginAnewAndSlotsAreToBeGrantedAgain) {
  Admission admission = two_slots(3, 1);
  for (uint64_t step = 0; step < 3; ++step) admission.enter();
  admission.put_in_backlog(2);
  admission.reset();
  EXPECT_EQ(admission.submitted(), 0u);
  EXPECT_FALSE(admission.has_slots(0));
  admission.set_writable(7, 2);
  EXPECT_EQ(admission.enter(), 0u);
  EXPECT_FALSE(admission.backlog_can_start()) << "what lay in the backlog is forgotten";
}

}  // namespace
}  // namespace sluice
