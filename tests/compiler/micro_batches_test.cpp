// Steps of several micro-batches: rates of actors and registers, and stages of a pipeline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/compiler.h"
#include "compiler/fake_target.h"
#include "plan/time/simulator.h"
#include "support/error_of.h"

namespace sluice {
namespace {

using test::error_of;
using testing::HasSubstr;

CompileResult compile_fake(const std::string& body, const CompileOptions& options = {}) {
  return compile(graph::parse("graph \"g\" {\n" + body + "}\n", "g.ir", builtin_ops()), FakeTarget(), options);
}

// A step of four micro-batches, with an update, in one program each.
constexpr const char* kBatches = R"(
  %0 = input "x" : float32(2, 3)
  %1 = variable "w" : float32(2, 3)
  %2 = mul(%0, %1) : float32(2, 3)
  %3 = accumulate(%2) {n = 4} : float32(2, 3)
  %4 = sub(%1, %3) : float32(2, 3) [every 4]
  %5 = pack(%2) {n = 4} : float32(8, 3) [every 4]
  output "y" = %5
  update "w" = %4
)";

TEST(MicroBatches, AreRates) {
  const plan::Plan plan = compile_fake(kBatches).plan;
  EXPECT_EQ(plan.actors[0].starts, 4);
  const auto rates = [&](const std::string& name) {
    const plan::Register* r = find_register(plan, name);
    if (r == nullptr) return "no register " + name;
    std::string text = fmt::format("{} slots, 1 per {}:", r->quota, r->emit_every);
    for (const plan::Edge& e : plan.edges) {
      if (&plan.registers[e.reg] == r)
        text += fmt::format(" '{}' takes {} for {}", plan.actors[e.consumer].name, e.take, e.hold);
    }
    return text;
  };
  EXPECT_EQ(rates("x"), "8 slots, 1 per 1: 'cpu:0/compute0' takes 1 for 1");
  EXPECT_EQ(rates("mul"), "4 slots, 1 per 1: 'cpu:0/compute0#2' takes 4 for 1");
  EXPECT_EQ(rates("accumulate"), "1 slots, 1 per 4: 'cpu:0/compute0#2' takes 1 for 1");
  EXPECT_EQ(rates("y"), "2 slots, 1 per 1: 'outputs' takes 1 for 1");
  EXPECT_EQ(rates("order: cpu:0/compute0#2 -> cpu:0/compute0"), "1 slots, 1 per 1: 'cpu:0/compute0' takes 1 for 4");
  EXPECT_EQ(std::count(plan.certificate.begin(), plan.certificate.end(), 1), 4);
  EXPECT_EQ(std::count(plan.certificate.begin(), plan.certificate.end(), 2), 1);
}

// The forward and the backward pass of two stages.
constexpr const char* kStages = R"(
  %0 = input "x" : float32(2, 3)
  %1 = variable "a" : float32(2, 3)
  %2 = variable "b" : float32(2, 3)
  %3 = mul(%0, %1) : float32(2, 3) [device "sim:0", module "net.front.fc"]
  %4 = exp(%3) : float32(2, 3) [device "sim:0", module "net.front"]
  %5 = mul(%4, %2) : float32(2, 3) [device "sim:1", module "net.back"]
  %6 = mul(%5, %3) : float32(2, 3) [device "sim:0"]
  %7 = accumulate(%6) {n = 4} : float32(2, 3) [device "sim:0"]
  %8 = accumulate(%5) {n = 4} : float32(2, 3) [device "sim:1"]
  %9 = sub(%1, %7) : float32(2, 3) [device "sim:0", every 4]
  %10 = sub(%2, %8) : float32(2, 3) [device "sim:1", every 4]
  update "a" = %9
  update "b" = %10
)";

TEST(MicroBatches, AStageBeginsAsManyAsThereAreStagesFromItOn) {
  for (const int stages : {0, 2, 3, 9}) {
    CompileOptions options;
    if (stages > 0) options.stages = {{"net.front", 0}, {"net.back", stages - 1}};
    const plan::Plan plan = compile_fake(kStages, options).plan;
    const int depth = std::clamp(stages, 1, 4);  // no more than there are micro-batches
    const plan::Register* order = find_register(plan, "order: sim:0/compute0#2 -> sim:0/compute0");
    ASSERT_NE(order, nullptr);
    EXPECT_EQ(order->initial_tokens, depth);
    if (depth > 1) {
      EXPECT_EQ(find_register(plan, "net.front.fc/mul")->quota, depth);
    }
    EXPECT_EQ(plan.options,
              stages == 0 ? NamedAttrs()
                          : (NamedAttrs{{"stage.net.back", int64_t{stages - 1}}, {"stage.net.front", int64_t{0}}}));
  }
}

// Gradients belong to the module of their forward pass. Here they are made where the parameters are.
TEST(MicroBatches, AStageIsWhereItsForwardPassIs) {
  constexpr const char* kText = R"(
    %0 = input "x" : float32(3, 3)
    %1 = variable "a" : float32(3, 3)
    %2 = variable "b" : float32(3, 3)
    %3 = matmul(%0, %1) {} : float32(3, 3) [device "sim:0", module "net.front.fc"]
    %4 = matmul(%3, %2) {} : float32(3, 3) [device "sim:1", module "net.back.fc"]
    %5 = exp(%4) : float32(3, 3) [device "cpu:0"]
    %6 = matmul(%5, %2) {} : float32(3, 3) [device "cpu:0", module "net.back.fc", role "backward"]
    %7 = matmul(%6, %1) {} : float32(3, 3) [device "cpu:0", module "net.front.fc", role "backward"]
    %8 = accumulate(%7) {n = 4} : float32(3, 3) [device "cpu:0", module "net.front.fc", role "update"]
    %9 = neg(%8) : float32(3, 3) [device "cpu:0", every 4]
    %10 = sub(%1, %9) : float32(3, 3) [device "cpu:0", every 4]
    update "a" = %10
  )";
  CompileOptions options;
  options.stages = {{"net.front", 0}, {"net.back", 1}};
  options.granularity = Granularity::kOp;
  const plan::Plan plan = compile_fake(kText, options).plan;
  EXPECT_EQ(find_register(plan, "net.front.fc/matmul")->quota, 2);
  const plan::Register* order = find_register(plan, "order: net.front.fc/accumulate -> exp");
  ASSERT_NE(order, nullptr);
  EXPECT_EQ(order->initial_tokens, 1);
  // Values between actors lie in the stream's arena.
  const plan::Register* gradient = find_register(plan, "net.back.fc/matmul#2");
  ASSERT_NE(gradient, nullptr);
  ASSERT_EQ(gradient->slots.size(), 1U);
  EXPECT_GE(plan.arenas[plan.buffers[gradient->slots[0]].arena].stream, 0);
}

// Micro-batches of a deep stage come in no fixed order, so nothing lies across actors in the arena they work in.
TEST(MicroBatches, ADeepStageAndItsUpdateMayBeOneActorPerOp) {
  constexpr const char* kText = R"(
    %0 = input "x" : float32(3, 3)
    %1 = variable "a" : float32(3, 3)
    %2 = matmul(%0, %1) {} : float32(3, 3) [device "sim:0", module "net.front"]
    %3 = exp(%2) : float32(3, 3) [device "sim:1", module "net.back"]
    %4 = matmul(%3, %2) {} : float32(3, 3) [device "sim:0", module "net.front", role "backward"]
    %5 = accumulate(%4) {n = 4} : float32(3, 3) [device "sim:0", role "update"]
    %6 = neg(%5) : float32(3, 3) [device "sim:0", every 4, role "update"]
    %7 = sub(%1, %6) : float32(3, 3) [device "sim:0", every 4, role "update"]
    update "a" = %7
  )";
  CompileOptions options;
  options.stages = {{"net.front", 0}, {"net.back", 1}};
  options.granularity = Granularity::kOp;
  const plan::Plan plan = compile_fake(kText, options).plan;
  const plan::Register* order = find_register(plan, "order: accumulate -> net.front/matmul");
  ASSERT_NE(order, nullptr);
  EXPECT_EQ(order->initial_tokens, 2);
}

TEST(MicroBatches, StagesWorkAtTheSameTime) {
  CompileOptions options;
  const auto period_ns = [&] {
    plan::Plan plan = compile_fake(kStages, options).plan;
    for (plan::Kernel& kernel : plan.kernels) kernel.cost_ns = 1000;
    return plan::simulate(plan, {.in_flight = 1}).period_ns;
  };
  const double in_turns = period_ns();
  options.stages = {{"net.front", 0}, {"net.back", 1}};
  EXPECT_LT(period_ns(), 0.8 * in_turns);
}

TEST(MicroBatches, AVariableThatEachUpdatesCannotBeInADeepStage) {
  std::string text = kStages;
  const std::string update = "  update \"a\" = %9\n";
  text.replace(text.find(update), update.size(), "  update \"a\" = %6\n");
  CompileOptions options;
  options.stages = {{"net.front", 0}, {"net.back", 1}};
  EXPECT_THAT(
      error_of([&] { compile_fake(text, options); }),
      HasSubstr("stage 0 on sim:0/compute0: 'a' changes in every micro-batch and is read by 'net.front.fc/mul'"));
}

}  // namespace
}  // namespace sluice
