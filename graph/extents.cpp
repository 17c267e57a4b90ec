#include "graph/extents.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "graph/equal_nodes.h"

namespace sluice::graph {
namespace {

std::vector<TensorType> types_of(const Graph& graph, std::span<const ValueId> values) {
  std::vector<TensorType> types;
  for (const ValueId value : values) types.push_back(value == kNoValue ? TensorType{} : graph.type(value));
  return types;
}

std::string at(const Provenance& of) { return of.source.known() ? fmt::format("  ({})", of.source.str()) : ""; }

// Both ascending.
void unite(std::vector<ValueId>& all, const std::vector<ValueId>& more) {
  std::vector<ValueId> united;
  std::set_union(all.begin(), all.end(), more.begin(), more.end(), std::back_inserter(united));
  all = std::move(united);
}

// The text of a mask that makes the rows of `axis`, of `room` of them, harmless.
std::string mask_of(int rank, int axis, int64_t room) {
  const std::string mask = fmt::format("sluice.arange({}) < sluice.extent(x, {})", room, axis);
  if (axis == rank - 1) return fmt::format("x = sluice.where({}, x, 0)", mask);
  std::string ones;
  for (int i = axis + 1; i < rank; ++i) ones += ", 1";
  return fmt::format("x = sluice.where(({}).reshape(-1{}), x, 0)", mask, ones);
}

}  // namespace

Extents::Extents(const Graph& graph) : graph_(graph) {
  std::vector<ValueId> roots;
  for (const Output& output : graph.outputs()) roots.push_back(output.value);
  for (const Variable& variable : graph.variables()) roots.push_back(variable.update);
  for (const Node& node : graph.nodes())
    if (node.op->effectful) roots.insert(roots.end(), node.outputs.begin(), node.outputs.end());
  infer(roots);
  for (const Variable& variable : graph.variables()) {
    if (variable.update == kNoValue || of(variable.update).empty()) continue;
    const VaryingAxis& axis = of(variable.update).front();
    const TensorType& type = graph.type(variable.update);
    fail(ErrorKind::kUnsupported,
         "variable '{}': its update varies in length: axis {} is of dim '{}'; what is kept must be all there, so "
         "mask it before: {}{}",
         variable.name, axis.axis, axis.dim, mask_of(type.shape.rank(), axis.axis, type.shape[axis.axis]),
         at(graph.provenance(variable.update)));
  }
}

Extents::Extents(const Graph& graph, ValueId value) : graph_(graph) { infer({value}); }

void Extents::infer(const std::vector<ValueId>& roots) {
  axes_.resize(graph_.values().size());
  find_extents();
  if (made_.empty()) return;
  const std::vector<Node>& nodes = graph_.nodes();
  std::vector<bool> needed(nodes.size(), false);
  const auto need = [&](ValueId value) {
    if (value != kNoValue && graph_.values()[value].kind == ValueKind::kNode)
      needed[graph_.values()[value].index] = true;
  };
  for (const ValueId root : roots) need(root);
  for (size_t n = nodes.size(); n-- > 0;)
    if (needed[n]) std::for_each(nodes[n].inputs.begin(), nodes[n].inputs.end(), need);
  for (size_t n = 0; n < nodes.size(); ++n)
    if (needed[n]) visit(n);
}

// Some nodes make values that vary, and others the extents of these. The first of equal extents stands for all.
void Extents::find_extents() {
  const std::vector<Node>& nodes = graph_.nodes();
  for (size_t n = 0; n < nodes.size(); ++n) {
    const Node& node = nodes[n];
    if (node.op->varying == nullptr) continue;
    for (OpDef::Varying& of :
         node.op->varying(types_of(graph_, node.inputs), types_of(graph_, node.outputs), node.attrs)) {
      const ValueId extent = (of.taken ? node.inputs : node.outputs)[static_cast<size_t>(of.extent)];
      made_.resize(nodes.size());
      made_[n].push_back({of.output, {of.axis, extent, std::move(of.dim)}});
    }
  }
  if (made_.empty()) return;
  const std::vector<int> equal = equal_nodes(graph_);
  made_of_.resize(graph_.values().size());
  for (std::vector<Made>& made : made_) {
    for (Made& m : made) {
      const ValueId given = m.axis.extent;
      const ValueInfo& value = graph_.values()[given];
      if (value.kind == ValueKind::kNode && equal[value.index] >= 0)
        m.axis.extent = nodes[equal[value.index]].outputs[value.output];
      made_of_[given] = {m.axis.extent};
    }
  }
}

void Extents::visit(size_t n) {
  const Node& node = graph_.nodes()[n];
  const bool makes = !made_[n].empty();
  // A host function gets its inputs as long as they are. For other ops the extent says how long the first input is now,
  // which makes no mask of it.
  const size_t computed_from = makes && !node.op->host ? 1 : node.inputs.size();
  std::set<ValueId> extents;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    for (const VaryingAxis& axis : axes_[node.inputs[i]]) extents.insert(axis.extent);
    if (i >= computed_from) continue;
    for (const ValueId output : node.outputs) unite(made_of_[output], made_of_[node.inputs[i]]);
  }
  if (!makes || !node.op->host)
    for (const ValueId extent : extents) carry(n, extent);
  for (const Made& m : made_[n])
    if (!m.axis.dim.empty()) add(node.outputs[static_cast<size_t>(m.output)], m.axis);
}

// The axes of outputs that are as long as `extent` says, as some of the inputs' are. An axis of the first input that
// the node makes that long, or fills up, is its business.
void Extents::carry(size_t n, ValueId extent) {
  const Node& node = graph_.nodes()[n];
  const auto is_made = [&](const VaryingAxis& axis) {
    return std::any_of(made_[n].begin(), made_[n].end(),
                       [&](const Made& m) { return m.axis.axis == axis.axis && m.axis.extent == axis.extent; });
  };
  const std::vector<TensorType> types = types_of(graph_, node.inputs);
  std::set<std::pair<size_t, int>> left;  // inputs and axes that no row has carried
  const VaryingAxis* some = nullptr;
  int64_t room = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    for (const VaryingAxis& axis : axes_[node.inputs[i]]) {
      if (axis.extent != extent) continue;
      some = &axis;
      if (i == 0 && is_made(axis)) continue;
      left.emplace(i, axis.axis);
      room = types[i].shape[axis.axis];
    }
  }
  const std::string dim = some->dim;
  if (node.op->sbp != nullptr && !node.op->of_all) {
    for (const SbpRow& row : node.op->sbp(types, node.attrs)) {
      std::vector<std::pair<size_t, int>> carried;
      const VaryingAxis* other = nullptr;
      bool masked = false, keeps = row.outputs.size() >= node.outputs.size();
      for (size_t i = 0; i < node.inputs.size() && i < row.inputs.size(); ++i) {
        const Sbp& sbp = row.inputs[i];
        keeps = keeps && sbp.kind != Sbp::Kind::kPartialSum;
        if (sbp.kind != Sbp::Kind::kSplit || node.inputs[i] == kNoValue) continue;
        keeps = keeps && types[i].shape[sbp.axis] == room;
        const VaryingAxis* varying = find(node.inputs[i], sbp.axis);
        if (varying == nullptr)
          masked = masked || (types[i].dtype == DType::kBool && made_of(node.inputs[i], extent));
        else if (varying->extent == extent)
          carried.emplace_back(i, sbp.axis);
        else
          other = varying;
      }
      for (size_t o = 0; o < node.outputs.size() && keeps; ++o)
        keeps =
            row.outputs[o].kind == Sbp::Kind::kSplit && graph_.type(node.outputs[o]).shape[row.outputs[o].axis] == room;
      if (!keeps || carried.empty()) continue;
      SLUICE_CHECK_KIND(
          kUnsupported, other == nullptr,
          "{}: rows of dim '{}' meet rows of dim '{}', of which there may be more or fewer; make both by one "
          "function, or mask them{}",
          node.op->name, dim, other->dim, at(node));
      for (const auto& axis : carried) left.erase(axis);
      for (size_t o = 0; o < node.outputs.size() && !masked; ++o)
        add(node.outputs[o], {row.outputs[o].axis, extent, dim});
    }
  }
  if (!left.empty()) refuse(node, left.begin()->first, *find(node.inputs[left.begin()->first], left.begin()->second));
}

void Extents::refuse(const Node& node, size_t input, const VaryingAxis& axis) const {
  const TensorType& type = graph_.type(node.inputs[input]);
  const std::string name =
      node.op->variadic() ? fmt::format("input {}", input) : fmt::format("'{}'", node.op->inputs[input]);
  fail(ErrorKind::kUnsupported,
       "{}: mixes rows of dim '{}' (axis {} of {}, {}), of which there may be fewer than {}, with what lies beyond; "
       "mask them before: {}{}",
       node.op->name, axis.dim, axis.axis, name, type.str(), type.shape[axis.axis],
       mask_of(type.shape.rank(), axis.axis, type.shape[axis.axis]), at(node));
}

const VaryingAxis* Extents::find(ValueId value, int axis) const {
  for (const VaryingAxis& varying : axes_[value])
    if (varying.axis == axis) return &varying;
  return nullptr;
}

bool Extents::made_of(ValueId value, ValueId extent) const {
  return std::binary_search(made_of_[value].begin(), made_of_[value].end(), extent);
}

void Extents::add(ValueId value, VaryingAxis axis) {
  std::vector<VaryingAxis>& axes = axes_[value];
  const auto place =
      std::lower_bound(axes.begin(), axes.end(), axis.axis, [](const VaryingAxis& a, int b) { return a.axis < b; });
  if (place == axes.end() || place->axis != axis.axis) axes.insert(place, std::move(axis));
}

}  // namespace sluice::graph
