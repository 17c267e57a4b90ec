#include "graph/ops/fused_rows.h"

#include <algorithm>
#include <set>

#include "graph/nested.h"
#include "graph/ops/common.h"
#include "graph/ops/fused.h"

namespace sluice::ops {
namespace {

const AttrGraph& body_of(const Attrs& attrs, size_t num_inputs) {
  const AttrGraph& body = attr<AttrGraph>(attrs, 0);
  check_attr_graph(body, num_inputs, body.outputs.size());
  return body;
}

// The operands that the body computes on, all but states of random numbers, and the number of last axes that are
// reduced.
struct Rows {
  Shape whole;
  int axes = 0;
  Shape row() const {
    Shape shape = whole;
    for (int axis = whole.rank() - axes; axis < whole.rank(); ++axis) shape[axis] = 1;
    return shape;
  }
};

std::vector<bool> states_of(const AttrGraph& body) {
  std::vector<bool> states(static_cast<size_t>(body.inputs), false);
  for (const AttrCall& call : body.calls)
    if (builtin_ops().get(call.op).random && call.operands[0] < body.inputs)
      states[static_cast<size_t>(call.operands[0])] = true;
  return states;
}

Rows rows_of(const AttrGraph& body, Types in) {
  const std::vector<bool> states = states_of(body);
  Rows rows;
  for (size_t i = 0; i < in.size(); ++i)
    if (!states[i]) rows.whole = broadcast_shapes(rows.whole, in[i].shape, "xs");
  for (const AttrCall& call : body.calls) {
    const OpDef& op = builtin_ops().get(call.op);
    if (!reduces_axes(op)) continue;
    const Attrs attrs = order_attrs(op, call.attrs);
    const int axes = last_axes_reduced(attrs, rows.whole);
    SLUICE_CHECK(axes > 0 && attr<bool>(attrs, 1) && (rows.axes == 0 || rows.axes == axes),
                 "body: step {} over {} of {}; must be over the same last axes as others, and keep them", call.op,
                 attr_str(attrs[0]), rows.whole.str());
    rows.axes = axes;
  }
  SLUICE_CHECK(rows.axes > 0, "body: {} steps, of which none reduces rows; use fused", body.calls.size());
  return rows;
}

// Types of all values.
std::vector<TensorType> types_in(const AttrGraph& body, const Rows& rows, Types in) {
  std::vector<TensorType> types(in.begin(), in.end());
  for (const AttrCall& call : body.calls) {
    const OpDef& op = builtin_ops().get(call.op);
    if (!reduces_axes(op)) {
      add_step(call, types);
    } else {
      const Shape& from = types[static_cast<size_t>(call.operands.at(0))].shape;
      SLUICE_CHECK(from == rows.whole, "body: step {} of {}; must be of {}", call.op, from.str(), rows.whole.str());
      const int n = static_cast<int>(types.size());
      types.push_back(infer_nested({n, {call}, {n}}, types).back());
    }
    SLUICE_CHECK(!op.random || types.back().shape == rows.whole, "body: a random step of {}; must be of {}",
                 types.back().shape.str(), rows.whole.str());
  }
  return types;
}

std::vector<TensorType> infer_fused_rows(Types in, Present, const Attrs& attrs) {
  const AttrGraph& body = body_of(attrs, in.size());
  const Rows rows = rows_of(body, in);
  const std::vector<bool> states = states_of(body);
  for (size_t i = 0; i < in.size(); ++i) {
    const Shape& shape = in[i].shape;
    SLUICE_CHECK(states[i] || goes_with_rows(shape, rows.whole, rows.axes),
                 "xs: an operand of {}; must have whole rows of {}, or one element for each", shape.str(),
                 rows.whole.str());
  }
  SLUICE_CHECK(
      !body.outputs.empty() && std::set<int>(body.outputs.begin(), body.outputs.end()).size() == body.outputs.size(),
      "body: outputs: {}; must be some, each once", body.outputs.size());
  const std::vector<TensorType> types = types_in(body, rows, in);
  std::vector<TensorType> results = output_types(body, types);
  for (size_t k = 0; k < results.size(); ++k)
    SLUICE_CHECK(body.outputs[k] >= body.inputs && (results[k].shape == rows.whole || results[k].shape == rows.row()),
                 "body: output {} of {}; must be made of {} or {}", k, results[k].shape.str(), rows.whole.str(),
                 rows.row().str());
  return results;
}

std::vector<Value> decompose_fused_rows(std::span<const Value> inputs, const Attrs& attrs) {
  return call_nested(body_of(attrs, inputs.size()), inputs);
}

// Axes around rows may be split, but for random steps, whose elements depend on their places in the whole.
std::vector<SbpRow> sbp_fused_rows(Types in, const Attrs& attrs) {
  const AttrGraph& body = body_of(attrs, in.size());
  const Rows rows = rows_of(body, in);
  std::vector<SbpRow> result = {{std::vector<Sbp>(in.size()), std::vector<Sbp>(body.outputs.size())}};
  const std::vector<bool> states = states_of(body);
  if (std::find(states.begin(), states.end(), true) != states.end()) return result;
  for (int axis = 0; axis < rows.whole.rank() - rows.axes; ++axis) {
    if (rows.whole[axis] == 1) continue;
    SbpRow split{{}, std::vector<Sbp>(body.outputs.size(), Sbp::split(axis))};
    for (const TensorType& t : in) {
      const int own = axis - rows.whole.rank() + t.shape.rank();
      split.inputs.push_back(own >= 0 && t.shape[own] != 1 ? Sbp::split(own) : Sbp::broadcast());
    }
    result.push_back(std::move(split));
  }
  return result;
}

Cost cost_fused_rows(Types in, Types out, const Attrs& attrs) {
  const AttrGraph& body = attr<AttrGraph>(attrs, 0);
  return {.flops = static_cast<double>(body.calls.size()) * static_cast<double>(numel(rows_of(body, in).whole)),
          .bytes = operand_bytes(in, out)};
}

SampleInput input(Shape shape, DType dtype = DType::kFloat32, double low = -2) {
  return {.shape = shape, .dtype = dtype, .low = low, .high = 2};
}

NamedAttrs over(Ints dim) { return {{"dim", std::move(dim)}, {"keepdim", true}}; }

AttrGraph softmax_body() {
  return {
      1,
      {{"amax", over({-1}), {0}}, {"sub", {}, {0, 1}}, {"exp", {}, {2}}, {"sum", over({-1}), {3}}, {"div", {}, {3, 4}}},
      {5}};
}

// The body takes x, weight, bias and eps; it gives the root, too.
AttrGraph layer_norm_body(Ints dim) {
  return {4,
          {{"mean", over(dim), {0}},
           {"sub", {}, {0, 4}},
           {"mul", {}, {5, 5}},
           {"mean", over(dim), {6}},
           {"add", {}, {7, 3}},
           {"rsqrt", {}, {8}},
           {"mul", {}, {5, 9}},
           {"mul", {}, {10, 1}},
           {"add", {}, {11, 2}}},
          {12, 9}};
}

// The body takes x and y; one of its reductions is a result, and nobody folds some of its steps.
AttrGraph extremes_body() {
  return {2,
          {{"add", {}, {0, 1}},
           {"amin", over({-1}), {2}},
           {"prod", over({-1}), {2}},
           {"abs", {}, {2}},
           {"amax", over({-1}), {5}},
           {"mul", {}, {3, 6}},
           {"sub", {}, {5, 7}}},
          {8, 4, 2}};
}

const OpDef fused_rows_def{
    .name = "fused_rows",
    .doc =
        "Elementwise ops and reductions of rows, one after the other, of which each row is in the cache: `body`, a "
        "graph. Made by the compiler.",
    .inputs = {"xs*"},
    .params = {{.name = "body", .default_value = AttrGraph(), .required = true}},
    .num_outputs = -1,
    .infer = infer_fused_rows,
    .decompose = decompose_fused_rows,
    .sbp = sbp_fused_rows,
    .cost = cost_fused_rows,
    .samples = {
        {.inputs = {input({5, 7})}, .attrs = {softmax_body()}},
        {.inputs = {input({3, 700})}, .attrs = {softmax_body()}},
        {.inputs = {input({2, 5000})}, .attrs = {softmax_body()}},
        {.inputs = {input({4, 6}, DType::kFloat64)}, .attrs = {softmax_body()}},
        {.inputs = {input({0, 6})}, .attrs = {softmax_body()}},
        {.inputs = {input({2, 3, 40}), input({40}), input({40}), input({}, DType::kFloat32, 1)},
         .attrs = {layer_norm_body({-1})}},
        {.inputs = {input({3, 4, 6}), input({4, 6}), input({4, 6}), input({1, 1, 1}, DType::kFloat32, 1)},
         .attrs = {layer_norm_body({-2, -1})}},
        {.inputs = {input({3, 1, 9}), input({1, 4, 9})}, .attrs = {extremes_body()}},
    }};

}  // namespace

const OpDef& fused_rows_op() { return fused_rows_def; }

bool reduces_axes(const OpDef& op) {
  return op.params.size() == 2 && std::string_view(op.params[0].name) == "dim" && op.params[0].nullable &&
         std::string_view(op.params[1].name) == "keepdim" && op.inputs.size() == 1 && op.num_outputs == 1 &&
         !op.variadic() && !op.random && !op.effectful && op.view == nullptr && op.extension.empty();
}

int last_axes_reduced(const Attrs& attrs, const Shape& shape) {
  if (!std::holds_alternative<Ints>(attrs[0]) || attr<Ints>(attrs, 0).empty()) return 0;
  for (const int64_t dim : attr<Ints>(attrs, 0))
    if (dim < -shape.rank() || dim >= shape.rank()) return 0;
  const std::vector<int> axes = reduced_axes(attrs[0], shape.rank(), "dim");
  const int first = shape.rank() - static_cast<int>(axes.size());
  int64_t length = 1;
  for (const int axis : axes) length *= shape[axis];
  return axes.front() == first && length != 1 ? static_cast<int>(axes.size()) : 0;
}

bool goes_with_rows(const Shape& shape, const Shape& whole, int axes) {
  int ones = 0, own = 0;
  for (int axis = whole.rank() - axes; axis < whole.rank(); ++axis) {
    const int mine = axis - whole.rank() + shape.rank();
    ones += mine < 0 || shape[mine] == 1;
    own += mine >= 0 && shape[mine] == whole[axis];
  }
  return ones == axes || own == axes;
}

std::span<const OpDef* const> fused_rows_ops() {
  static const OpDef* const ops[] = {&fused_rows_def};
  return ops;
}

}  // namespace sluice::ops
