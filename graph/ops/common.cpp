#include "graph/ops/common.h"

#include <algorithm>

namespace sluice::ops {

std::vector<int> reduced_axes(const Attr& dim, int rank, const char* where) {
  std::vector<int> axes;
  const Ints* dims = std::get_if<Ints>(&dim);
  const int64_t* one = std::get_if<int64_t>(&dim);
  if (dims && !dims->empty()) {
    for (int64_t d : *dims) axes.push_back(normalize_axis(d, rank, where));
  } else if (one) {
    axes.push_back(normalize_axis(*one, rank, where));
  } else {
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  }
  std::sort(axes.begin(), axes.end());
  SLUICE_CHECK(std::adjacent_find(axes.begin(), axes.end()) == axes.end(),
               "{}: axis given twice: dim is {}; each axis may appear once", where, attr_str(dim));
  if (rank == 0) axes.clear();
  return axes;
}

void check_same_dtype(Types inputs, const char* where) {
  for (const TensorType& t : inputs)
    SLUICE_CHECK_KIND(kType, t.dtype == inputs[0].dtype, "{}: dtypes differ: {} and {}; operands must have one dtype",
                      where, dtype_name(inputs[0].dtype), dtype_name(t.dtype));
}

void check_floating(const TensorType& x, const char* where) {
  SLUICE_CHECK_KIND(kRuntime, is_floating(x.dtype), "{}: dtype is {}; must be floating (cast it first)", where,
                    dtype_name(x.dtype));
}

void check_ordered(const TensorType& x) {
  SLUICE_CHECK_KIND(kUnsupported, !is_complex(x.dtype), "not implemented for '{}': complex numbers have no order",
                    dtype_name(x.dtype));
}

void check_index(const TensorType& index, const char* where) {
  SLUICE_CHECK_KIND(kType, index.dtype == DType::kInt64 || index.dtype == DType::kInt32,
                    "{}: index dtype is {}; must be int64 or int32", where, dtype_name(index.dtype));
}

Values no_gradient(const GradContext&) { return {Value()}; }

Cost lookup_cost(Types inputs, Types outputs, const Attrs&) {
  return {0, operand_bytes(inputs.subspan(1), outputs) + operand_bytes({}, outputs)};
}

Attrs localize_shape(const Attrs& attrs, Types local_outputs) {
  Attrs local = attrs;
  local[0] = local_outputs[0].shape.vec();
  return local;
}

SbpRow row_of(std::vector<Sbp> inputs, Sbp output) { return {std::move(inputs), {output}}; }

std::vector<SbpRow> broadcast_sbp(Types inputs, const Attrs&) {
  return {row_of(std::vector<Sbp>(inputs.size(), Sbp::broadcast()), Sbp::broadcast())};
}

std::vector<SbpRow> elementwise_sbp(Types inputs, const Attrs& attrs) {
  std::vector<SbpRow> rows = broadcast_sbp(inputs, attrs);
  int rank = 0;
  for (const TensorType& t : inputs) rank = std::max(rank, t.shape.rank());
  for (int axis = 0; axis < rank; ++axis) {
    std::vector<Sbp> in;
    bool any_split = false;
    for (const TensorType& t : inputs) {
      const int own = axis - (rank - t.shape.rank());
      const bool split = own >= 0 && t.shape[own] != 1;
      any_split |= split;
      in.push_back(split ? Sbp::split(own) : Sbp::broadcast());
    }
    if (any_split) rows.push_back(row_of(std::move(in), Sbp::split(axis)));
  }
  return rows;
}

std::vector<SbpRow> linear_sbp(Types inputs, const Attrs& attrs) {
  std::vector<SbpRow> rows = elementwise_sbp(inputs, attrs);
  rows.push_back(row_of(std::vector<Sbp>(inputs.size(), Sbp::partial_sum()), Sbp::partial_sum()));
  return rows;
}

std::vector<SbpRow> bilinear_sbp(Types inputs, const Attrs& attrs) {
  std::vector<SbpRow> rows = elementwise_sbp(inputs, attrs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Sbp> in(inputs.size(), Sbp::broadcast());
    in[i] = Sbp::partial_sum();
    rows.push_back(row_of(std::move(in), Sbp::partial_sum()));
  }
  return rows;
}

std::vector<SbpRow> untouched_sbp(Types inputs, const std::vector<int>& axes, bool partial) {
  std::vector<SbpRow> rows = broadcast_sbp(inputs, {});
  for (int axis : axes) rows.push_back(row_of(std::vector<Sbp>(inputs.size(), Sbp::split(axis)), Sbp::split(axis)));
  if (partial) rows.push_back(row_of(std::vector<Sbp>(inputs.size(), Sbp::partial_sum()), Sbp::partial_sum()));
  return rows;
}

}  // namespace sluice::ops
