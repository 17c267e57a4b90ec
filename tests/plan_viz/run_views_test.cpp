// Summaries of runs, the way of a step, and how far a run is from what is possible.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "support/error_of.h"
#include "support/simulated_recording.h"
#include "support/two_stage_plan.h"
#include "tools/plan_viz/summary.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {
namespace {

using plan::two_stage_plan;
using ::testing::HasSubstr;

plan::Recording slow_input() {
  return plan::simulated_recording(two_stage_plan({.host_ns = 3e6, .compute_ns = 1e6}), {.steps = 10});
}

TEST(ItemView, IsAsGolden) {
  EXPECT_EQ(item_text(slow_input(), 5, "", {.width = 100}),
            R"(plan 'two_stage', step 5: 9 ms from 'feed' to 'sink'
  4 hops: waited 5 ms, ran 4 ms
    at  actor    took    wait   run  waited for
  0 ns  feed             0 ns  0 ns
  0 ns  prepare  raw     3 ms  3 ms  its firings before 3 ms
  6 ms  net      images  0 ns  1 ms
  7 ms  sink     loss    2 ms  0 ns  stream, in 'prepare' 2 ms
)");
  EXPECT_EQ(item_text(slow_input(), 5, "sink", {.width = 100}), item_text(slow_input(), 5, "", {.width = 100}));
  EXPECT_EQ(test::message_of([] { item_text(slow_input(), 5, "net", {}); }),
            "item: 'net': no sink of plan 'two_stage' is called so; its sinks are 'sink'");
}

TEST(ItemView, JsonAddsUp) {
  const boost::json::value json = boost::json::parse(item_json(slow_input(), 5, ""));
  EXPECT_EQ(json.at("latency_ns").as_int64(), 9'000'000);
  EXPECT_EQ(json.at("wait_ns").as_int64() + json.at("run_ns").as_int64(), 9'000'000);
  EXPECT_EQ(json.at("hops").at(1).at("waited").at("run").as_int64(), 3'000'000);
  EXPECT_EQ(json.at("flows").as_array().size(), 3u);
}

TEST(Stats, SaysWhatRunsComeTo) {
  const plan::Recording recording = slow_input();
  const plan::Plan& plan = recording.plan;
  const Page page{.plan = &plan, .simulated = &plan, .recording = &recording};
  const std::string text = runs_text(page, {.width = 100});
  EXPECT_THAT(text, HasSubstr("\nmeasured run, 31 ms\n"));
  // 'net' runs beside 'prepare' but for its last step.
  EXPECT_THAT(text, HasSubstr("\n  0: 0.0% 1: 71.0% 2: 29.0%\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("cpu:0/host0 +30 +10 +30 ms +96.8%"));
  EXPECT_THAT(text, ::testing::ContainsRegex("prepare/shift +10 +30 ms +3 ms +in the critical cycle"));
  EXPECT_THAT(text, ::testing::ContainsRegex("2.1 ms to 4.19 ms +10 +30 ms"));
  EXPECT_THAT(text, ::testing::ContainsRegex("prepare +10 +30 ms +1.2 KiB +4.27e-05 GB/s"));
  const boost::json::value runs = boost::json::parse(runs_summary_json(page));
  const boost::json::value& panels = runs.at(1).at("panels");
  EXPECT_EQ(panels.at("levels"), (boost::json::array{0, 22'000'000, 9'000'000}));
  EXPECT_EQ(panels.at("utilization").at(0).at("kernels_ns").as_int64(), 30'000'000);
  EXPECT_EQ(runs.at(1).at("actors").at(1).at("bytes").as_int64(), 10 * 128);
  EXPECT_TRUE(runs.at(1).at("links").as_array().empty()) << "all of it is in one memory";
}

TEST(Stats, ARefusedPlanHasNoRunsToTellOf) {
  plan::Plan plan = two_stage_plan();
  plan.certificate = {0};
  EXPECT_EQ(runs_text({.plan = &plan, .simulated = &plan}, {}), "\npredicted run, 0 ns\n");
}

TEST(Stats, SaysWhatGoesFromOneMemoryIntoAnother) {
  plan::PlanBuilder b("moves");
  const int host = b.stream("cpu:0", plan::StreamKind::kHost), copies = b.stream("sim:0", plan::StreamKind::kCopyIn);
  const int device = b.space(plan::SpaceKind::kDevice, "sim:0");
  const int feed = b.feed("feed", host), copy = b.actor("copy", copies), sink = b.sink("sink", copies);
  const int x = b.reg("x", feed, {copy}, {.quota = 2, .bytes = 64});
  const int y = b.reg("y", copy, {sink}, {.quota = 2, .bytes = 64, .space = device});
  b.run(copy, "copy", {b.of_reg(x, {16})}, {b.of_reg(y, {16})}, 1000);
  const plan::Plan plan = b.build();
  const boost::json::value runs = boost::json::parse(runs_summary_json({.plan = &plan, .simulated = &plan}));
  const boost::json::value& link = runs.at(0).at("links").at(0);
  EXPECT_EQ(link.at("from"), "host");
  EXPECT_EQ(link.at("to"), "sim:0");
  EXPECT_EQ(link.at("transfers"), 4);
  EXPECT_EQ(link.at("bytes"), 4 * 64);
  EXPECT_EQ(link.at("total_ns"), 4000);
}

TEST(BoundView, SaysHowFarARunIsFromWhatIsPossible) {
  const plan::Recording recording = slow_input();
  const plan::Plan& plan = recording.plan;
  const Page page{.plan = &plan, .simulated = &plan, .recording = &recording};
  EXPECT_THAT(bound_text(page, {.width = 100}), HasSubstr(R"(plan 'two_stage', measured run: 10 steps in 31 ms
  critical path   4 ms  the longest chain of one step
  area           30 ms  the kernels of 'cpu:0/host0'
  bound          30 ms  the most of these: no order of these kernels takes less
  achieved       96.8%  the bound, of the time it took
)"));
  const boost::json::value runs = boost::json::parse(bound_json(page)).at("runs");
  for (const boost::json::value& run : runs.as_array())
    EXPECT_LE(run.at("bound_ns").as_int64(), run.at("total_ns").as_int64());
  const plan::Plan free = two_stage_plan({.host_ns = 0, .compute_ns = 0});
  EXPECT_THAT(test::message_of([&] { bound_text({.plan = &free, .simulated = &free}, {}); }),
              HasSubstr("its kernels have no predicted costs; give a recorded run"));
}

}  // namespace
}  // namespace sluice::plan_viz
