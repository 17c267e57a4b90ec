// Clusters for a foreign backend: random graphs, random sets of ops that it takes. No cycle is made, and values are the
// same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "compiler/fake_backend.h"
#include "compiler/fake_target.h"
#include "compiler/pass.h"
#include "graph/clusters.h"
#include "graph/ops/foreign.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;

constexpr const char* kOps[] = {"relu", "neg", "tanh", "exp", "add", "mul"};

Graph random_graph(std::mt19937& random, int nodes) {
  Graph g;
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::vector<ValueId> values;
  for (const char* name : {"a", "b"}) values.push_back(g.add_input(name, {DType::kFloat32, {2}}));
  values.push_back(g.add_variable("v", {DType::kFloat32, {2}}));
  for (int i = 0; i < nodes; ++i) {
    Node node;
    const size_t op = below(std::size(kOps));
    node.op = &builtin_ops().get(kOps[op]);
    // Near values make chains, far ones paths that lead around.
    const auto pick = [&] {
      return values[values.size() - 1 - below(std::min<size_t>(values.size(), below(2) ? 4 : 40))];
    };
    node.inputs = {pick()};
    if (op >= 4) node.inputs.push_back(pick());
    const int made = g.add_node(std::move(node));
    values.push_back(g.nodes()[static_cast<size_t>(made)].outputs[0]);
  }
  for (int o = 0; o < 3; ++o) g.add_output(fmt::format("o{}", o), values[values.size() - 1 - below(values.size() - 3)]);
  g.set_update(0, values.back());
  return g;
}

std::vector<int> read_by(const Graph& graph, size_t node) {
  std::vector<int> made;
  for (const ValueId input : graph.nodes()[node].inputs)
    if (graph.values()[static_cast<size_t>(input)].kind == graph::ValueKind::kNode)
      made.push_back(graph.values()[static_cast<size_t>(input)].index);
  return made;
}

// Whether clusters, and nodes in none, can be put in an order. `joined`: two clusters that count as one.
bool has_order(const Graph& graph, const std::vector<int>& cluster, std::pair<int, int> joined = {-2, -2}) {
  const auto unit = [&](size_t node) {
    const int c = cluster[node] == joined.first ? joined.second : cluster[node];
    return c < 0 ? static_cast<int>(graph.nodes().size() + node) : c;
  };
  std::map<int, std::set<int>> waits_for;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    std::set<int>& of = waits_for[unit(n)];
    for (const int made : read_by(graph, n))
      if (unit(static_cast<size_t>(made)) != unit(n)) of.insert(unit(static_cast<size_t>(made)));
  }
  for (bool moved = true; moved && !waits_for.empty();) {
    moved = false;
    for (auto it = waits_for.begin(); it != waits_for.end();) {
      if (!it->second.empty()) {
        ++it;
        continue;
      }
      const int done = it->first;
      it = waits_for.erase(it);
      for (auto& [who, what] : waits_for) what.erase(done);
      moved = true;
    }
  }
  return waits_for.empty();
}

TEST(Clusters, AreConvexWholeAndAsLargeAsTheyCanBe) {
  std::mt19937 random(1);
  int clusters = 0, members = 0;
  for (int round = 0; round < 400; ++round) {
    const Graph g = random_graph(random, 1 + static_cast<int>(random() % 40));
    std::vector<int> kinds;
    for (size_t n = 0; n < g.nodes().size(); ++n) kinds.push_back(std::min(static_cast<int>(random() % 4) - 1, 1));
    const std::vector<int> cluster = graph::convex_clusters(g, kinds);
    ASSERT_TRUE(has_order(g, cluster)) << "round " << round << "\n" << graph::to_text(g);
    for (size_t n = 0; n < kinds.size(); ++n) {
      ASSERT_EQ(kinds[n] < 0, cluster[n] < 0) << "round " << round << ", node " << n;
      clusters = std::max(clusters, cluster[n]);
      members += cluster[n] >= 0;
      for (const int made : read_by(g, n)) {
        const size_t m = static_cast<size_t>(made);
        if (cluster[n] < 0 || cluster[m] < 0) continue;
        if (cluster[n] == cluster[m]) {
          ASSERT_EQ(kinds[n], kinds[m]);
        } else if (kinds[n] == kinds[m]) {
          ASSERT_FALSE(has_order(g, cluster, {cluster[n], cluster[m]}))
              << "round " << round << ": clusters " << cluster[n] << " and " << cluster[m] << " could be one\n"
              << graph::to_text(g);
        }
      }
    }
  }
  EXPECT_GT(clusters, 3);
  EXPECT_GT(members, 1000);
}

using Values = std::vector<double>;

double computed(const std::string& op, const Values& in) {
  if (op == "relu") return std::max(in[0], 0.0);
  if (op == "copy") return in[0];  // what a program gives that is one of its inputs
  if (op == "neg") return -in[0];
  if (op == "tanh") return std::tanh(in[0]);
  if (op == "exp") return std::exp(std::min(in[0], 1.0));
  return op == "add" ? in[0] + in[1] : in[0] * in[1];
}

// Each tensor as one number; a cluster by its attribute `which`.
Values evaluated(const Graph& graph, int which) {
  Values value(graph.values().size(), 0);
  for (const graph::Input& input : graph.inputs())
    value[static_cast<size_t>(input.value)] = input.name == "a" ? 0.7 : -0.4;
  for (const graph::Variable& v : graph.variables()) value[static_cast<size_t>(v.value)] = 0.25;
  for (const Node& node : graph.nodes()) {
    Values in;
    for (const ValueId input : node.inputs) in.push_back(value[static_cast<size_t>(input)]);
    if (node.op != &ops::foreign_op()) {
      value[static_cast<size_t>(node.outputs[0])] = computed(node.op->name, in);
      continue;
    }
    const AttrGraph& body = attr<AttrGraph>(node.attrs, which);
    for (const AttrCall& call : body.calls) {
      Values operands;
      for (const int operand : call.operands) operands.push_back(in[static_cast<size_t>(operand)]);
      in.push_back(computed(call.op, operands));
    }
    for (size_t o = 0; o < node.outputs.size(); ++o)
      value[static_cast<size_t>(node.outputs[o])] = in[static_cast<size_t>(body.outputs[o])];
  }
  Values results;
  for (const graph::Output& output : graph.outputs()) results.push_back(value[static_cast<size_t>(output.value)]);
  for (const graph::Variable& v : graph.variables()) results.push_back(value[static_cast<size_t>(v.update)]);
  return results;
}

struct Offloaded {
  Graph graph;
  Offload report;
  int clusters = 0;
};

Offloaded offloaded(Graph graph, std::vector<std::string> backend_options = {}) {
  add_fake_backend();
  FakeTarget target;
  CompileOptions options;
  options.backend = "fake";
  options.backend_options = std::move(backend_options);
  std::map<std::string, std::vector<std::byte>> constants;
  Partition partition;
  const ConstantLookup lookup;
  const ConstantEvaluator evaluate;
  PassContext context{target, options, lookup, evaluate, constants, partition};
  const int clusters = offload(graph, context);
  graph.verify();
  return {std::move(graph), std::move(context.offload), clusters};
}

TEST(Offload, ComputesTheSameWhateverABackendTakes) {
  std::mt19937 random(2);
  size_t most = 0;
  for (int round = 0; round < 300; ++round) {
    const Graph g = random_graph(random, 1 + static_cast<int>(random() % 40));
    std::set<std::string> taken;
    for (const char* op : kOps)
      if (random() % 2) taken.insert(op);
    taken_by_fake_backend() = taken;
    std::vector<int> kinds;
    for (const Node& node : g.nodes()) kinds.push_back(taken.contains(node.op->name) ? 0 : -1);
    ASSERT_TRUE(has_order(g, graph::convex_clusters(g, kinds))) << "round " << round << "\n" << graph::to_text(g);
    const Offloaded made = offloaded(g);
    const Values wanted = evaluated(g, 0);
    ASSERT_EQ(evaluated(made.graph, ops::foreign_attr::kBody), wanted) << "round " << round;
    ASSERT_EQ(evaluated(made.graph, ops::foreign_attr::kProgram), wanted) << "round " << round << "\n"
                                                                          << graph::to_text(made.graph);
    for (const Node& node : made.graph.nodes()) ASSERT_FALSE(taken.contains(node.op->name)) << "round " << round;
    // Its text is parsed again, so that a bundle or a dump can hold it.
    const std::string text = graph::to_text(made.graph);
    ASSERT_EQ(graph::to_text(graph::parse(text, "g", builtin_ops())), text);
    most = std::max(most, static_cast<size_t>(made.clusters));
  }
  EXPECT_GT(most, 3u);
}

const char* const kTwo =
    "graph \"g\" {\n  %0 = input \"x\" : float32(4,)\n  %1 = relu(%0) : float32(4,)\n  %2 = exp(%1) : float32(4,)\n"
    "  %3 = relu(%2) : float32(4,)\n  output \"y\" = %3\n}\n";

TEST(Offload, SaysWhatIsTakenAndWhyNotTheRest) {
  taken_by_fake_backend() = {"relu"};
  const Offload report = offloaded(graph::parse(kTwo, "g", builtin_ops())).report;
  EXPECT_EQ(report.line(), "fake: 2 of 3 nodes, 67 % of flops, 2 clusters; not taken: exp (not one of relu)");
  ASSERT_EQ(report.nodes.size(), 3u);
  EXPECT_EQ(report.nodes[0].cluster, 0);
  EXPECT_EQ(report.nodes[1].reason, "not one of relu");
  EXPECT_EQ(report.nodes[2].cluster, 1);
  taken_by_fake_backend() = {"relu", "exp"};
  EXPECT_EQ(offloaded(graph::parse(kTwo, "g", builtin_ops())).report.line(),
            "fake: 3 of 3 nodes, 100 % of flops, 1 cluster");
}

TEST(Offload, OptionsReachTheNodeAndTheBackend) {
  taken_by_fake_backend() = {"relu"};
  const Offloaded made = offloaded(graph::parse(kTwo, "g", builtin_ops()), {"precision=fp16", "refuse=exp"});
  EXPECT_EQ(attr<Strings>(made.graph.nodes()[0].attrs, ops::foreign_attr::kOptions),
            (Strings{"precision=fp16", "refuse=exp"}));
  EXPECT_EQ(options_of_fake_backend(), (std::map<std::string, std::string>{{"precision", "fp16"}, {"refuse", "exp"}}));
}

TEST(Offload, KeepsWhatIsRandomOrHasAnEffect) {
  taken_by_fake_backend() = {"relu", "bernoulli"};
  const Graph g = graph::parse(
      "graph \"g\" {\n  %0 = input \"s\" : int64(2,)\n  %1 = input \"x\" : float32(4,)\n"
      "  %2 = relu(%1) : float32(4,) [device \"sim:0\"]\n  %3 = relu(%1) : float32(4,) [stream \"host\"]\n"
      "  %4 = add(%2, %3) : float32(4,)\n  output \"y\" = %4\n}\n",
      "g", builtin_ops());
  const Offload report = offloaded(g).report;
  EXPECT_EQ(report.nodes[0].reason, "not on the cpu");
  EXPECT_EQ(report.nodes[1].reason, "on a stream of its own");
  EXPECT_EQ(report.clusters, 0);
}

}  // namespace
}  // namespace sluice::compiler
