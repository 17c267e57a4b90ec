#include <algorithm>

#include "compiler/lower.h"

namespace sluice::compiler {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using graph::ValueKind;

VariableFacts::VariableFacts(const graph::Graph& graph, const std::vector<int>& order)
    : position(graph.nodes().size(), 0),
      root(graph.values().size()),
      last_read(graph.variables().size(), -1),
      update_of(graph.values().size(), -1),
      needs_snapshot(graph.values().size(), false),
      updates_after(order.size() + 1),
      graph_(graph),
      order_(order) {
  for (size_t v = 0; v < root.size(); ++v) root[v] = static_cast<ValueId>(v);
  for (const graph::Variable& v : graph.variables()) updated_.push_back(v.update != kNoValue);
  const auto read = [&](ValueId value, int at) {
    const int variable = variable_of(root[value]);
    if (variable >= 0) last_read[variable] = std::max(last_read[variable], at);
  };
  for (size_t p = 0; p < order.size(); ++p) {
    const Node& node = graph.nodes()[order[p]];
    position[order[p]] = static_cast<int>(p);
    if (node.op->view) {
      root[node.outputs[0]] = root[node.inputs[0]];
      // Where it cannot be viewed it is copied here.
      read(node.outputs[0], static_cast<int>(p));
      continue;
    }
    for (ValueId input : node.inputs) {
      if (input != kNoValue) read(input, static_cast<int>(p));
    }
  }
  const auto defined_at = [&](ValueId value) {
    const graph::ValueInfo& info = graph.values()[value];
    return info.kind == ValueKind::kNode ? position[info.index] : -1;
  };
  for (size_t i = 0; i < graph.variables().size(); ++i) {
    const ValueId update = graph.variables()[i].update;
    if (update == kNoValue) continue;
    if (update_of[update] < 0) update_of[update] = static_cast<int>(i);
    const int source = variable_of(root[update]);
    needs_snapshot[update] = source >= 0 && updated_[source];
  }
  for (size_t i = 0; i < graph.variables().size(); ++i) {
    const ValueId update = graph.variables()[i].update;
    if (update != kNoValue)
      updates_after[std::max(defined_at(update), last_read[i]) + 1].push_back(static_cast<int>(i));
  }
}

int VariableFacts::variable_of(ValueId value) const {
  const graph::ValueInfo& info = graph_.values()[value];
  return info.kind == ValueKind::kVariable ? info.index : -1;
}

void VariableFacts::find_homes(Placer& placer, const std::vector<int>& ranks) {
  home.assign(graph_.variables().size(), -1);
  const auto may_live = [&](size_t variable, int stream) {
    return ranks[variable] < 0 || placer.rank_of(stream) == ranks[variable];
  };
  for (int index : order_) {
    const Node& node = graph_.nodes()[index];
    if (node.op->view) continue;
    for (ValueId input : node.inputs) {
      const int variable = input == kNoValue ? -1 : variable_of(root[input]);
      if (variable >= 0 && home[variable] < 0 && may_live(variable, placer.home_of(index)))
        home[variable] = placer.home_of(index);
    }
  }
  for (size_t i = 0; i < graph_.variables().size(); ++i) {
    const ValueId update = graph_.variables()[i].update;
    if (update != kNoValue) {
      const graph::ValueInfo& made = graph_.values()[root[update]];
      if (made.kind == ValueKind::kNode && may_live(i, placer.home_of(made.index)))
        home[i] = placer.home_of(made.index);
    }
    if (home[i] < 0) home[i] = placer.default_stream(std::max(ranks[i], 0));
  }
  read_elsewhere.assign(graph_.variables().size(), false);
  for (int index : order_) {
    const Node& node = graph_.nodes()[index];
    if (node.op->view) continue;
    for (ValueId input : node.inputs) {
      const int variable = input == kNoValue ? -1 : variable_of(root[input]);
      if (variable >= 0 && placer.stream_of(index) != home[variable]) read_elsewhere[variable] = true;
    }
  }
}

}  // namespace sluice::compiler
