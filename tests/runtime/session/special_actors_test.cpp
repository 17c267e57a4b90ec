// Special actors of other dataflow runtimes, as plans say them here: registers, rates and initial tokens in their
// place. ACT-14; docs/coming-from-oneflow.md has the table.
#include "plan/time/simulator.h"
#include "plan/verify.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

// Loads a plan that verify() accepts.
Session load(Engine& engine, const Plan& plan, const VariableBindings& variables = {}, SessionOptions options = {}) {
  const plan::VerifyReport report = plan::verify(plan);
  EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.problems[0].text);
  for (const auto& [name, function] : functions()) options.functions.emplace(name, function);
  return Session::load(engine, plan, variables, options);
}

// Ends the session after `steps` steps: every actor has fired as often as in the simulator.
void expect_as_simulated(Session& session, int steps) {
  session.wait_all();
  session.stop();
  const Plan& plan = session.plan();
  const plan::Simulation simulation = plan::simulate(plan, {.steps = steps});
  EXPECT_FALSE(simulation.deadlocked) << simulation.blocked;
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    const auto n = std::count_if(simulation.firings.begin(), simulation.firings.end(),
                                 [&](const plan::SimFiring& f) { return f.actor == static_cast<int>(a); });
    EXPECT_EQ(firings(session, plan.actors[a].name), static_cast<uint64_t>(n)) << plan.actors[a].name;
  }
}

// Streams 0 and 1, "feed" and "sink" on the first.
struct Tiny : Plans {
  explicit Tiny(const std::string& name) : Plans(name) {
    stream("cpu:0", StreamKind::kHost, 0);
    stream("cpu:0", StreamKind::kHost, 1);
  }
  // Elements from the `row`th row on.
  static View row(int reg, int rows) { return of_reg(reg, {rows, kN}); }
};

float* floats(const std::shared_ptr<Storage>& storage) { return static_cast<float*>(storage->data()); }

TEST(SpecialActors, SourceTick) {  // a source whose register has no bytes
  Engine engine;
  Tiny b("source_tick");
  const int tick = b.source("tick", 0), work = b.actor("work", 1), sink = b.sink("sink", 0);
  b.plan.actors[tick].starts = 3;
  b.reg("ticks", tick, {work}, {.quota = 2});
  const int w = b.variable("w", {kN});
  b.reg("done", work, {sink}, {.quota = 2, .emit_every = 3});
  b.call(work, "add_one", {b.v(w)}, {b.v(w)});
  const auto count = variable(engine, 0);
  Session session = load(engine, b.build(), {{"w", count}});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(session.submit({}).wait().ok());
  EXPECT_EQ(floats(count)[0], 15);
  expect_as_simulated(session, 5);
}

TEST(SpecialActors, Tick) {  // an actor without kernels: all it does is to wait for two others
  Engine engine;
  Tiny b("tick");
  const int feed = b.feed("feed"), left = b.actor("left", 0), right = b.actor("right", 1), join = b.actor("join", 0);
  const int sink = b.sink("sink");
  const int x = b.reg("x", feed, {left, right}, {.quota = 2, .bytes = 16});
  const int v = b.variable("v", {kN}), w = b.variable("w", {kN});
  b.reg("left_done", left, {join}, {.quota = 2});
  b.reg("right_done", right, {join}, {.quota = 2});
  b.reg("both", join, {sink}, {.quota = 2});
  b.call(left, "copy", {b.r(x), b.v(v)}, {b.v(v)});
  b.call(right, "copy", {b.r(x), b.v(w)}, {b.v(w)});
  b.input("x", x, b.f32({kN}));
  const auto l = variable(engine, 0), r = variable(engine, 0);
  Session session = load(engine, b.build(), {{"v", l}, {"w", r}});
  for (int i = 1; i <= 10; ++i) {
    EXPECT_TRUE(submit(session, filled(1)).wait().ok());
    EXPECT_EQ(floats(l)[0], static_cast<float>(i));
    EXPECT_EQ(floats(r)[0], static_cast<float>(i));
  }
  expect_as_simulated(session, 10);
}

// x4 repeat, /4 accumulate: the input's token is kept for four firings, whose results become one token.
Plan repeat_accumulate(int repeat, int accumulate) {
  Tiny b("repeat");
  const int feed = b.feed("feed"), body = b.actor("body", 1), sink = b.sink("sink");
  const int x = b.reg("x", feed, {}, {.quota = 2, .bytes = 16});
  b.edge(x, body, 1, repeat);
  const int sum = b.reg("sum", body, {sink}, {.quota = 2, .bytes = 16, .emit_every = accumulate});
  b.run(body, "accumulate", {b.r(x)}, {b.r(sum)});
  b.input("x", x, b.f32({kN}));
  b.output("sum", b.r(sum));
  return b.build();
}

TEST(SpecialActors, RepeatAndAcc) {  // ACT-14
  Engine engine;
  Session session = load(engine, repeat_accumulate(4, 4));
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(result(submit(session, filled(static_cast<float>(i)))), filled(4 * static_cast<float>(i)));
  expect_as_simulated(session, 10);
  EXPECT_EQ(firings(session, "body"), 40u);
}

TEST(SpecialActors, RatesThatDoNotBalanceAreRefused) {  // ACT-14
  const plan::VerifyReport report = plan::verify(repeat_accumulate(4, 3));
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.problems[0].text,
            "sink 'sink' fires 4 times in 3 steps; it must fire equally often in each, or at most once per step");
  // Two ways from one actor to another that disagree on how often it fires.
  Tiny b("two_ways");
  const int feed = b.feed("feed"), body = b.actor("body"), sink = b.sink("sink");
  b.edge(b.reg("x", feed, {}, {.quota = 4}), body, 1, 4);
  b.reg("y", feed, {body}, {.quota = 4});
  b.reg("done", body, {sink});
  const plan::VerifyReport ways = plan::verify(b.build(false));
  ASSERT_FALSE(ways.ok());
  EXPECT_EQ(ways.problems[0].concern, "rates");
  EXPECT_THAT(ways.problems[0].text, HasSubstr("inconsistent: "));
}

TEST(SpecialActors, AccTick) {  // one token without bytes for every four
  Engine engine;
  Tiny b("acc_tick");
  const int feed = b.feed("feed"), each = b.actor("each", 1), last = b.actor("last", 1), sink = b.sink("sink");
  b.plan.actors[feed].starts = 4;
  const int x = b.reg("x", feed, {each}, {.quota = 8, .bytes = 16});
  const int w = b.variable("w", {kN});
  b.reg("fourth", each, {last}, {.quota = 1, .emit_every = 4});
  // The reader of the sum is waited for, before the next is added.
  b.edge(b.reg("read", last, {}, {.quota = 1, .initial_tokens = 1}), each, 1, 4);
  const int y = b.reg("y", last, {sink}, {.quota = 2, .bytes = 16});
  b.call(each, "copy", {b.r(x), b.v(w)}, {b.v(w)});
  b.call(last, "copy", {b.v(w)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  Session session = load(engine, b.build(), {{"w", variable(engine, 0)}});
  for (int i = 1; i <= 10; ++i)
    EXPECT_EQ(result(submit(session, Floats(4 * kN, 1))), filled(4 * static_cast<float>(i)));
  expect_as_simulated(session, 10);
}

TEST(SpecialActors, PackAndUnpack) {  // one token of four rows, a firing for each of them, four tokens at once again
  Engine engine;
  Tiny b("pack");
  const int feed = b.feed("feed"), unpack = b.actor("unpack", 1), pack = b.actor("pack", 0), sink = b.sink("sink");
  const int x = b.reg("x", feed, {}, {.quota = 2, .bytes = 64});
  b.edge(x, unpack, 1, 4);
  const int at = b.variable("at", {kN});  // rows so far
  const int row = b.reg("row", unpack, {}, {.quota = 8, .bytes = 16});
  b.edge(row, pack, 4, 1);
  const int y = b.reg("y", pack, {sink}, {.quota = 2, .bytes = 64});
  b.call(unpack, "row", {b.row(x, 4), b.v(at)}, {b.r(row)});
  b.call(unpack, "add_one", {b.v(at)}, {b.v(at)});
  std::vector<View> parts;
  for (int i = 0; i < 4; ++i) parts.push_back(b.of_reg(row, {1, kN}, i));
  b.run(pack, "concat", parts, {b.row(y, 4)}, 0, {{"dim", int64_t{0}}});
  b.input("x", x, b.f32({4, kN}));
  b.output("y", b.row(y, 4));
  SessionOptions options;
  options.functions["row"] = [](const KernelArgs& args, const std::vector<TensorSpec>&,
                                const std::vector<TensorSpec>&) {
    const auto which = static_cast<int64_t>(static_cast<const float*>(args.inputs[1])[0]) % 4;
    std::copy_n(static_cast<const float*>(args.inputs[0]) + which * kN, kN, static_cast<float*>(args.outputs[0]));
  };
  Session session = load(engine, b.build(), {{"at", variable(engine, 0)}}, options);
  for (int step = 0; step < 10; ++step) {
    Floats rows(4 * kN);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(100 * step + static_cast<int>(i));
    const InputTensor input{rows.data(), PlanBuilder::f32({4, kN})};
    EXPECT_EQ(result(session.submit({&input, 1})), rows);
  }
  expect_as_simulated(session, 10);
  EXPECT_EQ(firings(session, "unpack"), 40u);
}

TEST(SpecialActors, Lock) {  // a token that goes round: who has it works, the others wait, in a fixed order
  Engine engine;
  Tiny b("lock");
  const int feed = b.feed("feed"), one = b.actor("one", 0), other = b.actor("other", 1), sink = b.sink("sink");
  const int x = b.reg("x", feed, {one, other}, {.quota = 4, .bytes = 16});
  b.reg("to_one", other, {one}, {.quota = 1, .initial_tokens = 1});
  b.reg("to_other", one, {other}, {.quota = 1});
  const int y = b.reg("y", one, {sink}, {.quota = 4, .bytes = 16}),
            z = b.reg("z", other, {sink}, {.quota = 4, .bytes = 16});
  b.call(one, "locked", {b.r(x)}, {b.r(y)});
  b.call(other, "locked", {b.r(x)}, {b.r(z)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  b.output("z", b.r(z));
  std::atomic<int> inside{0}, most{0};
  SessionOptions options;
  options.functions["locked"] = [&](const KernelArgs& args, const std::vector<TensorSpec>& in,
                                    const std::vector<TensorSpec>& out) {
    most = std::max(most.load(), ++inside);
    std::this_thread::yield();
    elementwise([](float v) { return v; })(args, in, out);
    --inside;
  };
  Session session = load(engine, b.build(), {}, options);
  std::vector<StepHandle> steps;
  for (int i = 0; i < 200; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(result(steps[i]), filled(static_cast<float>(i)));
  EXPECT_EQ(most, 1);
  expect_as_simulated(session, 200);
}

// A lock that whoever has it may take again: an edge that keeps the token for three firings, so that the second and
// third go on without asking; nobody else works in between.
TEST(SpecialActors, ReentrantLock) {  // ACT-07
  constexpr int kTimes = 3;
  Engine engine;
  Tiny b("reentrant");
  const int feed = b.feed("feed"), one = b.actor("one", 0), other = b.actor("other", 1), sink = b.sink("sink");
  b.plan.actors[feed].starts = kTimes;
  const int x = b.reg("x", feed, {one, other}, {.quota = 4 * kTimes, .bytes = 16});
  b.edge(b.reg("to_one", other, {}, {.quota = 1, .emit_every = kTimes, .initial_tokens = 1}), one, 1, kTimes);
  b.edge(b.reg("to_other", one, {}, {.quota = 1, .emit_every = kTimes}), other, 1, kTimes);
  b.reg("one_done", one, {sink}, {.quota = 2, .emit_every = kTimes});
  b.reg("other_done", other, {sink}, {.quota = 2, .emit_every = kTimes});
  const int v = b.variable("v", {kN}), w = b.variable("w", {kN});
  b.call(one, "one", {b.r(x), b.v(v)}, {b.v(v)});
  b.call(other, "other", {b.r(x), b.v(w)}, {b.v(w)});
  b.input("x", x, b.f32({kN}));
  std::atomic<int> inside{0}, most{0};
  std::string order;  // written by who has the lock
  const auto locked = [&](char who) -> HostFunction {
    return [&, who](const KernelArgs& args, const std::vector<TensorSpec>& in, const std::vector<TensorSpec>& out) {
      most = std::max(most.load(), ++inside);
      order += who;
      std::this_thread::yield();
      elementwise([](float x) { return x; })(args, in, out);
      --inside;
    };
  };
  SessionOptions options;
  options.functions["one"] = locked('1');
  options.functions["other"] = locked('2');
  Session session = load(engine, b.build(), {{"v", variable(engine, 0)}, {"w", variable(engine, 0)}}, options);
  std::string expected;
  for (int i = 0; i < 50; ++i) {
    submit(session, Floats(kTimes * kN, 1));
    expected += std::string(kTimes, '1') + std::string(kTimes, '2');
  }
  expect_as_simulated(session, 50);
  EXPECT_EQ(most, 1);
  EXPECT_EQ(order, expected);
}

TEST(SpecialActors, WaitAndSendIds) {  // a source that waits until somebody outside has something for it
  Engine engine;
  Tiny b("ids");
  const int wait = b.source("wait", 1), sink = b.sink("sink", 0);
  const int ids = b.reg("ids", wait, {sink}, {.quota = 2, .bytes = 16});
  b.call(wait, "next", {}, {b.r(ids)});
  b.output("ids", b.r(ids));
  std::mutex mutex;
  std::condition_variable more;
  std::vector<float> queue;
  SessionOptions options;
  options.functions["next"] = [&](const KernelArgs& args, const std::vector<TensorSpec>&,
                                  const std::vector<TensorSpec>&) {
    std::unique_lock lock(mutex);
    if (!more.wait_for(lock, std::chrono::seconds(20), [&] { return !queue.empty(); }))
      fail(ErrorKind::kTimeout, "next: no id within 20 s");
    std::fill_n(static_cast<float*>(args.outputs[0]), kN, queue.front());
    queue.erase(queue.begin());
  };
  Session session = load(engine, b.build(), {}, options);
  std::vector<StepHandle> steps{session.submit({}), session.submit({})};
  for (const float id : {7.0F, 3.0F, 5.0F, 1.0F}) {
    EXPECT_FALSE(steps[0].done());
    {
      const std::lock_guard lock(mutex);
      queue.push_back(id);
    }
    more.notify_one();
    EXPECT_EQ(result(steps[0]), filled(id));
    steps = {steps[1], session.submit({})};
  }
  {
    const std::lock_guard lock(mutex);
    queue = {1, 2};
  }
  more.notify_all();
  expect_as_simulated(session, 6);
}

TEST(SpecialActors, CallbackNotify) {  // the sink tells the caller, in order
  Engine engine;
  std::vector<float> told;  // written by the sink's stream, read once it has ended
  SessionOptions options;
  options.on_output = [&](uint64_t step, const Status& status, const std::vector<OutputTensor>& outputs) {
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(step, told.size());
    told.push_back(values(outputs[0])[0]);
  };
  Session session = load(engine, pipeline({"add_one"}, 2, 2), {}, options);
  for (int i = 0; i < 20; ++i) submit(session, filled(static_cast<float>(i)));
  expect_as_simulated(session, 20);
  ASSERT_EQ(told.size(), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(told[i], static_cast<float>(i + 1));
}

TEST(SpecialActors, SspVariableProxy) {  // readers may be so many updates behind as there are initial tokens
  constexpr int kStale = 3, kSteps = 20;
  Engine engine;
  Tiny b("stale");
  const int feed = b.feed("feed", 0), read = b.actor("read", 0), update = b.actor("update", 1),
            sink = b.sink("sink", 0);
  const int x = b.reg("x", feed, {read}, {.quota = 2, .bytes = 16});
  const int weights = b.reg("weights", update, {read}, {.quota = kStale + 1, .bytes = 16, .initial_tokens = kStale});
  const int gradient = b.reg("gradient", read, {update}, {.quota = kStale, .bytes = 16});
  const int seen = b.reg("seen", read, {sink}, {.quota = 2, .bytes = 16});
  const int w = b.variable("w", {kN});
  b.call(read, "copy", {b.r(weights)}, {b.r(seen)});
  b.call(read, "copy", {b.r(x)}, {b.r(gradient)});
  b.call(update, "copy", {b.v(w), b.r(gradient)}, {b.v(w)});
  b.call(update, "copy", {b.v(w)}, {b.r(weights)});
  b.input("x", x, b.f32({kN}));
  b.output("seen", b.r(seen));
  Session session = load(engine, b.build(), {{"w", variable(engine, 0)}});
  for (int i = 0; i < kSteps; ++i)
    EXPECT_EQ(result(submit(session, filled(1))), filled(static_cast<float>(std::max(0, i + 1 - kStale))));
  expect_as_simulated(session, kSteps);
}

}  // namespace
}  // namespace sluice::test
