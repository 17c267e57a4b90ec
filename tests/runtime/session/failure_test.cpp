// Failures stay in their step; ending is bounded and returns everything.
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <thread>

#include "runtime/fixture.h"
#include "support/accelerator.h"

namespace sluice::test {
namespace {

HostFunctions with_picky() {
  HostFunctions f = functions();
  f["picky"] = failing(3);
  return f;
}

TEST(Failure, StaysInItsStep) {
  Engine engine({.cores = 2});
  for (const int streams : {1, 3}) {
    Session session =
        load_counted(engine, pipeline({"copy", "picky", "add_one"}, 2, streams), {}, {.functions = with_picky()});
    std::vector<StepHandle> steps;
    for (int i = 0; i < 8; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
    for (int i = 0; i < 8; ++i) {
      if (i != 3) {
        EXPECT_EQ(result(steps[i]), filled(static_cast<float>(i + 1)));
        continue;
      }
      EXPECT_EQ(
          error_of([&] { result(steps[i]); }),
          "value: picky: 3 is not accepted; give another  (net.py:11, kernel 's1/host_function' (host_function) of "
          "actor 's1', step 3)");
    }
    EXPECT_EQ(session.stats().failed, 1u);
    session.wait_all();
    session.stop();
    for (const ActorStats& actor : session.stats().actors) EXPECT_EQ(actor.firings, 8u) << actor.name;
  }
}

TEST(Failure, SaysWhatWasUpdatedAndDoesNotSpreadThroughFeedback) {
  Engine engine({.cores = 2});
  const auto w = variable(engine, 0), v = variable(engine, 0);
  Session session = load_counted(engine, updating_plan("picky"), {{"w", w}, {"v", v}}, {.functions = with_picky()});
  EXPECT_EQ(
      error_of([&] { result(submit(session, filled(3))); }),
      "value: picky: 3 is not accepted; give another  (net.py:11, kernel 'net/host_function_1' (host_function) of "
      "actor 'net', step 0)  (already updated: w)");
  EXPECT_EQ(result(submit(session, filled(4))), filled(4));
  v->before_read();
  EXPECT_EQ(static_cast<float*>(w->data())[0], 2);
  EXPECT_EQ(static_cast<float*>(v->data())[0], 1);
}

// host -> device -> host, as a compiler places it. `also`, if given, runs after `op` in the same program.
Plan on_device(const std::string& op, const std::string& also = "") {
  Plans b("device");
  const int host = b.stream("cpu:0", StreamKind::kHost), in = b.stream(accelerator().str(), StreamKind::kCopyIn);
  const int compute = b.stream(accelerator().str(), StreamKind::kCompute),
            out = b.stream(accelerator().str(), StreamKind::kCopyOut);
  const int device = b.space(SpaceKind::kDevice, accelerator().str());
  const int feed = b.feed("feed", host), up = b.actor("up", in), net = b.actor("net", compute),
            net2 = b.actor("net2", compute);
  const int down = b.actor("down", out), sink = b.sink("sink", host);
  const int x = b.reg("x", feed, {up}, {.quota = 2, .bytes = 16});
  const int dx = b.reg("dx", up, {net}, {.quota = 2, .bytes = 16, .space = device});
  const int dm = b.reg("dm", net, {net2}, {.quota = 2, .bytes = 16, .space = device});
  const int dy = b.reg("dy", net2, {down}, {.quota = 2, .bytes = 16, .space = device});
  const int y = b.reg("y", down, {sink}, {.quota = 2, .bytes = 16});
  b.reg("order", net2, {net}, {.quota = 1, .initial_tokens = 1});
  b.run(up, "copy", {b.r(x)}, {b.r(dx)});
  b.call(net, op, {b.r(dx)}, {b.r(dm)});
  if (!also.empty()) {
    const int dz = b.reg("dz", net, {net2}, {.quota = 2, .bytes = 16, .space = device});
    b.call(net, also, {b.r(dx)}, {b.r(dz)});
  }
  b.call(net2, "add_one", {b.r(dm)}, {b.r(dy)});
  b.run(down, "copy", {b.r(dy)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

TEST(Failure, SurfacingLateOnADeviceTakesTheSamePath) {
  Engine engine({.cores = 2});
  Session session = load_counted(engine, on_device("picky"), {}, {.functions = with_picky()});
  std::vector<StepHandle> steps;
  for (int i = 0; i < 20; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
  for (int i = 0; i < 20; ++i) {
    if (i != 3) {
      EXPECT_EQ(result(steps[i]), filled(static_cast<float>(i + 1)));
      continue;
    }
    const std::string error = error_of([&] { result(steps[i]); });
    EXPECT_THAT(error, HasSubstr("picky: 3 is not accepted"));
    EXPECT_THAT(error, HasSubstr("net.py:11"));
    EXPECT_THAT(error, HasSubstr("actor 'net'"));
  }
}

TEST(Failure, WithASyncCheckTheKernelThatFailsIsTheLastOneThatRuns) {  // ACT-18
  Engine engine({.cores = 2});
  std::atomic<int> seen{0};
  HostFunctions f = with_picky();
  f["seen"] = [&](const KernelArgs& args, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) {
    ++seen;
    std::memcpy(args.outputs[0], args.inputs[0], 16);
  };
  Session session = load_counted(engine, on_device("picky", "seen"), {}, {.functions = f, .sync_check = true});
  constexpr int kSteps = 8;
  for (int i = 0; i < kSteps; ++i) {
    const StepHandle step = submit(session, filled(static_cast<float>(i)));
    if (i != 3) {
      EXPECT_EQ(result(step), filled(static_cast<float>(i + 1)));
      continue;
    }
    EXPECT_THAT(error_of([&] { result(step); }),
                AllOf(HasSubstr("picky: 3 is not accepted"), HasSubstr("kernel 'net/host_function' (host_function)")));
    EXPECT_EQ(seen, 3);
  }
  EXPECT_EQ(seen, kSteps - 1);
}

TEST(Failure, NumericsAreCheckedAndDumped) {
  Engine engine;
  const std::string dir = ::testing::TempDir();
  HostFunctions f = functions();
  f["log"] = elementwise([](float x) { return std::log(x); });
  Session session = load_counted(engine, pipeline({"copy", "log", "add_one"}), {},
                                 {.functions = f, .check_numerics = true, .dump_dir = dir});
  EXPECT_EQ(result(submit(session, filled(1))), filled(1));
  const std::string error = error_of([&] { result(submit(session, {1, 1, 0, 1})); });
  EXPECT_THAT(error, HasSubstr("host_function: output 0 is not finite: element 2 of float32(4,) is -inf"));
  EXPECT_THAT(error, HasSubstr("kernel 's1/host_function'"));
  EXPECT_THAT(error, HasSubstr("step 1"));
  const std::string path = dir + "/s1_host_function.0.step1.bin";
  EXPECT_THAT(error, HasSubstr(path));
  EXPECT_EQ(std::filesystem::file_size(path), 16u);
  EXPECT_EQ(result(submit(session, filled(1))), filled(1));
}

TEST(Failure, OfLoadingNamesTheFunctionOfAnyKernelThatCallsOne) {
  Engine engine;
  engine.kernels().add(
      DeviceKind::kCpu,
      {.op = "ask", .prepare = engine.kernels().get("host_function", DeviceKind::kCpu).prepare, .function = "callee"});
  Plan plan = pipeline({"copy"});
  plan.kernels[0].op = "ask";
  plan.kernels[0].attrs = {{"callee", std::string("unknown")}, {"name", std::string("copy")}};
  EXPECT_THAT(error_of([&] { load_counted(engine, plan, {}, {.functions = functions()}); }),
              HasSubstr("runs host function 'unknown', which this program has not"));
  plan.kernels[0].attrs[0].second = std::string("copy");
  Session session = load_counted(engine, plan, {}, {.functions = functions()});
  EXPECT_EQ(result(submit(session, filled(1))), filled(1));
}

TEST(Failure, OfLoadingNamesTheCauseAndLeavesNothing) {
  Engine engine;
  const uint64_t before = engine.allocator_stats({}).current_bytes;
  EXPECT_EQ(
      error_of([&] {
        load_counted(engine, pipeline({"copy", "unknown"}), {}, {.functions = functions()});
      }),
      "unsupported: plan 'pipeline': net.py:11, kernel 's1/host_function' of actor 's1' runs host function 'unknown', "
      "which this program has not; pass it in SessionOptions::functions");
  EXPECT_THAT(error_of([&] { load_counted(engine, updating_plan("picky"), {}, {.functions = with_picky()}); }),
              HasSubstr("variable 'w' is not bound; it needs 16 bytes in host"));
  EXPECT_THAT(error_of([&] {
                const auto tiny = std::make_shared<Storage>(engine.allocator({}), 4);
                load_counted(engine, updating_plan("picky"), {{"w", tiny}, {"v", tiny}}, {.functions = with_picky()});
              }),
              HasSubstr("variable 'w': bound to 4 bytes; it needs 16"));
  Plan plan = pipeline({"copy"});
  plan.kernels[0].op = "no_such_op";
  EXPECT_THAT(error_of([&] { load_counted(engine, plan); }), HasSubstr("no_such_op: no kernel on cpu"));
  plan.registers[0].quota = 0;
  EXPECT_THAT(error_of([&] { load_counted(engine, plan); }), HasSubstr("quota"));
  EXPECT_EQ(engine.allocator_stats({}).current_bytes, before);
}

TEST(Ending, CancelsStepsInFlight) {
  Engine engine({.cores = 2});
  for (const int streams : {1, 3}) {
    Gate gate;
    HostFunctions f = functions();
    f["gate"] = gate.function();
    Session session = load_counted(engine, pipeline({"gate", "add_one"}, 3, streams), {}, {.functions = f});
    std::vector<StepHandle> steps;
    for (int i = 0; i < 3; ++i) steps.push_back(submit(session, filled(0)));
    gate.wait_arrived(1);
    std::thread stopper([&] { session.stop(); });
    // Once a submission is refused, kernels are skipped.
    const Floats x = filled(0);
    const InputTensor input{x.data(), PlanBuilder::f32({kN})};
    while (error_of([&] { session.try_submit({&input, 1}); }) == "no error") std::this_thread::yield();
    gate.open();
    stopper.join();
    session.stop();  // again: nothing
    EXPECT_EQ(error_of([&] { result(steps[2]); }), "cancelled: step 2: cancelled: the session was stopped");
    EXPECT_THAT(error_of([&] { submit(session, filled(0)); }), HasSubstr("session 'pipeline' was stopped"));
    EXPECT_EQ(session.stats().finished, 3u);
  }
}

TEST(Ending, DestroyingWithStepsInFlight) {
  std::vector<StepHandle> steps;
  {
    Engine engine({.cores = 2});
    for (int round = 0; round < 20; ++round) {
      Session session = load_counted(engine, pipeline({"copy", "add_one"}, 4, 3), {}, {.functions = functions()});
      for (int i = 0; i < 4; ++i) steps.push_back(submit(session, filled(1)));
    }
    Session device = load_counted(engine, on_device("copy"), {}, {.functions = functions()});
    for (int i = 0; i < 4; ++i) steps.push_back(submit(device, filled(1)));
  }
  for (StepHandle& step : steps) EXPECT_TRUE(step.done());
}

TEST(Ending, AnEngineMayGoBeforeItsSessions) {
  auto engine = std::make_unique<Engine>();
  Session session = load_counted(*engine, pipeline({"copy"}, 2), {}, {.functions = functions()});
  StepHandle step = submit(session, filled(1));
  engine.reset();
  EXPECT_TRUE(step.done());
  EXPECT_THAT(error_of([&] { submit(session, filled(0)); }), HasSubstr("was stopped"));
}

}  // namespace
}  // namespace sluice::test
