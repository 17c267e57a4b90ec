#include <gtest/gtest.h>

#include "plan/ranks.h"
#include "support/plan_builder.h"

namespace sluice::plan {
namespace {

// Each rank has those that its kernels read.
TEST(PackedCopiesOfRanks, GoWithTheirRank) {
  PlanBuilder b("ranks");
  b.stream("cpu:0");
  b.stream("1/cpu:0");
  b.plan.spaces.push_back({SpaceKind::kHost, parse_device("1/cpu:0")});
  for (const int rank : {0, 1}) {
    const std::string n = std::to_string(rank);
    const int feed = b.feed("feed" + n, rank), net = b.actor("net" + n, rank), sink = b.sink("sink" + n, rank);
    const int x = b.reg("x" + n, feed, {net}, {.bytes = 16, .space = rank});
    const int y = b.reg("y" + n, net, {sink}, {.bytes = 16, .space = rank});
    const int w = b.variable("w" + n, {4}, false, rank);
    const int k = b.run(net, "conv", {b.of_reg(x, {4}), b.of_variable(w, {4})}, {b.of_reg(y, {4})});
    b.plan.kernels[k].inputs[1].packed = packed_copy(b.plan, w, "in blocks", 64);
    b.input("x" + n, x, b.f32({4}));
    b.output("y" + n, b.of_reg(y, {4}));
  }
  const Plan plan = b.build();
  ASSERT_EQ(verify(plan).str(), "");
  const Plan part = part_of(plan, 1).plan;
  ASSERT_EQ(part.packed.size(), 1u);
  EXPECT_EQ(part.packed[0].name, "w1/packed");
  EXPECT_EQ(part.variables[part.packed[0].variable].name, "w1");
  EXPECT_EQ(part.kernels[0].inputs[1].packed, 0);
  EXPECT_EQ(verify(part).str(), "");
}

// With all variables of which they are made, whatever else reads those.
TEST(DerivedCopiesOfRanks, GoWithTheirRank) {
  PlanBuilder b("ranks");
  b.stream("cpu:0");
  b.stream("1/cpu:0");
  b.plan.spaces.push_back({SpaceKind::kHost, parse_device("1/cpu:0")});
  for (const int rank : {0, 1}) {
    const std::string n = std::to_string(rank);
    const int feed = b.feed("feed" + n, rank), net = b.actor("net" + n, rank), sink = b.sink("sink" + n, rank);
    const int x = b.reg("x" + n, feed, {net}, {.bytes = 16, .space = rank});
    const int y = b.reg("y" + n, net, {sink}, {.bytes = 16, .space = rank});
    const int s = b.variable("s" + n, {4}, false, rank), w = b.variable("w" + n, {4}, false, rank);
    const int k = b.run(net, "conv", {b.of_reg(x, {4}), b.of_variable(w, {4})}, {b.of_reg(y, {4})});
    b.plan.kernels[k].inputs[1].packed = derived_copy(b.plan, {"mul", {}, {w, s}, b.plan.variables[w].spec});
    b.input("x" + n, x, b.f32({4}));
    b.output("y" + n, b.of_reg(y, {4}));
  }
  const Plan plan = b.build();
  ASSERT_EQ(verify(plan).str(), "");
  const Plan part = part_of(plan, 1).plan;
  ASSERT_EQ(part.packed.size(), 1u);
  EXPECT_EQ(derivation_str(part, part.packed[0]), "mul(w1, s1) {}");
  EXPECT_EQ(part.kernels[0].inputs[1].packed, 0);
  EXPECT_EQ(verify(part).str(), "");
}

}  // namespace
}  // namespace sluice::plan
