// Measures what a call costs from submit() to its result. Bounds are generous, since cores are shared; figures are
// printed.
#include <cstring>

#include "runtime/fixture.h"
#include "streams/cores.h"
#include "support/soak.h"

namespace sluice::test {
namespace {

using Clock = std::chrono::steady_clock;

int64_t median_ns(int n, const std::function<void()>& call) {
  std::vector<int64_t> took;
  for (int i = 0; i < n; ++i) {
    const auto begin = Clock::now();
    call();
    took.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count());
  }
  std::nth_element(took.begin(), took.begin() + n / 2, took.end());
  return took[static_cast<size_t>(n / 2)];
}

// The best of some rounds: others may have had the cores in one.
int64_t best_median_ns(int rounds, int n, const std::function<void()>& call) {
  int64_t best = INT64_MAX;
  for (int r = 0; r < rounds; ++r) best = std::min(best, median_ns(n, call));
  return best;
}

TEST(Latency, EchoOfThreeActors) {  // RAY-01
  for (const bool zero_copy : {false, true}) {
    Engine engine({.cores = 2});
    SessionOptions options{.functions = functions()};
    options.zero_copy = zero_copy;
    Session session = Session::load(engine, pipeline({"copy"}), {}, std::move(options));
    const Floats x = filled(3);
    const InputTensor input{x.data(), PlanBuilder::f32({kN})};
    const int64_t ns = best_median_ns(5, 2000, [&] {
      StepHandle step = session.submit({&input, 1});
      ASSERT_EQ(static_cast<const float*>(step.outputs()[0].storage->data())[0], 3.0f);
    });
    report_count(zero_copy ? "echo in process, zero_copy: median" : "echo in process: median", ns, "ns");
    EXPECT_LT(ns, 1'000'000);
  }
}

// An ack to an actor that has nothing to work on is counted by who brings it: its stream is woken once a step.
TEST(Latency, NobodyIsWokenForWhatLetsNothingFire) {
  constexpr uint64_t kSteps = 500;
  EngineOptions engine_options;
  engine_options.cores = 2;
  engine_options.spin = Spin::kNever;
  Engine engine(engine_options);
  Plans b("acks");
  const int one = b.stream("cpu:0", StreamKind::kHost, 0), two = b.stream("cpu:0", StreamKind::kHost, 1);
  const int feed = b.feed("feed", one), from = b.actor("from", one), to = b.actor("to", two),
            sink = b.sink("sink", two);
  const int x = b.reg("x", feed, {from}, {.quota = 2, .bytes = kN * 4});
  const int y = b.reg("y", from, {to}, {.quota = 2, .bytes = kN * 4});
  const int z = b.reg("z", to, {sink}, {.quota = 2, .bytes = kN * 4});
  b.call(from, "copy", {b.r(x)}, {b.r(y)});
  b.call(to, "add_one", {b.r(y)}, {b.r(z)});
  b.input("x", x, b.f32({kN}));
  b.output("z", b.r(z));
  SessionOptions options;
  options.functions = functions();
  Session session = Session::load(engine, b.build(), {}, std::move(options));
  const uint64_t before = session.stats().streams[0].parks;
  for (uint64_t i = 0; i < kSteps; ++i) ASSERT_EQ(result(submit(session, filled(3))), filled(4));
  session.wait_all();
  EXPECT_LT(session.stats().streams[0].parks - before, kSteps * 3 / 2);
}

TEST(Latency, NobodySpinsWhereItMayNot) {
  EngineOptions options;
  EXPECT_EQ(Engine(options).spins(), machine_cores() > 1);
  options.spin = Spin::kNever;
  EXPECT_FALSE(Engine(options).spins());
  options.spin = Spin::kAlways;
  for (int cpu = 0; options.cpus.empty(); ++cpu) {
    if (may_run_on(cpu)) options.cpus = {cpu};
  }
  EXPECT_FALSE(Engine(options).spins());
}

// 64 MiB in, through one kernel that copies, and out: two copies less than without.
TEST(Latency, LargeTensorsAreNotCopiedAtThePorts) {
  constexpr int64_t kFloats = 16 << 20, kRows = 1;
  const uint64_t bytes = kFloats * 4;
  Engine engine({.cores = 2});
  const auto make = [&] {
    Plans b("large");
    b.stream("cpu:0", StreamKind::kHost, 0);
    const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
    const int x = b.reg("x", feed, {net}, {.quota = 1, .bytes = bytes});
    const int y = b.reg("y", net, {sink}, {.quota = 1, .bytes = bytes});
    b.run(net, "host_function", {b.of_reg(x, {kRows, kFloats})}, {b.of_reg(y, {kRows, kFloats})}, 0, b.named("move"));
    b.input("x", x, b.f32({kRows, kFloats}));
    b.output("y", b.of_reg(y, {kRows, kFloats}));
    return b.build();
  };
  HostFunctions f;
  f["move"] = [bytes](const KernelArgs& args, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) {
    std::memcpy(args.outputs[0], args.inputs[0], bytes);
  };
  const auto in = std::make_shared<Storage>(make_host_allocator(), bytes);
  const auto out = std::make_shared<Storage>(make_host_allocator(), bytes);
  std::memset(in->data(), 0, bytes);
  std::memset(out->data(), 0, bytes);
  int64_t copying = 0, exchanging = 0;
  const int64_t memcpy_ns = median_ns(5, [&] { std::memcpy(out->data(), in->data(), bytes); });
  for (const bool zero_copy : {false, true}) {
    SessionOptions options{.functions = f};
    options.zero_copy = zero_copy;
    Session session = Session::load(engine, make(), {}, std::move(options));
    const InputTensor input{in->data(), PlanBuilder::f32({kRows, kFloats}), in};
    const auto call = [&] { session.submit({&input, 1}).outputs(); };
    for (int i = 0; i < 4; ++i) call();
    (zero_copy ? exchanging : copying) = median_ns(7, call);
    EXPECT_EQ(session.stats().input_copies + session.stats().output_copies, zero_copy ? 0u : 22u);
  }
  report_count("64 MiB in and out with zero_copy, of two memcpys", exchanging * 100 / (2 * memcpy_ns), "%");
  report_count("64 MiB in and out, of two memcpys", copying * 100 / (2 * memcpy_ns), "%");
  EXPECT_LT(exchanging, copying);
}

}  // namespace
}  // namespace sluice::test
