#pragma once
// Views whose axes step through several axes of the input at once, or overlap: diagonals, sliding windows.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

// y[o] = x[i], where i[k] = starts[k] + the sum over j of o[j] * steps[j * x.rank() + k]. A view.
Value strided_view(const Value& x, const Ints& shape, const Ints& starts, const Ints& steps);

// As torch.
Value diagonal(const Value& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
Value sliding_windows(const Value& x, int64_t dim, int64_t size, int64_t step);  // torch.Tensor.unfold
// The strides count the elements in row-major order.
Value as_strided(const Value& x, const Ints& size, const Ints& stride, int64_t offset = 0);

std::span<const OpDef* const> strided_view_ops();

}  // namespace sluice::ops
