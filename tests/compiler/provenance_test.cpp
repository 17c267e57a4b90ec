// The provenance of nodes survives every pass, and reaches the plan.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "compiler/compiler.h"
#include "compiler/fake_target.h"
#include "compiler/pass.h"
#include "graph/builder.h"
#include "graph/ops/activation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/softmax.h"

namespace sluice::compiler {
namespace {

// Every call has a line and a module of its own.
graph::Graph random_graph(unsigned seed, std::set<std::string>& modules) {
  std::mt19937 random(seed);
  const auto draw = [&](size_t n) { return static_cast<int>(random() % n); };
  graph::Graph graph;
  graph::GraphBuilder builder(graph, {});
  const ExecutorScope scope(builder);
  const TensorType square{DType::kFloat32, {4, 4}};
  std::vector<Value> pool = {builder.value(graph.add_input("x", square)),
                             builder.value(graph.add_variable("w", square))};
  const int calls = 4 + draw(30);
  for (int i = 0; i < calls; ++i) {
    builder.context.source = {"net.py", i + 1};
    builder.context.module = fmt::format("model.layer{}", i);
    builder.context.role = static_cast<Role>(draw(4));
    modules.insert(builder.context.module);
    if (draw(6) == 0) builder.context.placement.device = parse_device(draw(2) ? "sim:0" : "cpu:0");
    const Value &a = pool[draw(pool.size())], &b = pool[draw(pool.size())];
    switch (draw(9)) {
      case 0: pool.push_back(ops::add(a, b)); break;
      case 1: pool.push_back(ops::mul(a, b)); break;
      case 2: pool.push_back(ops::neg(a)); break;
      case 3: pool.push_back(ops::relu(a)); break;
      case 4: pool.push_back(ops::relu(ops::linear(a, b, {}))); break;
      case 5: pool.push_back(ops::softmax(a, 1)); break;
      case 6: pool.push_back(ops::permute(a, {1, 0})); break;
      case 7: pool.push_back(ops::copy(a)); break;
      default: pool.push_back(ops::mul(a, 1.0)); break;
    }
  }
  for (int i = 0; i < 3; ++i) graph.add_output(fmt::format("y{}", i), builder.id(pool[draw(pool.size())]));
  graph.set_update(0, builder.id(pool.back()));
  return graph;
}

class Provenances : public testing::TestWithParam<int> {};

TEST_P(Provenances, NoPassLosesALineOrAModule) {
  std::set<std::string> modules;
  graph::Graph graph = random_graph(GetParam(), modules);
  FakeTarget target;
  target.fuses = true;
  target.missing = {"softmax", "linear"};
  const CompileOptions options;
  std::map<std::string, std::vector<std::byte>> constants;
  Partition partition;
  PassContext context{target, options, {}, {}, constants, partition};
  for (const Pass& pass : graph_passes()) {
    pass.run(graph, context);
    for (const graph::Node& node : graph.nodes()) {
      EXPECT_TRUE(node.source.known()) << pass.name << ": " << node.op->name;
      EXPECT_TRUE(modules.contains(node.module)) << pass.name << ": " << node.op->name << " of " << node.module;
    }
    EXPECT_EQ(graph::to_text(graph::parse(graph::to_text(graph), "g.ir", builtin_ops())), graph::to_text(graph));
  }
}

TEST_P(Provenances, EveryKernelOfAPlanHasThoseOfItsNode) {
  std::set<std::string> modules;
  const graph::Graph graph = random_graph(GetParam(), modules);
  for (const plan::Kernel& kernel : compile(graph, FakeTarget(), {}).plan.kernels) {
    // A copy that brings inputs and variables to their outputs belongs to no call.
    if (kernel.op == "copy" && kernel.module.empty()) continue;
    EXPECT_TRUE(kernel.source.known()) << kernel.name;
    EXPECT_TRUE(modules.contains(kernel.module)) << kernel.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Provenances, testing::Range(0, 40));

TEST(Provenance, OfWhatTakesTheirPlaceIsTheFirstThatIsKnown) {
  const Provenance nothing, line{{"a.py", 1}, "", Role::kBackward}, module{{}, "m", Role::kUpdate},
      all{{"b.py", 2}, "n", Role::kData};
  const auto text = [](const Provenance& p) { return p.prefix() + p.module; };
  EXPECT_EQ(text(merged(all, line)), "b.py:2, data, n");
  EXPECT_EQ(text(merged(line, all)), "a.py:1, backward, n");
  const Provenance* const others[] = {&line, &module, &all};
  EXPECT_EQ(text(merged(nothing, others)), "a.py:1, m");
}

}  // namespace
}  // namespace sluice::compiler
