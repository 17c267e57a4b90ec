#include "kernels/cpu/strides/strided.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/scalar_ops.h"

namespace sluice::cpu {

Strides broadcast_strides(const TensorSpec& operand, const Shape& shape) {
  Strides s = Shape::filled(shape.rank(), 0);
  const int shift = shape.rank() - operand.shape.rank();
  for (int i = 0; i < operand.shape.rank(); ++i)
    if (operand.shape[i] == shape[i + shift] && shape[i + shift] != 1) s[i + shift] = operand.strides[i];
  return s;
}

template <int kMost>
LoopNestOf<kMost>::LoopNestOf(const Shape& shape, std::span<const Strides> strides) {
  std::array<int, kMaxRank> order{};
  int n = 0;
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] != 1) order[n++] = i;
  // Outermost first. A broadcast axis (stride 0) of the last operand is ordered by the other operands.
  const auto key = [&](int axis, int back) { return std::abs(strides[strides.size() - 1 - back][axis]); };
  std::stable_sort(order.begin(), order.begin() + n, [&](int a, int b) {
    for (int back = 0; back < static_cast<int>(strides.size()); ++back)
      if (key(a, back) != key(b, back)) return key(a, back) > key(b, back);
    return false;
  });
  build(shape, strides, std::span(order).first(n));
}

template <int kMost>
LoopNestOf<kMost> LoopNestOf<kMost>::in_order(const Shape& shape, std::span<const Strides> strides) {
  std::array<int, kMaxRank> order{};
  int n = 0;
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] != 1) order[n++] = i;
  LoopNestOf nest;
  nest.build(shape, strides, std::span(order).first(n));
  return nest;
}

template <int kMost>
void LoopNestOf<kMost>::build(const Shape& shape, std::span<const Strides> strides, std::span<const int> order) {
  SLUICE_CHECK(strides.size() <= kMost, "loop: {} operands; must be at most {}", strides.size(), kMost);
  operands_ = static_cast<int>(strides.size());
  size_ = numel(shape);
  if (size_ == 0 || order.empty()) return;
  // From the inside out: an axis joins the one inside it when it continues it for every operand.
  std::array<int64_t, kMaxRank> dims{};
  std::array<std::array<int64_t, kMaxRank>, kMost> steps{};
  int rank = 0;
  for (size_t i = order.size(); i-- > 0;) {
    const int axis = order[i];
    bool joins = rank > 0;
    for (int k = 0; joins && k < operands_; ++k) joins = strides[k][axis] == steps[k][rank - 1] * dims[rank - 1];
    if (joins) {
      dims[rank - 1] *= shape[axis];
      continue;
    }
    dims[rank] = shape[axis];
    for (int k = 0; k < operands_; ++k) steps[k][rank] = strides[k][axis];
    ++rank;
  }
  inner_ = dims[0];
  outer_rank_ = rank - 1;
  for (int k = 0; k < operands_; ++k) {
    inner_strides_[k] = steps[k][0];
    for (int axis = 0; axis < outer_rank_; ++axis) strides_[k][axis] = steps[k][rank - 1 - axis];
  }
  for (int axis = 0; axis < outer_rank_; ++axis) dims_[axis] = dims[rank - 1 - axis];
}

template class LoopNestOf<kMaxOperands>;
template class LoopNestOf<kMostFusedInputs + 1>;
template class LoopNestOf<kMostFusedInputs + kMostFusedOutputs>;

}  // namespace sluice::cpu
