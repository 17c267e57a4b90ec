// Poolings whose outputs lie side by side, computed in registers over all taps of their windows. Compiled for each
// instruction set of the file that includes it; its guard is turned for each.
#if defined(SLUICE_KERNELS_CPU_POOLING_LINES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_CPU_POOLING_LINES_INL_H
#undef SLUICE_KERNELS_CPU_POOLING_LINES_INL_H
#else
#define SLUICE_KERNELS_CPU_POOLING_LINES_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/spatial/pooling.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The first taps of output position `at` that are not before the input.
HWY_INLINE std::array<int64_t, 3> first_tap(const Pool& p, const std::array<int64_t, 3>& at) {
  std::array<int64_t, 3> begin;
  for (int d = 0; d < 3; ++d) {
    begin[d] = at[d] * p.step[d] - p.padding[d];
    if (begin[d] < 0) begin[d] += (p.dilation[d] - 1 - begin[d]) / p.dilation[d] * p.dilation[d];
  }
  return begin;
}
HWY_INLINE int64_t flat_index(const Pool& p, int64_t i, int64_t j, int64_t k) {
  return (i * p.x.size[1] + j) * p.x.size[2] + k;
}

// Calls visit(input index within the plane, flat spatial index) for the taps of output position `at` inside the input.
template <class F>
HWY_INLINE void for_each_tap(const Pool& p, const std::array<int64_t, 3>& at, F visit) {
  const std::array<int64_t, 3> begin = first_tap(p, at);
  std::array<int64_t, 3> end;
  for (int d = 0; d < 3; ++d)
    end[d] = std::min(at[d] * p.step[d] - p.padding[d] + (p.kernel[d] - 1) * p.dilation[d] + 1, p.x.size[d]);
  for (int64_t i = begin[0]; i < end[0]; i += p.dilation[0])
    for (int64_t j = begin[1]; j < end[1]; j += p.dilation[1])
      for (int64_t k = begin[2]; k < end[2]; k += p.dilation[2])
        visit(i * p.x.stride[0] + j * p.x.stride[1] + k * p.x.stride[2], flat_index(p, i, j, k));
}

constexpr int kMostTaps = 64;  // of a window whose outputs are computed in registers

// The taps of a window: offsets in the plane of x, and flat spatial indices.
struct Taps {
  int count = 0;
  int64_t at[kMostTaps], flat[kMostTaps];
};

// Lanes(d) elements, kStep apart. Reads nothing beyond the last one.
template <int kStep, class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_apart(D d, const T* v) {
#if HWY_TARGET != HWY_SCALAR  // of one lane, and without these functions
  if constexpr (kStep > 1) {
    const auto low = hn::LoadU(d, v), high = hn::LoadU(d, v + hn::Lanes(d) - 1);
    return hn::ConcatUpperLower(d, hn::ConcatOdd(d, high, high), hn::ConcatEven(d, low, low));
  }
#endif
  return hn::LoadU(d, v);
}

// Calls f(l) for vectors of `lanes` that cover n outputs; the last one overlaps the one before.
template <class F>
HWY_INLINE void for_vectors(int64_t lanes, int64_t n, F f) {
  int64_t l = 0;
  for (; l + lanes <= n; l += lanes) f(l);
  if (l < n) f(n - lanes);
}

// Maxima of n windows side by side, and where they are, unless `places` is null. REQUIRES: n >= Lanes(d).
template <int kStep, class D, class T = hn::TFromD<D>>
void line_maxima(D d, const Taps& taps, const T* x, int64_t n, T* y, int64_t* places, int64_t flat_step) {
  const hn::RebindToSigned<D> di;
  using I = hn::TFromD<decltype(di)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN I where[hn::MaxLanes(di)];
  for_vectors(lanes, n, [&](int64_t l) HWY_ATTR {
    auto m = load_apart<kStep>(d, x + taps.at[0] + l * kStep);
    auto w = hn::Set(di, static_cast<I>(taps.flat[0]));
    for (int t = 1; t < taps.count; ++t) {
      const auto v = load_apart<kStep>(d, x + taps.at[t] + l * kStep);
      const auto better = hn::Or(hn::Gt(v, m), hn::IsNaN(v));
      m = hn::IfThenElse(better, v, m);
      if (places) w = hn::IfThenElse(hn::RebindMask(di, better), hn::Set(di, static_cast<I>(taps.flat[t])), w);
    }
    hn::StoreU(m, d, y + l);
    if (places == nullptr) return;
    hn::Store(w, di, where);
    for (int64_t i = 0; i < lanes; ++i) places[l + i] = where[i] + (l + i) * flat_step;
  });
}

// The same of sums over a divisor.
template <int kStep, class D, class T = hn::TFromD<D>>
void line_means(D d, const Taps& taps, const T* x, int64_t n, T* y, T divisor) {
  for_vectors(static_cast<int64_t>(hn::Lanes(d)), n, [&](int64_t l) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (int t = 0; t < taps.count; ++t) sum = hn::Add(sum, load_apart<kStep>(d, x + taps.at[t] + l * kStep));
    hn::StoreU(hn::Div(sum, hn::Set(d, divisor)), d, y + l);
  });
}

// Whether f(vectors' tag, step between windows as a constant, taps) has computed n outputs side by side in registers:
// floats in lines, windows that are not too large.
template <class T, class F>
bool in_registers(const Pool& p, const std::array<int64_t, 3>& at, int64_t n, F f) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    const hn::ScalableTag<T> whole;
    const hn::CappedTag<T, 8> part;
    const int64_t step = p.x_step();
    if (p.y_step() != 1 || (step != 1 && step != 2) || n < static_cast<int64_t>(hn::Lanes(part)) ||
        p.kernel[0] * p.kernel[1] * p.kernel[2] > kMostTaps)
      return false;
    Taps taps;
    for_each_tap(p, at, [&](int64_t x_at, int64_t flat) {
      taps.at[taps.count] = x_at;
      taps.flat[taps.count++] = flat;
    });
    if (taps.count == 0) return false;
    const auto with_step = [&](auto d) {
      if (step == 1)
        f(d, std::integral_constant<int, 1>(), taps);
      else
        f(d, std::integral_constant<int, 2>(), taps);
    };
    if (n >= static_cast<int64_t>(hn::Lanes(whole)))
      with_step(whole);
    else
      with_step(part);
    return true;
  }
  return false;
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();
#endif
