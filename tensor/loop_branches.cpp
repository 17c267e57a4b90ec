#include "tensor/loop_branches.h"

#include <algorithm>

#include "graph/ops/branches.h"
#include "tensor/trace_executor.h"

namespace sluice {

using graph::Node;
using graph::ValueId;

BranchPaths::BranchPaths(const graph::Graph& graph, size_t first) {
  for (size_t i = first; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    std::vector<BranchTaken> path;
    const auto add = [&](const BranchTaken& branch) {
      if (std::find(path.begin(), path.end(), branch) == path.end()) path.push_back(branch);
    };
    // A branch lies in others as its index does. A value in which branches have met is as void as the index is.
    const size_t read = node.op == &ops::esac_op() ? 1 : node.inputs.size();
    for (size_t k = 0; k < read; ++k)
      for (const BranchTaken& branch : of(node.inputs[k])) add(branch);
    const auto n = static_cast<int64_t>(node.outputs.size());
    for (int64_t k = 0; k < n; ++k) {
      std::vector<BranchTaken> own = path;
      if (node.op == &ops::case_op()) own.push_back({node.inputs[0], k, n});
      if (!own.empty()) paths_.emplace(node.outputs[static_cast<size_t>(k)], std::move(own));
    }
  }
}

std::vector<BranchTaken> BranchPaths::of(ValueId value) const {
  const auto found = paths_.find(value);
  return found == paths_.end() ? std::vector<BranchTaken>() : found->second;
}

Value out_of(TraceExecutor& trace, std::span<const BranchTaken> path, Value value) {
  for (; !path.empty(); path = path.first(path.size() - 1)) {
    const BranchTaken& branch = path.back();
    // A turn makes the zeros: constants of the plan would be kept with it.
    std::vector<Value> values(static_cast<size_t>(branch.n), trace.stand_in(value.type(), value.device()));
    values[static_cast<size_t>(branch.taken)] = value;
    value = ops::esac(trace.handle_of(branch.index), values);
  }
  return value;
}

Value into(TraceExecutor& trace, std::span<const BranchTaken> path, Value value) {
  for (const BranchTaken& branch : path)
    value = ops::case_of(trace.handle_of(branch.index), value, branch.n)[static_cast<size_t>(branch.taken)];
  return value;
}

}  // namespace sluice
