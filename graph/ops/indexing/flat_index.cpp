// One index into dims laid out behind each other, of an index into each of them.
#include <numeric>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"

namespace sluice::ops {
namespace {

// An index beyond its own dim does not come out as an element of another, but beyond all of them.
Values decompose(std::span<const Value> in, const Attrs& attrs) {
  const Ints sizes = attr<Ints>(attrs, 0);
  int64_t all = 1;
  for (int64_t n : sizes) all *= n;
  Value flat, beyond;
  for (size_t k = 0; k < in.size(); ++k) {
    const int64_t n = sizes[k];
    const Value at = where(lt(in[k], int64_t{0}), add(in[k], n), in[k]);
    const Value outside = logical_or(lt(at, int64_t{0}), ge(at, n));
    beyond = beyond.defined() ? logical_or(beyond, outside) : outside;
    flat = flat.defined() ? add(mul(flat, n), at) : at;
  }
  return {where(beyond, all, flat)};
}

const OpDef flat_index_def{
    .name = "flat_index",
    .doc =
        "Where the element at an index into each of several dims lies among all of them, of int64 indices of one "
        "shape; negative ones count from the end. What x[i, j] takes.",
    .inputs = {"indices*"},
    .params = {{.name = "sizes", .default_value = Ints{}, .required = true}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      const Ints sizes = attr<Ints>(attrs, 0);
      SLUICE_CHECK(in.size() == sizes.size(), "indices: {} given for {} dims; there must be one for each", in.size(),
                   sizes.size());
      for (const TensorType& t : in)
        SLUICE_CHECK(t.dtype == DType::kInt64 && t.shape == in[0].shape,
                     "indices: one is {}; all must be int64 and of the first one's shape, {}", t.str(),
                     in[0].shape.str());
      return {in[0]};
    },
    .decompose = decompose,
    .sbp =
        [](Types in, const Attrs&) {
          std::vector<int> axes(static_cast<size_t>(in[0].shape.rank()));
          std::iota(axes.begin(), axes.end(), 0);
          return untouched_sbp(in, axes, false);
        },
    .samples = {{.inputs = {{.shape = {5}, .dtype = DType::kInt64, .low = -3, .high = 3},
                            {.shape = {5}, .dtype = DType::kInt64, .low = -4, .high = 4}},
                 .attrs = {Ints{3, 4}}},
                {.inputs = {{.shape = {2, 3}, .dtype = DType::kInt64, .low = 0, .high = 2}}, .attrs = {Ints{2}}},
                {.inputs = {{.shape = {0}, .dtype = DType::kInt64}, {.shape = {0}, .dtype = DType::kInt64}},
                 .attrs = {Ints{3, 4}}}}};

}  // namespace

Value flat_index(const std::vector<Value>& indices, const Ints& sizes) {
  return call(flat_index_def, indices, {sizes})[0];
}

std::span<const OpDef* const> flat_index_ops() {
  static const OpDef* const ops[] = {&flat_index_def};
  return ops;
}

}  // namespace sluice::ops
