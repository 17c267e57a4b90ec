// Optimizer steps, each one pass over its tensors; outputs may overwrite the tensors they replace.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer_updates.cpp"

#include "kernels/cpu/families.h"
#include "kernels/cpu/numeric.h"
#include "kernels/cpu/simd_foreach.h"
#include "kernels/cpu/support.h"

#ifndef SLUICE_KERNELS_CPU_OPTIMIZER_UPDATES_ONCE
#define SLUICE_KERNELS_CPU_OPTIMIZER_UPDATES_ONCE
namespace sluice::cpu {

// Numbers of a step; those that tensors hold (lr, step) are read when it runs.
struct Step {
  double lr = 0, step = 0;
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
  double beta1 = 0, beta2 = 0, eps = 0;
  bool decoupled = false;
};
// tensors: the op's inputs without the scalars; out: its outputs. [begin, end) is the range of elements.
using StepFn = void (*)(const Step&, const void* const* tensors, void* const* out, int64_t begin, int64_t end);

}  // namespace sluice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

// The gradient that a step follows. Without decay a parameter that is infinite adds nothing.
template <class C>
inline C decayed(C grad, C param, C decay) {
  return decay == 0 ? grad : grad + decay * param;
}

template <class T>
void sgd(const Step& s, const void* const* in, void* const* out, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const T *param = static_cast<const T*>(in[0]), *grad = static_cast<const T*>(in[1]);
  T* to = static_cast<T*>(out[0]);
  const C lr = static_cast<C>(s.lr), decay = static_cast<C>(s.weight_decay), sign = s.maximize ? C(-1) : C(1);
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    const C p = load(param[i]);
    store(to + i, p - lr * decayed(sign * load(grad[i]), p, decay));
  }
}

template <class T>
void sgd_momentum(const Step& s, const void* const* in, void* const* out, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const T *param = static_cast<const T*>(in[0]), *grad = static_cast<const T*>(in[1]),
          *buffer = static_cast<const T*>(in[2]);
  T *to = static_cast<T*>(out[0]), *to_buffer = static_cast<T*>(out[1]);
  const bool first = s.step == 1;  // torch's first step takes the gradient as it is
  const C lr = static_cast<C>(s.lr), decay = static_cast<C>(s.weight_decay), sign = s.maximize ? C(-1) : C(1);
  const C momentum = static_cast<C>(s.momentum), kept = first ? C(0) : momentum,
          taken = first ? C(1) : static_cast<C>(1 - s.dampening);
  const bool nesterov = s.nesterov;
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    const C p = load(param[i]), g = decayed(sign * load(grad[i]), p, decay);
    const C b = kept * load(buffer[i]) + taken * g;
    store(to_buffer + i, b);
    store(to + i, p - lr * (nesterov ? g + momentum * b : b));
  }
}

template <class T, bool kAmsgrad>
void adam(const Step& s, const void* const* in, void* const* out, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const T *param = static_cast<const T*>(in[0]), *grad = static_cast<const T*>(in[1]);
  const T *mean = static_cast<const T*>(in[2]), *square = static_cast<const T*>(in[3]);
  const T* peak = kAmsgrad ? static_cast<const T*>(in[4]) : nullptr;
  T *to = static_cast<T*>(out[0]), *to_mean = static_cast<T*>(out[1]), *to_square = static_cast<T*>(out[2]);
  T* to_peak = kAmsgrad ? static_cast<T*>(out[3]) : nullptr;
  const C sign = s.maximize ? C(-1) : C(1), decay = static_cast<C>(s.decoupled ? 0 : s.weight_decay);
  const C shrink = static_cast<C>(s.decoupled ? 1 - s.lr * s.weight_decay : 1);
  const C rate = static_cast<C>(s.lr / (1 - std::pow(s.beta1, s.step)));
  const C root2 = static_cast<C>(1 / std::sqrt(1 - std::pow(s.beta2, s.step)));
  const C take1 = static_cast<C>(1 - s.beta1), beta2 = static_cast<C>(s.beta2), take2 = static_cast<C>(1 - s.beta2),
          eps = static_cast<C>(s.eps);
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    C p = load(param[i]);
    const C g = decayed(sign * load(grad[i]), p, decay), m0 = load(mean[i]);
    const C m = m0 + take1 * (g - m0), v = beta2 * load(square[i]) + take2 * g * g;
    C top = v;
    if constexpr (kAmsgrad) {
      const C old = load(peak[i]);
      top = old > v ? old : v;
      store(to_peak + i, top);
    }
    p = shrink * p - rate * (m / (std::sqrt(top) * root2 + eps));
    store(to + i, p);
    store(to_mean + i, m);
    store(to_square + i, v);
  }
}

enum Which { kSgd, kMomentum, kAdam, kAmsgrad };
StepFn select_step(int which, DType dtype) {
  return dispatch_floating(dtype, "optimizer update", [&](auto t) -> StepFn {
    using T = decltype(t);
    switch (which) {
      case kSgd: return sgd<T>;
      case kMomentum: return sgd_momentum<T>;
      case kAdam: return adam<T, false>;
      default: return adam<T, true>;
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
HWY_EXPORT(select_step);
namespace {

using plan::KernelQuery;

double read_scalar(const void* value, DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return static_cast<double>(*static_cast<const float*>(value));
    case DType::kFloat64: return *static_cast<const double*>(value);
    case DType::kBFloat16: return static_cast<double>(load(*static_cast<const BFloat16*>(value)));
    case DType::kFloat16: return static_cast<double>(load(*static_cast<const Float16*>(value)));
    default: return static_cast<double>(*static_cast<const int64_t*>(value));
  }
}

// Where an op's operands stand: `tensors` leading tensors, then the scalars at these indices (-1: none).
struct Signature {
  const char* op;
  int which, tensors, lr, step;
};
constexpr Signature kSignatures[] = {
    {"sgd_update", HWY_NAMESPACE::kSgd, 2, 2, -1},
    {"sgd_momentum_update", HWY_NAMESPACE::kMomentum, 3, 3, 4},
    {"adam_update", HWY_NAMESPACE::kAdam, 4, 5, 4},
    {"amsgrad_update", HWY_NAMESPACE::kAmsgrad, 5, 6, 5},
};

std::unique_ptr<PreparedKernel> prepare(const Signature& signature, const KernelQuery& q,
                                        const PrepareContext& context) {
  using namespace HWY_NAMESPACE;
  Step fixed;
  fixed.weight_decay = get_attr<double>(q.attrs, "weight_decay");
  fixed.maximize = get_attr<bool>(q.attrs, "maximize");
  if (signature.which == kMomentum) {
    fixed.momentum = get_attr<double>(q.attrs, "momentum");
    fixed.dampening = get_attr<double>(q.attrs, "dampening");
    fixed.nesterov = get_attr<bool>(q.attrs, "nesterov");
  } else if (signature.which != kSgd) {
    fixed.beta1 = get_attr<double>(q.attrs, "beta1");
    fixed.beta2 = get_attr<double>(q.attrs, "beta2");
    fixed.eps = get_attr<double>(q.attrs, "eps");
    fixed.decoupled = get_attr<bool>(q.attrs, "decoupled");
  }
  const StepFn run = HWY_DYNAMIC_DISPATCH(select_step)(signature.which, q.inputs[0].dtype);
  const int64_t n = numel(q.inputs[0].shape);
  const int threads = threads_for(context, static_cast<double>(n));
  const size_t step = static_cast<size_t>(signature.step), lr = static_cast<size_t>(signature.lr);
  const DType lr_dtype = q.inputs[lr].dtype;
  const bool has_step = signature.step >= 0 && step < q.inputs.size();
  const DType step_dtype = has_step ? q.inputs[step].dtype : DType::kInt64;
  return make_kernel(0, [=](const KernelArgs& args) {
    Step s = fixed;
    s.lr = read_scalar(args.inputs[lr], lr_dtype);
    if (has_step && args.inputs[step]) s.step = read_scalar(args.inputs[step], step_dtype);
    if (threads == 1) return run(s, args.inputs, args.outputs, 0, n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; ++t) {
      // Multiples of a cache line, so that no two threads write the same one.
      auto bound = [&](int part) { return part == threads ? n : n * part / threads / 32 * 32; };
      run(s, args.inputs, args.outputs, bound(t), bound(t + 1));
    }
  });
}

}  // namespace

void add_optimizer_update_kernels(KernelTable& table) {
  for (const Signature& signature : kSignatures) {
    KernelDef def{.op = signature.op, .prepare = [signature](const KernelQuery& q, const PrepareContext& c) {
                    return prepare(signature, q, c);
                  }};
    def.in_place = {{0, 0}};
    for (int i = 2; i < signature.tensors; ++i) def.in_place.push_back({i - 1, i});
    table.add(DeviceKind::kCpu, std::move(def));
  }
}

}  // namespace sluice::cpu
#endif
