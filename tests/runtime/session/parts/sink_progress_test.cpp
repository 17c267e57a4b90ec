// Which steps the sinks of a session have delivered.
#include "runtime/session/parts/sink_progress.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(SinkProgress, AStepIsDeliveredOnceAllSinksHaveIt) {
  SinkProgress sinks({{3}, {5}}, 1);
  sinks.deliver(3, sinks.fire(3, 0));
  EXPECT_EQ(sinks.delivered(4), 0u);
  EXPECT_TRUE(sinks.first_has_delivered(0));
  sinks.deliver(5, sinks.fire(5, 0));
  EXPECT_EQ(sinks.delivered(4), 1u);
  EXPECT_FALSE(sinks.first_has_delivered(1));
}

TEST(SinkProgress, APartOfAStepDeliversNothingUntilTheLastOne) {
  SinkProgress sinks({{3, 3, 3}}, 1);
  for (uint64_t part = 0; part < 3; ++part) {
    const SinkProgress::Delivery delivery = sinks.fire(3, 0);
    EXPECT_EQ(delivery.part, part);
    EXPECT_EQ(delivery.last, 0u);
    EXPECT_EQ(delivery.complete, part == 2);
    EXPECT_EQ(sinks.delivered(4), 0u);
    sinks.deliver(3, delivery);
  }
  EXPECT_EQ(sinks.delivered(4), 1u);
  EXPECT_EQ(sinks.fire(3, 1).part, 0u);
}

TEST(SinkProgress, OneFiringAnswersSeveralSteps) {
  SinkProgress sinks({{3, 1, 1}}, 4);  // a batch of four steps
  const SinkProgress::Delivery delivery = sinks.fire(3, 3);
  EXPECT_EQ(delivery.first, 0u);
  EXPECT_EQ(delivery.last, 3u);
  sinks.deliver(3, delivery);
  EXPECT_EQ(sinks.delivered(6), 4u);
}

TEST(SinkProgress, AFiringAnswersItsShareWhenALaterStepHasMadeSeveralPossible) {
  SinkProgress sinks({{3, 1, 2}}, 4);  // two firings for four steps
  const SinkProgress::Delivery first = sinks.fire(3, 3);
  EXPECT_EQ(first.last, 1u) << "step 3 made both possible, and each gives half of the period";
  sinks.deliver(3, first);
  const SinkProgress::Delivery second = sinks.fire(3, 3);
  EXPECT_EQ(second.first, 2u);
  EXPECT_EQ(second.last, 3u);
}

TEST(SinkProgress, NothingWaitsForASinkThatHasEnded) {
  SinkProgress sinks({{3}, {5}}, 1);
  sinks.deliver(3, sinks.fire(3, 0));
  EXPECT_EQ(sinks.end(5), 0u) << "the first step that it has not delivered";
  EXPECT_EQ(sinks.delivered(3), 1u) << "only sink 3 still counts";
  EXPECT_EQ(sinks.end(3), 1u);
  EXPECT_EQ(sinks.delivered(3), 3u) << "nothing more will come";
  sinks.reset();
  EXPECT_EQ(sinks.delivered(3), 0u);
  EXPECT_EQ(sinks.fire(3, 0).firing, 0u);
}

}  // namespace
}  // namespace sluice
