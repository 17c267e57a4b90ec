// The explorer on plans written by hand: what it walks, and that failures reach the steps they must.
#include <gtest/gtest.h>

#include "explorer/judge.h"
#include "support/plan_builder.h"
#include "support/two_stage_plan.h"

namespace sluice::explorer {
namespace {

using plan::FiringRule;
using plan::Plan;
using plan::PlanBuilder;

Outcome explore(const Plan& p, WorldOptions options, SearchOptions search = {}) {
  World<FiringRule> world(p, std::move(options));
  Outcome o = Search(world, search).all();
  EXPECT_TRUE(o.ok()) << story(world, o);
  EXPECT_TRUE(o.whole);
  return o;
}

// feed -x-> sink, one slot, one step: start, stop, and the firings' moves in between.
TEST(Explorer, CountsTheOrdersOfTheSmallestPlan) {
  PlanBuilder b;
  b.stream();
  const int feed = b.feed("feed");
  b.reg("x", feed, {b.sink("sink")});
  const Plan p = b.build();
  // By hand: without a step, the stop reaches the feed, the end the sink.
  EXPECT_EQ(explore(p, {.steps = 0}).orders, 1);
  EXPECT_EQ(explore(p, {.steps = 0}).states, 2u);
  // Without an end: start, begin, emit; then the sink takes the token, begins and releases; then its finish and the
  // ack's arrival in 2 orders. The feed's finish has any of 6 places among these 5.
  EXPECT_EQ(explore(p, {.steps = 1, .stop = false}).orders, 2 * 6);
}

TEST(Explorer, TwoStagesInEveryOrder) {
  const Plan p = plan::two_stage_plan();
  for (int steps = 0; steps < 3; ++steps) {
    const Outcome all = explore(p, {.steps = steps}), fewer = explore(p, {.steps = steps}, {.reduced = true});
    EXPECT_LE(fewer.states, all.states);
    EXPECT_GE(explore(p, {.steps = steps, .split_starts = true}).states, all.states);
    EXPECT_LE(explore(p, {.hosting = Hosting::kStreams, .steps = steps}).states, all.states);
  }
}

// Which firings of the sink each failure reaches, by the plan's meaning; the explorer compares that with what the sink
// receives, in every order.
TEST(Explorer, AFailureReachesTheStepsThatDependOnItAndNoOther) {
  const auto reached = [](const Plan& p, const char* kernel, int firing) {
    Values values;
    const Meaning meaning(p, plan::Adjacency(p), 3, values);
    int k = 0, sink = 0;
    while (p.kernels[k].name != kernel) ++k;
    while (p.actors[sink].role != plan::ActorRole::kSink) ++sink;
    std::string steps;
    for (const Value v : meaning.sink[sink]) steps += values.failures(v)[meaning.failure(k, firing)] ? '!' : '.';
    explore(p, {.steps = 3});
    return steps;
  };
  const auto chain = [](bool feedback, bool data) {
    PlanBuilder b;
    b.stream();
    const int feed = b.feed("feed"), a = b.actor("a"), sink = b.sink("sink");
    const int x = b.reg("x", feed, {a}, {.bytes = 64});
    const int y = b.reg("y", a, {sink}, {.bytes = 64});
    std::vector<plan::View> reads{b.of_reg(x, {16})}, writes{b.of_reg(y, {16})};
    if (feedback) {
      const int back = b.reg("back", a, {a}, {.quota = 2, .bytes = data ? 64u : 0u, .initial_tokens = 1});
      if (data) {
        reads.push_back(b.of_reg(back, {16}));
        writes.push_back(b.of_reg(back, {16}));
      }
    }
    b.run(a, "f", reads, writes);
    b.emit(a, y);
    b.run(a, "late");  // nothing of this firing leaves after it, but feedback
    return b.build();
  };
  EXPECT_EQ(reached(chain(false, false), "a/f", 1), ".!.");
  EXPECT_EQ(reached(chain(false, false), "a/late", 1), "...");
  EXPECT_EQ(reached(chain(true, true), "a/f", 1), ".!!");     // state is passed on, so its failure is
  EXPECT_EQ(reached(chain(true, true), "a/late", 1), "..!");  // the result had left, the state had not
  EXPECT_EQ(reached(chain(true, false), "a/f", 1), ".!.");    // order alone carries no failure
}

TEST(Explorer, APlanThatBlocksIsToldAsAStory) {
  PlanBuilder b;
  b.stream();
  const int feed = b.feed("feed"), sink = b.sink("sink");
  b.edge(b.reg("x", feed, {}, {.quota = 1}), sink);
  b.reg("back", sink, {feed});  // no initial token
  const Plan p = b.build(false);
  World<FiringRule> world(p, {.steps = 1, .stop = false, .owed = {1, 1}});
  const Outcome o = Search(world, {.shortest = true}).all();
  EXPECT_EQ(story(world, o),
            "  actor 'feed' (feed) on cpu:0/compute0: emit x release back\n"
            "  actor 'sink' (sink) on cpu:0/compute0: emit back release x\n"
            "  register 'x': quota 1, control, 'feed' -> 'sink'\n"
            "  register 'back': quota 1, control, 'sink' -> 'feed'\n"
            "   1. start(1) reaches 'feed'\n"
            "  => blocked: 'feed' (0 firings) waits for data on 'back'; 'sink' (0 firings) waits for data on 'x'\n");
}

}  // namespace
}  // namespace sluice::explorer
