// Sessions that take turns in one memory: results as with memory of their own, bytes of the largest, state kept apart.
#include "runtime/session/shared_arenas.h"

#include "plan/pack/ledger.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

SessionOptions sharing(const std::shared_ptr<SharedArenas>& arenas) {
  return {.functions = functions(), .arenas = arenas};
}

Floats turn(Session& session, float x) { return result(submit(session, filled(x))); }

uint64_t arena_bytes(const Plan& plan) { return ledger(plan).arenas; }

// A sum over all steps, kept in the slot of a register.
Plan summing_plan() {
  Plans b("sum");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int feed = b.feed("feed"), add = b.actor("add"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {add}, {.bytes = 16});
  const int state = b.reg("state", add, {add}, {.quota = 2, .bytes = 16, .initial_tokens = 1});
  const int y = b.reg("y", add, {sink}, {.bytes = 16});
  b.call(add, "copy", {b.r(x), b.r(state)}, {b.r(y), b.r(state)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

TEST(SharedArenas, SessionsThatTakeTurnsHoldTheBytesOfTheLargest) {
  Engine engine;
  const Plan small = pipeline({"add_one"}), large = pipeline({"add_one", "twice", "add_one"}, 3);
  ASSERT_GT(arena_bytes(large), arena_bytes(small));
  const auto arenas = std::make_shared<SharedArenas>(engine);
  const MemoryWatch watch(engine, small.spaces);
  arenas->reserve(small);
  arenas->reserve(large);  // nobody has the smaller memory, so it goes first
  Session a = Session::load(engine, small, {}, sharing(arenas));
  Session b = Session::load(engine, large, {}, sharing(arenas));
  Session c = Session::load(engine, small, {}, sharing(arenas));
  EXPECT_EQ(watch.held_but_for({{"host", arena_bytes(large)}}), "");
  EXPECT_EQ(watch.peak_but_for({{"host", arena_bytes(large)}}), "");
  EXPECT_EQ(arenas->bytes({}), arena_bytes(large));
  EXPECT_EQ(a.memory().spaces[0].arenas, arena_bytes(small));
  EXPECT_EQ(a.memory().spaces[0].shared, arena_bytes(small));
  for (int i = 0; i < 20; ++i) {
    const auto x = static_cast<float>(i);
    EXPECT_EQ(turn(a, x), filled(x + 1));
    EXPECT_EQ(turn(b, x), filled(2 * (x + 1) + 1));
    EXPECT_EQ(turn(c, -x), filled(-x + 1));
  }
}

TEST(SharedArenas, ALargerPlanThatComesLaterGetsNewMemory) {
  Engine engine;
  const Plan small = pipeline({"add_one"}), large = pipeline({"add_one", "twice"}, 3);
  const auto arenas = std::make_shared<SharedArenas>(engine);
  const MemoryWatch watch(engine, small.spaces);
  Session a = Session::load(engine, small, {}, sharing(arenas));
  Session b = Session::load(engine, large, {}, sharing(arenas));
  EXPECT_EQ(watch.held_but_for({{"host", arena_bytes(small) + arena_bytes(large)}}), "");
  EXPECT_EQ(turn(a, 1), filled(2));
  EXPECT_EQ(turn(b, 1), filled(4));
  a = Session::load(engine, small, {}, sharing(arenas));  // anew, into the larger
  EXPECT_EQ(watch.held_but_for({{"host", arena_bytes(large)}}), "");
  EXPECT_EQ(turn(b, 2), filled(6));
  EXPECT_EQ(turn(a, 2), filled(3));
}

TEST(SharedArenas, MemoryGoesWithTheLastOfThem) {
  Engine engine;
  const Plan plan = pipeline({"add_one"});
  const MemoryWatch watch(engine, plan.spaces);
  auto arenas = std::make_shared<SharedArenas>(engine);
  Session session = Session::load(engine, plan, {}, sharing(arenas));
  arenas.reset();
  EXPECT_EQ(turn(session, 1), filled(2));
  EXPECT_EQ(watch.held_but_for({{"host", arena_bytes(plan)}}), "");
  session.stop();
  session = Session();
  EXPECT_EQ(watch.held_but_for({}), "");
}

TEST(SharedArenas, LoadingLeavesWhatRunsAlone) {
  Engine engine;
  Gate gate;
  const auto arenas = std::make_shared<SharedArenas>(engine);
  SessionOptions options = sharing(arenas);
  options.functions["gate"] = gate.function();
  Session a = Session::load(engine, pipeline({"add_one", "gate"}), {}, options);
  const StepHandle step = submit(a, filled(4));
  gate.wait_arrived(1);  // its input lies in the memory that the next session is given
  const Session b = Session::load(engine, pipeline({"twice", "twice"}), {}, sharing(arenas));
  gate.open();
  EXPECT_EQ(result(step), filled(5));
}

TEST(SharedArenas, StateBetweenStepsIsTheSessionsOwn) {
  Engine engine;
  const Plan plan = summing_plan();
  EXPECT_EQ(arenas_with_state(plan), std::vector<bool>{true});
  const auto arenas = std::make_shared<SharedArenas>(engine);
  Session other = Session::load(engine, pipeline({"add_one", "twice"}, 3), {}, sharing(arenas));
  const MemoryWatch watch(engine, plan.spaces);
  Session a = Session::load(engine, plan, {}, sharing(arenas)), b = Session::load(engine, plan, {}, sharing(arenas));
  EXPECT_EQ(watch.held_but_for({{"host", 2 * arena_bytes(plan)}}), "");
  EXPECT_EQ(a.memory().spaces[0].shared, 0u);
  float sum = 0;
  for (int i = 0; i < 10; ++i) {
    sum += static_cast<float>(i);
    EXPECT_EQ(turn(a, static_cast<float>(i)), filled(sum));
    EXPECT_EQ(turn(b, static_cast<float>(-i)), filled(-sum));
    turn(other, 100);
  }
}

TEST(SharedArenas, PeriodsOfSeveralStepsAreState) {
  Plans b("every second");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int feed = b.feed("feed"), pair = b.actor("pair"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", pair, {sink}, {.bytes = 16});
  b.edge(x, pair, 2, 1);
  b.call(pair, "copy", {b.r(x, 0), b.r(x, 1)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  Plan plan = b.build();
  EXPECT_EQ(arenas_with_state(plan), std::vector<bool>{true});
  plan.actors[feed].starts = 2;  // then the two tokens are of one step
  EXPECT_EQ(arenas_with_state(plan), std::vector<bool>{false});
}

TEST(SharedArenas, WhatFiresAheadOfAnyStepIsState) {
  Plans b("ahead");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int feed = b.feed("feed"), early = b.actor("early"), net = b.actor("net"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {net}, {.bytes = 16});
  const int next = b.reg("next", early, {net}, {.bytes = 16});
  const int y = b.reg("y", net, {sink}, {.bytes = 16});
  b.reg("again", net, {early}, {.initial_tokens = 1});
  b.call(early, "add_one", {}, {b.r(next)});
  b.call(net, "copy", {b.r(x), b.r(next)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  EXPECT_EQ(arenas_with_state(b.build()), std::vector<bool>{true});
}

TEST(SharedArenas, DevicesShareTheirsToo) {
  Engine engine;
  const Plan plan = device_plan("add_one");
  const auto arenas = std::make_shared<SharedArenas>(engine);
  const MemoryWatch watch(engine, plan.spaces);
  Session a = Session::load(engine, plan, {}, sharing(arenas));
  Session b = Session::load(engine, device_plan("twice"), {}, sharing(arenas));
  EXPECT_EQ(watch.held_but_for(ledger_bytes(plan, true, false)), "");
  for (int i = 0; i < 20; ++i) {
    const auto x = static_cast<float>(i);
    EXPECT_EQ(turn(a, x), filled(x + 1));
    EXPECT_EQ(turn(b, x), filled(2 * x));
  }
}

TEST(SharedArenas, RefusesMoreThanThereIs) {
  Engine engine;
  const Plan small = pipeline({"add_one"});
  Plan huge = pipeline({"add_one"}, 1);
  huge.arenas[0].bytes = uint64_t{1} << 55;
  const auto arenas = std::make_shared<SharedArenas>(engine);
  Session session = Session::load(engine, small, {}, sharing(arenas));
  const MemoryWatch watch(engine, small.spaces);
  EXPECT_THAT(error_of([&] { arenas->reserve(huge); }),
              testing::AllOf(testing::StartsWith("memory: plan 'pipeline': "), HasSubstr("; it needs "),
                             HasSubstr(" in all: arenas ")));
  EXPECT_EQ(watch.held_but_for({}), "");
  EXPECT_EQ(turn(session, 1), filled(2));
  EXPECT_EQ(turn(session = Session::load(engine, small, {}, sharing(arenas)), 2), filled(3));
}

}  // namespace
}  // namespace sluice::test
