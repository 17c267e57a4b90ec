// Results do not depend on the order in which messages arrive: manual stepping tries many. And a plan in which they
// do, because two of its kernels share state behind the runtime's back, is found out.
#include <set>

#include "faults/random_plan.h"
#include "runtime/fixture.h"
#include "support/accelerator.h"

namespace sluice::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOrders = 20;
#else
constexpr int kOrders = 1000;
#endif
constexpr int kOrderedSteps = 6;

struct Case {
  std::string name;
  Plan plan;
};

// Two branches of different length, feedback and a sum: any wrong order would show.
Plan branching() {
  Plans b("branching");
  for (int s = 0; s < 3; ++s) b.stream("cpu:0", StreamKind::kHost, s);
  const int feed = b.feed("feed", 0), left = b.actor("left", 1), right = b.actor("right", 2), more = b.actor("more", 1);
  const int join = b.actor("join", 0), sink = b.sink("sink", 2);
  const int x = b.reg("x", feed, {left, right}, {.quota = 2, .bytes = 16});
  const int l = b.reg("l", left, {join}, {.quota = 1, .bytes = 16});
  const int r = b.reg("r", right, {more}, {.quota = 2, .bytes = 16});
  const int m = b.reg("m", more, {join}, {.quota = 1, .bytes = 16});
  const int state = b.reg("state", join, {join}, {.quota = 2, .bytes = 16, .initial_tokens = 1});
  const int y = b.reg("y", join, {sink}, {.quota = 2, .bytes = 16});
  b.call(left, "count_left", {b.r(x)}, {b.r(l)});
  b.call(right, "count_right", {b.r(x)}, {b.r(r)});
  b.call(more, "tenth", {b.r(r)}, {b.r(m)});
  b.call(join, "third", {b.r(l), b.r(m), b.r(state)}, {b.r(y), b.r(state)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

// Tokens taken three at a time, overlapping streams.
Plan batching() {
  Plans b("batching");
  for (int s = 0; s < 2; ++s) b.stream("cpu:0", StreamKind::kHost, s);
  const int feed = b.feed("feed", 0), sum = b.actor("sum", 1), sink = b.sink("sink", 0);
  const int x = b.reg("x", feed, {}, {.quota = 6, .bytes = 16});
  const int y = b.reg("y", sum, {sink}, {.quota = 2, .bytes = 16});
  b.edge(x, sum, 3, 1);
  b.call(sum, "third", {b.r(x, 0), b.r(x, 1), b.r(x, 2)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

// A variable every step updates on one stream and reads on another, ordered by control registers.
Plan updating() {
  Plans b("updating");
  for (int s = 0; s < 3; ++s) b.stream("cpu:0", StreamKind::kHost, s);
  const int feed = b.feed("feed", 0), update = b.actor("update", 1), use = b.actor("use", 2), sink = b.sink("sink", 0);
  const int w = b.variable("w", {kN});
  const int x = b.reg("x", feed, {update, use}, {.quota = 3, .bytes = 16});
  const int y = b.reg("y", use, {sink}, {.quota = 2, .bytes = 16});
  b.reg("updated", update, {use}, {.quota = 1});
  b.reg("used", use, {update}, {.quota = 1, .initial_tokens = 1});
  b.call(update, "third", {b.v(w), b.r(x)}, {b.v(w)});
  b.call(use, "tenth", {b.v(w), b.r(x)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

Plan in_place() {
  Plans b("in place");
  for (int s = 0; s < 2; ++s) b.stream("cpu:0", StreamKind::kHost, s);
  const int feed = b.feed("feed", 0), up = b.actor("up", 1), down = b.actor("down", 0), sink = b.sink("sink", 1);
  const int x = b.reg("x", feed, {up}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", up, {down}, {.quota = 2, .bytes = 16, .in_place_of = b.edge_of(x, up)});
  const int z = b.reg("z", down, {sink}, {.quota = 2, .bytes = 16});
  b.call(up, "tenth", {b.r(x)}, {b.r(y)});
  b.call(down, "third", {b.r(y)}, {b.r(z)});
  b.input("x", x, b.f32({kN}));
  b.output("z", b.r(z));
  return b.build();
}

// A copy to a device that completes late, a kernel there, a copy back.
Plan device() {
  Plans b("device");
  const int host = b.stream("cpu:0", StreamKind::kHost), in = b.stream(accelerator().str(), StreamKind::kCopyIn);
  const int compute = b.stream(accelerator().str(), StreamKind::kCompute),
            out = b.stream(accelerator().str(), StreamKind::kCopyOut);
  const int memory = b.space(SpaceKind::kDevice, accelerator().str());
  const int feed = b.feed("feed", host), up = b.actor("up", in), net = b.actor("net", compute);
  const int down = b.actor("down", out), sink = b.sink("sink", host);
  const int x = b.reg("x", feed, {up}, {.quota = 2, .bytes = 16});
  const int dx = b.reg("dx", up, {net}, {.quota = 2, .bytes = 16, .space = memory});
  const int dy = b.reg("dy", net, {down}, {.quota = 1, .bytes = 16, .space = memory});
  const int y = b.reg("y", down, {sink}, {.quota = 2, .bytes = 16});
  b.run(up, "copy", {b.r(x)}, {b.r(dx)});
  b.call(net, "third", {b.r(dx)}, {b.r(dy)});
  b.run(down, "copy", {b.r(dy)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

std::vector<Case> cases() {
  std::vector<Case> all = {{"pipeline", pipeline({"third", "tenth", "third"}, 2, 3)},
                           {"branching", branching()},
                           {"batching", batching()},
                           {"updating", updating()},
                           {"in_place", in_place()},
                           {"device", device()}};
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    RandomPlanOptions options;
    options.min_actors = options.max_actors = 12;
    options.rates = false;
    all.push_back({"random" + std::to_string(seed), random_plan(seed, options)});
  }
  return all;
}

HostFunctions pure() {
  HostFunctions f = mixes();
  f["third"] = elementwise([](float x) { return x / 3 + 0.7f; });
  f["tenth"] = elementwise([](float x) { return x * 0.1f - 0.3f; });
  f["count_left"] = elementwise([](float x) { return x + 1; });
  f["count_right"] = elementwise([](float x) { return 2 * x; });
  return f;
}

// Every output of every step, in one vector.
Floats run(const Plan& plan, const HostFunctions& f, const EngineOptions& options) {
  Engine engine(options);
  VariableBindings variables;
  for (const Variable& v : plan.variables) variables[v.name] = variable(engine, 0);
  Session session = load_counted(engine, plan, variables, {.functions = f});
  std::vector<StepHandle> steps;
  Floats all;
  for (int i = 0; i < kOrderedSteps; ++i) {
    const Floats x = filled(static_cast<float>(i) + 0.1f);
    const std::vector<InputTensor> inputs(plan.inputs.size(), {x.data(), PlanBuilder::f32({kN})});
    steps.push_back(session.submit(inputs));
  }
  for (StepHandle& step : steps) {
    for (const OutputTensor& output : step.outputs()) {
      const Floats x = values(output);
      all.insert(all.end(), x.begin(), x.end());
    }
  }
  session.wait_all();
  session.stop();
  for (const ActorStats& actor : session.stats().actors) {
    const uint64_t steps_taken = plan.name == "batching" && actor.name != "feed" ? kOrderedSteps / 3 : kOrderedSteps;
    EXPECT_EQ(actor.firings, steps_taken) << actor.name;
  }
  return all;
}

class EveryOrder : public ::testing::TestWithParam<Case> {};

TEST_P(EveryOrder, GivesTheSameBits) {
  const Plan& plan = GetParam().plan;
  const Floats expected = run(plan, pure(), {.cores = 2});  // real threads
  for (int seed = 0; seed < kOrders; ++seed) {
    const EngineOptions manual{.cores = 1, .manual_stepping = true, .seed = static_cast<uint64_t>(seed)};
    ASSERT_EQ(run(plan, pure(), manual), expected) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, EveryOrder, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(SharedState, BehindTheRuntimesBackIsFound) {
  std::set<Floats> results;
  for (int seed = 0; seed < 20; ++seed) {
    HostFunctions f = pure();
    // Both branches draw numbers from one counter, and no edge orders them.
    int counter = 0;
    f["count_left"] = f["count_right"] = [&counter](const KernelArgs& args, const std::vector<TensorSpec>&,
                                                    const std::vector<TensorSpec>&) {
      ++counter;
      std::fill_n(static_cast<float*>(args.outputs[0]), kN, static_cast<float>(counter));
    };
    // A difference that a sum cannot hide.
    f["tenth"] = elementwise([](float x) { return 10 * x; });
    results.insert(run(branching(), f, {.cores = 1, .manual_stepping = true, .seed = static_cast<uint64_t>(seed)}));
  }
  EXPECT_GT(results.size(), 1u);
}

TEST(SharedState, ASeedReplaysItsOrder) {
  const auto order = [](uint64_t seed) {
    std::string log;
    HostFunctions f = pure();
    for (const char* name : {"count_left", "count_right", "tenth", "third"}) {
      f[name] = [&log, name](const KernelArgs& args, const std::vector<TensorSpec>&, const std::vector<TensorSpec>& o) {
        log += std::string(name) + " ";
        for (size_t k = 0; k < o.size(); ++k) std::fill_n(static_cast<float*>(args.outputs[k]), kN, 0.0f);
      };
    }
    run(branching(), f, {.cores = 1, .manual_stepping = true, .seed = seed});
    return log;
  };
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(order(seed), order(seed)) << "seed " << seed;
    orders.insert(order(seed));
  }
  EXPECT_GT(orders.size(), 10u);
}

}  // namespace
}  // namespace sluice::test
