#include "tensor/loop_extraction.h"

#include <algorithm>
#include <queue>

#include "graph/op_def.h"

namespace sluice {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using graph::ValueKind;

void Extraction::need(std::span<const ValueId> values, const Kept& kept) {
  std::vector<ValueId> open(values.begin(), values.end());
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    if (value == kNoValue || !seen_.insert(value).second) continue;
    const graph::ValueInfo& info = graph_.values()[value];
    if (info.kind != ValueKind::kNode || static_cast<size_t>(info.index) < first_) {
      outside_.push_back(value);
    } else if (kept(graph_.nodes()[info.index])) {
      kept_.push_back(value);
    } else if (nodes_.insert(info.index).second) {
      const Node& node = graph_.nodes()[info.index];
      open.insert(open.end(), node.inputs.begin(), node.inputs.end());
    }
  }
}

void Extraction::read_instead(ValueId value, ValueId other, const Kept& kept) {
  instead_.emplace(value, other);
  need({&other, 1}, kept);
}

ValueId Extraction::read(ValueId value) const {
  const auto found = instead_.find(value);
  return found == instead_.end() ? value : found->second;
}

// The nodes in the order in which they were made, but each behind what it reads: a value that is read in place of an
// earlier one was made after its readers.
std::vector<int> Extraction::in_order() const {
  std::map<int, std::vector<int>> readers;
  std::map<int, int> missing;
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (const int index : nodes_) {
    int& count = missing[index];
    for (const ValueId input : graph_.nodes()[index].inputs) {
      if (input == kNoValue || numbers_.contains(read(input))) continue;
      readers[graph_.values()[read(input)].index].push_back(index);
      ++count;
    }
    if (count == 0) ready.push(index);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (const int reader : readers[order.back()])
      if (--missing[reader] == 0) ready.push(reader);
  }
  return order;
}

AttrGraph Extraction::finish(std::span<const ValueId> outputs) {
  AttrGraph nested{.inputs = inputs_, .calls = {}, .outputs = {}};
  int next = inputs_;
  for (const int index : in_order()) {
    const Node& node = graph_.nodes()[index];
    const OpDef& op = *node.op;
    SLUICE_CHECK_KIND(kUnsupported, !op.random && !op.effectful && !op.host && op.extension.empty(),
                      "loop: its body calls {}; make what that gives before the loop, a row for each turn", op.name);
    SLUICE_CHECK_KIND(kUnsupported, op.varying == nullptr,
                      "loop: its body makes a value that is as long as the data say (nonzero, x[mask]); use "
                      "where(mask, x, y) there, or make it before or after the loop");
    AttrCall call{op.name, name_attrs(op, node.attrs), {}, {}};
    for (const ValueId input : node.inputs)
      call.operands.push_back(input == kNoValue ? kNoOperand : numbers_.at(read(input)));
    for (const ValueId output : node.outputs) {
      call.results.push_back(TensorSpec::contiguous(graph_.type(output)));
      numbers_.emplace(output, next++);
    }
    nested.calls.push_back(std::move(call));
  }
  for (const ValueId output : outputs) nested.outputs.push_back(numbers_.at(read(output)));
  return nested;
}

}  // namespace sluice
