// `plan-viz top` prints a process's counters.
#include "tools/plan_viz/live_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "plan_viz/run_plan_viz.h"
#include "support/error_of.h"
#include "support/two_stage_plan.h"

namespace sluice::plan_viz {
namespace {

using plan::two_stage_plan;
using ::testing::HasSubstr;

// feed, prepare, net, sink: 'prepare' is in its kernel 'shift' all the time, 'net' waits for its images.
LiveSample sample(int64_t ms, uint64_t steps) {
  plan::LiveSession session;
  session.id = 1;
  session.name = "two_stage";
  session.submitted = steps + 2;
  session.finished = steps;
  session.in_flight = 2;
  session.max_in_flight = 3;
  session.bytes = 2048;
  session.firings = {steps + 2, steps, steps, steps};
  session.busy_ns = {0, steps * 45'000'000, steps * 5'000'000, 0};
  session.now = {plan::kLiveIdle, 0, plan::kLiveIdle, plan::kLiveIdle};
  return {ms * 1'000'000, session};
}

TEST(LiveView, SaysRatesAndWhoWaitsForWhom) {
  const LivePlan live{two_stage_plan()};
  const std::vector<LiveSample> samples = {sample(0, 10), sample(500, 20), sample(1000, 30)};
  EXPECT_EQ(top_text(live, samples, {.width = 100}),
            R"(plan 'two_stage': 20.0 steps/s, 2 of 3 steps in flight, 30 finished, 2.0 KiB
  busiest is 'prepare', in kernels for 100.0 %; it was waited for by 'net' (100 %)
  actor    stream          firings/s    busy  most of the time it
  prepare  cpu:0/host0          20.0  100.0%  runs 'prepare/shift' (train.py:12) 100%
  net      cpu:0/compute0       20.0   10.0%  waits for 'prepare': data 'images' 100%
  feed     cpu:0/host0          20.0    0.0%  waits for a step 100%
  sink     cpu:0/host0          20.0    0.0%  waits for 'net': data 'loss' 100%
  register  slots  free  full  in flight  tokens/s
  raw           2     0     2          0      20.0  ■■
  images        2     2     0          0      20.0  □□
  loss          2     2     0          0      20.0  □□
)");
  const boost::json::value json = boost::json::parse(top_json(live, samples));
  EXPECT_EQ(json.at("actors").at(2).at("whom").as_string(), "prepare");
  EXPECT_EQ(json.at("registers").at(0).at("full").as_int64(), 2);
}

// A session that is reset counts from 0 again: no rate is negative.
TEST(LiveView, CountersMayBeginAnew) {
  const LivePlan live{two_stage_plan()};
  const std::string text = top_text(live, std::vector{sample(0, 30), sample(1000, 1)}, {.width = 100});
  EXPECT_THAT(text, HasSubstr("0.0 steps/s"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("-")));
}

TEST(LiveView, ASlotIsWaitedForFromItsSlowestReader) {
  const LivePlan live{two_stage_plan()};
  LiveSample now = sample(0, 10);
  now.session.submitted = 20;
  now.session.firings = {14, 12, 10, 10};  // raw and images are full
  now.session.now = {plan::kLiveIdle, plan::kLiveIdle, 2, plan::kLiveIdle};
  const std::vector<Doing> doings = live.doings(now.session);
  EXPECT_EQ(live.str(doings[0]), "waits for 'prepare': a slot of 'raw'");
  EXPECT_EQ(live.str(doings[1]), "waits for 'net': a slot of 'images'");
  EXPECT_EQ(live.str(doings[2]), "runs 'net/sum'");
  EXPECT_EQ(live.str(doings[3]), "waits for 'net': data 'loss'");
}

TEST(LiveView, NumbersOfAnotherPlanAreAnError) {
  const LivePlan live{two_stage_plan()};
  LiveSample now = sample(0, 1);
  now.session.now[1] = 99;
  EXPECT_EQ(test::message_of([&] { live.check(now.session); }),
            "plan 'two_stage': an actor runs kernel 99; the plan has 3");
  now.session.firings.pop_back();
  EXPECT_EQ(test::message_of([&] { live.check(now.session); }),
            "plan 'two_stage': counters of 3 actors; the plan has 4");
}

TEST(TopProgram, ProcessesThatCannotBeSeenAreErrorsByName) {
  const auto said = [](const std::string& arguments) {
    const Result result = run_command("'" PLAN_VIZ "' " + arguments);
    EXPECT_EQ(result.status != 0, true) << arguments;
    return result.text;
  };
  for (const char* view : {"top", "live"}) {
    const std::string name = view;
    EXPECT_EQ(said(name + " 4194305"),
              "plan-viz: process 4194305: there is none; it must be the number of a process that runs, as `ps` lists "
              "it\n");
    EXPECT_THAT(said(name + " $$"),
                HasSubstr("it does not let itself be seen: nobody answers; start it with SLUICE_LIVE=1"));
    EXPECT_THAT(said(name + " -3"), HasSubstr("process -3: there is none"));
    EXPECT_THAT(said(name + " net"), HasSubstr("net"));
  }
  EXPECT_THAT(said("live $$ --port 99999"), HasSubstr("--port"));
}

}  // namespace
}  // namespace sluice::plan_viz
