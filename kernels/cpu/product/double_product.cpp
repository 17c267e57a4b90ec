#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/product/double_product.cpp"

#include "kernels/cpu/product/double_product.h"

#include <algorithm>

#include "kernels/cpu/math/simd_foreach.h"
//
#include "kernels/cpu/math/lane_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {
namespace {

// A few rows of b at a time are laid side by side, where they stay in the cache.
void multiply_columns(const DoubleProduct& p, double* c) {
  constexpr int64_t kDepth = 128;
  alignas(64) double packed[kDepth * kProductLanes];
  const int64_t lanes = whole_vectors<double>(p.columns);
  for (int64_t first = 0; first < p.depth || first == 0; first += kDepth) {
    const int64_t depth = std::min(kDepth, p.depth - first);
    for (int64_t k = 0; k < depth; ++k) {
      const double* from = p.b + (first + k) * p.b_depth;
      double* to = packed + k * kProductLanes;
      for (int64_t j = 0; j < p.columns; ++j) to[j] = from[j * p.b_column];
      std::fill(to + p.columns, to + lanes, 0.0);
    }
    multiply<double>({.a = p.a + first * p.a_depth,
                      .a_row = p.a_row,
                      .a_depth = p.a_depth,
                      .b = packed,
                      .b_row = kProductLanes,
                      .c = c,
                      .c_row = kProductLanes,
                      .rows = p.rows,
                      .depth = depth,
                      .lanes = lanes,
                      .fresh = first == 0});
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
namespace {

HWY_EXPORT(multiply_columns);

}  // namespace

void multiply_doubles(const DoubleProduct& p, double* c) { HWY_DYNAMIC_DISPATCH(multiply_columns)(p, c); }

}  // namespace sluice::cpu
#endif
