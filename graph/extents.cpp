#include "graph/extents.h"

#include <algorithm>
#include <set>

#include "graph/ops/host.h"

namespace sluice::graph {
namespace {

bool is_source(const Node& node) {
  return node.op == &ops::host_function_op() && !ops::host_dims_of(node.attrs).names.empty();
}

std::string at(const Provenance& of) { return of.source.known() ? fmt::format("  ({})", of.source.str()) : ""; }

// What makes the rows of `axis`, of `room` of them, harmless.
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
  const std::vector<Node>& nodes = graph_.nodes();
  if (std::none_of(nodes.begin(), nodes.end(), is_source)) return;
  made_of_.resize(graph_.values().size());
  std::vector<bool> needed(nodes.size(), false);
  const auto need = [&](ValueId value) {
    if (value != kNoValue && graph_.values()[value].kind == ValueKind::kNode)
      needed[graph_.values()[value].index] = true;
  };
  for (const ValueId root : roots) need(root);
  for (size_t n = nodes.size(); n-- > 0;)
    if (needed[n]) std::for_each(nodes[n].inputs.begin(), nodes[n].inputs.end(), need);
  for (size_t n = 0; n < nodes.size(); ++n)
    if (needed[n]) visit(nodes[n]);
}

void Extents::visit(const Node& node) {
  std::set<ValueId> made_of, extents;
  for (const ValueId input : node.inputs) {
    if (input == kNoValue) continue;
    made_of.insert(made_of_[input].begin(), made_of_[input].end());
    for (const VaryingAxis& axis : axes_[input]) extents.insert(axis.extent);
  }
  for (const ValueId output : node.outputs) made_of_[output].assign(made_of.begin(), made_of.end());
  if (is_source(node)) return visit_source(node);
  for (const ValueId extent : extents) carry(node, extent);
}

void Extents::visit_source(const Node& node) {
  const HostDims dims = ops::host_dims_of(node.attrs);
  const size_t inputs = node.inputs.size() - static_cast<size_t>(dims.taken);
  const size_t outputs = node.outputs.size() - static_cast<size_t>(dims.given());
  for (size_t o = outputs; o < node.outputs.size(); ++o) made_of_[node.outputs[o]].push_back(node.outputs[o]);
  for (const HostDims::Axis& axis : dims.outputs) {
    const auto dim = static_cast<size_t>(axis.dim);
    const bool taken = axis.dim < dims.taken;
    const ValueId extent =
        taken ? node.inputs[inputs + dim] : node.outputs[outputs + dim - static_cast<size_t>(dims.taken)];
    add(node.outputs[static_cast<size_t>(axis.tensor)], {axis.axis, extent, dims.names[dim]});
  }
}

// The axes of outputs that are as long as `extent` says, as some of the inputs' are.
void Extents::carry(const Node& node, ValueId extent) {
  std::vector<TensorType> types;
  std::set<std::pair<size_t, int>> left;  // inputs and axes that no row has carried
  const VaryingAxis* some = nullptr;
  int64_t room = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    types.push_back(node.inputs[i] == kNoValue ? TensorType{} : graph_.type(node.inputs[i]));
    if (node.inputs[i] == kNoValue) continue;
    for (const VaryingAxis& axis : axes_[node.inputs[i]]) {
      if (axis.extent != extent) continue;
      left.emplace(i, axis.axis);
      some = &axis;
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
          "host function, or mask them{}",
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
