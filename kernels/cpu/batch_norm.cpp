// Batch normalisation. Everything is computed channels-last: a matrix of `rows` by `channels`; contiguous operands are
// transposed through the workspace, so both layouts give equal bits. Sums go over blocks of rows in the compute type,
// then over blocks in double, in an order that depends on the shape alone and not on the threads. Products are rounded
// before they are added to (-ffp-contract=off), as a convolution's epilogue rounds them. What fused_batch_norm adds to
// batch_norm_train, and its backward to batch_norm_backward, is rounded as the ops would round it one by one.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/batch_norm.cpp"

#include "kernels/cpu/batch_norm.h"

#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/numeric.h"
#include "kernels/cpu/simd_foreach.h"
#include "kernels/cpu/support.h"

#ifndef SLUICE_KERNELS_CPU_BATCH_NORM_ONCE
#define SLUICE_KERNELS_CPU_BATCH_NORM_ONCE
namespace sluice::cpu {

struct BatchNorm {
  int64_t rows = 0, channels = 0;
  int64_t parts = 1;  // ranges of rows that are summed apart
  // Operands in the statistics' dtype (float32 for 16-bit x) rather than x's.
  bool float_weight = false, float_bias = false, float_mean = false, float_var = false;
  double eps = 0;
  bool relu = false;
  double kept = 0, taken = 0, correction = 1;  // of the running statistics
  int threads = 1;

  int64_t part_begin(int64_t part) const { return rows * part / parts; }
  // Rows whose values fit the first-level cache.
  int64_t block() const { return std::clamp<int64_t>(4096 / std::max<int64_t>(channels, 1), 8, 256); }
  // Workspace, in doubles per channel: two sums per part, and room for four rows of coefficients.
  uint64_t sums_bytes() const { return static_cast<uint64_t>((2 * parts + 8) * channels) * sizeof(double); }
};
// x, y, residual, grad, result, masked and dx are rows x channels; the others per channel. Unused pointers are null.
struct BatchNormPointers {
  const void *x, *grad, *mean, *var, *weight, *bias, *residual, *result, *running_mean, *running_var;
  void *y, *out_mean, *out_var, *d_weight, *d_bias, *masked, *next_mean, *next_var, *workspace;
};
using BatchNormFn = void (*)(const BatchNorm&, const BatchNormPointers&);

}  // namespace sluice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

// The affine operand of channel c, or `fallback`.
template <class T>
HWY_INLINE Compute<T> affine(const void* values, bool wide, int64_t c, Compute<T> fallback) {
  return PerChannel{values, wide}.at<T>(c, fallback);
}

// One row: (x - mean) * scale + shift per channel; then plus a row of the residual, then relu, where there are these.
template <class T, bool kResidual = false, bool kRelu = false>
void normalize_row(const T* from, const T* residual, T* to, int64_t channels, const Compute<T>* mean,
                   const Compute<T>* scale, const Compute<T>* shift) {
  using C = Compute<T>;
#pragma GCC ivdep
  for (int64_t c = 0; c < channels; ++c) {
    C v = (load(from[c]) - mean[c]) * scale[c] + shift[c];
    if constexpr (kResidual) {
      T rounded;
      store(&rounded, v);
      v = load(rounded) + load(residual[c]);
    }
    if constexpr (kRelu) v = v < C(0) ? C(0) : v;
    store(to + c, v);
  }
}

// What running statistics become: kept * running + taken * (correction * batch).
template <class C>
HWY_INLINE void move_running(const BatchNorm& b, const void* running, const C* batch, double correction, void* next) {
  const C* from = static_cast<const C*>(running);
  const C kept = static_cast<C>(b.kept), taken = static_cast<C>(b.taken), factor = static_cast<C>(correction);
  for (int64_t c = 0; c < b.channels; ++c) static_cast<C*>(next)[c] = from[c] * kept + batch[c] * factor * taken;
}

// Adds the mean and the sum of squared deviations of `n` more rows to those of `count` (Chan et al.).
template <class T>
HWY_INLINE void add_block(const T* x, int64_t n, int64_t channels, int64_t count, Compute<T>* sum, Compute<T>* square,
                          double* mean, double* m2) {
  using C = Compute<T>;
  std::fill(sum, sum + channels, C(0));
  for (int64_t r = 0; r < n; ++r) {
    const T* row = x + r * channels;
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c) sum[c] += load(row[c]);
  }
  for (int64_t c = 0; c < channels; ++c) sum[c] /= static_cast<C>(n);
  std::fill(square, square + channels, C(0));
  for (int64_t r = 0; r < n; ++r) {
    const T* row = x + r * channels;
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c) {
      const C d = load(row[c]) - sum[c];
      square[c] += d * d;
    }
  }
  const double total = static_cast<double>(count + n), share = static_cast<double>(n) / total;
#pragma GCC ivdep
  for (int64_t c = 0; c < channels; ++c) {
    const double delta = static_cast<double>(sum[c]) - mean[c];
    mean[c] += delta * share;
    m2[c] += static_cast<double>(square[c]) + delta * delta * share * static_cast<double>(count);
  }
}

template <class T>
void train(const BatchNorm& b, const BatchNormPointers& p) {
  using C = Compute<T>;
  const int64_t channels = b.channels, block = b.block();
  const T* x = static_cast<const T*>(p.x);
  T* y = static_cast<T*>(p.y);
  const T* residual = static_cast<const T*>(p.residual);
  const auto row = residual ? (b.relu ? normalize_row<T, true, true> : normalize_row<T, true, false>)
                            : (b.relu ? normalize_row<T, false, true> : normalize_row<T, false, false>);
  C *mean = static_cast<C*>(p.out_mean), *var = static_cast<C*>(p.out_var);
  double* sums = static_cast<double*>(p.workspace);                // per part: means, m2
  C* scale = reinterpret_cast<C*>(sums + 2 * b.parts * channels);  // weight / std
  C* shift = scale + channels;
#pragma omp parallel num_threads(b.threads) if (b.threads > 1)
  {
#pragma omp for schedule(static)
    for (int64_t part = 0; part < b.parts; ++part) {
      double *m = sums + 2 * part * channels, *m2 = m + channels;
      std::fill(m, m + 2 * channels, 0.0);
      C* local = reinterpret_cast<C*>(static_cast<std::byte*>(p.workspace) + b.sums_bytes()) + 2 * part * channels;
      const int64_t begin = b.part_begin(part), end = b.part_begin(part + 1);
      for (int64_t r = begin; r < end; r += block) {
        add_block(x + r * channels, std::min(block, end - r), channels, r - begin, local, local + channels, m, m2);
      }
    }
#pragma omp single
    {
      double *m = sums, *m2 = sums + channels;
      for (int64_t part = 1; part < b.parts; ++part) {
        const double *pm = sums + 2 * part * channels, *pm2 = pm + channels;
        const double before = static_cast<double>(b.part_begin(part)),
                     more = static_cast<double>(b.part_begin(part + 1)) - before;
        const double share = more / (before + more);
        for (int64_t c = 0; c < channels; ++c) {
          const double delta = pm[c] - m[c];
          m[c] += delta * share;
          m2[c] += pm2[c] + delta * delta * share * before;
        }
      }
      for (int64_t c = 0; c < channels; ++c) {
        const double v = m2[c] / static_cast<double>(b.rows);
        mean[c] = static_cast<C>(m[c]);
        var[c] = static_cast<C>(v);
        scale[c] = affine<T>(p.weight, b.float_weight, c, C(1)) * static_cast<C>(1 / std::sqrt(v + b.eps));
        shift[c] = affine<T>(p.bias, b.float_bias, c, C(0));
      }
      if (p.running_mean) {
        move_running(b, p.running_mean, mean, 1, p.next_mean);
        move_running(b, p.running_var, var, b.correction, p.next_var);
      }
    }
#pragma omp for schedule(static)
    for (int64_t r = 0; r < b.rows; ++r)
      row(x + r * channels, residual ? residual + r * channels : nullptr, y + r * channels, channels, mean, scale,
          shift);
  }
}

template <class T>
void infer(const BatchNorm& b, const BatchNormPointers& p) {
  using C = Compute<T>;
  const int64_t channels = b.channels;
  const T* x = static_cast<const T*>(p.x);
  T* y = static_cast<T*>(p.y);
  C* mean = static_cast<C*>(p.workspace);
  const C *scale = mean + channels, *shift = scale + channels;
  inference_coefficients<T>(
      {{p.mean, b.float_mean}, {p.var, b.float_var}, {p.weight, b.float_weight}, {p.bias, b.float_bias}, b.eps},
      channels, mean);
#pragma omp parallel for num_threads(b.threads) if (b.threads > 1) schedule(static)
  for (int64_t r = 0; r < b.rows; ++r)
    normalize_row<T>(x + r * channels, nullptr, y + r * channels, channels, mean, scale, shift);
}

// Where dy comes from: it is given, or 0 where a result is not above 0; or that is written, too, and then read.
enum class Grad { kGiven, kMasked, kKept };

// dx = weight/std * (dy - mean(dy) - x_hat * mean(dy * x_hat)) as a * dy + k * (x - mean) + d per channel.
template <class T, Grad kGrad>
void backward(const BatchNorm& b, const BatchNormPointers& p) {
  using C = Compute<T>;
  const int64_t channels = b.channels, block = b.block();
  const T *x = static_cast<const T*>(p.x), *dy = static_cast<const T*>(p.grad);
  const T* result = static_cast<const T*>(p.result);
  T *dx = static_cast<T*>(p.y), *masked = static_cast<T*>(p.masked);
  double* sums = static_cast<double*>(p.workspace);  // per part: sum of dy, sum of dy * (x - mean)
  C* a = reinterpret_cast<C*>(sums + 2 * b.parts * channels);
  C *k = a + channels, *d = k + channels, *mean = d + channels;
  for (int64_t c = 0; c < channels; ++c) mean[c] = affine<T>(p.mean, b.float_mean, c, C(0));
#pragma omp parallel num_threads(b.threads) if (b.threads > 1)
  {
#pragma omp for schedule(static)
    for (int64_t part = 0; part < b.parts; ++part) {
      double *total = sums + 2 * part * channels, *dot = total + channels;
      std::fill(total, total + 2 * channels, 0.0);
      C* s = reinterpret_cast<C*>(static_cast<std::byte*>(p.workspace) + b.sums_bytes()) + 2 * part * channels;
      C* t = s + channels;
      const int64_t begin = b.part_begin(part), end = b.part_begin(part + 1);
      for (int64_t r0 = begin; r0 < end; r0 += block) {
        std::fill(s, s + 2 * channels, C(0));
        for (int64_t r = r0; r < std::min(r0 + block, end); ++r) {
          const T *xr = x + r * channels, *gr = dy + r * channels;
          const T* yr = kGrad == Grad::kGiven ? nullptr : result + r * channels;
          T* mr = kGrad == Grad::kKept ? masked + r * channels : nullptr;
#pragma GCC ivdep
          for (int64_t c = 0; c < channels; ++c) {
            C g = load(gr[c]);
            if constexpr (kGrad != Grad::kGiven) g = load(yr[c]) <= C(0) ? C(0) : g;
            if constexpr (kGrad == Grad::kKept) store(mr + c, g);
            s[c] += g;
            t[c] += g * (load(xr[c]) - mean[c]);
          }
        }
#pragma GCC ivdep
        for (int64_t c = 0; c < channels; ++c) {
          total[c] += static_cast<double>(s[c]);
          dot[c] += static_cast<double>(t[c]);
        }
      }
    }
#pragma omp single
    {
      for (int64_t part = 1; part < b.parts; ++part) {
        for (int64_t c = 0; c < 2 * channels; ++c) sums[c] += sums[2 * part * channels + c];
      }
      const double n = static_cast<double>(b.rows);
      for (int64_t c = 0; c < channels; ++c) {
        const double inv_std = 1 / std::sqrt(static_cast<double>(affine<T>(p.var, b.float_var, c, C(1))) + b.eps),
                     dw = sums[channels + c] * inv_std, db = sums[c];
        const double w = static_cast<double>(affine<T>(p.weight, b.float_weight, c, C(1))) * inv_std;
        static_cast<C*>(p.d_weight)[c] = static_cast<C>(dw);
        static_cast<C*>(p.d_bias)[c] = static_cast<C>(db);
        a[c] = static_cast<C>(w);
        k[c] = static_cast<C>(-w * inv_std * dw / n);
        d[c] = static_cast<C>(-w * db / n);
      }
    }
#pragma omp for schedule(static)
    for (int64_t r = 0; r < b.rows; ++r) {
      const T *xr = x + r * channels, *gr = (kGrad == Grad::kKept ? masked : dy) + r * channels;
      const T* yr = kGrad == Grad::kMasked ? result + r * channels : nullptr;
      T* to = dx + r * channels;
#pragma GCC ivdep
      for (int64_t c = 0; c < channels; ++c) {
        C g = load(gr[c]);
        if constexpr (kGrad == Grad::kMasked) g = load(yr[c]) <= C(0) ? C(0) : g;
        store(to + c, a[c] * g + (k[c] * (load(xr[c]) - mean[c]) + d[c]));
      }
    }
  }
}

enum Which { kTrain, kInfer, kBackward, kBackwardMasked, kBackwardKept };
BatchNormFn select_batch_norm(int which, DType dtype) {
  return dispatch_floating(dtype, "batch_norm", [&](auto t) -> BatchNormFn {
    using T = decltype(t);
    switch (which) {
      case kTrain: return train<T>;
      case kInfer: return infer<T>;
      case kBackwardMasked: return backward<T, Grad::kMasked>;
      case kBackwardKept: return backward<T, Grad::kKept>;
      default: return backward<T, Grad::kGiven>;
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
HWY_EXPORT(select_batch_norm);
namespace {

using plan::KernelQuery;

// Inputs of fused_batch_norm behind x.
enum { kWeight = 1, kBias, kResidual, kRunningMean, kRunningVar };

// An activation that is transposed to channels-last in the workspace when it lies contiguous.
struct Activation {
  int64_t batch = 0, channels = 0, positions = 0;
  size_t elem_size = 4;
  bool moved = false;
  uint64_t offset = 0;

  const void* in(const void* given, void* workspace, int threads) const {
    if (!moved) return given;
    void* to = at_offset(workspace, offset);
    contiguous_to_channels_last(given, to, batch, channels, positions, elem_size, threads);
    return to;
  }
  void* out(void* given, void* workspace) const { return moved ? at_offset(workspace, offset) : given; }
  void finish(void* given, void* workspace, int threads) const {
    if (moved)
      channels_last_to_contiguous(at_offset(workspace, offset), given, batch, channels, positions, elem_size, threads);
  }
};
Activation make_activation(const TensorSpec& spec, const char* op, WorkspaceLayout& workspace) {
  Activation a{spec.shape[0], spec.shape[1], 1, dtype_size(spec.dtype), !is_channels_last(spec, op), 0};
  for (int i = 2; i < spec.shape.rank(); ++i) a.positions *= spec.shape[i];
  if (a.moved) a.offset = workspace.add(spec.extent_bytes());
  return a;
}

BatchNorm make_batch_norm(const KernelQuery& q, const TensorSpec& x, const PrepareContext& context) {
  BatchNorm b;
  b.channels = x.shape[1];
  b.rows = b.channels == 0 ? 0 : numel(x.shape) / b.channels;
  b.parts = std::clamp<int64_t>(b.rows * b.channels / 32768, 1, 16);
  b.eps = get_attr<double>(q.attrs, "eps");
  b.threads = threads_for(context, static_cast<double>(numel(x.shape)));
  return b;
}
bool wide(const KernelQuery& q, size_t i, DType x) { return has_operand(q.inputs, i) && q.inputs[i].dtype != x; }

std::unique_ptr<PreparedKernel> prepare_forward(const KernelQuery& q, const PrepareContext& context, bool training) {
  const TensorSpec& x = q.inputs[0];
  BatchNorm b = make_batch_norm(q, x, context);
  const size_t weight = training ? 1 : 3;
  b.float_weight = wide(q, weight, x.dtype);
  b.float_bias = wide(q, weight + 1, x.dtype);
  WorkspaceLayout workspace;
  workspace.add(b.sums_bytes() + static_cast<uint64_t>(2 * b.parts * b.channels) * sizeof(double));
  const Activation from = make_activation(x, q.op.c_str(), workspace),
                   to = make_activation(q.outputs[0], q.op.c_str(), workspace);
  using namespace HWY_NAMESPACE;
  b.float_mean = !training && wide(q, 1, x.dtype);
  b.float_var = !training && wide(q, 2, x.dtype);
  const BatchNormFn run = HWY_DYNAMIC_DISPATCH(select_batch_norm)(training ? kTrain : kInfer, x.dtype);
  return make_kernel(workspace.bytes(), [b, from, to, run, training, weight, specs = q.inputs](const KernelArgs& args) {
    BatchNormPointers p{};
    p.x = from.in(args.inputs[0], args.workspace, b.threads);
    p.y = to.out(args.outputs[0], args.workspace);
    p.weight = operand(args, specs, weight);
    p.bias = operand(args, specs, weight + 1);
    p.workspace = args.workspace;
    if (training) {
      p.out_mean = args.outputs[1];
      p.out_var = args.outputs[2];
    } else {
      p.mean = args.inputs[1];
      p.var = args.inputs[2];
    }
    run(b, p);
    to.finish(args.outputs[0], args.workspace, b.threads);
  });
}

// fused_batch_norm: as batch_norm_train, with what follows it.
std::unique_ptr<PreparedKernel> prepare_fused_batch_norm(const KernelQuery& q, const PrepareContext& context) {
  const TensorSpec& x = q.inputs[0];
  BatchNorm b = make_batch_norm(q, x, context);
  b.float_weight = wide(q, kWeight, x.dtype);
  b.float_bias = wide(q, kBias, x.dtype);
  b.relu = get_attr<std::string>(q.attrs, "activation") == "relu";
  b.kept = get_attr<double>(q.attrs, "kept");
  b.taken = get_attr<double>(q.attrs, "taken");
  b.correction = get_attr<double>(q.attrs, "correction");
  WorkspaceLayout workspace;
  workspace.add(b.sums_bytes() + static_cast<uint64_t>(2 * b.parts * b.channels) * sizeof(double));
  const Activation from = make_activation(x, q.op.c_str(), workspace),
                   to = make_activation(q.outputs[0], q.op.c_str(), workspace);
  Activation residual;
  if (has_operand(q.inputs, kResidual)) residual = make_activation(q.inputs[kResidual], q.op.c_str(), workspace);
  const BatchNormFn run = HWY_DYNAMIC_DISPATCH(select_batch_norm)(HWY_NAMESPACE::kTrain, x.dtype);
  return make_kernel(workspace.bytes(), [b, from, to, residual, run, specs = q.inputs](const KernelArgs& args) {
    BatchNormPointers p{};
    p.x = from.in(args.inputs[0], args.workspace, b.threads);
    p.y = to.out(args.outputs[0], args.workspace);
    p.weight = operand(args, specs, kWeight);
    p.bias = operand(args, specs, kBias);
    const void* added = operand(args, specs, kResidual);
    p.residual = added ? residual.in(added, args.workspace, b.threads) : nullptr;
    p.running_mean = operand(args, specs, kRunningMean);
    p.running_var = operand(args, specs, kRunningVar);
    p.workspace = args.workspace;
    p.out_mean = args.outputs[1];
    p.out_var = args.outputs[2];
    if (p.running_mean) {
      p.next_mean = args.outputs[3];
      p.next_var = args.outputs[4];
    }
    run(b, p);
    to.finish(args.outputs[0], args.workspace, b.threads);
  });
}

// batch_norm_backward, and fused_batch_norm_backward, which has relu's result in front of the weight.
std::unique_ptr<PreparedKernel> prepare_backward(const KernelQuery& q, const PrepareContext& context, bool fused) {
  const TensorSpec& x = q.inputs[1];
  const size_t result_at = 4, weight_at = fused ? 5 : 4;
  const bool kept = fused && get_attr<bool>(q.attrs, "residual");
  BatchNorm b = make_batch_norm(q, x, context);
  b.float_mean = wide(q, 2, x.dtype);
  b.float_var = wide(q, 3, x.dtype);
  b.float_weight = wide(q, weight_at, x.dtype);
  WorkspaceLayout workspace;
  workspace.add(b.sums_bytes() + static_cast<uint64_t>(2 * b.parts * b.channels) * sizeof(double));
  const auto activation = [&](const TensorSpec& spec) { return make_activation(spec, q.op.c_str(), workspace); };
  const Activation grad = activation(q.inputs[0]), from = activation(x), to = activation(q.outputs[0]);
  const Activation result = fused ? activation(q.inputs[result_at]) : Activation{};
  const Activation masked = kept ? activation(q.outputs[3]) : Activation{};
  using namespace HWY_NAMESPACE;
  const BatchNormFn run = HWY_DYNAMIC_DISPATCH(select_batch_norm)(kept    ? kBackwardKept
                                                                  : fused ? kBackwardMasked
                                                                          : kBackward,
                                                                  x.dtype);
  return make_kernel(workspace.bytes(), [=, specs = q.inputs](const KernelArgs& args) {
    BatchNormPointers p{};
    p.grad = grad.in(args.inputs[0], args.workspace, b.threads);
    p.x = from.in(args.inputs[1], args.workspace, b.threads);
    p.mean = args.inputs[2];
    p.var = args.inputs[3];
    if (fused) p.result = result.in(args.inputs[result_at], args.workspace, b.threads);
    if (kept) p.masked = masked.out(args.outputs[3], args.workspace);
    p.weight = operand(args, specs, weight_at);
    p.y = to.out(args.outputs[0], args.workspace);
    p.d_weight = args.outputs[1];
    p.d_bias = args.outputs[2];
    p.workspace = args.workspace;
    run(b, p);
    to.finish(args.outputs[0], args.workspace, b.threads);
    if (kept) masked.finish(args.outputs[3], args.workspace, b.threads);
  });
}

}  // namespace

void add_batch_norm_kernels(KernelTable& table) {
  auto add = [&](const char* op, PrepareFn prepare, std::vector<plan::InPlacePair> in_place) {
    table.add(DeviceKind::kCpu, {.op = op,
                                 .prepare = std::move(prepare),
                                 .layouts = channels_last_where_spatial,
                                 .in_place = std::move(in_place)});
  };
  add("batch_norm_train", [](const KernelQuery& q, const PrepareContext& c) { return prepare_forward(q, c, true); },
      {{0, 0}});
  add("batch_norm_infer", [](const KernelQuery& q, const PrepareContext& c) { return prepare_forward(q, c, false); },
      {{0, 0}});
  add("batch_norm_backward",
      [](const KernelQuery& q, const PrepareContext& c) { return prepare_backward(q, c, false); }, {{0, 0}, {0, 1}});
  add("fused_batch_norm", prepare_fused_batch_norm, {{0, 0}, {0, kResidual}, {3, kRunningMean}, {4, kRunningVar}});
  add("fused_batch_norm_backward",
      [](const KernelQuery& q, const PrepareContext& c) { return prepare_backward(q, c, true); },
      {{3, 0}, {0, 0}, {0, 1}});
}

}  // namespace sluice::cpu
#endif
