// The text that one process tells another comes back as it was; anything else is an error.
#include "plan/record/live_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"

namespace sluice::plan {
namespace {

using ::testing::HasSubstr;

LiveProcess two_sessions() {
  LiveProcess process{.pid = 17, .clock_ns = 123456789, .version = "1.2.3", .sessions = {}};
  LiveSession one;
  one.id = 4;
  one.name = "</script>\"net\"";
  one.submitted = 12;
  one.finished = 9;
  one.in_flight = 3;
  one.firings = {12, 9, 0};
  one.busy_ns = {1'000'000'000'000, 2, 3};
  one.now = {kLiveIdle, 7, kLiveCores};
  process.sessions = {one, one};
  process.sessions[1].id = 5;
  return process;
}

TEST(LiveState, ComesBackAsItWas) {
  const LiveProcess process = two_sessions(), again = read_live(live_json(process), "process 17");
  EXPECT_EQ(live_json(again), live_json(process));
  ASSERT_EQ(again.sessions.size(), 2u);
  EXPECT_EQ(again.sessions[1].id, 5u);
  EXPECT_EQ(again.sessions[0].name, process.sessions[0].name);
  EXPECT_EQ(again.sessions[0].now, process.sessions[0].now);
}

TEST(LiveState, WhatIsNoneIsAnError) {
  const auto said = [](const std::string& text) { return test::message_of([&] { read_live(text, "process 17"); }); };
  EXPECT_THAT(said("{\"error\": \"there is no session 3 any more\"}"), HasSubstr("process 17: there is no session 3"));
  EXPECT_THAT(said("{}"), HasSubstr("process 17: not the state of a process"));
  EXPECT_THAT(said("[1]"), HasSubstr("process 17"));
  const std::string whole = live_json(two_sessions());
  for (size_t n = 0; n + 2 < whole.size(); ++n) EXPECT_NE(said(whole.substr(0, n)), "") << n;
  std::string fewer = whole;
  fewer.replace(fewer.find("\"now\":[-1,7,-3]"), 15, "\"now\":[-1,7]");
  EXPECT_THAT(said(fewer), HasSubstr("3, 3 and 2 numbers of actors; must be the same"));
}

}  // namespace
}  // namespace sluice::plan
