#include "graph/builder.h"

#include <gtest/gtest.h>

#include "graph/ops/activation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/matmul.h"
#include "graph/rewriter.h"
#include "support/error_of.h"

namespace sluice::graph {
namespace {

struct BuilderTest : testing::Test {
  Graph graph;
  GraphBuilder builder{graph, DeviceId{}};
  Value x = builder.value(graph.add_input("x", {DType::kFloat32, {4, 3}}));
};

TEST_F(BuilderTest, CallsMakeNodes) {
  const ExecutorScope scope(builder);
  builder.context = {{{"net.py", 7}, "block"}, {parse_device("sim:0"), ""}, 2};
  const Value y = ops::relu(ops::add(x, x));
  EXPECT_TRUE(y.impl()->traced());
  EXPECT_EQ(y.device(), parse_device("sim:0"));
  ASSERT_EQ(graph.nodes().size(), 2u);
  const Node& node = graph.nodes()[1];
  EXPECT_EQ(builder.id(y), node.outputs[0]);
  EXPECT_EQ(node.source.str(), "net.py:7");
  EXPECT_EQ(node.module, "block");
  EXPECT_EQ(node.quota, 2);
  graph.verify();
}

TEST_F(BuilderTest, OptionalInputsArePadded) {
  const ExecutorScope scope(builder);
  const Value w = builder.value(graph.add_variable("w", {DType::kFloat32, {2, 3}}));
  ops::linear(x, w);
  EXPECT_EQ(graph.nodes()[0].inputs, (ValueIds{0, 1, kNoValue}));
}

TEST_F(BuilderTest, ForeignValuesAndWritesAreRefused) {
  Graph other;
  other.name = "other";
  GraphBuilder elsewhere(other, DeviceId{});
  const ExecutorScope scope(elsewhere);
  EXPECT_EQ(test::message_of([&] { ops::relu(x); }),
            "relu: graph 'other': a value from outside was used: float32(4, 3); only values of this graph can be");
  EXPECT_EQ(test::message_of([&] { elsewhere.assign(x, x); }),
            "assign: a graph under construction is functional; write with ordinary ops");
}

TEST(CurrentExecutor, IsTheInnermostScopeThenTheDefault) {
  EXPECT_EQ(test::message_of([] { current_executor(); }),
            "ops: no executor: none is set on this thread or process; make an engine or open a trace scope");
  Graph graph;
  GraphBuilder one(graph, DeviceId{}), two(graph, DeviceId{});
  set_default_executor(&one);
  EXPECT_EQ(&current_executor(), &one);
  {
    const ExecutorScope scope(two);
    EXPECT_EQ(&current_executor(), &two);
  }
  EXPECT_EQ(&current_executor(), &one);
  set_default_executor(nullptr);
}

TEST(GraphVerify, FindsWrongEdges) {
  Graph graph;
  graph.name = "g";
  const ValueId x = graph.add_input("x", {DType::kFloat32, {2}});
  Node node;
  node.op = &builtin_ops().get("relu");
  node.inputs = {x};
  const int first = graph.add_node(node);
  node.inputs = graph.nodes()[first].outputs;
  graph.add_node(node);
  graph.verify();
  Graph late = graph;
  late.mutable_nodes()[0].inputs = {2};
  EXPECT_EQ(test::message_of([&] { late.verify(); }),
            "graph 'g': node 0 (relu): input %2 is defined by node 1; definitions must precede uses");
  Graph missing = graph;
  missing.mutable_nodes()[1].outputs = {1};
  EXPECT_EQ(test::message_of([&] { missing.verify(); }),
            "graph 'g': node 1 (relu): value %1 names another definition; definitions and values must agree");
}

TEST(Rewriter, ReplacesAndKeepsTheRest) {
  Graph graph = parse(R"(graph "g" {
  %0 = input "x" : float32(2,)
  %1 = variable "unused" : float32(2,)
  %2 = variable "v" : float32(2,)
  %3 = relu(%0) : float32(2,)
  %4 = neg(%3) : float32(2,)
  output "y" = %4
  update "v" = %4
}
)",
                      "g.ir", builtin_ops());
  const std::vector<bool> keep{false, true};
  Rewriter rewriter(graph, &keep);
  rewriter.map(graph.nodes()[0].outputs[0], rewriter[0]);
  rewriter.take(1);
  EXPECT_EQ(to_text(rewriter.finish()), R"(graph "g" {
  %0 = input "x" : float32(2,)
  %1 = variable "v" : float32(2,)
  %2 = neg(%0) : float32(2,)
  output "y" = %2
  update "v" = %2
}
)");
}

}  // namespace
}  // namespace sluice::graph
