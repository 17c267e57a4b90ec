// Kernels that follow each other on a CUDA stream are launched as one; nothing else is to be seen of it.
#include <gmock/gmock.h>

#include <algorithm>

#include "cuda/fake_driver/fake_driver.h"
#include "runtime/fixture.h"
#include "support/fake_cuda.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kStages = 5;

HostFunctions stages(float bad = -1) {
  HostFunctions f = functions();
  f["stage"] = failing(bad, 1);
  return f;
}

// x, copied to the GPU, goes through "add_one", "stage" (add_one that may fail) and more, and back. A variable counts
// the steps in the midst of it.
Plan chain_plan(int quota, bool cut = false, int out_quota = 0) {
  Plans b("chain");
  const int host = b.stream("cpu:0", StreamKind::kHost), in = b.stream("cuda:0", StreamKind::kCopyIn);
  const int compute = b.stream("cuda:0", StreamKind::kCompute), out = b.stream("cuda:0", StreamKind::kCopyOut);
  const int device = b.space(SpaceKind::kDevice, "cuda:0");
  const int feed = b.feed("feed", host), up = b.actor("up", in), net = b.actor("net", compute);
  const int down = b.actor("down", out), sink = b.sink("sink", host);
  const int x = b.reg("x", feed, {up}, {.quota = quota, .bytes = 16});
  const int dx = b.reg("dx", up, {net}, {.quota = quota, .bytes = 16, .space = device});
  const int dy = b.reg("dy", net, {down}, {.quota = out_quota != 0 ? out_quota : quota, .bytes = 16, .space = device});
  const int y = b.reg("y", down, {sink}, {.quota = quota, .bytes = 16});
  b.reg("order", net, {net}, {.quota = 2, .initial_tokens = 1});
  const View t = PlanBuilder::of_buffer(b.buffer("t", 16, device), {kN});
  b.run(up, "copy", {b.r(x)}, {b.r(dx)});
  b.call(net, "add_one", {b.r(dx)}, {t});
  b.call(net, "stage", {t}, {t});
  if (cut) b.release(net, dx);
  b.call(net, "twice", {t}, {t});
  b.call(net, "add_one", {t}, {t});
  b.call(net, "twice", {t}, {b.r(dy)});
  b.run(down, "copy", {b.r(dy)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}
float expected(int i) { return ((static_cast<float>(i) + 2) * 2 + 1) * 2; }

class CudaChains : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(fake_cuda::counts().graphs, 0u);
    EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
  }
  // The launches of each step, run one by one.
  static std::vector<uint64_t> launches(Session& session, int steps) {
    std::vector<uint64_t> all;
    for (int i = 0; i < steps; ++i) {
      const uint64_t before = fake_cuda::counts().launches;
      EXPECT_EQ(result(submit(session, filled(static_cast<float>(i)))), filled(expected(i)));
      all.push_back(fake_cuda::counts().launches - before);
    }
    return all;
  }
};

TEST_F(CudaChains, LaunchesPerStepFallToOne) {
  for (int quota = 1; quota <= 3; ++quota) {
    SCOPED_TRACE(quota);
    Engine engine({.cores = 2});
    Session session = load_counted(engine, chain_plan(quota), {}, {.functions = stages()});
    Session plain = load_counted(engine, chain_plan(quota), {}, {.functions = stages(), .cuda_graphs = false});
    const std::vector<uint64_t> with = launches(session, 9), without = launches(plain, 9);
    // The first firing with each slot loads what the kernels need.
    for (int i = 0; i < 9; ++i)
      EXPECT_EQ(without[i] - with[i], static_cast<uint64_t>(i < quota ? 0 : kStages - 1)) << i;
  }
}

TEST_F(CudaChains, AMessageInBetweenCutsThem) {
  Engine engine({.cores = 2});
  Session session = load_counted(engine, chain_plan(2, true), {}, {.functions = stages()});
  Session plain = load_counted(engine, chain_plan(2, true), {}, {.functions = stages(), .cuda_graphs = false});
  EXPECT_EQ(launches(plain, 4).back() - launches(session, 4).back(), static_cast<uint64_t>(kStages - 2));
}

// The chain of chain_plan(1) in a branch, which is taken where `i` is 0.
Plan chain_in_a_branch() {
  Plans b("branch");
  const int host = b.stream("cpu:0", StreamKind::kHost), in = b.stream("cuda:0", StreamKind::kCopyIn);
  const int compute = b.stream("cuda:0", StreamKind::kCompute), out = b.stream("cuda:0", StreamKind::kCopyOut);
  const int device = b.space(SpaceKind::kDevice, "cuda:0");
  const int feed = b.feed("feed", host), choose = b.actor("choose", host), up = b.actor("up", in);
  const int net = b.actor("net", compute), down = b.actor("down", out), meet = b.actor("meet", host);
  const int sink = b.sink("sink", host);
  const int x = b.reg("x", feed, {choose}, {.bytes = 16}), i = b.reg("i", feed, {choose, meet}, {.bytes = 8});
  const int l = b.reg("l", choose, {up}, {.bytes = 16}), r = b.reg("r", choose, {meet}, {.bytes = 16});
  const int dx = b.reg("dx", up, {net}, {.bytes = 16, .space = device});
  const int dy = b.reg("dy", net, {down}, {.bytes = 16, .space = device});
  const int lm = b.reg("lm", down, {meet}, {.bytes = 16}), y = b.reg("y", meet, {sink}, {.bytes = 16});
  const View t = PlanBuilder::of_buffer(b.buffer("t", 16, device), {kN});
  const View index{BaseKind::kRegister, i, 0, 0, TensorSpec::contiguous({DType::kInt64, {}})};
  b.run(choose, "case", {index, b.r(x)}, {b.r(l), b.r(r)}, 0, {{"n", int64_t{2}}});
  b.run(up, "copy", {b.r(l)}, {b.r(dx)});
  b.call(net, "add_one", {b.r(dx)}, {t});
  b.call(net, "stage", {t}, {t});
  b.call(net, "twice", {t}, {b.r(dy)});
  b.run(down, "copy", {b.r(dy)}, {b.r(lm)});
  b.run(meet, "esac", {index, b.r(lm), b.r(r)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.input("i", i, TensorSpec::contiguous({DType::kInt64, {}}));
  b.output("y", b.r(y));
  return b.build();
}

TEST_F(CudaChains, InABranchNotTakenNothingIsLaunchedAndLaterTheyAreOneAgain) {
  Engine engine({.cores = 2});
  Session session = load_counted(engine, chain_in_a_branch(), {}, {.functions = stages()});
  const auto launched = [&](int64_t i, float y) {
    const uint64_t before = fake_cuda::counts().launches;
    const Floats x = filled(3);
    const InputTensor inputs[] = {{x.data(), PlanBuilder::f32({kN})},
                                  {&i, TensorSpec::contiguous({DType::kInt64, {}})}};
    EXPECT_EQ(result(session.submit(inputs)), filled(y));
    session.wait_all();  // a firing may launch something after its last token, which has answered the step
    return fake_cuda::counts().launches - before;
  };
  for (int warm = 0; warm < 4; ++warm) launched(0, 10);
  const uint64_t one = launched(0, 10);
  // The check for a firing's failure, which follows it, is launched with the next one.
  for (int round = 0; round < 3; ++round) {
    const uint64_t left = launched(1, 3);
    EXPECT_EQ(launched(1, 3), 0u);
    EXPECT_EQ(left + launched(0, 10), one);
  }
}

// A graph per combination of slots, made when it comes for the second time, and used from then on.
TEST_F(CudaChains, ThereAreAsManyGraphsAsSlots) {
  for (int quota = 1; quota <= 3; ++quota) {
    Engine engine({.cores = 2});
    Session session = load_counted(engine, chain_plan(quota), {}, {.functions = stages()});
    launches(session, 4 * quota);
    EXPECT_EQ(fake_cuda::counts().graphs, static_cast<uint64_t>(quota));
  }
}

TEST_F(CudaChains, CombinationsOfSlotsHaveALimit) {
  Engine engine({.cores = 2});
  Session session = load_counted(engine, chain_plan(5, false, 7), {}, {.functions = stages()});
  testing::internal::CaptureStderr();
  launches(session, 2 * 5 * 7);
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(fake_cuda::counts().graphs, 16u);
  EXPECT_THAT(told, HasSubstr("not as a CUDA graph: it has more than 16 combinations of slots"));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
}

TEST_F(CudaChains, PipelinedStepsGiveTheSameInEveryOrderOfTheDevice) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    fake_cuda::seed(seed);
    fake_cuda::set_lazy(seed % 4 == 0);
    Engine engine({.cores = 2});
    Session session = load_counted(engine, chain_plan(1 + static_cast<int>(seed % 3)), {}, {.functions = stages()});
    std::vector<StepHandle> steps;
    for (int i = 0; i < 10; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
    for (int i = 0; i < 10; ++i) EXPECT_EQ(result(steps[i]), filled(expected(i)));
  }
  fake_cuda::set_lazy(false);
}

// The kernel that failed is named as if it had been launched alone, with its own values, whenever it fails: when the
// kernels run one by one, when they are captured, and when they are repeated.
TEST_F(CudaChains, AFailureInsideNamesItsKernel) {
  const auto errors = [](bool graphs) {
    std::vector<std::string> all;
    for (int bad = 0; bad < 6; ++bad) {
      Engine engine({.cores = 2});
      Session session = load_counted(engine, chain_plan(2), {},
                                     {.functions = stages(static_cast<float>(bad + 1)), .cuda_graphs = graphs});
      std::vector<StepHandle> steps;
      for (int i = 0; i < 6; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
      for (int i = 0; i < 6; ++i) {
        const std::string error = error_of([&] { EXPECT_EQ(result(steps[i]), filled(expected(i))); });
        EXPECT_EQ(error != "no error", i == bad) << error;
        if (i == bad) all.push_back(error);
      }
    }
    return all;
  };
  const std::vector<std::string> with = errors(true);
  EXPECT_EQ(with, errors(false));
  EXPECT_THAT(with, testing::Each(HasSubstr("kernel 'net/host_function_1' (host_function) of actor 'net'")));
}

// A graph that cannot be launched names its kernels; a device that breaks in one, too.
TEST_F(CudaChains, AGraphThatIsRefusedNamesItsKernels) {
  {
    Engine engine({.cores = 2});
    Session session = load_counted(engine, chain_plan(1), {}, {.functions = stages()});
    launches(session, 3);
    fake_cuda::fail_call("cuGraphLaunch", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    const std::string error = error_of([&] { result(submit(session, filled(1))); });
    EXPECT_THAT(error, HasSubstr("cuda:0: cuGraphLaunch: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"));
    EXPECT_THAT(
        error,
        HasSubstr("5 kernels from net.py:11, kernel 'net/host_function' (host_function) of actor 'net', step 3"));
    launches(session, 3);
    fake_cuda::break_kernel(3, CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_THAT(error_of([&] { result(submit(session, filled(1))); }), HasSubstr("cuda:0: the device is poisoned"));
  }
  fake_cuda::repair();
}

TEST_F(CudaChains, WhatCannotBeCapturedIsRunAndToldOnce) {
  const std::vector<std::pair<std::string, std::string>> calls = {{"cuStreamBeginCapture_v2", "cuStreamBeginCapture"},
                                                                  {"cuStreamEndCapture", "cuStreamEndCapture"},
                                                                  {"cuGraphInstantiateWithFlags", "cuGraphInstantiate"},
                                                                  {"cuLaunchKernel", "cuLaunchKernel"}};
  for (const auto& [exported, call] : calls) {
    Engine engine({.cores = 2});
    Session session = load_counted(engine, chain_plan(1), {}, {.functions = stages()});
    Session plain = load_counted(engine, chain_plan(1), {}, {.functions = stages(), .cuda_graphs = false});
    launches(session, 1);
    // The second launch of the program is refused, while it is captured.
    const std::vector<uint64_t> without = launches(plain, 6);
    const int nth = call == "cuLaunchKernel" ? static_cast<int>(without[1]) - kStages : 1;
    fake_cuda::fail_call(exported, nth, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    testing::internal::CaptureStderr();
    const std::vector<uint64_t> with = launches(session, 5);
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_EQ(fake_cuda::calls_to_fail(), 0) << call;
    EXPECT_EQ(with.back(), without.back());
    EXPECT_THAT(told,
                HasSubstr("5 kernels from net.py:11, kernel 'net/host_function' (host_function) of actor 'net': is "
                          "launched kernel by kernel, not as a CUDA graph: cuda:0: " +
                          call + ": CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"));
    EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  }
}

// Numbers are looked at after each kernel, which ends the chain; a trace has one event for it.
TEST_F(CudaChains, ATraceShowsOneLaunch) {
  Engine engine({.cores = 2});
  Session session = load_counted(engine, chain_plan(1), {}, {.functions = stages(), .trace = true});
  launches(session, 2);
  std::vector<int> kernels;
  const TraceNames names = session.trace_names();
  const Trace trace = session.take_trace();
  for (const TraceEvent& event : trace.events) {
    if (event.kernel >= 0 && names.actors[event.actor] == "net") kernels.push_back(event.kernels);
  }
  EXPECT_THAT(kernels, ElementsAre(kStages, kStages));
  EXPECT_THAT(chrome_trace_json(trace, names), HasSubstr("\"net/host_function and 4 more\""));

  const auto unchained = [&](bool graphs) {
    Session checked =
        load_counted(engine, chain_plan(1), {}, {.functions = stages(), .check_numerics = true, .cuda_graphs = graphs});
    return launches(checked, 3);
  };
  EXPECT_EQ(unchained(true), unchained(false));
}

}  // namespace
}  // namespace sluice::test
