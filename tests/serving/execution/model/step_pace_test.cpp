// When a step is stuck, and when a queue will have room, by the steps that went well.
#include "serving/execution/model/step_pace.h"

#include <gtest/gtest.h>

#include "serving/core/error.h"
#include "support.h"

namespace sluice::serving::test {
namespace {

using std::chrono::milliseconds;

StepPace pace(const std::string& timeout = "") {
  return StepPace(model_config(
      timeout.empty() ? "" : "parameters { key: 'step_timeout_ms' value { string_value: '" + timeout + "' } }"));
}

TEST(StepPace, NoStepIsStuckUnlessTheConfigSaysSo) {
  EXPECT_EQ(pace().limit(false), milliseconds(0));
  EXPECT_EQ(pace("250").limit(false), milliseconds(250));
  EXPECT_EQ(pace("0").limit(false), milliseconds(0));
}

TEST(StepPace, ATimeoutIsANumberOfMilliseconds) {
  for (const char* text : {"-1", "1s", "12345678901", "0x10", " 5"})
    EXPECT_EQ(what_of([&] { pace(text); }),
              "config: parameter 'step_timeout_ms': '" + std::string(text) + "'; must be a number of milliseconds");
}

TEST(StepPace, ASuspectInstanceHasASecondOrTwentyTimesTheUsual) {
  StepPace one = pace();
  EXPECT_EQ(one.limit(true), milliseconds(1000));
  one.went_well(milliseconds(10), 1);
  EXPECT_EQ(one.limit(true), milliseconds(1000));
  StepPace slow = pace();
  slow.went_well(milliseconds(100), 1);
  EXPECT_EQ(slow.limit(true), milliseconds(2000));
  EXPECT_EQ(slow.limit(false), milliseconds(0));
}

TEST(StepPace, ASuspectInstanceHasNoMoreThanTheTimeout) {
  StepPace one = pace("300");
  EXPECT_EQ(one.limit(true), milliseconds(300));
  StepPace wide = pace("5000");
  EXPECT_EQ(wide.limit(true), milliseconds(1000));
}

TEST(StepPace, AQueueHasRoomOnceItsStepsAreOver) {
  StepPace one = pace();
  EXPECT_EQ(one.time_for(1000, 1), milliseconds(1)) << "no step is known yet";
  one.went_well(milliseconds(100), 4);  // the first says how long, and a step has 0.8 * 1 + 0.2 * 4 = 1.6 rows
  EXPECT_EQ(one.time_for(7, 1), milliseconds(600));  // of five steps, and the one that runs
  EXPECT_EQ(one.time_for(7, 2), milliseconds(300));
  EXPECT_EQ(one.time_for(7, 0), milliseconds(600)) << "instances come back";
  EXPECT_EQ(one.time_for(1000000, 1), milliseconds(60000)) << "a minute at most";
}

TEST(StepPace, TheLatestStepHasAFifthOfTheWeight) {
  StepPace one = pace();
  one.went_well(milliseconds(100), 1);
  one.went_well(milliseconds(350), 1);  // 0.8 * 100 + 0.2 * 350 = 150
  EXPECT_NEAR(static_cast<double>(one.limit(true).count()), 3000, 1);
}

}  // namespace
}  // namespace sluice::serving::test
