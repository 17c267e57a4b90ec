// Torch's spelling of reading and writing at indices.
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

// The index before the dim in C++, after it in torch.
using OfIndex = Value (*)(const Value&, const Value&, int64_t);
using OfSource = Value (*)(const Value&, const Value&, const Value&, int64_t);

auto at_index(OfIndex f) {
  return [f](const Value& x, int64_t dim, const Value& index) { return f(x, index, dim); };
}
auto from_source(OfSource f) {
  return [f](const Value& x, int64_t dim, const Value& index, const Value& source) { return f(x, index, source, dim); };
}

Value gather_at(const Value& x, int64_t dim, const Value& index, bool) { return gather(x, index, dim); }

Value scatter_number(const Value& x, int64_t dim, const Value& index, const Operand& value) {
  return scatter(x, index, expand(value.to(x.dtype()), index.shape()), dim);
}

Value index_add_scaled(const Value& x, int64_t dim, const Value& index, const Value& source, const Operand& alpha) {
  return index_add(x, index, alpha.number() == 1 ? source : mul(source, alpha), dim);
}

// Without a dim, of the flattened tensors.
Value take_along_dim(const Value& x, const Value& indices, const std::optional<int64_t>& dim) {
  return dim ? take_along(x, indices, *dim) : take_along(flatten(x), flatten(indices), 0);
}

}  // namespace

std::vector<Form> indexing_forms() {
  return {
      {.doc = "Elements at index[i][j].. along a dim. torch.gather.",
       .overloads = {overload("gather(Tensor input, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
                              &gather_at)},
       .out = true},
      {.doc = "input with src, or a number, written at the indices along a dim; of equal ones the last wins. "
              "torch.scatter.",
       .overloads = {overload("scatter(Tensor input, int dim, Tensor index, Tensor src) -> Tensor",
                              from_source(&scatter)),
                     overload("scatter(Tensor input, int dim, Tensor index, Scalar value) -> Tensor", &scatter_number)},
       .in_place = true,
       .out = true},
      {.doc = "input with src added at the indices along a dim. torch.scatter_add.",
       .overloads = {overload("scatter_add(Tensor input, int dim, Tensor index, Tensor src) -> Tensor",
                              from_source(&scatter_add))},
       .in_place = true,
       .out = true},
      {.doc = "The entries of a dim that a vector of indices names. torch.index_select.",
       .overloads = {overload("index_select(Tensor input, int dim, Tensor index) -> Tensor", at_index(&index_select))},
       .out = true},
      {.doc =
           "input with alpha * source added at the entries of a dim that a vector of indices names. torch.index_add.",
       .overloads = {overload(
           "index_add(Tensor input, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
           &index_add_scaled)},
       .in_place = true,
       .out = true},
      {.doc = "Elements at indices along a dim, both broadcast; no dim: of the flattened tensor. torch.take_along_dim.",
       .overloads = {overload("take_along_dim(Tensor input, Tensor indices, int? dim=None) -> Tensor",
                              &take_along_dim)},
       .out = true},
  };
}

}  // namespace sluice::ops
