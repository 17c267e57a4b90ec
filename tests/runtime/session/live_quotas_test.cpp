// Quotas of a plan that runs grow and shrink: as fast as forecast, nothing lost, nothing that could block.
#include <atomic>
#include <deque>
#include <random>

#include "actors/stream_executor.h"
#include "faults/random_plan.h"
#include "plan/time/simulator.h"
#include "runtime/fixture.h"
#include "streams/sim/sim_stream.h"

namespace sluice::test {
namespace {

// The time that a kernel takes on the clock of the device sim.
double sim_ns(int operands) { return 1000 + operands * 16 / 10; }

// first -> second and third, which also reads what second makes: a slot of 'p' is in use for three stages.
Plan three_stages(int quota) {
  Plans b("stages");
  const int host = b.stream("cpu:0", StreamKind::kHost), in = b.stream("sim:0", StreamKind::kCopyIn);
  const int s0 = b.stream("sim:0", StreamKind::kCompute, 0), s1 = b.stream("sim:0", StreamKind::kCompute, 1);
  const int s2 = b.stream("sim:0", StreamKind::kCompute, 2), back = b.stream("sim:0", StreamKind::kCopyOut);
  const int device = b.space(SpaceKind::kDevice, "sim:0");
  const int feed = b.feed("feed", host), up = b.actor("up", in), first = b.actor("first", s0);
  const int second = b.actor("second", s1), third = b.actor("third", s2), down = b.actor("down", back);
  const int sink = b.sink("sink", host);
  const RegOptions on_device{.quota = 4, .bytes = 16, .space = device};
  const int x = b.reg("x", feed, {up}, {.quota = 4, .bytes = 16});
  const int dx = b.reg("dx", up, {first}, on_device);
  const int p = b.reg("p", first, {second, third}, {.quota = quota, .bytes = 16, .space = device});
  const int q = b.reg("q", second, {third}, on_device);
  const int dy = b.reg("dy", third, {down}, on_device);
  const int y = b.reg("y", down, {sink}, {.quota = 4, .bytes = 16});
  b.run(up, "copy", {b.r(x)}, {b.r(dx)}, sim_ns(2));
  b.call(first, "twice", {b.r(dx)}, {b.r(p)});
  b.call(second, "add_one", {b.r(p)}, {b.r(q)});
  b.call(third, "copy", {b.r(p), b.r(q)}, {b.r(dy)});
  b.run(down, "copy", {b.r(dy)}, {b.r(y)}, sim_ns(2));
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  for (plan::Kernel& k : b.plan.kernels) k.cost_ns = sim_ns(static_cast<int>(k.inputs.size() + k.outputs.size()));
  return b.build();
}

TEST(LiveQuotas, AThirdSlotIsAsFastAsForecastInVirtualTime) {  // C-14
  Engine engine(EngineOptions{.cores = 2});
  const Plan plan = three_stages(3);
  Session session = Session::load(engine, plan, {}, {.functions = functions()});
  auto& third = dynamic_cast<SimStream&>(engine.executors(plan.streams)[4]->stream());
  float next = 0;
  const auto period_ns = [&] {
    constexpr int kSteps = 400;
    const int64_t begin = third.clock_ns();
    std::deque<StepHandle> steps;
    std::deque<Floats> inputs;
    for (int i = 0; i < kSteps; ++i) {
      inputs.push_back(filled(next++));
      steps.push_back(submit(session, inputs.back()));
    }
    for (int i = 0; i < kSteps; ++i) EXPECT_EQ(result(steps[i]), filled(4 * inputs[i][0] + 1));
    session.wait_all();
    return static_cast<double>(third.clock_ns() - begin) / kSteps;
  };
  const auto forecast_ns = [](int quota) { return plan::simulate(three_stages(quota), {.steps = 100}).period_ns; };
  ASSERT_GT(forecast_ns(2), 1.4 * forecast_ns(3));
  for (const int quota : {2, 3, 1, 3, 2}) {
    session.set_quota("p", quota);
    EXPECT_NEAR(period_ns() / forecast_ns(quota), 1, 0.02) << quota << " slots";
  }
}

TEST(LiveQuotas, NoItemIsLostOrComesTwice) {  // C-14
  constexpr uint64_t kItems = 100'000, kAtOnce = 500;
  Plans b("items");
  for (int s = 0; s < 3; ++s) b.stream("cpu:0", StreamKind::kHost, s);
  const int source = b.source("source", 0), stage = b.actor("stage", 1), sink = b.sink("sink", 2);
  const int check = b.actor("check", 2);
  const int x = b.reg("x", source, {stage}, {.quota = 3, .bytes = 16});
  const int y = b.reg("y", stage, {check}, {.quota = 4, .bytes = 16});
  const int z = b.reg("z", check, {sink}, {.quota = 2, .bytes = 16});
  b.call(source, "ids", {}, {b.r(x)});
  b.call(stage, "copy", {b.r(x)}, {b.r(y)});
  b.call(check, "check", {b.r(y)}, {b.r(z)});
  b.output("z", b.r(z));
  HostFunctions f = functions();
  uint64_t made = 0, seen = 0;
  std::atomic<uint64_t> wrong{0};
  f["ids"] = [&made](const KernelArgs& args, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) {
    std::fill_n(static_cast<float*>(args.outputs[0]), kN, static_cast<float>(++made));
  };
  f["check"] = [&](const KernelArgs& args, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) {
    const auto* ids = static_cast<const float*>(args.inputs[0]);
    ++seen;
    for (int i = 0; i < kN; ++i) wrong += static_cast<uint64_t>(ids[i]) != seen ? 1 : 0;
    std::fill_n(static_cast<float*>(args.outputs[0]), kN, 0.0f);
  };
  Engine engine(EngineOptions{.cores = 2});
  Session session = Session::load(engine, b.build(), {}, {.functions = f});
  for (uint64_t i = 0; i < kItems / kAtOnce; ++i) {
    session.start(kAtOnce);
    session.set_quota("x", 1 + static_cast<int>(i % 3));
    session.set_quota("y", 1 + static_cast<int>(i / 3 % 4));
  }
  session.wait_all();
  EXPECT_EQ(made, kItems);
  EXPECT_EQ(seen, kItems);
  EXPECT_EQ(wrong, 0u);
  const SessionStats stats = session.stats();
  EXPECT_EQ(stats.registers[0].quota, 1 + static_cast<int>((kItems / kAtOnce - 1) % 3));
  EXPECT_LE(stats.registers[0].peak, 3);
}

TEST(LiveQuotas, ASmallerQuotaHoldsTheProducerBack) {
  Gate gate;
  HostFunctions f = functions();
  f["gate"] = gate.function();
  Engine engine(EngineOptions{.cores = 2});
  Session session =
      Session::load(engine, pipeline({"add_one", "gate"}, 3, 3), {}, {.functions = f, .max_in_flight = 8});
  session.set_quota("r1", 2);
  std::vector<StepHandle> steps;
  for (int i = 0; i < 6; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
  gate.wait_arrived(1);
  EXPECT_EQ(settled_firings(session, "s0", 2), 2u);
  session.set_quota("r1", 3);
  EXPECT_EQ(settled_firings(session, "s0", 3), 3u);
  session.set_quota("r1", 1);
  gate.open();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(result(steps[i]), filled(static_cast<float>(i + 1)));
  session.wait_all();
  EXPECT_EQ(session.stats().registers[1].used, 0);
}

// Every output of every step, while quotas change after every few messages.
std::vector<Floats> results(const Plan& plan, uint64_t seed, bool changes) {
  Engine engine(EngineOptions{.cores = 1, .manual_stepping = true, .seed = seed});
  VariableBindings variables;
  for (const Variable& v : plan.variables) variables[v.name] = variable(engine, 0);
  Session session = Session::load(engine, plan, variables, {.functions = mixes()});
  std::mt19937_64 random(seed);
  const auto change = [&] {
    const Register& reg = plan.registers[random() % plan.registers.size()];
    // A change that is refused, for a reason of the plan, changes nothing.
    static_cast<void>(error_of([&] { session.set_quota(reg.name, 1 + static_cast<int>(random() % reg.quota)); }));
  };
  std::vector<Floats> all;
  std::vector<StepHandle> steps;
  for (int i = 0; i < 12; ++i) {
    const Floats x = filled(static_cast<float>(i));
    steps.push_back(session.submit(std::vector<InputTensor>(plan.inputs.size(), {x.data(), PlanBuilder::f32({kN})})));
    for (int k = 0; changes && k < 10; ++k) {
      for (uint64_t n = random() % 8; n > 0; --n) engine.step();
      change();
    }
  }
  for (StepHandle& step : steps)
    for (const OutputTensor& output : step.outputs()) all.push_back(values(output));
  session.wait_all();
  session.stop();
  return all;
}

TEST(LiveQuotas, ResultsStayTheSameInRandomPlans) {
  for (uint64_t plan_seed = 1; plan_seed <= 8; ++plan_seed) {
    RandomPlanOptions options;
    options.rates = options.sources = false;
    options.device = plan_seed % 2 == 0;
    const Plan plan = random_plan(plan_seed, options);
    const std::vector<Floats> expected = results(plan, 0, false);
    for (uint64_t seed = 1; seed <= 10; ++seed)
      ASSERT_EQ(results(plan, seed, true), expected) << "plan " << plan_seed << ", seed " << seed;
  }
}

TEST(LiveQuotas, StayAfterAReset) {
  Engine engine(EngineOptions{.cores = 1, .manual_stepping = true});
  Session session = Session::load(engine, pipeline({"add_one"}, 3), {}, {.functions = functions()});
  session.set_quota("r1", 2);
  session.reset();
  EXPECT_EQ(session.stats().registers[1].quota, 2);
  EXPECT_EQ(result(submit(session, filled(1))), filled(2));
}

TEST(LiveQuotas, RefusesWhatIsNotProven) {
  Engine engine(EngineOptions{.cores = 1, .manual_stepping = true});
  Session session = Session::load(engine, pipeline({"add_one", "twice"}, 3), {}, {.functions = functions()});
  EXPECT_THAT(error_of([&] { session.set_quota("h", 2); }), HasSubstr("there is no register 'h'"));
  EXPECT_THAT(error_of([&] { session.set_quota("r1", 4); }), HasSubstr("4 slots; it has memory for 3"));
  EXPECT_THAT(error_of([&] { session.set_quota("r1", 0); }), HasSubstr("0 slots; its rates need at least 1"));
  EXPECT_THAT(error_of([&] { session.set_quota("r0", 2); }), HasSubstr("'r0' is an input"));
  // Two ways of different length from 'fork' to 'join': one slot of the short way blocks the plan.
  Plans b("fork");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int feed = b.feed("feed"), fork = b.actor("fork"), batch = b.actor("batch"), join = b.sink("join");
  const int x = b.reg("x", feed, {fork}, {.quota = 2, .bytes = 16});
  const int shorter = b.reg("shorter", fork, {}, {.quota = 2, .bytes = 16});
  const int longer = b.reg("longer", fork, {batch}, {.quota = 2, .bytes = 16});
  const int batched = b.reg("batched", batch, {}, {.quota = 1, .bytes = 16, .emit_every = 2});
  b.edge(shorter, join, 1, 1);
  b.edge(batched, join, 1, 2);
  b.call(fork, "copy", {b.r(x)}, {b.r(shorter), b.r(longer)});
  b.call(batch, "copy", {b.r(longer)}, {b.r(batched)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(shorter));
  Session forked = Session::load(engine, b.build(), {}, {.functions = functions()});
  EXPECT_THAT(error_of([&] { forked.set_quota("shorter", 1); }), HasSubstr("set_quota: register 'shorter': 1 slots: "));
  forked.set_quota("longer", 1);
  session.stop();
  EXPECT_THAT(error_of([&] { session.set_quota("r1", 2); }), HasSubstr("it has ended"));
}

}  // namespace
}  // namespace sluice::test
