#pragma once
// Elements of tensors as numbers, for who looks at values rather than computes with them.
#include <cstddef>

#include "base/dtype.h"
#include "base/shape.h"
#include "base/tensor_spec.h"

namespace sluice {

// The element at an address, aligned or not. A complex number gives its real part, a truth value 0 or 1.
double element_of(DType dtype, const std::byte* at);

// Calls visit(number, offset in elements) for every element in row-major order.
template <class Visit>
void for_each_element(const TensorSpec& spec, Visit&& visit) {
  const int64_t n = numel(spec.shape);
  Shape index = Shape::filled(spec.shape.rank(), 0);
  int64_t offset = 0;
  for (int64_t i = 0; i < n; ++i) {
    visit(i, offset);
    for (int d = spec.shape.rank() - 1; d >= 0; --d) {
      offset += spec.strides[d];
      if (++index[d] < spec.shape[d]) break;
      offset -= index[d] * spec.strides[d];
      index[d] = 0;
    }
  }
}

}  // namespace sluice
