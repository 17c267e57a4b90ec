#include "kernels/cuda/conv/cudnn_convolution.h"

#include <algorithm>

#include "base/log.h"
#include "kernels/cpu/support/support.h"
#include "kernels/cuda/conv/fused_convolution.h"
#include "plan/query.h"

namespace sluice::cuda {
namespace {

// One of the three operations on y = conv(x, w), and which operands of the op are x, w and y.
struct Operation {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y;
  size_t x_operand, w_operand, y_operand;
};

Operation operation_of(const plan::KernelQuery& query) {
  const size_t output = query.inputs.size();
  if (query.op == "conv" || query.op == "fused_conv") {
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            0,
            1,
            output};
  }
  if (query.op == "conv_input_grad") {
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            output,
            1,
            0};
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          1,
          output,
          0};
}

const TensorSpec& operand_of(const plan::KernelQuery& query, size_t operand) {
  return operand < query.inputs.size() ? query.inputs[operand] : query.outputs[operand - query.inputs.size()];
}

// Whether float32 may be multiplied as TensorFloat-32.
bool allows_tf32(const plan::KernelQuery& query) {
  return plan::beside<std::string>(query.attrs, plan::kPrecision, "highest") != "highest";
}

// cuDNN knows no convolution over one dim: it gets another before it, of size 1.
std::vector<int64_t> over_two(std::vector<int64_t> values, size_t first, int64_t missing) {
  if (values.size() == first + 1) values.insert(values.begin() + static_cast<std::ptrdiff_t>(first), missing);
  return values;
}

std::vector<int64_t> spatial(const plan::KernelQuery& query, const char* attr, int64_t missing) {
  const Ints values = get_attr<Ints>(query.attrs, attr);
  return over_two({values.begin(), values.end()}, 0, missing);
}

struct Tensors {
  const CudnnMaker& maker;
  const int64_t alignment;  // of what lies in memory

  CudnnDescriptor make(int64_t uid, cudnnDataType_t type, const std::vector<int64_t>& sizes,
                       const std::vector<int64_t>& strides, bool is_virtual) const {
    if (is_virtual) return cudnn_tensor(maker, {uid, type, sizes, strides, CudnnTensor::In::kNothing});
    return cudnn_tensor(maker, {uid, type, sizes, strides, CudnnTensor::In::kMemory, alignment});
  }
  // (N, C, spatial...). The strides of dims of size 1 are what the layout makes them.
  CudnnDescriptor make(int64_t uid, cudnnDataType_t type, const TensorSpec& spec, bool is_virtual = false) const {
    const Shape& shape = spec.shape;
    const Strides strides = cpu::spatial_layout(spec) == plan::Layout::kChannelsLast ? channels_last_strides(shape)
                                                                                     : contiguous_strides(shape);
    const int last = shape.rank() - 1;
    return make(uid, type, over_two({shape.begin(), shape.end()}, 2, 1),
                over_two({strides.begin(), strides.end()}, 2, shape[last] * strides[last]), is_virtual);
  }
};

// A step that follows a convolution.
struct Step {
  cudnnPointwiseMode_t mode;
  CudnnDescriptor operand = {nullptr, nullptr};
};

// uids of what kernels make on the way: batch norm's coefficients, and what is never in memory.
int64_t scale_uid(const plan::KernelQuery& query) { return cudnn_uid(query.inputs.size() + query.outputs.size()); }
int64_t shift_uid(const plan::KernelQuery& query) { return scale_uid(query) + 1; }
int64_t virtual_uid(const plan::KernelQuery& query, size_t step) {
  return shift_uid(query) + 1 + static_cast<int64_t>(step);
}

std::vector<Step> steps_of(const plan::KernelQuery& query, const Tensors& tensors, cudnnDataType_t type,
                           cudnnDataType_t compute) {
  std::vector<Step> steps;
  if (operation_of(query).type != CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) return steps;
  const ConvTail tail(query);
  const Shape& y = query.outputs[0].shape;
  std::vector<int64_t> sizes(static_cast<size_t>(std::max(y.rank(), 4)), 1), strides = sizes;
  sizes[1] = strides[0] = y[1];
  if (tail.norm) {  // with the bias
    const Tensors ours{tensors.maker, kCudnnAlignment};
    steps.push_back({CUDNN_POINTWISE_MUL, ours.make(scale_uid(query), compute, sizes, strides, false)});
    steps.push_back({CUDNN_POINTWISE_ADD, ours.make(shift_uid(query), compute, sizes, strides, false)});
  } else if (tail.bias) {
    steps.push_back({CUDNN_POINTWISE_ADD, tensors.make(cudnn_uid(ConvTail::kBias), type, sizes, strides, false)});
  }
  if (tail.residual) {
    const size_t residual = ConvTail::kResidual;
    steps.push_back({CUDNN_POINTWISE_ADD, tensors.make(cudnn_uid(residual), type, query.inputs[residual])});
  }
  if (tail.relu) steps.push_back({CUDNN_POINTWISE_RELU_FWD});
  return steps;
}

bool is_plain(const TensorSpec& spec) {
  return numel(spec.shape) > 0 && cpu::spatial_layout(spec) != plan::Layout::kAny;
}

// The bytes of the workspace ahead of the plan's.
uint64_t coefficient_bytes(const plan::KernelQuery& query) {
  return ConvTail(query).norm ? ConvCoefficients(query).bytes : 0;
}

// The same as each_cudnn_plan.
void each_plan(const CudnnMaker& maker, const CudnnTarget& target, const plan::KernelQuery& query, int64_t alignment,
               const CudnnRules& rules, const std::string& name, const std::function<bool(CudnnPlan&&)>& take) {
  const Operation o = operation_of(query);
  const TensorSpec &x = operand_of(query, o.x_operand), &w = operand_of(query, o.w_operand),
                   &y = operand_of(query, o.y_operand);
  const std::optional<cudnnDataType_t> type = cudnn_type(x.dtype);
  if (!type || !is_plain(x) || !is_plain(w) || !is_plain(y)) return;
  if (ConvTail(query).residual && !is_plain(query.inputs[ConvTail::kResidual])) return;
  if (coefficient_bytes(query) > plan::workspace_limit(query.attrs)) return;
  const cudnnDataType_t compute = *type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  const Tensors tensors{maker, alignment};
  const CudnnDescriptor x_tensor = tensors.make(cudnn_uid(o.x_operand), *type, x),
                        w_tensor = tensors.make(cudnn_uid(o.w_operand), *type, w),
                        y_tensor = tensors.make(cudnn_uid(o.y_operand), *type, y);
  const std::vector<Step> steps = steps_of(query, tensors, *type, compute);
  std::vector<CudnnDescriptor> between;  // what steps work on; never in memory
  for (size_t i = 0; i < steps.size(); ++i) between.push_back(tensors.make(virtual_uid(query, i), compute, y, true));
  const std::vector<int64_t> padding = spatial(query, "padding", 0);
  const CudnnDescriptor convolution =
      maker.make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
                 {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, compute},
                  {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION},
                  {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(padding.size())},
                  {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, spatial(query, "stride", 1)},
                  {CUDNN_ATTR_CONVOLUTION_DILATIONS, spatial(query, "dilation", 1)},
                  {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding},
                  {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding}});
  const auto operation = [&](const auto& one, const auto& zero) {
    return maker.make(o.type, {{o.alpha, one},
                               {o.beta, zero},
                               {o.convolution, convolution},
                               {o.x, x_tensor},
                               {o.w, w_tensor},
                               {o.y, steps.empty() ? y_tensor : between[0]}});
  };
  const CudnnDescriptor convolved = compute == CUDNN_DATA_DOUBLE ? operation(1.0, 0.0) : operation(1.0F, 0.0F);
  std::vector<CudnnDescriptor> added;
  std::vector<cudnnBackendDescriptor_t> operations = {convolved.get()};
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool last = i + 1 == steps.size();
    added.push_back(cudnn_pointwise(maker, {.mode = steps[i].mode,
                                            .compute = compute,
                                            .x = between[i],
                                            .y = last ? y_tensor : between[i + 1],
                                            .b = steps[i].operand == nullptr ? nullptr : &steps[i].operand}));
    operations.push_back(added.back().get());
  }
  each_cudnn_plan(maker, target, rules, operations, name, take);
}

// The first one.
std::optional<CudnnPlan> plan_of(const CudnnMaker& maker, const CudnnTarget& target, const plan::KernelQuery& query,
                                 int64_t alignment, const CudnnRules& rules, const std::string& name = "") {
  std::optional<CudnnPlan> first;
  each_plan(maker, target, query, alignment, rules, name, [&](CudnnPlan&& plan) {
    first = std::move(plan);
    return true;
  });
  return first;
}

CudnnRules rules_of(const plan::KernelQuery& query) {
  CudnnRules rules;
  rules.exact = query.outputs[0].dtype == DType::kFloat32 && !allows_tf32(query);
  rules.deterministic = plan::beside(query.attrs, plan::kDeterministic, true);
  const uint64_t limit = plan::workspace_limit(query.attrs), taken = coefficient_bytes(query);
  rules.most_workspace = std::min(rules.most_workspace, limit - std::min(limit, taken));
  return rules;
}

// Makes the kernel, with the operands that a plan's graph has in memory.
std::unique_ptr<PreparedKernel> kernel_of(const plan::KernelQuery& query, CudnnDevice& device, CudnnPlans plans) {
  using From = Operand::From;
  std::vector<CudnnOperand> operands;
  const auto add = [&](int64_t uid, Operand from) { operands.push_back({uid, from}); };
  const ConvTail tail(query);
  for (size_t i = 0; i < query.inputs.size(); ++i) {
    const bool coefficient = tail.norm && i >= ConvTail::kBias && i < ConvTail::kResidual;
    if (cpu::has_operand(query.inputs, i) && !coefficient) add(cudnn_uid(i), {From::kInput, i});
  }
  add(cudnn_uid(query.inputs.size()), {From::kOutput, 0});
  if (tail.norm) {
    const ConvCoefficients at(query);
    add(scale_uid(query), {From::kWorkspace, 0, at.scale});
    add(shift_uid(query), {From::kWorkspace, 0, at.shift});
  }
  return std::make_unique<CudnnKernel>(query.op, device, std::move(plans), std::move(operands),
                                       coefficient_bytes(query));
}

}  // namespace

std::optional<CudnnPlans> cudnn_convolution_plans(const CudnnMaker& maker, const CudnnTarget& target,
                                                  const plan::KernelQuery& query) {
  const CudnnRules rules = rules_of(query);
  const auto wanted = plan::beside<std::string>(query.attrs, plan::kImplementation, "");
  auto aligned = wanted.empty() ? std::nullopt : plan_of(maker, target, query, kCudnnAlignment, rules, wanted);
  if (!aligned) aligned = plan_of(maker, target, query, kCudnnAlignment, rules);
  if (!aligned) return std::nullopt;
  // Seldom used: it should cost no memory of its own.
  const auto element = static_cast<int64_t>(dtype_size(query.outputs[0].dtype));
  CudnnRules no_more = rules;
  no_more.most_workspace = aligned->workspace_bytes;
  auto any = plan_of(maker, target, query, element, no_more);
  if (!any) any = plan_of(maker, target, query, element, rules);
  if (!any) return std::nullopt;
  return CudnnPlans{std::move(*aligned), std::move(any)};
}

std::vector<std::string> cudnn_convolution_names(const plan::KernelQuery& query) {
  std::vector<std::string> names;
  if (cudnn() == nullptr) return names;
  CudnnDevice& device = cudnn_device(query.device);
  const CurrentContext current(device.context);
  const std::lock_guard lock(device.mutex);
  each_plan({*cudnn(), query.op}, {device.handle}, query, kCudnnAlignment, rules_of(query), "", [&](CudnnPlan&& plan) {
    names.push_back(std::move(plan.name));
    return names.size() == kMostImplementations;
  });
  return names;
}

std::unique_ptr<PreparedKernel> cudnn_convolution(const plan::KernelQuery& query) {
  if (cudnn() == nullptr) return nullptr;
  CudnnDevice& device = cudnn_device(query.device);
  const CurrentContext current(device.context);
  std::unique_lock lock(device.mutex);
  auto plans = cudnn_convolution_plans({*cudnn(), query.op}, {device.handle}, query);
  lock.unlock();
  if (plans) return kernel_of(query, device, std::move(*plans));
  log(LogLevel::kDebug, LogArea::kKernels, "{}: cuDNN has no engine for {} and {}", query.op,
      TensorType{query.inputs[0].dtype, query.inputs[0].shape}.str(),
      TensorType{query.inputs[1].dtype, query.inputs[1].shape}.str());
  return nullptr;
}

}  // namespace sluice::cuda
