// layer_norm, rms_norm, group_norm and their backwards: a row is normalised by its own statistics. The backwards
// compute these again, since a row is in cache when its gradient is. Sums over rows go over ranges of rows that depend
// on the shape alone, so results do not depend on the number of threads.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm/normalization.cpp"

#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/math/simd_foreach.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"

#ifndef SLUICE_KERNELS_CPU_NORMALIZATION_ONCE
#define SLUICE_KERNELS_CPU_NORMALIZATION_ONCE
namespace sluice::cpu {

// x as `rows` rows of `length`. Affine entry of element i of row r: entry (r % groups) * (length / run) + i / run, with
// run = 1 and one group for layer_norm and rms_norm, run = spatial size for group_norm.
struct RowNorm {
  int64_t rows = 0, length = 0, groups = 1, run = 1;
  int64_t entries = 0;  // of weight and bias
  int64_t parts = 1;    // ranges of rows summed apart; each a multiple of `groups` rows long
  bool centre = true;
  bool wide_weight = false, wide_bias = false;
  double eps = 0;
  int threads = 1;

  int64_t part_begin(int64_t part) const { return rows / groups * part / parts * groups; }
};
struct RowNormPointers {
  const void *x, *grad, *weight, *bias;
  void *y, *d_weight, *d_bias, *workspace;
};
using RowNormFn = void (*)(const RowNorm&, const RowNormPointers&);

}  // namespace sluice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kEntriesGrain = 1024;  // of weight and bias, worth a thread
constexpr int64_t kBlock = 1024;         // elements summed in the compute type before going on in double

template <class C, class F>
HWY_INLINE double sum_of(int64_t n, F term) {
  double total = 0;
  for (int64_t i0 = 0; i0 < n; i0 += kBlock) {
    const int64_t end = std::min(i0 + kBlock, n);
    C s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = i0; i < end; ++i) s += term(i);
    total += static_cast<double>(s);
  }
  return total;
}

template <class C>
struct Stats {
  C mean, inv_std;
};
template <class T>
HWY_INLINE Stats<Compute<T>> stats_of(const RowNorm& n, const T* x) {
  using C = Compute<T>;
  const double length = static_cast<double>(n.length);
  const C mean = n.centre ? static_cast<C>(sum_of<C>(n.length, [&](int64_t i) { return load(x[i]); }) / length) : C(0);
  const double square = sum_of<C>(n.length, [&](int64_t i) {
    const C d = load(x[i]) - mean;
    return d * d;
  });
  return {mean, static_cast<C>(1 / std::sqrt(square / length + n.eps))};
}

// Affine operands in the compute type, in the workspace.
template <class T>
Compute<T>* widen(const void* values, bool wide, int64_t entries, Compute<T> fallback, Compute<T>* to) {
  for (int64_t i = 0; i < entries; ++i) {
    to[i] = !values ? fallback
            : wide  ? static_cast<const Compute<T>*>(values)[i]
                    : load(static_cast<const T*>(values)[i]);
  }
  return to;
}

template <class T>
void forward(const RowNorm& n, const RowNormPointers& p) {
  using C = Compute<T>;
  const C* weight = widen<T>(p.weight, n.wide_weight, n.entries, C(1), static_cast<C*>(p.workspace));
  const C* bias = widen<T>(p.bias, n.wide_bias, n.entries, C(0), static_cast<C*>(p.workspace) + n.entries);
  const int64_t per_row = n.length / n.run;
  parallel_each(n.threads, n.rows, [&](int64_t r) {
    const T* x = static_cast<const T*>(p.x) + r * n.length;
    T* y = static_cast<T*>(p.y) + r * n.length;
    const auto s = stats_of(n, x);
    const int64_t first = r % n.groups * per_row;
    if (n.run == 1) {
      const C *w = weight + first, *b = bias + first;
#pragma GCC ivdep
      for (int64_t i = 0; i < n.length; ++i) store(y + i, (load(x[i]) - s.mean) * s.inv_std * w[i] + b[i]);
    } else {
      for (int64_t e = 0; e < per_row; ++e) {
        const C w = weight[first + e] * s.inv_std, b = bias[first + e];
        const T* from = x + e * n.run;
        T* to = y + e * n.run;
#pragma GCC ivdep
        for (int64_t i = 0; i < n.run; ++i) store(to + i, (load(from[i]) - s.mean) * w + b);
      }
    }
  });
}

// dx = inv_std * (g - mean(g) - x_hat * mean(g * x_hat)) with g = dy * weight.
template <class T>
void backward(const RowNorm& n, const RowNormPointers& p) {
  using C = Compute<T>;
  const int64_t per_row = n.length / n.run;
  const C* weight = widen<T>(p.weight, n.wide_weight, n.entries, C(1), static_cast<C*>(p.workspace));
  C* sums = static_cast<C*>(p.workspace) + n.entries;  // per part: sums of dy * x_hat, sums of dy
  const double length = static_cast<double>(n.length);
  parallel_each(n.threads, n.parts, [&](int64_t part) {
    C *dw = sums + 2 * part * n.entries, *db = dw + n.entries;
    std::fill(dw, dw + 2 * n.entries, C(0));
    for (int64_t r = n.part_begin(part); r < n.part_begin(part + 1); ++r) {
      const T *x = static_cast<const T*>(p.x) + r * n.length, *dy = static_cast<const T*>(p.grad) + r * n.length;
      T* dx = static_cast<T*>(p.y) + r * n.length;
      const auto s = stats_of(n, x);
      const int64_t first = r % n.groups * per_row;
      double g_sum = 0, g_dot = 0;
      if (n.run == 1) {
        const C* w = weight + first;
        if (n.centre) g_sum = sum_of<C>(n.length, [&](int64_t i) { return load(dy[i]) * w[i]; });
        g_dot = sum_of<C>(n.length, [&](int64_t i) { return load(dy[i]) * w[i] * (load(x[i]) - s.mean); });
      } else {
        for (int64_t e = 0; e < per_row; ++e) {
          const T *xe = x + e * n.run, *ge = dy + e * n.run;
          const double sum = sum_of<C>(n.run, [&](int64_t i) { return load(ge[i]); });
          const double dot = sum_of<C>(n.run, [&](int64_t i) { return load(ge[i]) * (load(xe[i]) - s.mean); });
          g_sum += static_cast<double>(weight[first + e]) * sum;
          g_dot += static_cast<double>(weight[first + e]) * dot;
          dw[first + e] += static_cast<C>(dot * static_cast<double>(s.inv_std));
          db[first + e] += static_cast<C>(sum);
        }
      }
      const C mean_g = n.centre ? static_cast<C>(g_sum / length) : C(0);
      const C slope = static_cast<C>(g_dot / length * static_cast<double>(s.inv_std) * static_cast<double>(s.inv_std));
      if (n.run == 1) {
        const C* w = weight + first;
        C *dwr = dw + first, *dbr = db + first;
#pragma GCC ivdep
        for (int64_t i = 0; i < n.length; ++i) {
          const C g = load(dy[i]), d = load(x[i]) - s.mean;
          dwr[i] += g * d * s.inv_std;
          dbr[i] += g;
          store(dx + i, s.inv_std * (g * w[i] - mean_g - d * slope));
        }
      } else {
        for (int64_t e = 0; e < per_row; ++e) {
          const T *xe = x + e * n.run, *ge = dy + e * n.run;
          T* de = dx + e * n.run;
          const C w = weight[first + e];
#pragma GCC ivdep
          for (int64_t i = 0; i < n.run; ++i)
            store(de + i, s.inv_std * (load(ge[i]) * w - mean_g - (load(xe[i]) - s.mean) * slope));
        }
      }
    }
  });
  parallel_ranges(n.threads, n.entries, kEntriesGrain, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) {
      C dw = 0, db = 0;
      for (int64_t part = 0; part < n.parts; ++part) {
        dw += sums[2 * part * n.entries + e];
        db += sums[(2 * part + 1) * n.entries + e];
      }
      static_cast<C*>(p.d_weight)[e] = dw;
      if (p.d_bias) static_cast<C*>(p.d_bias)[e] = db;
    }
  });
}

RowNormFn select_row_norm(bool is_backward, DType dtype) {
  return dispatch_floating(dtype, "layer_norm", [&](auto t) -> RowNormFn {
    using T = decltype(t);
    return is_backward ? backward<T> : forward<T>;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
HWY_EXPORT(select_row_norm);
namespace {

using plan::KernelQuery;

RowNorm make_row_norm(const KernelQuery& q, const TensorSpec& x, const PrepareContext& context) {
  RowNorm n;
  const int64_t elements = numel(x.shape);
  if (q.op.starts_with("group_norm")) {
    n.groups = get_attr<int64_t>(q.attrs, "num_groups");
    n.rows = x.shape[0] * n.groups;
    n.entries = x.shape[1];
    for (int i = 2; i < x.shape.rank(); ++i) n.run *= x.shape[i];
  } else {
    n.entries = numel(Shape(get_attr<Ints>(q.attrs, "normalized_shape")));
    n.rows = n.entries == 0 ? 0 : elements / n.entries;
  }
  if (elements == 0)
    n.rows = n.length = 0, n.run = 1;
  else
    n.length = elements / n.rows;
  n.centre = !q.op.starts_with("rms_norm");
  n.eps = get_attr<double>(q.attrs, "eps");
  n.parts = std::clamp<int64_t>(elements / 16384, 1, std::min<int64_t>(16, std::max<int64_t>(1, n.rows / n.groups)));
  n.threads = threads_for(context, static_cast<double>(elements));
  return n;
}
uint64_t compute_size(DType dtype) { return dtype == DType::kFloat64 ? 8 : 4; }
bool wide(const KernelQuery& q, size_t i, DType x) { return has_operand(q.inputs, i) && q.inputs[i].dtype != x; }

std::unique_ptr<PreparedKernel> prepare_forward(const KernelQuery& q, const PrepareContext& context) {
  const TensorSpec& x = q.inputs[0];
  RowNorm n = make_row_norm(q, x, context);
  n.wide_weight = wide(q, 1, x.dtype);
  n.wide_bias = wide(q, 2, x.dtype);
  const RowNormFn run = HWY_DYNAMIC_DISPATCH(select_row_norm)(false, x.dtype);
  const uint64_t bytes = 2 * static_cast<uint64_t>(n.entries) * compute_size(x.dtype);
  return make_kernel(bytes, [n, run, specs = q.inputs](const KernelArgs& args) {
    RowNormPointers p{};
    p.x = args.inputs[0];
    p.weight = operand(args, specs, 1);
    p.bias = operand(args, specs, 2);
    p.y = args.outputs[0];
    p.workspace = args.workspace;
    run(n, p);
  });
}

std::unique_ptr<PreparedKernel> prepare_backward(const KernelQuery& q, const PrepareContext& context) {
  const TensorSpec& x = q.inputs[1];
  RowNorm n = make_row_norm(q, x, context);
  n.wide_weight = wide(q, 2, x.dtype);
  const RowNormFn run = HWY_DYNAMIC_DISPATCH(select_row_norm)(true, x.dtype);
  const uint64_t bytes = static_cast<uint64_t>((2 * n.parts + 1) * n.entries) * compute_size(x.dtype);
  return make_kernel(bytes, [n, run, specs = q.inputs, outputs = q.outputs.size()](const KernelArgs& args) {
    RowNormPointers p{};
    p.grad = args.inputs[0];
    p.x = args.inputs[1];
    p.weight = operand(args, specs, 2);
    p.y = args.outputs[0];
    p.d_weight = args.outputs[1];
    p.d_bias = outputs > 2 ? args.outputs[2] : nullptr;
    p.workspace = args.workspace;
    run(n, p);
  });
}

}  // namespace

void add_normalization_kernels(KernelTable& table) {
  for (const char* op : {"layer_norm", "rms_norm", "group_norm"}) {
    table.add(DeviceKind::kCpu, {.op = op, .prepare = prepare_forward, .in_place = {{0, 0}}});
    table.add(DeviceKind::kCpu,
              {.op = std::string(op) + "_backward", .prepare = prepare_backward, .in_place = {{0, 0}, {0, 1}}});
  }
}

}  // namespace sluice::cpu
#endif
