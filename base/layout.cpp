#include "base/layout.h"

#include <algorithm>

namespace sluice {

bool same_layout(const Shape& shape, const Strides& a, const Strides& b) {
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 0) return true;
  }
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] != 1 && a[i] != b[i]) return false;
  }
  return true;
}

Strides canonical_strides(const Shape& shape, const Strides& strides) {
  // Every step means something then, which is what most tensors are like.
  if (std::none_of(shape.begin(), shape.end(), [](int64_t dim) { return dim < 2; })) return strides;
  if (is_contiguous(shape, strides)) return contiguous_strides(shape);
  if (shape.rank() >= 3) {
    const Strides channels_last = channels_last_strides(shape);
    if (same_layout(shape, strides, channels_last)) return channels_last;
  }
  Strides made = strides;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] != 1) continue;
    // Too large a step is as good as any other.
    const bool behind = i + 1 < shape.rank();
    if (!behind || __builtin_mul_overflow(made[i + 1], shape[i + 1], &made[i])) made[i] = 1;
  }
  return made;
}

bool is_canonical(const TensorSpec& spec) { return canonical_strides(spec.shape, spec.strides) == spec.strides; }

}  // namespace sluice
