#include "graph/ops/taps.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

extern const OpDef weighted_taps_backward_def;

int check_taps(Types in, const Attrs& attrs, const char* where) {
  check_floating(in[0], where);
  SLUICE_CHECK(
      in[1].shape.rank() == 2 && in[1].shape == in[2].shape && in[1].dtype == DType::kInt64 &&
          in[2].dtype == in[0].dtype && in[0].shape.rank() > 0,
      "{}: operands do not fit: {}, index {}, weight {}; index must be int64 (out, taps), weight the same of x's "
      "dtype",
      where, in[0].str(), in[1].str(), in[2].str());
  return normalize_axis(attr<int64_t>(attrs, 0), in[0].shape.rank(), where);
}

std::vector<TensorType> infer_taps(Types in, Present, const Attrs& attrs) {
  const int axis = check_taps(in, attrs, "weighted_taps");
  TensorType out = in[0];
  out.shape[axis] = in[1].shape[0];
  return {out};
}

std::vector<TensorType> infer_backward(Types in, Present, const Attrs& attrs) {
  const int axis = check_taps(in, attrs, "weighted_taps_backward");
  SLUICE_CHECK(in[0].shape[axis] == in[1].shape[0],
               "weighted_taps_backward: the gradient is {}, index {}; axis {} must "
               "be as long as the index",
               in[0].str(), in[1].str(), axis);
  TensorType out = in[0];
  out.shape[axis] = attr<int64_t>(attrs, 1);
  return {out};
}

Value column(const Value& table, int64_t k) { return select(table, 1, k); }

// A weight for each position of `axis`.
Value across(const Value& weights, int rank, int axis) {
  Ints shape(rank, 1);
  shape[axis] = weights.shape()[0];
  return reshape(weights, shape);
}

// The gradient of the weights: of each, the sum of y's gradient times what it weighs.
Value weights_grad(const Value& x, const Value& dy, const Value& index, int axis) {
  Ints others;
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis) others.push_back(i);
  std::vector<Value> columns;
  for (int64_t k = 0; k < index.shape()[1]; ++k) {
    const Value product = mul(dy, index_select(x, column(index, k), axis));
    columns.push_back(others.empty() ? product : sum(product, others));
  }
  return columns.empty() ? zeros(index.shape(), x.dtype()) : stack(columns, 1);
}

int axis_of(const Value& x, const Attrs& attrs) {
  return normalize_axis(attr<int64_t>(attrs, 0), x.rank(), "weighted_taps");
}

std::vector<Value> grad_taps(const GradContext& c) {
  const Value &x = c.inputs[0], &index = c.inputs[1], &dy = c.grad_outputs[0];
  const int axis = axis_of(x, c.attrs);
  std::vector<Value> grads(3);
  if (c.needs[0])
    grads[0] = call1(weighted_taps_backward_def, {dy, index, c.inputs[2]}, {int64_t{axis}, x.shape()[axis]});
  if (c.needs[2]) grads[2] = weights_grad(x, dy, index, axis);
  return grads;
}

std::vector<Value> grad_backward(const GradContext& c) {
  const Value &dy = c.inputs[0], &index = c.inputs[1], &g = c.grad_outputs[0];
  const int axis = axis_of(dy, c.attrs);
  std::vector<Value> grads(3);
  if (c.needs[0]) grads[0] = weighted_taps(g, index, c.inputs[2], axis);
  if (c.needs[2]) grads[2] = weights_grad(g, dy, index, axis);
  return grads;
}

std::vector<Value> decompose_taps(std::span<const Value> in, const Attrs& attrs) {
  const int axis = axis_of(in[0], attrs);
  Value y;
  for (int64_t k = 0; k < in[1].shape()[1]; ++k) {
    const Value term = mul(index_select(in[0], column(in[1], k), axis), across(column(in[2], k), in[0].rank(), axis));
    y = y.defined() ? add(y, term) : term;
  }
  if (y.defined()) return {y};
  Shape shape = in[0].shape();
  shape[axis] = in[1].shape()[0];
  return {zeros(shape, in[0].dtype())};
}

std::vector<Value> decompose_backward(std::span<const Value> in, const Attrs& attrs) {
  const int axis = axis_of(in[0], attrs);
  Shape shape = in[0].shape();
  shape[axis] = attr<int64_t>(attrs, 1);
  Value dx = zeros(shape, in[0].dtype());
  for (int64_t k = 0; k < in[1].shape()[1]; ++k)
    dx = index_add(dx, column(in[1], k), mul(in[0], across(column(in[2], k), in[0].rank(), axis)), axis);
  return {dx};
}

std::vector<SbpRow> sbp_taps(Types in, const Attrs& attrs) {
  const auto B = Sbp::broadcast(), P = Sbp::partial_sum();
  const int axis = normalize_axis(attr<int64_t>(attrs, 0), in[0].shape.rank(), "weighted_taps");
  std::vector<SbpRow> rows;
  for (int i = 0; i < in[0].shape.rank(); ++i)
    if (i != axis) rows.push_back({{Sbp::split(i), B, B}, {Sbp::split(i)}});
  rows.push_back({{P, B, B}, {P}});
  rows.push_back({{B, B, B}, {B}});
  return rows;
}

Cost cost_taps(Types in, Types out, const Attrs&) {
  const double taps = static_cast<double>(in[1].shape[1]);
  return {2 * taps * static_cast<double>(std::max(numel(in[0].shape), numel(out[0].shape))), operand_bytes(in, out)};
}

SampleInput index_of(Shape shape, double size) {
  return {.shape = shape, .dtype = DType::kInt64, .low = 0, .high = size};
}

const OpDef weighted_taps_def{
    .name = "weighted_taps",
    .doc =
        "Sums of a few elements along `dim`, weighted: of x, by index and weight (out, taps). "
        "What torch.nn.functional.interpolate computes along an axis.",
    .inputs = {"x", "index", "weight"},
    .params = {{"dim", int64_t{0}, true}},
    .infer = infer_taps,
    .grad = grad_taps,
    .decompose = decompose_taps,
    .sbp = sbp_taps,
    .cost = cost_taps,
    .samples = {{{{{2, 3, 5}}, index_of({4, 2}, 5), {{4, 2}}}, {int64_t{2}}},
                {{{{2, 3, 5}}, index_of({6, 4}, 3), {{6, 4}}}, {int64_t{1}}},
                {{{{3, 20}}, index_of({2, 3}, 3), {{2, 3}}}, {int64_t{0}}},
                {{{{0, 3}}, index_of({2, 2}, 3), {{2, 2}}}, {int64_t{1}}}}};

const OpDef weighted_taps_backward_def{
    .name = "weighted_taps_backward",
    .doc = "The gradient of weighted_taps by x, which is `size` long along `dim`, of that of its result.",
    .inputs = {"grad", "index", "weight"},
    .params = {{"dim", int64_t{0}, true}, {"size", int64_t{0}, true}},
    .infer = infer_backward,
    .grad = grad_backward,
    .decompose = decompose_backward,
    .sbp = sbp_taps,
    .cost = cost_taps,
    .samples = {{{{{2, 3, 4}}, index_of({4, 2}, 5), {{4, 2}}}, {int64_t{2}, int64_t{5}}},
                {{{{2, 6, 5}}, index_of({6, 4}, 3), {{6, 4}}}, {int64_t{1}, int64_t{3}}},
                {{{{0, 2}}, index_of({2, 2}, 3), {{2, 2}}}, {int64_t{1}, int64_t{3}}}}};

}  // namespace

Value weighted_taps(const Value& x, const Value& index, const Value& weight, int64_t dim) {
  return call1(weighted_taps_def, {x, index, weight}, {dim});
}

std::span<const OpDef* const> taps_ops() {
  static const OpDef* const ops[] = {&weighted_taps_def, &weighted_taps_backward_def};
  return ops;
}

}  // namespace sluice::ops
