// Orders in which, of all nodes that could run next, that one does which is preferred: list scheduling (R. Graham,
// "Bounds on Multiprocessing Timing Anomalies", 1969). Each order is a preference, a number per node:
//   "speed": what a node and the longest path behind it take, so that nothing waits for a late start of the longest;
//   "overlap": how soon it leads to another stream, so that this one has work early;
//   "short_last": what it takes, so that short kernels fill the end.
// Near-linear.
#include <algorithm>
#include <limits>
#include <map>
#include <queue>

#include "compiler/collectives.h"
#include "compiler/lowering/lowering.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using graph::ValueKind;

// Which nodes wait for which: for values, and for what else the program's order says.
class Waits {
 public:
  explicit Waits(const Graph& graph)
      : graph_(graph),
        next_(graph.nodes().size()),
        count_(graph.nodes().size(), 0),
        together_(graph.nodes().size(), 0) {
    const std::vector<Node>& nodes = graph.nodes();
    int effect = -1, collective = -1, computed = -1;
    for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
      for (const ValueId input : nodes[i].inputs)
        if (const int maker = maker_of(input); maker >= 0) add(maker, i);
      if (nodes[i].op->effectful) {
        if (effect >= 0) add(effect, i);
        effect = i;
      }
      // A value that is computed again stays behind what came before it: early, it would take memory for nothing.
      if (nodes[i].role != Role::kRecompute)
        computed = i;
      else if (computed >= 0)
        add(computed, i);
      if (is_collective(*nodes[i].op)) {
        if (collective >= 0) add(collective, i);
        collective = i;
      }
    }
    keep_meetings_together();
    keep_reads_before_updates();
  }

  int count(int node) const { return count_[node]; }
  const std::vector<int>& next(int node) const { return next_[node]; }
  // How many nodes behind it, in the program's order, run right after it.
  int together(int node) const { return together_[node]; }

 private:
  int maker_of(ValueId value) const {
    if (value == kNoValue || graph_.values()[value].kind != ValueKind::kNode) return -1;
    return graph_.values()[value].index;
  }
  void add(int first, int second) {
    next_[first].push_back(second);
    ++count_[second];
  }

  // The calls of a meeting stand side by side; the first waits for what all of them read.
  void keep_meetings_together() {
    const std::vector<Node>& nodes = graph_.nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (!is_collective(*nodes[i].op)) continue;
      size_t end = i + 1;
      for (; end < nodes.size(); ++end) {
        if (!is_collective(*nodes[end].op) || meeting_of(nodes[end]) != meeting_of(nodes[i])) break;
        for (const ValueId input : nodes[end].inputs)
          if (const int maker = maker_of(input); maker >= 0 && maker < static_cast<int>(i))
            add(maker, static_cast<int>(i));
      }
      together_[i] = static_cast<int>(end - i) - 1;
      i = end - 1;
    }
  }

  // So that an update can be written where the old content was read.
  void keep_reads_before_updates() {
    std::map<ValueId, int> update_of;  // by the variable's value: the node
    for (const graph::Variable& v : graph_.variables())
      if (const int maker = maker_of(v.update); maker >= 0) update_of.emplace(v.value, maker);
    for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
      for (const ValueId input : graph_.nodes()[i].inputs) {
        const auto update = update_of.find(input);
        if (update != update_of.end() && i < update->second) add(i, update->second);
      }
    }
  }

  const Graph& graph_;
  std::vector<std::vector<int>> next_;
  std::vector<int> count_, together_;
};

std::vector<double> costs_of(const Graph& graph, const PassContext& context) {
  std::vector<double> costs;
  for (const Node& node : graph.nodes()) {
    plan::KernelQuery query;
    query.op = node.op->name;
    query.device = context.device_of(node);
    query.cost = graph.cost(node);
    costs.push_back(node.op->view ? 0 : context.target.cost_ns(query));
  }
  return costs;
}

std::vector<double> preferences(const Graph& graph, const PassContext& context, const Waits& waits) {
  std::vector<double> preferred = costs_of(graph, context);
  const std::string& order = context.options.order;
  const std::vector<Node>& nodes = graph.nodes();
  if (order == "short_last") {
    for (size_t i = 0; i < nodes.size(); ++i)  // a view takes nothing, and what is behind it may be long
      if (nodes[i].op->view) preferred[i] = std::numeric_limits<double>::infinity();
    return preferred;
  }
  for (int i = static_cast<int>(nodes.size()) - 1; i >= 0; --i) {
    if (order == "speed") {
      double behind = 0;
      for (const int next : waits.next(i)) behind = std::max(behind, preferred[next]);
      preferred[i] += behind;
      continue;
    }
    double soonest = -std::numeric_limits<double>::infinity();
    for (const int next : waits.next(i))
      soonest = std::max(soonest, nodes[next].placement == nodes[i].placement ? preferred[next] : 0);
    preferred[i] = soonest - preferred[i];
  }
  return preferred;
}

}  // namespace

std::vector<int> preferred_order(const Graph& graph, const PassContext& context) {
  const Waits waits(graph);
  const std::vector<double> preferred = preferences(graph, context, waits);
  const std::vector<Node>& nodes = graph.nodes();
  std::vector<int> left(nodes.size()), order;
  for (size_t i = 0; i < nodes.size(); ++i) left[i] = waits.count(static_cast<int>(i));
  const auto later = [&](int a, int b) { return std::pair(preferred[a], -a) < std::pair(preferred[b], -b); };
  const int batches = graph.micro_batches();
  std::vector<int> of_step;  // ready, but of all micro-batches: they run behind what runs in each
  for (int every = 1;; every = batches) {
    std::priority_queue<int, std::vector<int>, decltype(later)> ready(later);
    const auto offer = [&](int node) {
      if (nodes[node].every == every)
        ready.push(node);
      else
        of_step.push_back(node);
    };
    if (every == 1) {
      for (size_t i = 0; i < nodes.size(); ++i)
        if (left[i] == 0) offer(static_cast<int>(i));
    } else {
      for (const int node : std::exchange(of_step, {})) offer(node);
    }
    const auto run = [&](int node) {
      order.push_back(node);
      for (const int next : waits.next(node))
        if (--left[next] == 0) offer(next);
    };
    std::vector<bool> taken(nodes.size(), false);  // as one of a meeting
    while (!ready.empty()) {
      const int node = ready.top();
      ready.pop();
      if (taken[node]) continue;
      for (int i = node; i <= node + waits.together(node); ++i) {
        taken[i] = true;
        run(i);
      }
    }
    if (every == batches) return order;
  }
}

}  // namespace sluice::compiler
