// Makes clusters of the nodes that a foreign backend takes, each as one node "foreign" (ADR 67). The cluster stays in
// the node twice: as ops, which the backend compiles, and as kernels, which run where there is no backend.
#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "base/log.h"
#include "compiler/collectives.h"
#include "compiler/pass.h"
#include "compiler/passes/bodies.h"
#include "graph/clusters.h"
#include "graph/ops/foreign.h"
#include "graph/rewriter.h"
#include "plan/foreign/foreign.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using graph::ValueIds;

constexpr int kNotTaken = -1;

// A part of a graph as a nested one.
struct Part {
  AttrGraph body;
  ValueIds inputs, outputs;       // values of the graph
  std::vector<TensorType> types;  // of the inputs
};

Part part_of(const Graph& graph, const std::vector<int>& members, const std::vector<bool>& read_outside) {
  Part part;
  std::map<ValueId, int> number;
  std::vector<bool> inside(graph.nodes().size(), false);
  for (const int member : members) inside[static_cast<size_t>(member)] = true;
  for (const int member : members) {
    for (const ValueId input : graph.nodes()[static_cast<size_t>(member)].inputs) {
      if (input == kNoValue) continue;
      const graph::ValueInfo& info = graph.values()[static_cast<size_t>(input)];
      if (info.kind == graph::ValueKind::kNode && inside[static_cast<size_t>(info.index)]) continue;
      if (!number.emplace(input, static_cast<int>(part.inputs.size())).second) continue;
      part.inputs.push_back(input);
      part.types.push_back(info.type);
    }
  }
  part.body.inputs = static_cast<int>(part.inputs.size());
  int next = part.body.inputs;
  for (const int member : members) {
    const Node& node = graph.nodes()[static_cast<size_t>(member)];
    AttrCall call{node.op->name, name_attrs(*node.op, node.attrs), {}, {}};
    for (const ValueId input : node.inputs) call.operands.push_back(input == kNoValue ? kNoOperand : number.at(input));
    for (const ValueId output : node.outputs) {
      call.results.push_back(TensorSpec::contiguous(graph.type(output)));
      number.emplace(output, next);
      if (read_outside[static_cast<size_t>(output)]) {
        part.body.outputs.push_back(next);
        part.outputs.push_back(output);
      }
      ++next;
    }
    part.body.calls.push_back(std::move(call));
  }
  return part;
}

// The values that nodes which may not be in a cluster with their makers read: what varies in length, and what a branch
// that may not be taken makes.
class Marks {
 public:
  explicit Marks(const Graph& graph) : why_(graph.values().size(), nullptr) {
    for (const Node& node : graph.nodes()) {
      const std::string_view op = node.op->name;
      const char* why = nullptr;
      for (const ValueId input : node.inputs)
        if (input != kNoValue && why_[static_cast<size_t>(input)] != nullptr) why = why_[static_cast<size_t>(input)];
      if (op == "esac") why = nullptr;
      if (op == "case") why = "in a branch";
      if (node.op->varying != nullptr) why = "its length varies";
      for (const ValueId output : node.outputs) why_[static_cast<size_t>(output)] = why;
    }
  }
  const char* of(const Node& node) const {
    for (const ValueIds* values : {&node.inputs, &node.outputs})
      for (const ValueId value : *values)
        if (value != kNoValue && why_[static_cast<size_t>(value)] != nullptr) return why_[static_cast<size_t>(value)];
    return nullptr;
  }

 private:
  std::vector<const char*> why_;
};

class Offloading {
 public:
  Offloading(Graph& graph, PassContext& context)
      : graph_(graph), context_(context), backend_(plan::load_foreign(context.options.backend)) {}

  int run() {
    ask();
    cluster_ = graph::convex_clusters(graph_, kinds_);
    for (const int cluster : cluster_) clusters_ = std::max(clusters_, cluster + 1);
    tell();
    if (clusters_ > 0) rewrite();
    return clusters_;
  }

 private:
  // Why Sluice does not offer a node to any backend; null: it does.
  const char* kept(const Node& node, const Marks& marks) const {
    const OpDef& op = *node.op;
    if (op.effectful || op.host) return "it has an effect";
    if (op.random) return "it draws random numbers";
    if (!op.extension.empty()) return "an op of a library";
    if (op.of_all || op.relays || is_collective(op)) return "it is about several devices or micro-batches";
    if (context_.device_of(node).kind != DeviceKind::kCpu) return "not on the cpu";
    if (!node.placement.stream.empty()) return "on a stream of its own";
    return marks.of(node);
  }

  // Fills kinds_ and why_.
  void ask() {
    const Marks marks(graph_);
    const std::vector<bool> read = values_read();
    std::map<std::tuple<graph::Placement, int, int>, int> places;
    for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
      const Node& node = graph_.nodes()[static_cast<size_t>(i)];
      std::string why;
      if (const char* const own = kept(node, marks); own != nullptr) {
        why = own;
      } else {
        const Part one = part_of(graph_, {i}, read);
        why = backend_.refusal({one.body, one.types, context_.options.backend_options});
      }
      const int next = static_cast<int>(places.size());
      kinds_.push_back(why.empty() ? places.try_emplace({node.placement, node.quota, node.every}, next).first->second
                                   : kNotTaken);
      why_.push_back(std::move(why));
    }
  }

  void tell() {
    Offload& told = context_.offload;
    told = {.backend = backend_.name(), .version = backend_.version(), .clusters = clusters_};
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      told.nodes.push_back({.op = node.op->name,
                            .module = node.module,
                            .source = node.source.str(),
                            .cluster = cluster_[i],
                            .reason = why_[i],
                            .flops = graph_.cost(node).flops});
    }
    log(LogLevel::kWarn, LogArea::kCompiler, "graph '{}': {}", context_.options.name, told.line());
  }

  // Whether a node reads the value from outside the cluster that makes it; with no clusters yet, whether any reads it.
  std::vector<bool> values_read() const {
    std::vector<bool> read(graph_.values().size(), false);
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      for (const ValueId input : graph_.nodes()[i].inputs) {
        if (input == kNoValue) continue;
        const graph::ValueInfo& info = graph_.values()[static_cast<size_t>(input)];
        const bool inside = info.kind == graph::ValueKind::kNode && !cluster_.empty() && cluster_[i] != kNotTaken &&
                            cluster_[static_cast<size_t>(info.index)] == cluster_[i];
        if (!inside) read[static_cast<size_t>(input)] = true;
      }
    }
    for (const graph::Output& output : graph_.outputs()) read[static_cast<size_t>(output.value)] = true;
    for (const graph::Variable& v : graph_.variables())
      if (v.update != kNoValue) read[static_cast<size_t>(v.update)] = true;
    return read;
  }

  void rewrite() {
    const std::vector<bool> outside = values_read();
    std::vector<std::vector<int>> members(static_cast<size_t>(clusters_));
    for (size_t i = 0; i < cluster_.size(); ++i)
      if (cluster_[i] != kNotTaken) members[static_cast<size_t>(cluster_[i])].push_back(static_cast<int>(i));
    graph::Rewriter rewriter(graph_);
    std::vector<bool> done(graph_.nodes().size(), false);
    // A cluster stands where all that it reads is made, which may be behind what stood between its members.
    std::vector<int> open;
    for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
      open.push_back(i);
      while (!open.empty()) {
        const int node = open.back();
        if (done[static_cast<size_t>(node)]) {
          open.pop_back();
          continue;
        }
        const std::vector<int> unit = unit_of(node, members);
        const size_t before = open.size();
        add_missing(unit, done, open);
        if (open.size() > before) continue;
        open.pop_back();
        for (const int member : unit) done[static_cast<size_t>(member)] = true;
        if (cluster_[static_cast<size_t>(node)] == kNotTaken)
          rewriter.take(node);
        else
          add_foreign(rewriter, part_of(graph_, unit, outside), unit);
      }
    }
    graph_ = rewriter.finish();
  }

  std::vector<int> unit_of(int node, const std::vector<std::vector<int>>& members) const {
    const int cluster = cluster_[static_cast<size_t>(node)];
    return cluster == kNotTaken ? std::vector<int>{node} : members[static_cast<size_t>(cluster)];
  }

  // Adds the makers of what the unit reads that have not been made yet.
  void add_missing(const std::vector<int>& unit, const std::vector<bool>& done, std::vector<int>& open) const {
    for (const int member : unit) {
      for (const ValueId input : graph_.nodes()[static_cast<size_t>(member)].inputs) {
        if (input == kNoValue) continue;
        const graph::ValueInfo& info = graph_.values()[static_cast<size_t>(input)];
        if (info.kind != graph::ValueKind::kNode || done[static_cast<size_t>(info.index)]) continue;
        if (std::find(unit.begin(), unit.end(), info.index) == unit.end()) open.push_back(info.index);
      }
    }
  }

  void add_foreign(graph::Rewriter& rewriter, Part part, const std::vector<int>& members) {
    if (part.outputs.empty()) return;  // nobody reads it
    const Node& first = graph_.nodes()[static_cast<size_t>(members.front())];
    const DeviceId device = context_.device_of(first);
    std::vector<const Provenance*> origins;
    for (const int member : members) origins.push_back(&graph_.nodes()[static_cast<size_t>(member)]);
    Node made;
    static_cast<Provenance&>(made) = merged(first, origins);
    made.op = &ops::foreign_op();
    made.placement = first.placement;
    made.quota = first.quota;
    made.every = first.every;
    AttrGraph program =
        compile_body(graph_of_body(part.body, part.types, graph::Rewriter::context_of(made), device), context_, device);
    for (const ValueId input : part.inputs) made.inputs.push_back(rewriter[input]);
    made.attrs = {backend_.name(), Strings(context_.options.backend_options), std::move(part.body), std::move(program)};
    const int index = rewriter.target().add_node(std::move(made));
    for (size_t o = 0; o < part.outputs.size(); ++o)
      rewriter.map(part.outputs[o], rewriter.target().nodes()[static_cast<size_t>(index)].outputs[o]);
  }

  Graph& graph_;
  PassContext& context_;
  const plan::ForeignBackend& backend_;
  std::vector<int> kinds_, cluster_;  // per node
  std::vector<std::string> why_;
  int clusters_ = 0;
};

}  // namespace

int offload(Graph& graph, PassContext& context) {
  return context.options.backend.empty() ? 0 : Offloading(graph, context).run();
}

}  // namespace sluice::compiler

namespace sluice {

std::string Offload::line() const {
  constexpr size_t kShown = 6;
  double flops = 0, taken_flops = 0;
  size_t taken = 0;
  std::map<std::string, std::pair<double, int>> left;  // by op and reason: flops, and how many
  for (const Node& node : nodes) {
    flops += node.flops;
    if (node.cluster >= 0) {
      ++taken;
      taken_flops += node.flops;
      continue;
    }
    auto& [work, count] = left[fmt::format("{} ({})", node.op, node.reason)];
    work += node.flops;
    ++count;
  }
  std::string text = fmt::format("{}: {} of {} nodes, {:.0f} % of flops, {} cluster{}", backend, taken, nodes.size(),
                                 flops > 0 ? 100 * taken_flops / flops : 0, clusters, clusters == 1 ? "" : "s");
  std::vector<std::pair<std::string, std::pair<double, int>>> order(left.begin(), left.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (size_t i = 0; i < order.size() && i < kShown; ++i) {
    const int count = order[i].second.second;
    text += fmt::format("{}{}{}", i == 0 ? "; not taken: " : ", ", count > 1 ? fmt::format("{} x ", count) : "",
                        order[i].first);
  }
  return order.size() > kShown ? fmt::format("{}, and {} more kinds", text, order.size() - kShown) : text;
}

}  // namespace sluice
