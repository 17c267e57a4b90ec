#pragma once
// The one place that says which strides mean something. A dim of size 1 has no second element, and a tensor without
// elements has none anywhere, so their strides say nothing about memory: views, NumPy and DLPack leave any number
// there.
#include "base/tensor_spec.h"

namespace sluice {

// Whether tensors of this shape have their elements in the same places.
bool same_layout(const Shape& shape, const Strides& a, const Strides& b);
inline bool same_layout(const TensorSpec& a, const TensorSpec& b) {
  return a.dtype == b.dtype && a.shape == b.shape && same_layout(a.shape, a.strides, b.strides);
}

// One of all strides that put the elements in the same places: equal for two of the same layout. A tensor that is
// contiguous, or else channels-last, gets exactly the strides that these layouts have; elsewhere a dim of size 1
// continues those behind it.
Strides canonical_strides(const Shape& shape, const Strides& strides);
inline TensorSpec canonical(const TensorSpec& spec) {
  return {spec.dtype, spec.shape, canonical_strides(spec.shape, spec.strides)};
}
// Cheap where no dim is below 2, as in most calls.
bool is_canonical(const TensorSpec& spec);

}  // namespace sluice
