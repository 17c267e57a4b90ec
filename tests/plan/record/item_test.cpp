// The way of a step: its hops follow each other without a gap, so that waits and runs add up to how long it took.
#include "plan/record/item.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/error_of.h"
#include "support/simulated_recording.h"
#include "support/soak.h"
#include "support/timed_plan.h"
#include "support/two_stage_plan.h"

namespace sluice::plan {
namespace {

constexpr int64_t kMs = 1'000'000;

Recording input_bound() {
  return simulated_recording(two_stage_plan({.host_ns = 3e6, .compute_ns = 1e6}), {.steps = 10});
}

TEST(Item, SaysWhereAStepWaitedAndWhereItRan) {
  const Recording recording = input_bound();
  const ItemWay way = way_of_item(recording, 5);
  ASSERT_EQ(way.hops.size(), 4u);
  const auto hop = [&](const std::string& actor) {
    return *std::ranges::find_if(way.hops,
                                 [&](const ItemHop& h) { return recording.plan.actors[h.actor].name == actor; });
  };
  EXPECT_EQ(way.begin_ns, 12 * kMs) << "its slot came back when 'prepare' had done with step 3";
  EXPECT_EQ(way.end_ns, 21 * kMs);
  EXPECT_EQ(hop("prepare").wait_ns(), 3 * kMs) << "'prepare' was at step 4";
  ASSERT_EQ(hop("prepare").did.size(), 2u);
  EXPECT_EQ(hop("prepare").did[0].spent, Spent::kRun);
  EXPECT_EQ(hop("prepare").run_ns(), 3 * kMs);
  EXPECT_EQ(hop("net").wait_ns(), 0);
  EXPECT_EQ(hop("net").run_ns(), kMs);
  EXPECT_EQ(recording.plan.registers[recording.plan.edges[hop("net").edge].reg].name, "images");
  ASSERT_EQ(hop("sink").did.size(), 1u);
  EXPECT_EQ(hop("sink").did[0].spent, Spent::kStream) << "'prepare' is at step 6 on the sink's stream";
  EXPECT_EQ(hop("sink").wait_ns(), 2 * kMs);
  EXPECT_EQ(way.flows.size(), 3u) << "raw, images and loss";
}

TEST(Item, OfTwoValuesTheLastOneCounts) {
  PlanBuilder b("fork");
  const int host = b.stream("cpu:0", StreamKind::kHost), one = b.stream("cpu:0", StreamKind::kCompute, 0),
            two = b.stream("cpu:0", StreamKind::kCompute, 1);
  const int feed = b.feed("feed", host), quick = b.actor("quick", one), slow = b.actor("slow", two),
            sink = b.sink("sink", host);
  const int x = b.reg("x", feed, {quick, slow}, {.quota = 2, .bytes = 64});
  const int y = b.reg("y", quick, {sink}, {.quota = 2, .bytes = 64});
  const int z = b.reg("z", slow, {sink}, {.quota = 2, .bytes = 64});
  b.run(quick, "quick", {b.of_reg(x, {16})}, {b.of_reg(y, {16})}, 1e6);
  b.run(slow, "slow", {b.of_reg(x, {16})}, {b.of_reg(z, {16})}, 5e6);
  const ItemWay way = way_of_item(simulated_recording(b.build(), {.steps = 3}), 0);
  ASSERT_EQ(way.hops.size(), 3u);
  EXPECT_EQ(way.hops[1].actor, slow);
  EXPECT_EQ(way.hops[1].run_ns(), 5 * kMs);
  EXPECT_EQ(way.flows.size(), 4u) << "those off the way, too";
}

TEST(Item, WhatWasNotRecordedIsAnError) {
  EXPECT_EQ(test::message_of([] { way_of_item(input_bound(), 17); }),
            "item: step 17: not recorded; sinks have fired for steps 0 to 9");
  EXPECT_EQ(test::message_of([] { way_of_item(input_bound(), 17, 3); }),
            "item: step 17: not recorded at 'sink'; sinks have fired for steps 0 to 9");
  const Recording empty{two_stage_plan(), {}, -1};
  EXPECT_EQ(test::message_of([&] { way_of_item(empty, 0); }),
            "item: step 0: not recorded; no sink has fired while events were recorded");
}

// Random plans, with rates, feedback and shared cores.
TEST(SoakItem, WaitsAndRunsAddUpToHowLongAStepTook) {
  const int64_t total = test::repetitions(200, 5000);
  int64_t hops = 0;
  for (int64_t seed = 0; seed < total; ++seed) {
    Plan plan = random_timed_plan(static_cast<uint64_t>(seed));
    as_control(plan);
    for (Kernel& kernel : plan.kernels) kernel.cost_ns *= 1000;
    const Recording recording = simulated_recording(plan, {.steps = 12, .cores = static_cast<int>(seed % 3)});
    if (recording.trace.events.empty()) continue;
    const Timeline timeline = timeline_of(recording);
    const auto sink =
        static_cast<size_t>(std::ranges::find(plan.actors, ActorRole::kSink, &Actor::role) - plan.actors.begin());
    for (const Fired& last : timeline.firings[sink]) {
      const ItemWay way = way_of_item(recording, last.step);
      int64_t at = way.begin_ns, sum = 0;
      for (const ItemHop& hop : way.hops) {
        ASSERT_EQ(hop.arrived_ns, at) << "seed " << seed;
        ASSERT_GE(hop.wait_ns(), 0) << "seed " << seed;
        ASSERT_GE(hop.run_ns(), 0) << "seed " << seed;
        int64_t did = 0;
        for (const Segment& s : hop.did) did += s.end_ns - s.begin_ns;
        ASSERT_EQ(did, hop.wait_ns() + hop.run_ns()) << "seed " << seed;
        sum += hop.wait_ns() + hop.run_ns();
        at = hop.left_ns;
        ++hops;
      }
      ASSERT_EQ(at, way.end_ns) << "seed " << seed;
      ASSERT_EQ(sum, way.end_ns - way.begin_ns) << "seed " << seed;
      ASSERT_GE(way.end_ns, last.end_ns) << "seed " << seed;
    }
  }
  test::report_count("item: hops of ways", hops, "hops");
}

}  // namespace
}  // namespace sluice::plan
