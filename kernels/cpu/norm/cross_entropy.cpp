// cross_entropy and its backward: one pass over the logits each, without storing probabilities.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm/cross_entropy.cpp"

#include <atomic>

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/math/simd_foreach.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"

#ifndef SLUICE_KERNELS_CPU_CROSS_ENTROPY_ONCE
#define SLUICE_KERNELS_CPU_CROSS_ENTROPY_ONCE
namespace sluice::cpu {

enum class Reduction { kNone, kSum, kMean };
struct CrossEntropy {
  int64_t rows = 0, classes = 0, ignore_index = -100;
  double smoothing = 0;
  Reduction reduction = Reduction::kMean;
  bool narrow_target = false;  // int32, else int64
  int threads = 1;
};
// Forward: out is the loss, workspace two doubles per row. Backward: out is the gradient of the logits.
struct CrossEntropyPointers {
  const void *logits, *target, *weight, *grad;
  void *out, *workspace;
};
// Returns a row whose target is no class, or -1.
using CrossEntropyFn = int64_t (*)(const CrossEntropy&, const CrossEntropyPointers&);

inline int64_t target_at(const CrossEntropy& e, const void* target, int64_t row) {
  return e.narrow_target ? static_cast<const int32_t*>(target)[row] : static_cast<const int64_t*>(target)[row];
}

}  // namespace sluice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

template <class C>
struct RowSums {
  C top, sum;  // of exp(x - top)
};
template <class T>
HWY_INLINE RowSums<Compute<T>> row_sums(const T* x, int64_t n) {
  using C = Compute<T>;
  C top = load(x[0]), sum = 0;
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = load(x[i]) > top ? load(x[i]) : top;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += exponential(load(x[i]) - top);
  return {top, sum};
}

template <class T>
int64_t forward(const CrossEntropy& e, const CrossEntropyPointers& p) {
  using C = Compute<T>;
  const T *x = static_cast<const T*>(p.logits), *weight = static_cast<const T*>(p.weight);
  double *losses = static_cast<double*>(p.workspace), *weights = losses + e.rows;
  const int64_t n = e.classes;
  std::atomic<int64_t> bad{-1};
  parallel_each(e.threads, e.rows, [&](int64_t r) {
    losses[r] = weights[r] = 0;
    const int64_t t = target_at(e, p.target, r);
    if (t == e.ignore_index) return;
    if (static_cast<uint64_t>(t) >= static_cast<uint64_t>(n)) {
      bad = r;
      return;
    }
    const T* row = x + r * n;
    const auto s = row_sums(row, n);
    const double log_sum = std::log(static_cast<double>(s.sum)), top = static_cast<double>(s.top);
    const double w = weight ? static_cast<double>(load(weight[t])) : 1;
    double loss = w * (log_sum - (static_cast<double>(load(row[t])) - top));
    if (e.smoothing > 0) {
      C all = 0, total = weight ? C(0) : static_cast<C>(n);
      for (int64_t i = 0; i < n; ++i) all += (weight ? load(weight[i]) : C(1)) * (load(row[i]) - s.top);
      for (int64_t i = 0; weight && i < n; ++i) total += load(weight[i]);
      const double smooth = static_cast<double>(total) * log_sum - static_cast<double>(all);
      loss = (1 - e.smoothing) * loss + e.smoothing / static_cast<double>(n) * smooth;
    }
    losses[r] = loss;
    weights[r] = w;
  });
  if (bad >= 0) return bad;
  T* out = static_cast<T*>(p.out);
  if (e.reduction == Reduction::kNone) {
    for (int64_t r = 0; r < e.rows; ++r) store(out + r, static_cast<C>(losses[r]));
    return -1;
  }
  double loss = 0, total = 0;
  for (int64_t r = 0; r < e.rows; ++r) loss += losses[r], total += weights[r];
  store(out, static_cast<C>(e.reduction == Reduction::kMean ? loss / total : loss));
  return -1;
}

template <class T>
int64_t backward(const CrossEntropy& e, const CrossEntropyPointers& p) {
  using C = Compute<T>;
  const T *x = static_cast<const T*>(p.logits), *weight = static_cast<const T*>(p.weight),
          *grad = static_cast<const T*>(p.grad);
  T* dx = static_cast<T*>(p.out);
  const int64_t n = e.classes;
  double counted = 0, class_weights = weight ? 0 : static_cast<double>(n);
  for (int64_t i = 0; weight && i < n; ++i) class_weights += static_cast<double>(load(weight[i]));
  for (int64_t r = 0; r < e.rows; ++r) {
    const int64_t t = target_at(e, p.target, r);
    if (t == e.ignore_index) continue;
    if (static_cast<uint64_t>(t) >= static_cast<uint64_t>(n)) return r;
    counted += weight ? static_cast<double>(load(weight[t])) : 1;
  }
  const double smooth = e.smoothing / static_cast<double>(n);
  parallel_each(e.threads, e.rows, [&](int64_t r) {
    const T* row = x + r * n;
    T* to = dx + r * n;
    const int64_t t = target_at(e, p.target, r);
    if (t == e.ignore_index) {
      for (int64_t i = 0; i < n; ++i) store(to + i, C(0));
      return;
    }
    const auto s = row_sums(row, n);
    double scale = static_cast<double>(load(grad[e.reduction == Reduction::kNone ? r : 0]));
    if (e.reduction == Reduction::kMean) scale /= counted;
    const double w = (1 - e.smoothing) * (weight ? static_cast<double>(load(weight[t])) : 1);
    // d loss / d x_i = probability * (w + smooth * total weight) - [i = t] * w - smooth * weight_i
    const C slope = static_cast<C>(scale * (w + smooth * class_weights) / static_cast<double>(s.sum));
    const C each = static_cast<C>(scale * smooth);
    const C top = s.top, chosen = exponential(load(row[t]) - top) * slope - static_cast<C>(scale * w) -
                                  each * (weight ? load(weight[t]) : C(1));
    if (weight && each != 0) {
      for (int64_t i = 0; i < n; ++i) store(to + i, exponential(load(row[i]) - top) * slope - each * load(weight[i]));
    } else {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) store(to + i, exponential(load(row[i]) - top) * slope - each);
    }
    store(to + t, chosen);
  });
  return -1;
}

CrossEntropyFn select_cross_entropy(bool is_backward, DType dtype) {
  return dispatch_floating(dtype, "cross_entropy", [&](auto t) -> CrossEntropyFn {
    using T = decltype(t);
    return is_backward ? backward<T> : forward<T>;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
HWY_EXPORT(select_cross_entropy);
namespace {

std::unique_ptr<PreparedKernel> prepare(const plan::KernelQuery& q, const PrepareContext& context, bool backward) {
  const size_t at = backward ? 1 : 0;
  CrossEntropy e;
  e.rows = q.inputs[at].shape[0];
  e.classes = q.inputs[at].shape[1];
  e.ignore_index = get_attr<int64_t>(q.attrs, "ignore_index");
  e.smoothing = get_attr<double>(q.attrs, "label_smoothing");
  const auto& reduction = get_attr<std::string>(q.attrs, "reduction");
  e.reduction = reduction == "mean" ? Reduction::kMean : reduction == "sum" ? Reduction::kSum : Reduction::kNone;
  e.narrow_target = q.inputs[at + 1].dtype == DType::kInt32;
  e.threads = threads_for(context, 4 * static_cast<double>(e.rows * e.classes));
  const CrossEntropyFn run = HWY_DYNAMIC_DISPATCH(select_cross_entropy)(backward, q.inputs[at].dtype);
  const uint64_t workspace = backward ? 0 : 2 * sizeof(double) * static_cast<uint64_t>(e.rows);
  return make_kernel(workspace, [e, run, at, backward, specs = q.inputs](const KernelArgs& args) {
    const CrossEntropyPointers p{
        args.inputs[at], args.inputs[at + 1], operand(args, specs, at + 2), backward ? args.inputs[0] : nullptr,
        args.outputs[0], args.workspace};
    const int64_t bad = run(e, p);
    SLUICE_CHECK_KIND(
        kIndex, bad < 0,
        "cross_entropy: target is not a class: {} at sample {}; it must be at least 0 and below {}, or ignore_index {}",
        target_at(e, p.target, bad), bad, e.classes, e.ignore_index);
  });
}

}  // namespace

void add_cross_entropy_kernels(KernelTable& table) {
  using plan::KernelQuery;
  table.add(DeviceKind::kCpu, {.op = "cross_entropy", .prepare = [](const KernelQuery& q, const PrepareContext& c) {
                                 return prepare(q, c, false);
                               }});
  table.add(DeviceKind::kCpu,
            {.op = "cross_entropy_backward",
             .prepare = [](const KernelQuery& q, const PrepareContext& c) { return prepare(q, c, true); }});
}

}  // namespace sluice::cpu
#endif
