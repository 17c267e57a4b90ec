// Tests where values come to lie, what that costs, and what is refused, on graphs made by hand.
#include "compiler/sbp_infer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/fake_target.h"
#include "compiler/pass.h"

namespace sluice::compiler {
namespace {

graph::Graph parse(const std::string& body) {
  return graph::parse("graph \"g\" {\n" + body + "}\n", "g", builtin_ops());
}

Partition split(const std::string& body) {
  graph::Graph graph = parse(body);
  FakeTarget target;
  const CompileOptions options;
  const ConstantLookup lookup;
  const ConstantEvaluator evaluate;
  std::map<std::string, std::vector<std::byte>> constants;
  Partition made;
  PassContext context{target, options, lookup, evaluate, constants, made};
  partition(graph, context);
  graph.verify();
  EXPECT_EQ(graph::to_text(graph::parse(graph::to_text(graph), "g", builtin_ops())), graph::to_text(graph));
  return made;
}

// "all_reduce 24, ..." of what travels between devices of meshes.
std::string travels(const Partition& partition) {
  std::string text;
  for (const Boxing& b : partition.boxings) {
    const bool on_mesh = b.kind == "all_reduce" || b.kind == "all_gather" || b.kind == "reduce_scatter" ||
                         b.kind == "all_to_all" || b.kind == "send";
    if (on_mesh) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", b.kind, b.bytes);
  }
  return text;
}

std::string error_of(const std::string& body) {
  try {
    infer_sbp(parse(body));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// How the last value lies.
std::string last_lay(const std::string& body) {
  const SbpPlan plan = infer_sbp(parse(body));
  const Lay& lay = plan.values.back();
  return lay.on_mesh() ? lay.sbp.str() + " on " + plan.meshes[lay.mesh].str() : "off";
}

TEST(SbpInfer, DataParallelReducesEachGradientOnce) {
  const Partition made = split(R"ir(
  %0 = input "x" : float32(4, 3)
  %1 = variable "w" : float32(2, 3)
  %2 = variable "momentum" : float32(2, 3)
  %3 = variable "lr" : float32()
  %4 = to_global(%0) {mesh = ["sim:0", "sim:1"], sbp = "split", axis = 0} : float32(4, 3)
  %5 = to_global(%1) {mesh = ["sim:0", "sim:1"], sbp = "broadcast", axis = 0} : float32(2, 3)
  %6 = linear(%4, %5, none) : float32(4, 2)
  %7 = relu(%6) : float32(4, 2)
  %8 = matmul(%7, %4) {transpose_a = true} : float32(2, 3)
  %9, %10 = sgd_momentum_update(%1, %8, %2, %3, none) : float32(2, 3), float32(2, 3)
  update "w" = %9
  update "momentum" = %10
)ir");
  EXPECT_EQ(travels(made), "all_reduce 48");
  std::vector<std::string> names;
  for (const plan::Shard& shard : made.shards) names.push_back(shard.name);
  EXPECT_EQ(names, (std::vector<std::string>{"w@sim:0", "w@sim:1", "momentum@sim:0", "momentum@sim:1", "lr@sim:0",
                                             "lr@sim:1"}));
}

TEST(SbpInfer, ColumnThenRowIsOneAllReduce) {
  const std::string body = R"ir(
  %0 = input "x" : float32(4, 6)
  %1 = variable "up" : float32(8, 6)
  %2 = variable "up.bias" : float32(8,)
  %3 = variable "down" : float32(6, 8)
  %4 = variable "down.bias" : float32(6,)
  %5 = to_global(%0) {mesh = ["sim:0", "sim:1"], sbp = "broadcast", axis = 0} : float32(4, 6)
  %6 = to_global(%1) {mesh = ["sim:0", "sim:1"], sbp = "split", axis = 0} : float32(8, 6)
  %7 = to_global(%3) {mesh = ["sim:0", "sim:1"], sbp = "split", axis = 1} : float32(6, 8)
  %8 = linear(%5, %6, %2) : float32(4, 8)
  %9 = gelu(%8) : float32(4, 8)
  %10 = linear(%9, %7, %4) : float32(4, 6)
  %11 = add(%5, %10) : float32(4, 6)
  %12 = layer_norm(%11, none, none) {normalized_shape = [6]} : float32(4, 6)
)ir";
  EXPECT_EQ(last_lay(body), "B on sim:0-1");
  EXPECT_EQ(travels(split(body + "  output \"y\" = %12\n")), "all_reduce 192");
  for (const plan::Shard& shard : split(body).shards) {
    const int axis = shard.whole == "down" ? 1 : shard.whole == "down.bias" ? -1 : 0;
    EXPECT_EQ(shard.cuts.empty() ? -1 : shard.cuts[0].axis, axis) << shard.name;  // biases: as their first reader wants
    if (shard.name != "down@sim:1") continue;
    EXPECT_EQ(shard.start(1), 4);
    EXPECT_EQ(shard.type.str(), "float32(6, 4)");
  }
}

TEST(SbpInfer, MeansOfSplitBatchesAreTakenApart) {
  const std::string logits = R"ir(
  %0 = input "x" : float32(64, 1000)
  %1 = input "t" : int64(64,)
  %2 = to_global(%0) {mesh = ["sim:0", "sim:1", "sim:2", "sim:3"], sbp = "split", axis = 0} : float32(64, 1000)
  %3 = to_global(%1) {mesh = ["sim:0", "sim:1", "sim:2", "sim:3"], sbp = "split", axis = 0} : int64(64,)
)ir";
  const SbpPlan loss = infer_sbp(parse(logits + "  %4 = cross_entropy(%2, %3, none) : float32()\n"));
  EXPECT_LT(loss.bytes, 100);  // scalars, where gathering the logits takes 768,000
  EXPECT_TRUE(std::none_of(loss.graph.nodes().begin(), loss.graph.nodes().end(),
                           [](const graph::Node& n) { return n.op->name == std::string("cross_entropy"); }));
  EXPECT_EQ(infer_sbp(parse(logits + "  %4 = mean(%2) : float32()\n")).bytes, 0);
}

TEST(SbpInfer, WhatDependsOnNothingIsMadeWhereItIsRead) {
  const Partition made = split(R"ir(
  %0 = input "x" : float32(4, 3)
  %1 = to_global(%0) {mesh = ["sim:0", "sim:1"], sbp = "split", axis = 0} : float32(4, 3)
  %2 = full() {shape = [3], value = 2.0} : float32(3,)
  %3 = expand(%2) {shape = [4, 3]} : float32(4, 3)
  %4 = mul(%1, %3) : float32(4, 3)
  output "y" = %4
)ir");
  EXPECT_EQ(travels(made), "");
}

TEST(SbpInfer, AVariableReadElsewhereLiesInOnePiece) {
  const Partition made = split(R"ir(
  %0 = input "x" : float32(4,)
  %1 = variable "w" : float32(4,)
  %2 = to_global(%0) {mesh = ["sim:0", "sim:1"], sbp = "broadcast", axis = 0} : float32(4,)
  %3 = to_global(%1) {mesh = ["sim:0", "sim:1"], sbp = "broadcast", axis = 0} : float32(4,)
  %4 = add(%2, %3) : float32(4,)
  %5 = neg(%1) : float32(4,)
  output "y" = %4
  output "z" = %5
)ir");
  EXPECT_TRUE(made.shards.empty());
}

TEST(SbpInfer, AGradientComesBackToWhereItsValueLay) {
  EXPECT_EQ(last_lay(R"ir(
  %0 = input "x" : float32(4, 3)
  %1 = to_global(%0) {mesh = ["sim:0", "sim:1"], sbp = "split", axis = 0} : float32(4, 3)
  %2 = to_global(%1) {mesh = ["sim:2", "sim:3"], sbp = "broadcast", axis = 0} : float32(4, 3)
  %3 = relu(%2) : float32(4, 3)
  %4 = global_like(%3, %1) : float32(4, 3)
)ir"),
            "S(0) on sim:0-1");
}

// A batch along one axis, layers along the other.
TEST(SbpInfer, EachAxisHasARowOfItsOwn) {
  const std::string mesh = "mesh = [\"sim:0-3 (dp=2, tp=2)\"]";
  const std::string body = fmt::format(R"ir(
  %0 = input "x" : float32(4, 6)
  %1 = variable "up" : float32(8, 6)
  %2 = variable "up.bias" : float32(8,)
  %3 = variable "down" : float32(6, 8)
  %4 = to_global(%0) {{{0}, sbp = "S(0),B", axis = 0}} : float32(4, 6)
  %5 = to_global(%1) {{{0}, sbp = "B,S(0)", axis = 0}} : float32(8, 6)
  %6 = to_global(%3) {{{0}, sbp = "B,S(1)", axis = 0}} : float32(6, 8)
  %7 = linear(%4, %5, %2) : float32(4, 8)
  %8 = relu(%7) : float32(4, 8)
  %9 = linear(%8, %6, none) : float32(4, 6)
  %10 = reshape(%9) {{shape = [2, 2, 6]}} : float32(2, 2, 6)
)ir",
                                       mesh);
  const SbpPlan plan = infer_sbp(parse(body));
  const auto lies = [&](size_t value) { return plan.values[value].sbp.str(); };
  EXPECT_EQ(lies(2), "B,S(0)");  // the bias, as its reader wants it
  EXPECT_EQ(lies(7), "S(0),S(1)");
  EXPECT_EQ(lies(9), "S(0),P");
  EXPECT_EQ(last_lay(body), "S(0),P on sim:0-3 (dp=2, tp=2)");
  EXPECT_EQ(plan.bytes, 0);
  const Partition made = split(body + "  output \"y\" = %10\n");
  EXPECT_EQ(travels(made), "reduce_scatter 96");  // 48 on each of two lines; the parts are brought off the mesh
  for (const plan::Shard& shard : made.shards) {
    EXPECT_EQ(shard.lies, shard.whole == "down" ? "B,S(1) on sim:0-3 (dp=2, tp=2)" : "B,S(0) on sim:0-3 (dp=2, tp=2)");
    if (shard.name != "down@sim:3") continue;
    EXPECT_EQ(shard.str(), "'down@sim:3', [4, 8) of dimension 1 of 'down'");
  }
}

TEST(SbpInfer, PartsMayBeCutAlongTwoDimensions) {
  const Partition made = split(R"ir(
  %0 = variable "w" : float32(5, 4)
  %1 = to_global(%0) {mesh = ["sim:0-3 (2, 2)"], sbp = "S(0),S(1)", axis = 0} : float32(5, 4)
  %2 = neg(%1) : float32(5, 4)
  output "y" = %2
)ir");
  ASSERT_EQ(made.shards.size(), 4u);
  EXPECT_EQ(made.shards[3].str(), "'w@sim:3', [3, 5) of dimension 0, [2, 4) of dimension 1 of 'w'");
  EXPECT_EQ(made.shards[3].type.str(), "float32(2, 2)");
}

TEST(BoxingBytes, AreThoseOfTheTextbook) {
  const Sbp s0 = Sbp::split(0), s1 = Sbp::split(1), b = Sbp::broadcast(), p = Sbp::partial_sum();
  const auto same = [](const Sbp& from, const Sbp& to) { return boxing_bytes(1200, from, 4, to, 4, false); };
  EXPECT_EQ(same(s0, s0), 0);
  EXPECT_EQ(same(s0, s1), 900);
  EXPECT_EQ(same(s0, b), 3600);
  EXPECT_EQ(same(s0, p), 900);
  EXPECT_EQ(same(b, s0), 0);
  EXPECT_EQ(same(b, p), 0);
  EXPECT_EQ(same(p, s0), 3600);
  EXPECT_EQ(same(p, b), 7200);
  EXPECT_EQ(same(p, p), 0);
  EXPECT_EQ(boxing_bytes(1200, s0, 2, s0, 4, true), 1200);
  EXPECT_EQ(boxing_bytes(1200, s0, 2, b, 4, true), 4800);
  EXPECT_EQ(boxing_bytes(1200, p, 2, s0, 4, true), 2400);
  EXPECT_EQ(boxing_bytes(1200, p, 1, b, 1, false), 0);
}

// The bytes of a value of 256 are those of the textbook's algorithms, summed over the devices.
TEST(Boxing, EachPairTakesItsPrimitive) {  // GT-05
  const auto lay = [](const std::string& value, const std::string& sbp, int n) {
    std::string mesh;
    for (int i = 0; i < n; ++i) mesh += fmt::format("{}\"sim:{}\"", i == 0 ? "" : ", ", i);
    const std::string kind = sbp[0] == 'S' ? "split" : sbp == "B" ? "broadcast" : "partial_sum";
    return fmt::format("to_global({}) {{mesh = [{}], sbp = \"{}\", axis = {}}} : float32(8, 8)\n", value, mesh, kind,
                       sbp == "S1" ? 1 : 0);
  };
  const auto moved = [&](const std::string& from, const std::string& to, int n) {
    return travels(split("  %0 = input \"x\" : float32(8, 8)\n  %1 = " + lay("%0", from, n) +
                         "  %2 = neg(%1) : float32(8, 8)\n  %3 = " + lay("%2", to, n) +
                         "  %4 = neg(%3) : float32(8, 8)\n  output \"y\" = %4\n"));
  };
  for (const int n : {2, 4}) {
    const int most = 256 * (n - 1);
    for (const auto& [from, to] : {std::pair{"S0", "S1"}, {"S1", "S0"}})
      EXPECT_EQ(moved(from, to, n), fmt::format("all_to_all {}", most / n)) << from << " to " << to;
    for (const char* from : {"S0", "S1"}) EXPECT_EQ(moved(from, "B", n), fmt::format("all_gather {}", most)) << from;
    for (const char* to : {"S0", "S1"}) {
      EXPECT_EQ(moved("P", to, n), fmt::format("reduce_scatter {}", most)) << to;
      EXPECT_EQ(moved("B", to, n), "") << to;
    }
    EXPECT_EQ(moved("P", "B", n), fmt::format("all_reduce {}", 2 * most));
    EXPECT_EQ(moved("B", "P", n), "");
  }
}

TEST(SbpInfer, RefusesByName) {
  const std::string two = R"ir(
  %0 = input "x" : float32(4, 3)
  %1 = to_global(%0) {mesh = ["sim:0", "sim:1"], sbp = "split", axis = 0} : float32(4, 3)
  %2 = to_global(%0) {mesh = ["sim:2", "sim:3"], sbp = "split", axis = 0} : float32(4, 3)
)ir";
  EXPECT_EQ(error_of(two + "  %3 = add(%1, %2) : float32(4, 3) [source \"train.py:41\"]\n"),
            "add: operands lie on different placements: a on sim:0-1, b on sim:2-3; move one with "
            "to_global(placement=...)  (train.py:41)");
  EXPECT_EQ(error_of(two + "  %3 = concat(%1, %2) : float32(8, 3)\n"),
            "concat: operands lie on different placements: input 0 on sim:0-1, input 1 on sim:2-3; move one with "
            "to_global(placement=...)");
  EXPECT_EQ(error_of(R"ir(
  %0 = variable "w" : float32(4, 3)
  %1 = to_global(%0) {mesh = ["sim:0", "sim:1"], sbp = "partial_sum", axis = 0} : float32(4, 3)
)ir"),
            "to_global: variable 'w' is asked to lie as P; a variable must lie as S or B");
  const auto text = [](const std::string& sbp) {
    return "graph \"g\" {\n  %0 = input \"x\" : float32(4, 3)\n  %1 = to_global(%0) {mesh = \"sim:0-3\", sbp = \"" +
           sbp + "\"} : float32(4, 3)\n}\n";
  };
  const auto parse_error = [&](const std::string& sbp) -> std::string {
    try {
      graph::parse(text(sbp), "g", builtin_ops());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(parse_error("S(0)"), "");
  EXPECT_EQ(parse_error("S(1)"),
            "g:3: to_global: sbp: S(1) of float32(4, 3) over 4 devices: axis 1 has 3 elements; each device must get at "
            "least one");
  EXPECT_EQ(parse_error("S(2)"),
            "g:3: to_global: sbp: S(2) of a tensor of rank 2: float32(4, 3); the axis must be below the rank");
  EXPECT_EQ(parse_error("X"), "g:3: to_global: sbp: unknown: 'X'; must be S(axis) with an axis >= 0, B or P");
}

}  // namespace
}  // namespace sluice::compiler
