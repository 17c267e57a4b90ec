// A run that is stepped one firing at a time: where it stops, what it shows, what it can change.
#include "runtime/debug/debugger.h"

#include <cmath>
#include <cstring>
#include <deque>
#include <limits>

#include "faults/random_plan.h"
#include "runtime/fixture.h"
#include "support/accelerator.h"

namespace sluice::test {
namespace {

// A session that is stepped, with its debugger. Each step gets `first`, `first` + 1, ... in all elements of all inputs.
struct Debugged {
  Debugged(const Plan& plan, const HostFunctions& functions, int steps, std::optional<uint64_t> seed = std::nullopt)
      : engine(EngineOptions{.cores = 1, .manual_stepping = true}),
        session(load(plan, functions)),
        debugger(engine, session, seed) {
    for (int i = 0; i < steps; ++i) {
      const int64_t n = numel(session.inputs()[0].type.shape);
      data.emplace_back(static_cast<size_t>(n), static_cast<float>(i));
      const InputTensor input{data.back().data(), PlanBuilder::f32({n})};
      debugger.submit(std::vector<InputTensor>(plan.inputs.size(), input), 1);
    }
  }
  Session load(const Plan& plan, const HostFunctions& functions) {
    VariableBindings variables;
    for (const Variable& v : plan.variables) variables[v.name] = variable(engine, 0);
    return Session::load(engine, plan, variables, {.functions = functions});
  }
  int reg(const std::string& name) const { return debugger.register_named(name); }
  int actor(const std::string& name) const { return debugger.actor_named(name); }
  uint64_t fired() const {
    uint64_t sum = 0;
    for (const ActorStats& a : session.stats().actors) sum += a.firings;
    return sum;
  }
  Floats look(const std::string& name) {
    const std::vector<std::byte> bytes = debugger.look(reg(name), debugger.newest_slot(reg(name)), 0);
    Floats floats(bytes.size() / sizeof(float));
    std::memcpy(floats.data(), bytes.data(), bytes.size());
    return floats;
  }
  void change(const std::string& name, const Floats& floats) {
    const TensorType type{DType::kFloat32, {static_cast<int64_t>(floats.size())}};
    debugger.change(reg(name), debugger.newest_slot(reg(name)), 0, type,
                    reinterpret_cast<const std::byte*>(floats.data()));
  }
  Floats result() const { return values(debugger.results()[0]); }

  std::deque<Floats> data;
  Engine engine;
  Session session;
  Debugger debugger;
};

Plan three(int streams = 2) { return pipeline({"add_one", "twice"}, 2, streams); }

// Gives a NaN for 1, and counts calls.
HostFunctions with_nan(int* read) {
  HostFunctions f = functions();
  f["add_one"] = elementwise([](float x) { return x == 1 ? std::numeric_limits<float>::quiet_NaN() : x + 1; });
  f["twice"] = [read](const KernelArgs& args, const std::vector<TensorSpec>& i, const std::vector<TensorSpec>& o) {
    ++*read;
    elementwise([](float x) { return 2 * x; })(args, i, o);
  };
  return f;
}

TEST(Debugger, StopsBeforeAnActorFiresInAStep) {  // C-13
  for (const int streams : {1, 2}) {
    Debugged d(three(streams), functions(), 3);
    const Breakpoint at = d.debugger.add({.actor = d.actor("s1"), .step = 1});
    const Stop stop = d.debugger.run();
    ASSERT_EQ(stop.reason, Stop::Reason::kBreakpoint);
    EXPECT_EQ(stop.at->number, at.number);
    EXPECT_EQ(stop.firing->actor, d.actor("s1"));
    EXPECT_EQ(stop.firing->step, 1u);
    EXPECT_EQ(firings(d.session, "s0"), 2u);
    EXPECT_EQ(firings(d.session, "s1"), 1u);
    EXPECT_EQ(d.look("r1"), filled(2));
    EXPECT_EQ(d.result(), filled(2));
    ASSERT_EQ(stop.finished.size(), 1u);
    const Stop end = d.debugger.run();
    EXPECT_EQ(end.reason, Stop::Reason::kEnd);
    EXPECT_EQ(stop.firings + end.firings, 12u);
    EXPECT_EQ(end.finished.size(), 2u);
    EXPECT_EQ(d.result(), filled(6));
    EXPECT_EQ(d.debugger.steps_left(), 0u);
  }
}

TEST(Debugger, StopsOnceBeforeAStep) {
  Debugged d(three(), functions(), 4);
  d.debugger.add({.step = 1});
  Stop stop = d.debugger.run();
  ASSERT_EQ(stop.reason, Stop::Reason::kBreakpoint);
  EXPECT_EQ(stop.firing->actor, d.actor("feed"));
  EXPECT_EQ(stop.firing->step, 1u);
  EXPECT_EQ(d.fired(), 4u);
  EXPECT_EQ(d.debugger.run().reason, Stop::Reason::kEnd);
}

TEST(Debugger, ANanStopsBeforeTheNextConsumerRuns) {  // C-13
  for (const std::optional<uint64_t> seed : {std::optional<uint64_t>(), std::optional<uint64_t>(3)}) {
    for (const int streams : {1, 2, 3}) {
      int read = 0;
      Debugged d(three(streams), with_nan(&read), 3, seed);
      d.debugger.add({.not_finite = true});
      const Stop stop = d.debugger.run();
      ASSERT_EQ(stop.reason, Stop::Reason::kNotFinite);
      EXPECT_EQ(stop.firing->actor, d.actor("s0"));
      EXPECT_EQ(stop.firing->step, 1u);
      EXPECT_EQ(stop.where->reg, d.reg("r1"));
      EXPECT_EQ(stop.where->found.element, 0);
      EXPECT_TRUE(std::isnan(stop.where->found.value));
      EXPECT_LE(read, 1) << "somebody has read the NaN";
      EXPECT_EQ(firings(d.session, "s1"), static_cast<uint64_t>(read));
      d.change("r1", {5, 6, 7, 8});
      EXPECT_EQ(d.debugger.run().reason, Stop::Reason::kEnd);
      EXPECT_EQ(read, 3);
      EXPECT_EQ(d.result(), filled(6));
    }
  }
}

TEST(Debugger, AChangedValueIsWhatReadersGet) {
  Debugged d(three(), functions(), 1);
  d.debugger.add({.actor = d.actor("s1")});
  d.debugger.run();
  d.change("r1", {1, 2, 3, 4});
  EXPECT_EQ(d.debugger.run().reason, Stop::Reason::kEnd);
  EXPECT_EQ(d.result(), Floats({2, 4, 6, 8}));
}

TEST(Debugger, AStepIsOneFiring) {  // C-13
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    RandomPlanOptions options;
    options.sources = false;
    options.min_actors = options.max_actors = 12;
    Debugged d(random_plan(seed, options), mixes(), 6, seed);
    uint64_t firings = d.fired();
    for (Stop stop = d.debugger.step(); stop.reason != Stop::Reason::kEnd; stop = d.debugger.step()) {
      ASSERT_EQ(d.fired(), ++firings) << "plan " << seed;
    }
    EXPECT_GT(firings, 12u);
  }
}

// Every output of every step.
std::vector<Floats> results(const Plan& plan, std::optional<uint64_t> seed) {
  Debugged d(plan, mixes(), 12, seed);
  std::vector<Floats> all;
  for (Stop stop = d.debugger.step(); stop.reason != Stop::Reason::kEnd; stop = d.debugger.step()) {
    for (const FinishedStep& step : stop.finished) {
      EXPECT_TRUE(step.status.ok()) << step.status.message();
      for (const OutputTensor& output : d.debugger.results()) all.push_back(values(output));
    }
  }
  d.session.stop();
  return all;
}

TEST(Debugger, ResultsAreThoseOfARunWithThreads) {
  for (uint64_t plan_seed = 1; plan_seed <= 6; ++plan_seed) {
    RandomPlanOptions options;
    options.rates = options.sources = false;
    options.device = plan_seed % 2 == 0;
    const Plan plan = random_plan(plan_seed, options);
    Engine engine(EngineOptions{.cores = 2});
    VariableBindings variables;
    for (const Variable& v : plan.variables) variables[v.name] = variable(engine, 0);
    Session session = Session::load(engine, plan, variables, {.functions = mixes()});
    std::vector<Floats> expected;
    for (int i = 0; i < 12; ++i) {
      const Floats x = filled(static_cast<float>(i));
      StepHandle step =
          session.submit(std::vector<InputTensor>(plan.inputs.size(), {x.data(), PlanBuilder::f32({kN})}));
      for (const OutputTensor& output : step.outputs()) expected.push_back(values(output));
    }
    EXPECT_EQ(results(plan, std::nullopt), expected) << "plan " << plan_seed;
    for (uint64_t seed = 0; seed < 5; ++seed) EXPECT_EQ(results(plan, seed), expected) << "plan " << plan_seed;
  }
}

TEST(Debugger, SaysWhoHasEachSlot) {
  Debugged d(three(), functions(), 3, 1);
  const int r1 = d.reg("r1"), s1 = d.actor("s1");
  EXPECT_FALSE(d.debugger.slots(r1)[0].used);
  d.debugger.add({.actor = s1});
  d.debugger.run();
  std::vector<SlotState> slots = d.debugger.slots(r1);
  ASSERT_EQ(slots.size(), 2u);
  ASSERT_TRUE(slots[0].written);
  ASSERT_EQ(slots[0].readers.size(), 1u);
  EXPECT_EQ(slots[0].readers[0].actor, s1);
  EXPECT_FALSE(slots[0].readers[0].taken);
  while (firings(d.session, "s1") == 0) d.debugger.step();
  slots = d.debugger.slots(r1);
  EXPECT_TRUE(!slots[0].used || slots[0].token == 2);
  const std::vector<ActorState> actors = d.debugger.actors();
  EXPECT_EQ(actors[s1].firings, 1u);
  EXPECT_EQ(actors[s1].next.step, 1u);
}

TEST(Debugger, AHeldSlotIsHeld) {
  Plans b("held");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", net, {}, {.quota = 1, .bytes = 16});
  b.edge(y, sink, 1, 1);
  b.plan.edges[b.edge_of(x, net)].hold = 2;
  b.call(net, "copy", {b.r(x)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  Debugged d(b.build(), functions(), 1);
  while (firings(d.session, "net") == 0) ASSERT_EQ(d.debugger.step().reason, Stop::Reason::kStepped);
  const std::vector<SlotState> slots = d.debugger.slots(x);
  ASSERT_TRUE(slots[0].used);
  ASSERT_EQ(slots[0].readers.size(), 1u);
  EXPECT_TRUE(slots[0].readers[0].taken);
  EXPECT_FALSE(slots[1].used);
}

TEST(Debugger, StopsAtAMicroBatch) {  // C-13
  Plans b("micro");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  b.plan.actors[feed].starts = 4;
  const int x = b.reg("x", feed, {net}, {.quota = 4, .bytes = 16});
  const int y = b.reg("y", net, {sink}, {.quota = 1, .bytes = 16, .emit_every = 4});
  b.call(net, "copy", {b.r(x)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  Debugged d(b.build(), functions(), 2);
  d.debugger.add({.actor = net, .step = 1, .nth = 2});
  const Stop stop = d.debugger.run();
  ASSERT_EQ(stop.reason, Stop::Reason::kBreakpoint);
  EXPECT_EQ(stop.firing->nth, 2u);
  EXPECT_EQ(stop.firing->of, 4u);
  EXPECT_EQ(firings(d.session, "net"), 6u);
  EXPECT_TRUE(d.debugger.slots(y)[0].used);
  EXPECT_FALSE(d.debugger.slots(y)[0].written);
  EXPECT_THAT(error_of([&] { d.debugger.look(y, 0, 0); }), HasSubstr("is being written"));
  EXPECT_THAT(error_of([&] { d.debugger.add({.actor = net, .nth = 4}); }), HasSubstr("fires 4 times in a step"));
  EXPECT_THAT(error_of([&] { d.debugger.add({.actor = sink, .nth = 1}); }), HasSubstr("fires once in a step"));
  EXPECT_EQ(d.debugger.run().reason, Stop::Reason::kEnd);
}

TEST(Debugger, ValuesOnADeviceAreSeenAndChanged) {
  int read = 0;
  HostFunctions f = with_nan(&read);
  Debugged d(device_plan("add_one", accelerator().str()), f, 3);
  d.debugger.add({.not_finite = true, .reg = d.reg("dy")});
  const Stop stop = d.debugger.run();
  ASSERT_EQ(stop.reason, Stop::Reason::kNotFinite);
  EXPECT_EQ(stop.firing->step, 1u);
  EXPECT_TRUE(std::isnan(d.look("dy")[3]));
  d.change("dy", {1, 2, 3, 4});
  d.debugger.add({.actor = d.actor("sink"), .step = 2});
  const Stop last = d.debugger.run();
  ASSERT_EQ(last.reason, Stop::Reason::kBreakpoint);
  EXPECT_EQ(d.result(), Floats({1, 2, 3, 4}));
  EXPECT_EQ(d.debugger.run().reason, Stop::Reason::kEnd);
  EXPECT_EQ(d.result(), filled(3));
}

TEST(Debugger, InPlaceIsSaid) {
  Plans b("in place");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int feed = b.feed("feed"), up = b.actor("up"), down = b.actor("down"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {up}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", up, {down}, {.quota = 2, .bytes = 16, .in_place_of = b.edge_of(x, up)});
  const int z = b.reg("z", down, {sink}, {.quota = 2, .bytes = 16});
  b.call(up, "twice", {b.r(x)}, {b.r(y)});
  b.call(down, "add_one", {b.r(y)}, {b.r(z)});
  b.input("x", x, b.f32({kN}));
  b.output("z", b.r(z));
  Debugged d(b.build(), functions(), 2);
  d.debugger.add({.actor = down, .step = 1});
  ASSERT_EQ(d.debugger.run().reason, Stop::Reason::kBreakpoint);
  const std::vector<SlotState> slots = d.debugger.slots(x);
  EXPECT_FALSE(slots[0].used);
  ASSERT_TRUE(slots[1].used);
  EXPECT_TRUE(slots[1].readers.empty());
  EXPECT_EQ(slots[1].in_place, std::vector<int>{y});
  EXPECT_EQ(d.debugger.run().reason, Stop::Reason::kEnd);
  EXPECT_EQ(d.result(), filled(3));
}

TEST(Debugger, AStepThatFailsIsTold) {
  HostFunctions f = functions();
  f["picky"] = failing(1);
  Debugged d(pipeline({"picky", "twice"}, 2, 2), f, 3);
  const Stop stop = d.debugger.run();
  EXPECT_EQ(stop.reason, Stop::Reason::kEnd);
  ASSERT_EQ(stop.finished.size(), 3u);
  EXPECT_TRUE(stop.finished[0].status.ok());
  EXPECT_THAT(stop.finished[1].status.message(), HasSubstr("picky: 1 is not accepted"));
  EXPECT_TRUE(stop.finished[2].status.ok());
  EXPECT_EQ(d.result(), filled(4));
}

TEST(Debugger, ASourceWhoseDataEndsLeavesStepsUndone) {
  Plans b("source");
  b.stream("cpu:0", StreamKind::kHost, 0);
  b.stream("cpu:0", StreamKind::kHost, 1);
  const int source = b.source("source", 0), net = b.actor("net", 1), sink = b.sink("sink", 1);
  const int x = b.reg("x", source, {net}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16});
  b.call(source, "three", {}, {b.r(x)});
  b.call(net, "twice", {b.r(x)}, {b.r(y)});
  b.output("y", b.r(y));
  HostFunctions f = functions();
  int given = 0;
  f["three"] = [&given](const KernelArgs& args, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) {
    if (given == 3) fail(ErrorKind::kEndOfData, "three: no more");
    std::fill_n(static_cast<float*>(args.outputs[0]), kN, static_cast<float>(given++));
  };
  Engine engine(EngineOptions{.cores = 1, .manual_stepping = true});
  Session session = Session::load(engine, b.build(), {}, {.functions = f});
  Debugger debugger(engine, session);
  debugger.submit({}, 10);
  const Stop stop = debugger.run();
  EXPECT_EQ(stop.reason, Stop::Reason::kEnd);
  EXPECT_GT(debugger.steps_left(), 0u);
  EXPECT_EQ(values(debugger.results()[0]), filled(4));
  EXPECT_EQ(settled_firings(session, "sink", 3), 3u);
}

TEST(Debugger, IsLeftInTheMiddleOfARun) {
  for (int firings = 0; firings < 12; ++firings) {
    Debugged d(three(3), functions(), 3, 7);
    for (int i = 0; i < firings; ++i) d.debugger.step();
    d.session.stop();
    for (const RegisterStats& reg : d.session.stats().registers) EXPECT_EQ(reg.used, 0) << reg.name;
  }
}

TEST(Debugger, RefusesWhatThePlanDoesNotHave) {
  Debugged d(three(), functions(), 1);
  EXPECT_THAT(error_of([&] { d.debugger.actor_named("net"); }),
              HasSubstr("there is no actor 'net'; the actors are feed, s0, s1, sink"));
  EXPECT_THAT(error_of([&] { d.debugger.register_named("h"); }), HasSubstr("there is no register 'h'"));
  EXPECT_THAT(error_of([&] { d.debugger.remove(1); }), HasSubstr("there is no breakpoint 1"));
  EXPECT_THAT(error_of([&] { d.debugger.add({.actor = 9}); }), HasSubstr("must be the plan's"));
  EXPECT_THAT(error_of([&] { d.debugger.newest_slot(0); }), HasSubstr("has no value now"));
  EXPECT_THAT(error_of([&] { d.debugger.look(0, 2, 0); }), HasSubstr("slot 2 of register 'r0'; it has 2"));
  EXPECT_THAT(error_of([&] { d.debugger.look(0, 1, 0); }), HasSubstr("slot 1 of register 'r0' is free"));
  EXPECT_THAT(error_of([&] { d.debugger.look(0, 0, 1); }), HasSubstr("part 1 of register 'r0'; it has 1"));
  EXPECT_THAT(error_of([&] { d.debugger.submit({}, 1); }), HasSubstr("got 0 inputs; plan 'pipeline' takes 1"));
  d.debugger.step();
  EXPECT_THAT(error_of([&] {
                d.change("r0", {1, 2, 3});
              }),
              HasSubstr("register 'r0': got float32(3,); its value is float32(4,)"));
  Engine threads(EngineOptions{.cores = 1});
  Session session = Session::load(threads, three(), {}, {.functions = functions()});
  EXPECT_THAT(error_of([&] { Debugger(threads, session); }), HasSubstr("must be made with manual_stepping"));
}

}  // namespace
}  // namespace sluice::test
