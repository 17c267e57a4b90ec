// Whether a session takes steps, and what it says when it does not.
#include "runtime/session/parts/lifecycle.h"

#include <gtest/gtest.h>

#include "support/error_of.h"

namespace sluice {
namespace {

using test::error_of;

class LifecycleTest : public ::testing::Test {
 protected:
  std::string refusal() {
    const std::string said = error_of([&] { lifecycle_.check_takes_steps(7); });
    EXPECT_EQ(said == "no error", lifecycle_.takes_steps()) << said;
    return said;
  }
  const std::string name_ = "net";
  Lifecycle lifecycle_{name_};
};

TEST_F(LifecycleTest, TakesStepsAtFirst) { EXPECT_EQ(refusal(), "no error"); }

TEST_F(LifecycleTest, OnceCancelledItNeverTakesStepsAgain) {
  EXPECT_TRUE(lifecycle_.cancel());
  EXPECT_FALSE(lifecycle_.cancel()) << "it had been";
  EXPECT_EQ(refusal(), "runtime: session 'net' was stopped; load the plan again");
  EXPECT_NE(error_of([&] { lifecycle_.check_not_cancelled(); }), "no error");
  lifecycle_.begin_anew();
  EXPECT_FALSE(lifecycle_.takes_steps());
}

TEST_F(LifecycleTest, AResetEndsTheEndOfData) {
  lifecycle_.end_data();
  EXPECT_EQ(refusal(), "end of data: session 'net': step 7: the data of a source has ended; reset() begins anew");
  lifecycle_.begin_reset();
  EXPECT_TRUE(lifecycle_.ending());
  EXPECT_EQ(refusal(), "runtime: session 'net' is being reset; submit when that is done");
  lifecycle_.count_reset();
  lifecycle_.begin_anew();
  lifecycle_.finish_ending();
  EXPECT_FALSE(lifecycle_.ending());
  EXPECT_EQ(refusal(), "no error");
  EXPECT_EQ(lifecycle_.resets(), 1u);
}

TEST_F(LifecycleTest, AResetThatFailsLeavesTheDataEnded) {
  lifecycle_.end_data();
  lifecycle_.begin_reset();
  lifecycle_.finish_ending();
  EXPECT_FALSE(lifecycle_.takes_steps());
  EXPECT_TRUE(lifecycle_.data_ended()) << "so that it may be reset again";
}

TEST_F(LifecycleTest, AFailureOfTheSessionIsSaidBeforeAllElse) {
  lifecycle_.cancel();
  lifecycle_.fail({ErrorKind::kRuntime, "its actor has died"});
  EXPECT_EQ(refusal(), "runtime: its actor has died");
}

TEST_F(LifecycleTest, AbandoningIsAnEndThatIsOver) {
  lifecycle_.cancel();
  lifecycle_.abandon();
  EXPECT_TRUE(lifecycle_.ending()) << "nobody else may end it meanwhile";
  EXPECT_FALSE(lifecycle_.closed());
  lifecycle_.close();
  lifecycle_.finish_ending();
  EXPECT_TRUE(lifecycle_.closed());
  EXPECT_TRUE(lifecycle_.abandoned());
  EXPECT_FALSE(lifecycle_.ending());
}

}  // namespace
}  // namespace sluice
