// max_pool, avg_pool and their adjoints. A tensor is seen as planes of positions with `lanes` side by side:
// channels-last has N planes of C lanes, contiguous has N * C planes of one lane. The inner loops run over lanes or,
// forwards where there is one, over outputs that are neighbours on the innermost axis.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/spatial/pooling.cpp"

#include "kernels/cpu/spatial/pooling.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/math/simd_foreach.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"
// clang-format off
#include "kernels/cpu/spatial/pooling_lines-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kLanes = 256;  // outputs per block of local sums

// Calls visit(position, index within the plane of y) for all output positions.
template <class F>
HWY_INLINE void for_each_output(const Pool& p, F visit) {
  std::array<int64_t, 3> at;
  for (at[0] = 0; at[0] < p.y.size[0]; ++at[0])
    for (at[1] = 0; at[1] < p.y.size[1]; ++at[1])
      for (at[2] = 0; at[2] < p.y.size[2]; ++at[2])
        visit(at, at[0] * p.y.stride[0] + at[1] * p.y.stride[1] + at[2] * p.y.stride[2]);
}

// Calls visit(position, n, where the first one is from the beginning of the plane of x, of y) for blocks of n outputs:
// lanes of one position, or positions on the innermost axis from `position` on whose windows have the same taps.
template <class F>
HWY_INLINE void for_each_block(const Pool& p, F visit) {
  if (p.lanes_are_channels) {
    for_each_output(p, [&](const std::array<int64_t, 3>& at, int64_t y_at) {
      for (int64_t l = 0; l < p.channels; l += kLanes)
        visit(at, std::min(kLanes, p.channels - l), l * p.x_step(), y_at + l * p.y_step());
    });
    return;
  }
  // Windows within the image, along the innermost axis.
  const int64_t first = (p.padding[2] + p.step[2] - 1) / p.step[2],
                room = p.x.size[2] - 1 - (p.kernel[2] - 1) * p.dilation[2] + p.padding[2],
                last = room < 0 ? 0 : std::min(room / p.step[2] + 1, p.y.size[2]);
  std::array<int64_t, 3> at;
  for (at[0] = 0; at[0] < p.y.size[0]; ++at[0]) {
    for (at[1] = 0; at[1] < p.y.size[1]; ++at[1]) {
      int64_t n = 1;
      for (at[2] = 0; at[2] < p.y.size[2]; at[2] += n) {
        n = at[2] >= first && at[2] < last ? std::min(kLanes, last - at[2]) : 1;
        visit(at, n, 0, at[0] * p.y.stride[0] + at[1] * p.y.stride[1] + at[2] * p.y.stride[2]);
      }
    }
  }
}

// f(l, v[l * step]) for l < n; the steps that are frequent are known to the compiler.
template <class T, class F>
HWY_INLINE void for_lanes(const T* v, int64_t step, int64_t n, F f) {
  if (step == 1)
    for (int64_t l = 0; l < n; ++l) f(l, load(v[l]));
  else if (step == 2)
    for (int64_t l = 0; l < n; ++l) f(l, load(v[l * 2]));
  else
    for (int64_t l = 0; l < n; ++l) f(l, load(v[l * step]));
}

// Without out_indices: the values alone.
template <class T>
void max_pool(const Pool& p, const void* in, const void*, void* out, void* out_indices) {
  using C = Compute<T>;
  const T* x = static_cast<const T*>(in);
  T* y = static_cast<T*>(out);
  int64_t* indices = static_cast<int64_t*>(out_indices);
  const int64_t x_step = p.x_step(), y_step = p.y_step(), flat_step = p.flat_step();
  const C lowest =
      std::numeric_limits<C>::has_infinity ? -std::numeric_limits<C>::infinity() : std::numeric_limits<C>::lowest();
  parallel_each(p.threads, p.planes(), [&](int64_t plane) {
    for_each_block(p, [&](const std::array<int64_t, 3>& at, int64_t n, int64_t x_lane, int64_t y_at) {
      C best[kLanes];
      int32_t where[kLanes];
      const T* xp = x + p.base(p.x, plane) + x_lane;
      T* values = y + p.base(p.y, plane) + y_at;
      int64_t* places = indices ? indices + p.base(p.y, plane) + y_at : nullptr;
      if (in_registers<T>(p, at, n, [&](auto d, auto step, const Taps& taps) {
            if constexpr (std::is_same_v<T, C>) line_maxima<step()>(d, taps, xp, n, values, places, flat_step);
          }))
        return;
      const auto [i, j, k] = first_tap(p, at);
      const auto none = static_cast<int32_t>(flat_index(p, i, j, k));
      for (int64_t l = 0; l < n; ++l) best[l] = lowest, where[l] = none;
      for_each_tap(p, at, [&](int64_t x_at, int64_t flat) {
        const int32_t f = static_cast<int32_t>(flat);
        for_lanes(xp + x_at, x_step, n, [&](int64_t l, C value) {
          const bool better = (value > best[l]) | (value != value);  // without branches
          best[l] = better ? value : best[l];
          where[l] = better ? f : where[l];
        });
      });
      if (places == nullptr) {
        for (int64_t l = 0; l < n; ++l) store(values + l * y_step, best[l]);
      } else if (y_step == 1) {
        for (int64_t l = 0; l < n; ++l) store(values + l, best[l]);
        for (int64_t l = 0; l < n; ++l) places[l] = where[l] + l * flat_step;
      } else {
        for (int64_t l = 0; l < n; ++l) store(values + l * y_step, best[l]);
        for (int64_t l = 0; l < n; ++l) places[l * y_step] = where[l] + l * flat_step;
      }
    });
  });
}

template <class T>
void max_pool_backward(const Pool& p, const void* in, const void* in_indices, void* out, void*) {
  const T* g = static_cast<const T*>(in);
  const int64_t* indices = static_cast<const int64_t*>(in_indices);
  T* dx = static_cast<T*>(out);
  const int64_t lanes = p.lanes(), xl = p.lanes_are_channels ? p.x.channel_stride : 1,
                yl = p.lanes_are_channels ? p.y.channel_stride : 1;
  const int64_t positions = p.x.size[0] * p.x.size[1] * p.x.size[2];
  std::atomic<bool> bad{false};
  parallel_each(p.threads, p.planes(), [&](int64_t plane) {
    T* to = dx + p.base(p.x, plane);
    // Sums are made in the tensor's own dtype: windows overlap rarely, and then by a few elements.
    for (int64_t l = 0; l < lanes && xl != 1; ++l)
      for (int64_t s = 0; s < positions; ++s) store(to + l * xl + s * p.x.stride[2], Compute<T>(0));
    if (xl == 1) std::memset(static_cast<void*>(to), 0, static_cast<size_t>(lanes * positions) * sizeof(T));
    const int64_t y_base = p.base(p.y, plane);
    if (!p.lanes_are_channels) {  // planes are contiguous
      bool outside = false;
      for (int64_t o = y_base; o < y_base + p.y.size[0] * p.y.size[1] * p.y.size[2]; ++o) {
        const int64_t flat = indices[o];
        const bool inside = static_cast<uint64_t>(flat) < static_cast<uint64_t>(positions);
        outside |= !inside;
        if (inside) store(to + flat, load(to[flat]) + load(g[o]));
      }
      if (outside) bad = true;
      return;
    }
    for_each_output(p, [&](const std::array<int64_t, 3>&, int64_t y_at) {
      const int64_t from = y_base + y_at;
      for (int64_t l = 0; l < lanes; ++l) {
        const int64_t flat = indices[from + l * yl];
        if (static_cast<uint64_t>(flat) >= static_cast<uint64_t>(positions)) {
          bad = true;
          continue;
        }
        T* cell = to + flat * p.x.stride[2] + l * xl;
        store(cell, load(*cell) + load(g[from + l * yl]));
      }
    });
  });
  SLUICE_CHECK_KIND(
      kIndex, !bad,
      "max_pool_backward: an index is out of range: the input has {} positions per channel; indices must be max_pool's",
      positions);
}

// The divisor of a window's sum (torch.avg_poolNd).
HWY_INLINE double divisor_at(const Pool& p, const std::array<int64_t, 3>& at) {
  if (p.divisor != 0) return static_cast<double>(p.divisor);
  double count = 1;
  for (int d = 0; d < 3; ++d) {
    const int64_t begin = at[d] * p.step[d] - p.padding[d],
                  end = std::min(begin + p.kernel[d], p.x.size[d] + p.padding[d]);
    const int64_t inside = std::min(end, p.x.size[d]) - std::max<int64_t>(begin, 0);
    count *= static_cast<double>(p.include_padding ? end - begin : inside);
  }
  return count;
}

template <class T>
void avg_pool(const Pool& p, const void* in, const void*, void* out, void*) {
  using C = Compute<T>;
  const T* x = static_cast<const T*>(in);
  T* y = static_cast<T*>(out);
  const int64_t x_step = p.x_step(), y_step = p.y_step();
  parallel_each(p.threads, p.planes(), [&](int64_t plane) {
    for_each_block(p, [&](const std::array<int64_t, 3>& at, int64_t n, int64_t x_lane, int64_t y_at) {
      const C divisor = static_cast<C>(divisor_at(p, at));
      const T* xp = x + p.base(p.x, plane) + x_lane;
      T* to = y + p.base(p.y, plane) + y_at;
      if (in_registers<T>(p, at, n, [&](auto d, auto step, const Taps& taps) {
            if constexpr (std::is_same_v<T, C>) line_means<step()>(d, taps, xp, n, to, divisor);
          }))
        return;
      C sums[kLanes] = {};
      for_each_tap(p, at, [&](int64_t x_at, int64_t) {
        for_lanes(xp + x_at, x_step, n, [&](int64_t l, C value) { sums[l] += value; });
      });
      for (int64_t l = 0; l < n; ++l) store(to + l * y_step, sums[l] / divisor);
    });
  });
}

template <class T>
void avg_pool_backward(const Pool& p, const void* in, const void*, void* out, void*) {
  using C = Compute<T>;
  const T* g = static_cast<const T*>(in);
  T* dx = static_cast<T*>(out);
  const int64_t lanes = p.lanes(), xl = p.lanes_are_channels ? p.x.channel_stride : 1,
                yl = p.lanes_are_channels ? p.y.channel_stride : 1;
  const int64_t positions = p.x.size[0] * p.x.size[1] * p.x.size[2];
  parallel_each(p.threads, p.planes(), [&](int64_t plane) {
    T* to = dx + p.base(p.x, plane);
    for (int64_t s = 0; s < positions; ++s)
      for (int64_t l = 0; l < lanes; ++l) store(to + s * p.x.stride[2] + l * xl, C(0));
    for_each_output(p, [&](const std::array<int64_t, 3>& at, int64_t y_at) {
      const C scale = 1 / static_cast<C>(divisor_at(p, at));
      const T* from = g + p.base(p.y, plane) + y_at;
      for_each_tap(p, at, [&](int64_t x_at, int64_t) {
        T* cell = to + x_at;
        if (xl == 1 && yl == 1) {
          for (int64_t l = 0; l < lanes; ++l) store(cell + l, load(cell[l]) + scale * load(from[l]));
        } else {
          for (int64_t l = 0; l < lanes; ++l) store(cell + l * xl, load(cell[l * xl]) + scale * load(from[l * yl]));
        }
      });
    });
  });
}

enum Which { kMax, kMaxValues, kMaxBackward, kAvg, kAvgBackward };
PoolFn select_pool(int which, DType dtype) {
  if (which == kMax || which == kMaxValues) {
    if (dtype == DType::kInt64) return max_pool<int64_t>;
    if (dtype == DType::kInt32) return max_pool<int32_t>;
    if (dtype == DType::kUInt8) return max_pool<uint8_t>;
    return dispatch_floating(dtype, "max_pool", [](auto t) -> PoolFn { return max_pool<decltype(t)>; });
  }
  return dispatch_floating(dtype, "pooling", [&](auto t) -> PoolFn {
    using T = decltype(t);
    return which == kMaxBackward ? max_pool_backward<T> : which == kAvg ? avg_pool<T> : avg_pool_backward<T>;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
HWY_EXPORT(select_pool);
namespace {

using plan::KernelQuery;

PoolSide side_of(const TensorSpec& spec, bool channels_last) {
  PoolSide side;
  const int dims = spec.shape.rank() - 2;
  const Strides strides = channels_last ? channels_last_strides(spec.shape) : contiguous_strides(spec.shape);
  side.batch_stride = strides[0];
  side.channel_stride = strides[1];
  int64_t positions = 1;
  for (int d = dims - 1; d >= 0; --d) {
    const int to = 3 - dims + d;
    side.size[to] = spec.shape[2 + d];
    side.stride[to] = strides[2 + d];
    positions *= spec.shape[2 + d];
  }
  return side;
}

std::unique_ptr<PreparedKernel> prepare(int which, const KernelQuery& q, const PrepareContext& context) {
  const bool backward = which == HWY_NAMESPACE::kMaxBackward || which == HWY_NAMESPACE::kAvgBackward;
  const TensorSpec &x = backward ? q.outputs[0] : q.inputs[0], &y = backward ? q.inputs[0] : q.outputs[0];
  const bool x_last = is_channels_last(x, q.op.c_str()), y_last = is_channels_last(y, q.op.c_str());
  Pool p;
  p.batch = x.shape[0];
  p.channels = x.shape[1];
  p.lanes_are_channels = x_last || y_last;
  p.x = side_of(x, x_last);
  p.y = side_of(y, y_last);
  const int dims = x.shape.rank() - 2;
  if (which != HWY_NAMESPACE::kMaxBackward) {
    const auto &kernel = get_attr<Ints>(q.attrs, "kernel_size"), &stride = get_attr<Ints>(q.attrs, "stride"),
               &padding = get_attr<Ints>(q.attrs, "padding");
    for (int d = 0; d < dims; ++d) {
      p.kernel[3 - dims + d] = kernel[d];
      p.step[3 - dims + d] = stride[d];
      p.padding[3 - dims + d] = padding[d];
      if (which == HWY_NAMESPACE::kMax || which == HWY_NAMESPACE::kMaxValues)
        p.dilation[3 - dims + d] = get_attr<Ints>(q.attrs, "dilation")[d];
    }
  }
  if (which == HWY_NAMESPACE::kAvg || which == HWY_NAMESPACE::kAvgBackward) {
    p.include_padding = get_attr<bool>(q.attrs, "count_include_pad");
    p.divisor = get_attr<int64_t>(q.attrs, "divisor_override");
  }
  double taps = 1;
  for (int64_t kernel : p.kernel) taps *= static_cast<double>(kernel);
  p.threads = threads_for(context, static_cast<double>(numel(x.shape)) + taps * static_cast<double>(numel(y.shape)));
  const PoolFn run = HWY_DYNAMIC_DISPATCH(select_pool)(which, x.dtype);
  // The indices have the layout of the values they belong to.
  auto same_layout = [&](const TensorSpec& indices) {
    SLUICE_CHECK_KIND(kUnsupported, is_channels_last(indices, q.op.c_str()) == y_last,
                      "{}: indices lie in another order than the values: strides {} and {}; copy one of them", q.op,
                      indices.strides.str(), y.strides.str());
  };
  if (which == HWY_NAMESPACE::kMax) same_layout(q.outputs[1]);
  if (which == HWY_NAMESPACE::kMaxBackward) same_layout(q.inputs[1]);
  return make_kernel(0, [p, run, which](const KernelArgs& args) {
    run(p, args.inputs[0], which == HWY_NAMESPACE::kMaxBackward ? args.inputs[1] : nullptr, args.outputs[0],
        which == HWY_NAMESPACE::kMax ? args.outputs[1] : nullptr);
  });
}

template <int kWhich>
std::unique_ptr<PreparedKernel> prepare_as(const KernelQuery& q, const PrepareContext& context) {
  return prepare(kWhich, q, context);
}

}  // namespace

namespace {

// The layouts of forward ops: a contiguous operand stays so where its lines are long enough for neighbours to be
// computed together.
plan::LayoutPreference layouts(const KernelQuery& q) {
  const TensorSpec& x = q.inputs[0];
  constexpr int64_t kLong = 10;
  if (q.outputs[0].shape.back() < kLong || !is_contiguous(x.shape, x.strides) ||
      spatial_layout(x) == plan::Layout::kChannelsLast)
    return channels_last_where_spatial(q);
  return {std::vector(q.inputs.size(), plan::Layout::kContiguous),
          std::vector(q.outputs.size(), plan::Layout::kContiguous)};
}

}  // namespace

void add_pooling_kernels(KernelTable& table) {
  using namespace HWY_NAMESPACE;
  auto add = [&](const char* op, PrepareFn prepare_fn, auto wanted) {
    table.add(DeviceKind::kCpu, {.op = op, .prepare = std::move(prepare_fn), .layouts = wanted});
  };
  add("max_pool", prepare_as<kMax>, layouts);
  add("max_pool_values", prepare_as<kMaxValues>, layouts);
  add("max_pool_backward", prepare_as<kMaxBackward>, spatial_as_inputs_lie);  // goes where indices say
  add("avg_pool", prepare_as<kAvg>, layouts);
  add("avg_pool_backward", prepare_as<kAvgBackward>, channels_last_where_spatial);
}

}  // namespace sluice::cpu
#endif
