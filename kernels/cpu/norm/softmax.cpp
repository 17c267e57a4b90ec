// softmax, log_softmax and their backwards. A tensor is seen as (outer, n, inner) around the dim; with inner = 1 a row
// is summed across vector lanes, else lanes run over inner.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm/softmax.cpp"

#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/math/simd_foreach.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"

#ifndef SLUICE_KERNELS_CPU_SOFTMAX_ONCE
#define SLUICE_KERNELS_CPU_SOFTMAX_ONCE
namespace sluice::cpu {

struct SoftmaxShape {
  int64_t outer = 1, n = 1, inner = 1;
  int threads = 1;
};
// Forward: in0 is x. Backward: in0 is the gradient, in1 the result.
using SoftmaxFn = void (*)(const SoftmaxShape&, const void* in0, const void* in1, void* out);

}  // namespace sluice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kLanes = 64;

template <class T, bool kLog>
HWY_INLINE void forward_row(const T* x, T* y, int64_t n) {
  using C = Compute<T>;
  C top = load(x[0]);
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = load(x[i]) > top ? load(x[i]) : top;
  C sum = 0;
  if constexpr (kLog) {
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += exponential(load(x[i]) - top);
    const C log_sum = std::log(sum);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) store(y + i, (load(x[i]) - top) - log_sum);
  } else if constexpr (sizeof(T) < sizeof(C)) {  // y would round the exponentials
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += exponential(load(x[i]) - top);
    const C scale = 1 / sum;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) store(y + i, exponential(load(x[i]) - top) * scale);
  } else {
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) {
      const C e = exponential(x[i] - top);
      y[i] = e;
      sum += e;
    }
    const C scale = 1 / sum;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] *= scale;
  }
}

template <class T, bool kLog>
HWY_INLINE void forward_lanes(const T* x, T* y, int64_t n, int64_t inner, int64_t lanes) {
  using C = Compute<T>;
  C top[kLanes], sum[kLanes];
  for (int64_t l = 0; l < lanes; ++l) top[l] = load(x[l]), sum[l] = 0;
  for (int64_t i = 1; i < n; ++i)
    for (int64_t l = 0; l < lanes; ++l) top[l] = load(x[i * inner + l]) > top[l] ? load(x[i * inner + l]) : top[l];
  for (int64_t i = 0; i < n; ++i)
    for (int64_t l = 0; l < lanes; ++l) sum[l] += exponential(load(x[i * inner + l]) - top[l]);
  for (int64_t l = 0; l < lanes; ++l) sum[l] = kLog ? std::log(sum[l]) : 1 / sum[l];
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t l = 0; l < lanes; ++l) {
      const C d = load(x[i * inner + l]) - top[l];
      store(y + i * inner + l, kLog ? d - sum[l] : exponential(d) * sum[l]);
    }
  }
}

template <class T, bool kLog>
HWY_INLINE void backward_row(const T* g, const T* y, T* dx, int64_t n) {
  using C = Compute<T>;
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += kLog ? load(g[i]) : load(g[i]) * load(y[i]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    store(dx + i, kLog ? load(g[i]) - exponential(load(y[i])) * sum : load(y[i]) * (load(g[i]) - sum));
  }
}

template <class T, bool kLog>
HWY_INLINE void backward_lanes(const T* g, const T* y, T* dx, int64_t n, int64_t inner, int64_t lanes) {
  using C = Compute<T>;
  C sum[kLanes] = {};
  for (int64_t i = 0; i < n; ++i)
    for (int64_t l = 0; l < lanes; ++l)
      sum[l] += kLog ? load(g[i * inner + l]) : load(g[i * inner + l]) * load(y[i * inner + l]);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t l = 0; l < lanes; ++l) {
      const int64_t at = i * inner + l;
      store(dx + at, kLog ? load(g[at]) - exponential(load(y[at])) * sum[l] : load(y[at]) * (load(g[at]) - sum[l]));
    }
  }
}

template <class T, bool kLog, bool kBackward>
void softmax(const SoftmaxShape& s, const void* in0, const void* in1, void* out) {
  const int64_t blocks = (s.inner + kLanes - 1) / kLanes;
  if (s.n == 0) return;
  parallel_each(s.threads, s.outer * blocks, [&](int64_t job) {
    const int64_t first = job % blocks * kLanes, at = job / blocks * s.n * s.inner + first,
                  lanes = std::min(kLanes, s.inner - first);
    const T* a = static_cast<const T*>(in0) + at;
    const T* b = kBackward ? static_cast<const T*>(in1) + at : nullptr;
    T* y = static_cast<T*>(out) + at;
    if constexpr (kBackward) {
      if (s.inner == 1)
        backward_row<T, kLog>(a, b, y, s.n);
      else
        backward_lanes<T, kLog>(a, b, y, s.n, s.inner, lanes);
    } else {
      if (s.inner == 1)
        forward_row<T, kLog>(a, y, s.n);
      else
        forward_lanes<T, kLog>(a, y, s.n, s.inner, lanes);
    }
  });
}

SoftmaxFn select_softmax(bool log, bool backward, DType dtype) {
  return dispatch_floating(dtype, "softmax", [&](auto t) -> SoftmaxFn {
    using T = decltype(t);
    if (backward) return log ? softmax<T, true, true> : softmax<T, false, true>;
    return log ? softmax<T, true, false> : softmax<T, false, false>;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
HWY_EXPORT(select_softmax);

void add_softmax_kernels(KernelTable& table) {
  for (bool log : {false, true}) {
    for (bool backward : {false, true}) {
      auto prepare = [log, backward](const plan::KernelQuery& q, const PrepareContext& context) {
        const Shape& x = q.inputs[0].shape;
        SoftmaxShape s;
        if (x.rank() > 0) {
          const int dim = normalize_axis(get_attr<int64_t>(q.attrs, "dim"), x.rank(), q.op.c_str());
          for (int i = 0; i < dim; ++i) s.outer *= x[i];
          s.n = x[dim];
          for (int i = dim + 1; i < x.rank(); ++i) s.inner *= x[i];
        }
        s.threads = threads_for(context, 4 * static_cast<double>(numel(x)));
        const SoftmaxFn run = HWY_DYNAMIC_DISPATCH(select_softmax)(log, backward, q.inputs[0].dtype);
        return make_kernel(0, [s, run, backward](const KernelArgs& args) {
          run(s, args.inputs[0], backward ? args.inputs[1] : nullptr, args.outputs[0]);
        });
      };
      const std::string op = std::string(log ? "log_softmax" : "softmax") + (backward ? "_backward" : "");
      KernelDef def{.op = op, .prepare = prepare, .in_place = {{0, 0}}};
      if (backward) def.in_place.push_back({0, 1});
      table.add(DeviceKind::kCpu, std::move(def));
    }
  }
}

}  // namespace sluice::cpu
#endif
