#include "compiler/lowering/copies.h"

#include "base/layout.h"
#include "compiler/collectives.h"
#include "graph/ops/micro_batches.h"
#include "graph/ops/movement.h"

namespace sluice::compiler {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::Placement;
using graph::ValueId;
using graph::ValueIds;
using graph::ValueInfo;
using graph::ValueKind;

CopyingRewriter::CopyingRewriter(Graph& source, PassContext& context)
    : source_(source),
      context_(context),
      places_(context.target, context.options),
      root_(roots(source)),
      rewriter_(source),
      taken_from_(source),
      ways_(source.values().size()),
      seen_ways_(source.values().size(), 0),
      outputs_of_(source.values().size()),
      updates_of_(source.values().size()),
      outputs_(source.outputs().size(), kNoValue),
      updates_(source.variables().size(), kNoValue) {
  for (const ValueInfo& v : source.values()) {
    if (v.kind == ValueKind::kInput)
      memory_.push_back(places_.port_memory(source.inputs()[v.index].placement));
    else if (v.kind == ValueKind::kVariable)
      memory_.push_back(places_.writes(source.variables()[v.index].placement));
    else
      memory_.push_back(places_.writes(source.nodes()[v.index].placement));
  }
  for (size_t k = 0; k < outputs_.size(); ++k) outputs_of_[source.outputs()[k].value].push_back(static_cast<int>(k));
  for (size_t v = 0; v < updates_.size(); ++v) {
    const ValueId update = source.variables()[v].update;
    if (update != kNoValue) updates_of_[update].push_back(static_cast<int>(v));
  }
  for (const graph::Input& input : source.inputs())
    add_original(input.value, rewriter_[input.value], memory_[input.value]);
  for (const graph::Variable& v : source.variables()) add_original(v.value, rewriter_[v.value], memory_[v.value]);
}

Graph CopyingRewriter::run() {
  for (const graph::Input& input : source_.inputs()) defined(input.value);
  for (const graph::Variable& v : source_.variables()) defined(v.value);
  visited(-1);
  const std::vector<Node>& nodes = source_.nodes();
  for (size_t begin = 0, end = 0; begin < nodes.size(); begin = end) {
    const Node& first = nodes[begin];
    const auto same_call = [&](const Node& node) {
      return is_collective(first.op[0]) && is_collective(*node.op) && meeting_of(node) == meeting_of(first);
    };
    for (end = begin + 1; end < nodes.size() && same_call(nodes[end]);) ++end;
    std::vector<ValueIds> inputs(end - begin);  // the copies for all of a call come before it
    for (size_t i = begin; i < end; ++i)
      if (!nodes[i].op->view) inputs[i - begin] = inputs_of(nodes[i]);
    for (size_t i = begin; i < end; ++i)
      if (!nodes[i].op->view) take_node(static_cast<int>(i), std::move(inputs[i - begin]));
    for (size_t i = begin; i < end; ++i) {
      for (ValueId value : nodes[i].outputs) defined(value);
      visited(static_cast<int>(i));
    }
  }
  Graph& made = rewriter_.target();
  for (size_t k = 0; k < outputs_.size(); ++k) {
    const graph::Output& output = source_.outputs()[k];
    made.add_output(output.name, outputs_[k], output.extent_of, output.axes);
    made.place_output(static_cast<int>(k), output.placement);
  }
  for (size_t v = 0; v < updates_.size(); ++v)
    if (updates_[v] != kNoValue) made.set_update(static_cast<int>(v), updates_[v]);
  return std::move(made);
}

void CopyingRewriter::defined(ValueId value) {
  for (int k : outputs_of_[value]) outputs_[k] = output(source_.outputs()[k]);
  for (int v : updates_of_[value]) updates_[v] = update(source_.variables()[v]);
}

void CopyingRewriter::take_node(int index, ValueIds inputs) {
  const Node& old = source_.nodes()[index];
  Graph& graph = rewriter_.target();
  Node& taken = graph.mutable_nodes()[graph.take_node(taken_from_, index, std::move(inputs))];
  for (size_t o = 0; o < old.outputs.size(); ++o) lay_out(taken.outputs[o], source_.values()[old.outputs[o]].strides);
  made(index, taken);
  for (size_t o = 0; o < old.outputs.size(); ++o)
    add_original(old.outputs[o], taken.outputs[o], memory_[old.outputs[o]]);
}

// The new graph knows the provenance of a node that has been taken over.
Provenance CopyingRewriter::provenance(ValueId value) const {
  return root_[value] == value ? rewriter_.target().provenance(ways_[value].front().id) : source_.provenance(value);
}

void CopyingRewriter::lay_out(ValueId id, const Strides& strides) {
  const bool usual = strides.empty() || strides == contiguous_strides(rewriter_.target().type(id).shape);
  if (!usual) rewriter_.target().set_strides(id, strides);
}

void CopyingRewriter::remember(ValueId id, const plan::Space& space, const Window& window) {
  if (made_.size() <= static_cast<size_t>(id)) made_.resize(id + 1);
  made_[id] = {space, {window.root, window.offset, canonical(window.spec)}};
}

void CopyingRewriter::add_original(ValueId value, ValueId id, const plan::Space& space) {
  remember(id, space, {id, 0, rewriter_.target().spec(id)});
  ways_[value].push_back({.window = window_of_id(id), .space = space, .id = id});
}

const std::vector<CopyingRewriter::Way>& CopyingRewriter::ways(ValueId value) {
  std::vector<ValueId> stale;  // views from `value` down to what is none
  for (ValueId v = value;; v = source_.nodes()[source_.values()[v].index].inputs[0]) {
    if (root_[v] == v) break;
    stale.push_back(v);
  }
  for (; !stale.empty(); stale.pop_back()) {
    const ValueId v = stale.back();
    const Node& view = source_.nodes()[source_.values()[v].index];
    const std::vector<Way>& under = ways_[view.inputs[0]];
    for (size_t& i = seen_ways_[v]; i < under.size(); ++i) {
      const std::optional<Window> window = seen(view, under[i].window);
      if (!window) continue;
      Way way = under[i];
      way.window = *window;
      way.id = kNoValue;
      way.of = static_cast<int>(i);
      ways_[v].push_back(way);
    }
  }
  return ways_[value];
}

ValueId CopyingRewriter::make(ValueId value, int way, const Reader& reader) {
  if (const ValueId id = ways_[value][way].id; id != kNoValue) return id;
  const Node& view = source_.nodes()[source_.values()[value].index];
  const ValueId input = make(view.inputs[0], ways_[value][way].of, reader);
  Way& made = ways_[value][way];
  Node node = view;
  node.inputs = {input};
  if (places_.reads(node.placement) != made.space) node.placement = places_.computing_in(made.space, reader.placement);
  if (made.every != 0) node.every = made.every;
  const int index = rewriter_.target().add_node(std::move(node));
  made.id = rewriter_.target().nodes()[index].outputs[0];
  remember(made.id, made.space, made.window);
  return made.id;
}

ValueId CopyingRewriter::copy(const OpDef& op, ValueId value, ValueId from, const Placement& placement,
                              const Reader& reader, const Strides& strides) {
  const ValueId id = copy_aside(op, value, from, placement, reader, strides);
  const graph::Graph& made = rewriter_.target();
  ways(value);  // those there already come first
  ways_[value].push_back({.window = window_of_id(id),
                          .space = memory_of_id(id),
                          .every = made.nodes()[made.values()[id].index].every,
                          .original = false,
                          .id = id});
  return id;
}

ValueId CopyingRewriter::copy_aside(const OpDef& op, ValueId value, ValueId from, const Placement& placement,
                                    const Reader& reader, const Strides& strides) {
  const DeviceId& device = *placement.device;
  SLUICE_CHECK_KIND(kUnsupported, context_.target.has_kernel(ops::copy_op().name, device.kind),
                    "op copy: no kernel on device {}; values cannot be moved or laid out there{}", device.str(),
                    reader.origin.source.known() ? fmt::format("  ({})", reader.origin.source.str()) : "");
  const ValueInfo& root = source_.values()[root_[value]];
  Node node;
  node.op = &op;
  node.inputs = {from};
  node.placement = placement;
  static_cast<Provenance&>(node) = reader.origin;
  if (root.kind == ValueKind::kNode) node.quota = source_.nodes()[root.index].quota;
  node.every = every_of_copy(value, reader.every);
  node.for_all = source_.every(value) == 0 && node.every != 1;
  Graph& made = rewriter_.target();
  const ValueId id = made.nodes()[made.add_node(std::move(node))].outputs[0];
  lay_out(id, strides);
  remember(id, places_.writes(placement), {id, 0, made.spec(id)});
  ++copies_;
  return id;
}

// A copy is made as often as there is something new to copy; for a value that does not change, as often as it is read.
int CopyingRewriter::every_of_copy(ValueId value, int reader_every) const {
  if (const int every = source_.every(value); every != 0) return every;
  const ValueInfo& root = source_.values()[root_[value]];
  if (root.kind == ValueKind::kNode) return source_.nodes()[root.index].every;
  const ValueId update = source_.variables()[root.index].update;
  return update == kNoValue ? reader_every : std::max(1, source_.every(update));
}

// A node that reads a value of all micro-batches reads it in each of them, unless they all read the same.
Reader CopyingRewriter::reader_of(const Node& node) const {
  const bool in_each = node.op->of_all && !same_in_all_batches(source_, root_, node.inputs[0]);
  return {node.placement, node, in_each ? 1 : node.every};
}

Reader CopyingRewriter::reader_of(const graph::Output& output) const {
  const int every = source_.every(output.value);  // the sink wants it once a step
  return {places_.computing_in(places_.port_memory(output.placement), beside(output.value)), provenance(output.value),
          every == 0 ? source_.micro_batches() : every};
}

Reader CopyingRewriter::reader_of(const graph::Variable& variable) const {
  return {variable.placement, provenance(variable.update), std::max(1, source_.every(variable.update))};
}

Placement CopyingRewriter::beside(ValueId value) const {
  const ValueInfo& root = source_.values()[root_[value]];
  if (root.kind == ValueKind::kInput) return places_.usual(source_.inputs()[root.index].placement.device->rank);
  if (root.kind == ValueKind::kVariable) return source_.variables()[root.index].placement;
  return source_.nodes()[root.index].placement;
}

void Shares::add(ValueId root, ValueId value, const std::string& where) {
  Share& share = shares_[{root, where}];
  if (share.values.insert(value).second) share.bytes = checked_add(share.bytes, bytes_of(graph_.type(value)));
}

bool Shares::together(ValueId root, const std::string& where) const {
  const auto share = shares_.find({root, where});
  return share != shares_.end() && share->second.bytes >= bytes_of(graph_.type(root));
}

}  // namespace sluice::compiler
