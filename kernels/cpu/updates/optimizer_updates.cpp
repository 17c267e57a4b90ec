// Optimizer steps, each one pass over its tensors; outputs may overwrite the tensors they replace.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/updates/optimizer_updates.cpp"

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/math/simd_foreach.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"
#include "kernels/cpu/updates/update_step.h"

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

// The positions of an op's operands: `tensors` leading tensors, then the scalars at these indices (-1: none).
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

const Signature& signature_of(const std::string& op) {
  for (const Signature& signature : kSignatures)
    if (op == signature.op) return signature;
  fail(ErrorKind::kUnsupported, "{}: no step of an optimizer on cpu; must be one", op);
}

std::unique_ptr<PreparedKernel> prepare(const KernelQuery& q, const PrepareContext& context) {
  std::vector<DType> dtypes;
  for (const TensorSpec& in : q.inputs) dtypes.push_back(in.dtype);
  const UpdateStep update(q.op, q.attrs, dtypes);
  const int64_t n = numel(q.inputs[0].shape);
  const int threads = threads_for(context, static_cast<double>(n));
  return make_kernel(0, [=](const KernelArgs& args) {
    const Step s = update.read(args.inputs);
    parallel_ranges(threads, n, 1,
                    [&](int64_t begin, int64_t end) { update.run()(s, args.inputs, args.outputs, begin, end); });
  });
}

}  // namespace

UpdateStep::UpdateStep(const std::string& op, const NamedAttrs& attrs, const std::vector<DType>& operands) {
  using namespace HWY_NAMESPACE;
  const Signature& signature = signature_of(op);
  fixed_.weight_decay = get_attr<double>(attrs, "weight_decay");
  fixed_.maximize = get_attr<bool>(attrs, "maximize");
  if (signature.which == kMomentum) {
    fixed_.momentum = get_attr<double>(attrs, "momentum");
    fixed_.dampening = get_attr<double>(attrs, "dampening");
    fixed_.nesterov = get_attr<bool>(attrs, "nesterov");
  } else if (signature.which != kSgd) {
    fixed_.beta1 = get_attr<double>(attrs, "beta1");
    fixed_.beta2 = get_attr<double>(attrs, "beta2");
    fixed_.eps = get_attr<double>(attrs, "eps");
    fixed_.decoupled = get_attr<bool>(attrs, "decoupled");
  }
  run_ = HWY_DYNAMIC_DISPATCH(select_step)(signature.which, operands.at(0));
  tensors_ = signature.tensors;
  lr_ = static_cast<size_t>(signature.lr);
  lr_dtype_ = operands.at(lr_);
  step_ = static_cast<size_t>(signature.step);
  has_step_ = signature.step >= 0 && step_ < operands.size();
  if (has_step_) step_dtype_ = operands[step_];
}

Step UpdateStep::read(const void* const* operands) const {
  Step s = fixed_;
  s.lr = read_scalar(operands[lr_], lr_dtype_);
  if (has_step_ && operands[step_]) s.step = read_scalar(operands[step_], step_dtype_);
  return s;
}

void add_optimizer_update_kernels(KernelTable& table) {
  for (const Signature& signature : kSignatures) {
    KernelDef def{.op = signature.op, .prepare = prepare};
    def.in_place = {{0, 0}};
    for (int i = 2; i < signature.tensors; ++i) def.in_place.push_back({i - 1, i});
    table.add(DeviceKind::kCpu, std::move(def));
  }
}

}  // namespace sluice::cpu
#endif
