// Order of nodes: the trace's, except that a node which frees at least as much memory as it takes runs as soon as it
// can. So optimizer updates follow their gradients, and activations die early. A value that is computed again for the
// backward pass stays near the nodes that need it. The nodes of a collective's call stay together. Nodes that run once
// a step come behind those that run in each micro-batch. Near-linear. For other orders see list_order.cpp.
#include <algorithm>
#include <span>

#include "compiler/collectives.h"
#include "compiler/lowering/lowering.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using graph::ValueId;

class Scheduler {
 public:
  // With `as_written`, nodes that free memory are not moved up.
  Scheduler(const graph::Graph& graph, bool as_written)
      : graph_(graph),
        as_written_(as_written),
        uses_(graph.values().size(), 0),
        readers_(graph.values().size()),
        waits_(graph.nodes().size(), 0),
        done_(graph.nodes().size(), false),
        updated_by_(graph.values().size(), kNoValue) {
    for (const graph::Output& output : graph.outputs()) ++uses_[output.value];
    for (const graph::Variable& v : graph.variables()) {
      if (v.update != kNoValue) updated_by_[v.update] = v.value;
    }
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      add_inputs(graph.nodes()[i]);
      for (ValueId input : unique_inputs(static_cast<int>(i))) {
        ++uses_[input];
        readers_[input].push_back(static_cast<int>(i));
        waits_[i] += graph.values()[input].kind == graph::ValueKind::kNode;
      }
    }
  }

  std::vector<int> run() {
    const int batches = graph_.micro_batches();
    for (every_ = 1;; every_ = batches) {
      visit_all();
      if (every_ == batches) return std::move(order_);
    }
  }

 private:
  // Visits the nodes that run as often as `every_` says.
  void visit_all() {
    for (size_t i = 0; i < waits_.size(); ++i) {
      const graph::Node& node = graph_.nodes()[i];
      if (node.every != every_) continue;
      if (is_collective(*node.op)) {
        visit(static_cast<int>(i));
        const graph::Node* next = i + 1 < waits_.size() ? &graph_.nodes()[i + 1] : nullptr;
        if (next && is_collective(*next->op) && meeting_of(*next) == meeting_of(node)) continue;
      } else {
        pending_.push_back(static_cast<int>(i));
      }
      while (!pending_.empty()) {
        const int node = pending_.back();
        pending_.pop_back();
        if (!done_[node]) visit(node);
      }
    }
  }

  void add_inputs(const graph::Node& node) {
    const auto first = static_cast<std::ptrdiff_t>(inputs_.size());
    for (ValueId input : node.inputs) {
      if (input != kNoValue) inputs_.push_back(input);
    }
    std::sort(inputs_.begin() + first, inputs_.end());
    inputs_.erase(std::unique(inputs_.begin() + first, inputs_.end()), inputs_.end());
    first_input_.push_back(inputs_.size());
  }
  std::span<const ValueId> unique_inputs(int node) const {
    return {inputs_.data() + first_input_[node], inputs_.data() + first_input_[node + 1]};
  }

  uint64_t bytes(ValueId value) const { return bytes_of(graph_.type(value)); }

  // Running it now takes no memory: what it frees is as large as what it makes. An update writes its variable's own
  // memory, once the variable's old content is no longer read.
  bool frees(int node) const {
    if (as_written_) return false;
    if (graph_.nodes()[node].op->effectful) return false;             // effects keep their order
    if (graph_.nodes()[node].role == Role::kRecompute) return false;  // its place is before its first reader
    uint64_t made = 0, freed = 0;
    for (ValueId output : graph_.nodes()[node].outputs) {
      const ValueId variable = updated_by_[output];
      if (variable == kNoValue) {
        made += bytes(output);
      } else if (uses_[variable] > 1 || (uses_[variable] == 1 && !reads(node, variable))) {
        return false;
      }
    }
    for (ValueId input : unique_inputs(node)) {
      const bool temporary = graph_.values()[input].kind == graph::ValueKind::kNode;
      if (temporary && uses_[input] == 1) freed += bytes(input);
    }
    return freed > 0 && freed >= made;
  }

  bool reads(int node, ValueId value) const {
    const auto& inputs = graph_.nodes()[node].inputs;
    return std::find(inputs.begin(), inputs.end(), value) != inputs.end();
  }

  void consider(int node) {
    if (!done_[node] && waits_[node] == 0 && graph_.nodes()[node].every == every_ && frees(node))
      pending_.push_back(node);
  }

  void visit(int node) {
    done_[node] = true;
    order_.push_back(node);
    for (ValueId output : graph_.nodes()[node].outputs) {
      for (int reader : readers_[output]) {
        --waits_[reader];
        consider(reader);
      }
    }
    for (ValueId input : unique_inputs(node)) {
      if (--uses_[input] == 1) last_reader(input);
    }
  }

  // The one reader left may now free it. Found by walking on past the readers that are done, once per value in all.
  void last_reader(ValueId value) {
    for (int reader : readers_[value]) {
      if (!done_[reader]) return consider(reader);
    }
  }

  const graph::Graph& graph_;
  const bool as_written_;
  std::vector<ValueId> inputs_;            // of all nodes, each once, in order
  std::vector<size_t> first_input_ = {0};  // by node, and the end
  std::vector<int> uses_;                  // readers to come, by value
  std::vector<std::vector<int>> readers_;  // nodes, by value
  std::vector<int> waits_;                 // inputs not computed yet, by node
  std::vector<bool> done_;
  std::vector<ValueId> updated_by_;  // of an update: the variable's value
  std::vector<int> pending_, order_;
  int every_ = 1;
};

// The most bytes of values that are alive at once. A view lies in what it shows, an update in its variable.
uint64_t most_alive(const graph::Graph& graph, const std::vector<int>& order) {
  std::vector<ValueId> root(graph.values().size());
  std::vector<uint64_t> bytes(graph.values().size(), 0);
  std::vector<int> uses(graph.values().size(), 0);
  std::vector<bool> updates(graph.values().size(), false);
  for (const graph::Variable& v : graph.variables())
    if (v.update != kNoValue) updates[v.update] = true;
  for (size_t i = 0; i < root.size(); ++i) root[i] = static_cast<ValueId>(i);
  for (const graph::Node& node : graph.nodes()) {
    for (const ValueId output : node.outputs) {
      if (node.op->view)
        root[output] = root[node.inputs[0]];
      else if (!updates[output])
        bytes[output] = bytes_of(graph.type(output));
    }
    for (const ValueId input : node.inputs)
      if (input != kNoValue) ++uses[root[input]];
  }
  for (const graph::Output& output : graph.outputs()) ++uses[root[output.value]];
  uint64_t alive = 0, most = 0;
  for (const int index : order) {
    const graph::Node& node = graph.nodes()[index];
    for (const ValueId output : node.outputs) alive += bytes[output];
    most = std::max(most, alive);
    for (const ValueId input : node.inputs)
      if (input != kNoValue && --uses[root[input]] == 0) alive -= bytes[root[input]];
    for (const ValueId output : node.outputs)
      if (uses[output] == 0 && root[output] == output) alive -= bytes[output];  // nobody reads it
  }
  return most;
}

}  // namespace

std::vector<int> order_of_nodes(const graph::Graph& graph, bool as_written) {
  std::vector<int> written = Scheduler(graph, true).run();
  if (as_written) return written;
  std::vector<int> order = Scheduler(graph, false).run();
  // Moving up what frees memory now may keep more of it later.
  return most_alive(graph, order) <= most_alive(graph, written) ? order : written;
}

int schedule(graph::Graph& graph, PassContext& context) {
  const std::string& mode = context.options.order;
  const std::vector<int> order = mode == "memory" || mode == "program" ? order_of_nodes(graph, mode == "program")
                                                                       : preferred_order(graph, context);
  int moved = 0;
  for (size_t i = 0; i < order.size(); ++i) moved += order[i] != static_cast<int>(i);
  if (moved == 0) return 0;
  graph::Rewriter rewriter(graph);
  for (const int node : order) rewriter.take(node);
  graph = rewriter.finish();
  return moved;
}

}  // namespace sluice::compiler
