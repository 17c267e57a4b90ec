#include "kernels/cpu/rows/row_lines.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/reduction/reduction.h"

namespace sluice::cpu {
namespace {

Shape whole_shape(const plan::KernelQuery& q, const std::vector<bool>& states) {
  int rank = 0;
  for (size_t i = 0; i < q.inputs.size(); ++i)
    if (!states[i]) rank = std::max(rank, q.inputs[i].shape.rank());
  Shape whole;
  for (int axis = 0; axis < rank; ++axis) {
    int64_t size = 1;
    for (size_t i = 0; i < q.inputs.size(); ++i) {
      const int own = axis - rank + q.inputs[i].shape.rank();
      if (!states[i] && own >= 0 && q.inputs[i].shape[own] != 1) size = q.inputs[i].shape[own];
    }
    whole.push_back(size);
  }
  return whole;
}

// The axes that the reductions of the body reduce, which all reduce the same.
int row_axes(const AttrGraph& body, int rank) {
  for (const AttrCall& call : body.calls) {
    if (!folds_rows(call.op)) continue;
    const auto axes = static_cast<int>(reduced_dims(call.attrs).size());
    return axes == 0 ? rank : axes;
  }
  fail(ErrorKind::kUnsupported, "fused_rows: a body without a reduction of rows; must have one");
}

Line line_of(const TensorSpec& spec, int axes) {
  Line line;
  const int rank = spec.shape.rank();
  int64_t next = 0;
  for (int axis = rank - 1; axis >= std::max(rank - axes, 0); --axis) {
    if (spec.shape[axis] == 1) continue;
    if (line.repeats) line.step = spec.strides[axis];
    line.is_line = line.is_line && (line.repeats || spec.strides[axis] == next);
    line.repeats = false;
    next = spec.strides[axis] * spec.shape[axis];
    line.length *= spec.shape[axis];
  }
  line.is_line = line.is_line || line.length == 0;  // nothing lies anywhere
  return line;
}

}  // namespace

bool rows_are_same(const RowNest& nest, int operand) {
  if (nest.inner() > 1 && nest.inner_stride(operand) != 0) return false;
  for (int axis = 0; axis < nest.outer_rank(); ++axis)
    if (nest.outer_stride(operand, axis) != 0) return false;
  return true;
}

bool rows_follow(const RowNest& nest, int operand, int64_t length) {
  bool follow = nest.inner() == 1 || nest.inner_stride(operand) == length;
  int64_t next = length * nest.inner();
  for (int axis = nest.outer_rank() - 1; axis >= 0; next *= nest.outer_dim(axis--))
    follow = follow && nest.outer_stride(operand, axis) == next;
  return follow;
}

RowLines::RowLines(const plan::KernelQuery& q) {
  const AttrGraph& body = get_attr<AttrGraph>(q.attrs, "body");
  check_attr_graph(body, q.inputs.size(), q.outputs.size());
  states = states_of(body);
  whole = whole_shape(q, states);
  axes = row_axes(body, whole.rank());
  for (const TensorSpec& in : q.inputs) lines.push_back(line_of(in, axes));
}

int64_t RowLines::length() const {
  int64_t length = 1;
  for (int axis = whole.rank() - axes; axis < whole.rank(); ++axis) length *= whole[axis];
  return length;
}

RowNest RowLines::rows(const plan::KernelQuery& q) const {
  Shape shape;
  for (int axis = 0; axis < whole.rank() - axes; ++axis) shape.push_back(whole[axis]);
  std::vector<Strides> strides;
  for (size_t i = 0; i < q.inputs.size(); ++i) {
    Strides own;
    const Strides all = states[i] ? Strides() : broadcast_strides(q.inputs[i], whole);
    for (int axis = 0; axis < shape.rank(); ++axis) own.push_back(states[i] ? 0 : all[axis]);
    strides.push_back(own);
  }
  return RowNest::in_order(shape, strides);
}

plan::LayoutPreference RowLines::layouts(size_t outputs) const {
  plan::LayoutPreference p;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool lies = !states[i] && lines[i].is_line && (lines[i].repeats || lines[i].step == 1);
    p.inputs.push_back(lies ? plan::Layout::kAny : plan::Layout::kContiguous);
  }
  p.outputs.assign(outputs, plan::Layout::kContiguous);
  return p;
}

RowBody::RowBody(const AttrGraph& body, const RowLines& lines) : body_(body) {
  for (size_t i = 0; i < lines.lines.size(); ++i) is_row_.push_back(lines.states[i] || lines.lines[i].repeats);
  for (const AttrCall& call : body.calls)
    is_row_.push_back(folds_rows(call.op) || std::all_of(call.operands.begin(), call.operands.end(),
                                                         [&](int operand) { return is_row(operand); }));
}

const AttrCall* RowBody::call_of(int value) const {
  return value < body_.inputs ? nullptr : &body_.calls[static_cast<size_t>(value - body_.inputs)];
}
bool RowBody::folds(int value) const { return call_of(value) != nullptr && folds_rows(call_of(value)->op).has_value(); }

std::vector<bool> RowBody::needed(const std::vector<int>& values, bool elements) const {
  std::vector<bool> need(is_row_.size(), false);
  for (const int v : values) need[static_cast<size_t>(v)] = true;
  for (int v = static_cast<int>(need.size()) - 1; v >= body_.inputs; --v) {
    if (!need[static_cast<size_t>(v)] || (elements && is_row(v))) continue;
    for (const int operand : call_of(v)->operands) need[static_cast<size_t>(operand)] = true;
  }
  return need;
}

std::vector<int> RowBody::rows() const {
  const std::vector<bool> need = needed(body_.outputs, false);
  std::vector<int> rows;
  for (int v = 0; v < static_cast<int>(need.size()); ++v)
    if (need[static_cast<size_t>(v)] && is_row(v)) rows.push_back(v);
  return rows;
}

std::vector<int> RowBody::elements(const std::vector<int>& values) const {
  const std::vector<bool> need = needed(values, true);
  std::vector<int> elements;
  for (int v = 0; v < static_cast<int>(need.size()); ++v)
    if (need[static_cast<size_t>(v)] && !is_row(v)) elements.push_back(v);
  return elements;
}

}  // namespace sluice::cpu
