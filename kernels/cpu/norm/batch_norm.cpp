// Batch normalisation of a matrix of `rows` by `channels`, which lies channels-last or contiguous. Sums go over blocks
// of rows in the compute type, then over blocks in double, in an order that depends on the shape alone and not on the
// layout or the threads. Products are rounded before they are added to (-ffp-contract=off), as a convolution's epilogue
// rounds them. The additions of fused_batch_norm to batch_norm_train, and of its backward to batch_norm_backward, are
// rounded as the ops would round them one by one.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm/batch_norm.cpp"

#include "kernels/cpu/norm/batch_norm.h"

#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/simd_foreach.h"
#include "kernels/cpu/support/support.h"
// clang-format off
#include "kernels/cpu/norm/batch_norm_loops-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

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

// An activation that is transposed to channels-last in the workspace, if it is contiguous and another one is not.
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
Activation make_activation(const BatchNorm& b, const TensorSpec& spec, const char* op, WorkspaceLayout& workspace) {
  Activation a{spec.shape[0], spec.shape[1], 1, dtype_size(spec.dtype), false, 0};
  for (int i = 2; i < spec.shape.rank(); ++i) a.positions *= spec.shape[i];
  a.moved = b.positions == 0 && !is_channels_last(spec, op);
  if (a.moved) a.offset = workspace.add(spec.extent_bytes());
  return a;
}

// `activations` are of one shape.
BatchNorm make_batch_norm(const KernelQuery& q, const std::vector<const TensorSpec*>& activations,
                          const PrepareContext& context) {
  const Shape& shape = activations.front()->shape;
  BatchNorm b;
  b.channels = shape[1];
  b.rows = b.channels == 0 ? 0 : numel(shape) / b.channels;
  if (std::none_of(activations.begin(), activations.end(),
                   [&](const TensorSpec* spec) { return is_channels_last(*spec, q.op.c_str()); }))
    b.positions = b.rows / shape[0];
  b.parts = std::clamp<int64_t>(b.rows * b.channels / 32768, 1, 16);
  b.eps = get_attr<double>(q.attrs, "eps");
  b.threads = threads_for(context, 2 * static_cast<double>(numel(shape)));  // two passes
  return b;
}
bool wide(const KernelQuery& q, size_t i, DType x) { return has_operand(q.inputs, i) && q.inputs[i].dtype != x; }

std::unique_ptr<PreparedKernel> prepare_forward(const KernelQuery& q, const PrepareContext& context, bool training) {
  const TensorSpec& x = q.inputs[0];
  BatchNorm b = make_batch_norm(q, {&x, &q.outputs[0]}, context);
  const size_t weight = training ? 1 : 3;
  b.float_weight = wide(q, weight, x.dtype);
  b.float_bias = wide(q, weight + 1, x.dtype);
  WorkspaceLayout workspace;
  workspace.add(b.sums_bytes() + static_cast<uint64_t>(2 * b.parts * b.channels) * sizeof(double));
  const Activation from = make_activation(b, x, q.op.c_str(), workspace),
                   to = make_activation(b, q.outputs[0], q.op.c_str(), workspace);
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
  std::vector activations = {&x, &q.outputs[0]};
  if (has_operand(q.inputs, kResidual)) activations.push_back(&q.inputs[kResidual]);
  BatchNorm b = make_batch_norm(q, activations, context);
  b.float_weight = wide(q, kWeight, x.dtype);
  b.float_bias = wide(q, kBias, x.dtype);
  b.relu = get_attr<std::string>(q.attrs, "activation") == "relu";
  b.kept = get_attr<double>(q.attrs, "kept");
  b.taken = get_attr<double>(q.attrs, "taken");
  b.correction = get_attr<double>(q.attrs, "correction");
  WorkspaceLayout workspace;
  workspace.add(b.sums_bytes() + static_cast<uint64_t>(2 * b.parts * b.channels) * sizeof(double));
  const Activation from = make_activation(b, x, q.op.c_str(), workspace),
                   to = make_activation(b, q.outputs[0], q.op.c_str(), workspace);
  Activation residual;
  if (has_operand(q.inputs, kResidual)) residual = make_activation(b, q.inputs[kResidual], q.op.c_str(), workspace);
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
  std::vector activations = {&x, &q.inputs[0], &q.outputs[0]};
  if (fused) activations.push_back(&q.inputs[result_at]);
  if (kept) activations.push_back(&q.outputs[3]);
  BatchNorm b = make_batch_norm(q, activations, context);
  b.float_mean = wide(q, 2, x.dtype);
  b.float_var = wide(q, 3, x.dtype);
  b.float_weight = wide(q, weight_at, x.dtype);
  WorkspaceLayout workspace;
  workspace.add(b.sums_bytes() + static_cast<uint64_t>(2 * b.parts * b.channels) * sizeof(double));
  const auto activation = [&](const TensorSpec& spec) { return make_activation(b, spec, q.op.c_str(), workspace); };
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
    table.add(
        DeviceKind::kCpu,
        {.op = op, .prepare = std::move(prepare), .layouts = spatial_as_inputs_lie, .in_place = std::move(in_place)});
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
