// pad, concat, flip, copy.
#include "graph/ops/movement.h"

#include <algorithm>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/extent.h"

namespace sluice::ops {
namespace {

struct PadAxes {
  Ints low, high, interior;
  Shape shape;
};

PadAxes pad_axes(const Shape& shape, const Attrs& attrs) {
  PadAxes p{attr<Ints>(attrs, 0), attr<Ints>(attrs, 1), attr<Ints>(attrs, 3), shape};
  const size_t rank = static_cast<size_t>(shape.rank());
  if (p.interior.empty()) p.interior.assign(rank, 0);
  SLUICE_CHECK(p.low.size() == rank && p.high.size() == rank && p.interior.size() == rank,
               "low, high, interior: {}, {}, {} values for rank {}; give one per axis", p.low.size(), p.high.size(),
               p.interior.size(), rank);
  for (int i = 0; i < shape.rank(); ++i) {
    SLUICE_CHECK(p.low[i] >= 0 && p.high[i] >= 0 && p.interior[i] >= 0,
                 "axis {}: padding ({}, {}, {}); low, high and interior must be >= 0", i, p.low[i], p.high[i],
                 p.interior[i]);
    const Wide inside = Wide{shape[i]} + Wide{std::max<int64_t>(shape[i] - 1, 0)} * p.interior[i];
    p.shape[i] = checked_dim(inside + p.low[i] + p.high[i], "padded");
  }
  return p;
}

const OpDef pad_def{
    .name = "pad",
    .doc =
        "Surrounds x with `low` and `high` elements per axis, and separates its elements by `interior` ones, all of "
        "them `value`. torch.nn.functional.pad (constant), interior as in XLA.",
    .inputs = {"x"},
    .params = {{.name = "low", .default_value = Ints{}, .required = true},
               {.name = "high", .default_value = Ints{}, .required = true},
               {.name = "value", .default_value = 0.0},
               {.name = "interior", .default_value = Ints{}}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      return {{in[0].dtype, pad_axes(in[0].shape, attrs).shape}};
    },
    .grad = [](const GradContext& c) -> Values {
      const Shape& shape = c.inputs[0].shape();
      const PadAxes p = pad_axes(shape, c.attrs);
      Ints stops, steps;
      for (int i = 0; i < shape.rank(); ++i) {
        steps.push_back(p.interior[i] + 1);
        stops.push_back(shape[i] == 0 ? p.low[i] : p.low[i] + (shape[i] - 1) * steps[i] + 1);
      }
      return {slice(c.grad_outputs[0], p.low, stops, steps)};
    },
    .sbp =
        [](Types in, const Attrs& attrs) {
          const PadAxes p = pad_axes(in[0].shape, attrs);
          std::vector<int> kept;
          for (int i = 0; i < in[0].shape.rank(); ++i)
            if (p.low[i] == 0 && p.high[i] == 0 && p.interior[i] == 0) kept.push_back(i);
          return untouched_sbp(in, kept, attr<double>(attrs, 2) == 0);
        },
    .samples = {{.inputs = {{.shape = {3}}}, .attrs = {Ints{1}, Ints{2}, 0.0, Ints{}}},
                {.inputs = {{.shape = {2, 3}}}, .attrs = {Ints{0, 1}, Ints{0, 1}, 1.5, Ints{}}},
                {.inputs = {{.shape = {2, 3}}}, .attrs = {Ints{1, 0}, Ints{0, 1}, 0.0, Ints{1, 2}}},
                {.inputs = {{.shape = {2, 3, 2, 2}, .dtype = DType::kInt64}},
                 .attrs = {Ints{0, 0, 1, 1}, Ints{0, 0, 1, 1}, 7.0, Ints{}}},
                {.inputs = {{.shape = {0, 3}}}, .attrs = {Ints{2, 0}, Ints{0, 0}, 0.0, Ints{}}}}};

const OpDef concat_def{
    .name = "concat",
    .doc = "Tensors one after another along `dim`; the other sizes and the dtypes are equal. torch.cat.",
    .inputs = {"xs*"},
    .params = {{.name = "dim", .default_value = int64_t{0}}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      check_same_dtype(in, "inputs");
      TensorType out = in[0];
      for (size_t k = 0; k < in.size(); ++k)
        SLUICE_CHECK(in[k].shape.rank() > 0,
                     "inputs: zero-dimensional tensor (at position {}) cannot be concatenated; rank must be at least 1 "
                     "(stack them instead)",
                     k);
      const int dim = normalize_axis(attr<int64_t>(attrs, 0), out.shape.rank(), "dim");
      for (size_t k = 1; k < in.size(); ++k) {
        const Shape& s = in[k].shape;
        bool fits = s.rank() == out.shape.rank();
        for (int i = 0; fits && i < s.rank(); ++i) fits = i == dim || s[i] == out.shape[i];
        SLUICE_CHECK(fits, "inputs: shapes {} and {} differ outside axis {}; all other sizes must be equal",
                     in[0].shape.str(), s.str(), dim);
        out.shape[dim] += s[dim];
      }
      return {out};
    },
    .grad = [](const GradContext& c) -> Values {
      const int dim = normalize_axis(attr<int64_t>(c.attrs, 0), c.inputs[0].rank(), "dim");
      Values grads;
      int64_t at = 0;
      for (size_t k = 0; k < c.inputs.size(); ++k) {
        const int64_t size = c.inputs[k].shape()[dim];
        grads.push_back(c.needs[k] ? slice_axis(c.grad_outputs[0], dim, at, at + size) : Value());
        at += size;
      }
      return grads;
    },
    .sbp =
        [](Types in, const Attrs& attrs) {
          const int dim = normalize_axis(attr<int64_t>(attrs, 0), in[0].shape.rank(), "dim");
          std::vector<int> others;
          for (int i = 0; i < in[0].shape.rank(); ++i)
            if (i != dim) others.push_back(i);
          return untouched_sbp(in, others);
        },
    .samples = {{.inputs = {{.shape = {3}}, {.shape = {2}}}, .attrs = {int64_t{0}}},
                {.inputs = {{.shape = {2, 3}}, {.shape = {2, 1}}, {.shape = {2, 2}}}, .attrs = {int64_t{-1}}},
                {.inputs = {{.shape = {2, 3, 4}}}, .attrs = {int64_t{1}}},
                {.inputs = {{.shape = {2, 3, 4}, .dtype = DType::kInt64}, {.shape = {1, 3, 4}, .dtype = DType::kInt64}},
                 .attrs = {int64_t{0}}},
                {.inputs = {{.shape = {0, 3}}, {.shape = {2, 3}}}, .attrs = {int64_t{0}}}}};

const OpDef flip_def{
    .name = "flip",
    .doc = "The axes `dims` in reverse. torch.flip.",
    .inputs = {"x"},
    .params = {{.name = "dims", .default_value = Ints{}, .required = true}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      std::vector<bool> named(static_cast<size_t>(std::max(in[0].shape.rank(), 1)), false);
      for (int64_t d : attr<Ints>(attrs, 0)) {
        const int axis = normalize_axis(d, in[0].shape.rank(), "dims");
        SLUICE_CHECK(!named[axis], "dims: dim {} appears multiple times in {}; each may once", axis,
                     attr_str(attrs[0]));
        named[axis] = true;
      }
      return {in[0]};
    },
    .grad = [](const GradContext& c) -> Values { return {flip(c.grad_outputs[0], attr<Ints>(c.attrs, 0))}; },
    .sbp =
        [](Types in, const Attrs& attrs) {
          const int rank = in[0].shape.rank();
          std::vector<bool> flipped(static_cast<size_t>(std::max(rank, 1)), false);
          for (int64_t d : attr<Ints>(attrs, 0)) flipped[normalize_axis(d, rank, "dims")] = true;
          std::vector<int> kept;
          for (int i = 0; i < rank; ++i)
            if (!flipped[i]) kept.push_back(i);
          return untouched_sbp(in, kept);
        },
    .samples = {{.inputs = {{.shape = {5}}}, .attrs = {Ints{0}}},
                {.inputs = {{.shape = {2, 3, 4}}}, .attrs = {Ints{0, -1}}},
                {.inputs = {{.shape = {3, 4}, .dtype = DType::kInt32}}, .attrs = {Ints{1}}},
                {.inputs = {{.shape = {0, 3}}}, .attrs = {Ints{1}}}}};

const OpDef copy_def{.name = "copy",
                     .doc = "The same values in memory of their own. torch.clone.",
                     .inputs = {"x"},
                     .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> { return {in[0]}; },
                     .grad = [](const GradContext& c) -> Values { return {c.grad_outputs[0]}; },
                     .sbp = linear_sbp,
                     .samples = {{.inputs = {{.shape = {}}}},
                                 {.inputs = {{.shape = {3, 4}}}},
                                 {.inputs = {{.shape = {2, 3, 4, 5}, .dtype = DType::kInt16, .low = -9, .high = 9}}},
                                 {.inputs = {{.shape = {0, 3}, .dtype = DType::kInt64}}}}};

const OpDef reorder_def{.name = "reorder",
                        .doc = "The same values in another order of axes in memory, which the output's strides say.",
                        .inputs = {"x"},
                        .infer = copy_def.infer};

}  // namespace

const OpDef& copy_op() { return copy_def; }
const OpDef& reorder_op() { return reorder_def; }
std::span<const OpDef* const> movement_ops() {
  static const OpDef* const ops[] = {&pad_def, &concat_def, &flip_def, &copy_def};
  return ops;
}

Value pad(const Value& x, const Ints& low, const Ints& high, double value, const Ints& interior) {
  return call1(pad_def, {x}, {low, high, value, interior});
}

Value concat(std::span<const Value> xs, int64_t dim) {
  SLUICE_CHECK(!xs.empty(), "concat: no tensors; give at least one");
  DType dtype = xs[0].dtype();
  for (const Value& x : xs) dtype = promote(dtype, x.dtype());
  // As torch: a tensor of shape (0,) fits any others, and adds nothing but its dtype, and its history if it has one.
  const auto nothing = [](const Value& x) { return x.rank() == 1 && x.shape()[0] == 0; };
  const auto other = std::find_if_not(xs.begin(), xs.end(), nothing);
  const int rank = other == xs.end() ? 1 : other->rank();
  Values same;
  for (const Value& x : xs) {
    if (other == xs.end() || !nothing(x)) {
      same.push_back(cast(x, dtype));
    } else if (x.requires_grad() && rank > 0) {
      Ints shape = other->shape().vec();
      shape[normalize_axis(dim, rank, "concat")] = 0;
      same.push_back(reshape(cast(x, dtype), shape));
    }
  }
  return call(concat_def, same, {dim})[0];
}

Value flip(const Value& x, const Ints& dims) { return call1(flip_def, {x}, {dims}); }
Value copy(const Value& x) { return call1(copy_def, {x}); }

}  // namespace sluice::ops
