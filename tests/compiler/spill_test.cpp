// Values on the disk between two uses; and lines of kernels that need no messages.
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/compiler.h"
#include "compiler/fake_target.h"
#include "compiler/nets.h"
#include "plan/pack/ledger.h"
#include "plan/pack/spilled.h"
#include "support/error_of.h"

namespace sluice {
namespace {

// Most of what its training keeps are values between its layers.
graph::Graph deep_net(int layers) {
  NetBuilder net("deep");
  Value x = net.input("x", {256, 64});
  for (int i = 0; i < layers; ++i) {
    net.module("layer" + std::to_string(i), i + 1);
    x = ops::tanh(ops::mul(x, net.parameter("w" + std::to_string(i), {64})));
  }
  const Value loss = ops::mean(x);
  net.output("loss", loss);
  net.train(loss);
  return net.graph;
}

plan::Plan made(const graph::Graph& graph, CompileOptions options) {
  return compile(graph, FakeTarget(), options).plan;
}

// The bytes that a plan with the fewest slots needs.
uint64_t needs(const graph::Graph& graph, CompileOptions options = {}) {
  options.fast_quotas = false;
  options.spill = false;
  return plan::ledger(made(graph, options)).total;
}

TEST(Spill, APlanFitsIntoHalfOfWhatItNeeds) {  // STP-07
  const graph::Graph graph = deep_net(16);
  for (const Granularity granularity : {Granularity::kProgram, Granularity::kOp}) {
    CompileOptions options;
    options.granularity = granularity;
    const uint64_t whole = needs(graph, options);
    options.memory_budget = whole / 2;
    EXPECT_NE(test::message_of([&] { made(graph, options); }).find("over its memory budget"), std::string::npos);
    options.spill = true;
    const plan::Plan plan = made(graph, options);
    const plan::Spilled spilled = plan::spilled(plan);
    EXPECT_LE(plan::ledger(plan).total, whole / 2);
    EXPECT_GT(spilled.values, 0);
    EXPECT_GE(spilled.file_bytes, spilled.bytes);
    const auto recorded = std::find_if(plan.options.begin(), plan.options.end(),
                                       [](const auto& option) { return option.first == "spill.bytes"; });
    ASSERT_NE(recorded, plan.options.end());
    EXPECT_EQ(recorded->second, Attr(static_cast<int64_t>(spilled.bytes)));
  }
}

TEST(Spill, TheDiskHasAStreamOfItsOwn) {
  const graph::Graph graph = deep_net(16);
  CompileOptions options;
  options.memory_budget = needs(graph) / 2;
  options.spill = true;
  const plan::Plan plan = made(graph, options);
  for (const plan::Actor& actor : plan.actors)
    for (const plan::Instr& instr : actor.program) {
      if (instr.kind != plan::InstrKind::kRun) continue;
      const plan::Kernel& kernel = plan.kernels[instr.index];
      const bool moves = plan::moves_to_disk(kernel) || plan::moves_from_disk(kernel);
      EXPECT_EQ(plan.streams[actor.stream].name, moves ? "cpu:0/host1" : "cpu:0/compute0") << kernel.name;
    }
}

TEST(Spill, AsLittleGoesAsTheBudgetAsksFor) {
  const graph::Graph graph = deep_net(16);
  const uint64_t whole = needs(graph);
  uint64_t before = 0;
  for (const uint64_t budget : {2 * whole, whole, whole * 8 / 10, whole * 6 / 10, whole / 2}) {
    CompileOptions options;
    options.memory_budget = budget;
    options.spill = true;
    const uint64_t bytes = plan::spilled(made(graph, options)).bytes;
    EXPECT_GE(bytes, before);
    EXPECT_EQ(bytes == 0, budget >= whole);
    before = bytes;
  }
}

TEST(Spill, AKernelThatLooksOtherwiseIsRefused) {
  const graph::Graph graph = deep_net(16);
  CompileOptions options;
  options.memory_budget = needs(graph) / 2;
  options.spill = true;
  const plan::Plan good = made(graph, options);
  const auto spoiled = [&](auto spoil) {
    plan::Plan plan = good;
    spoil(*std::find_if(plan.kernels.begin(), plan.kernels.end(), plan::moves_to_disk));
    return test::message_of([&] { plan::spilled(plan); });
  };
  EXPECT_NE(spoiled([](plan::Kernel& k) {
              k.outputs[0].spec = TensorSpec::contiguous({DType::kInt8, {1}});
            }).find("spill must have a value and its place, int64(1,)"),
            std::string::npos);
  EXPECT_NE(spoiled([](plan::Kernel& k) {
              k.attrs = {{"function", std::string("f")}, {"offset", int64_t{-1}}};
            }).find("bytes at -1 of a file"),
            std::string::npos);
  EXPECT_NE(spoiled([](plan::Kernel& k) {
              k.attrs = {{"offset", 1.5}};
            }).find("offset: absent, or of another type"),
            std::string::npos);
}

// Messages of a step: each edge has a token and its ack.
size_t messages_of(const plan::Plan& plan) { return 2 * plan.edges.size(); }

// A line of actors with one kernel and one slot each, and the same line as the compiler plans it: one firing.
TEST(Light, KernelsWithOneSlotEachNeedNoMessages) {  // ACT-09
  constexpr int kKernels = 50;
  std::string body = "graph \"line\" {\n  %0 = input \"x\" : float32(64,)\n";
  for (int i = 1; i <= kKernels; ++i) body += fmt::format("  %{} = exp(%{}) : float32(64,)\n", i, i - 1);
  const graph::Graph graph =
      graph::parse(body + fmt::format("  output \"y\" = %{}\n}}\n", kKernels), "line.ir", builtin_ops());
  CompileOptions options;
  options.fast_quotas = false;
  options.outputs_buffer_size = 1;
  options.granularity = Granularity::kOp;
  const plan::Plan apart = made(graph, options);
  options.granularity = Granularity::kProgram;
  const plan::Plan light = made(graph, options);
  for (const plan::Plan* plan : {&apart, &light}) {
    EXPECT_EQ(plan->kernels.size(), static_cast<size_t>(kKernels));
    for (const plan::Register& r : plan->registers) EXPECT_EQ(r.quota, 1) << r.name;
  }
  EXPECT_EQ(apart.actors.size(), static_cast<size_t>(kKernels) + 2);
  EXPECT_EQ(light.actors.size(), 3u);
  EXPECT_GE(messages_of(apart), messages_of(light) + 2 * (kKernels - 1));
  EXPECT_LE(messages_of(light), 6u);
}

}  // namespace
}  // namespace sluice
