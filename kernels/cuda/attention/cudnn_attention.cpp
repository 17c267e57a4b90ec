#include "kernels/cuda/attention/cudnn_attention.h"

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "kernels/cpu/support/support.h"
#include "plan/query.h"

namespace sluice::cuda {
namespace {

constexpr size_t kFirstVersion = 92100;  // with graphs on scores
constexpr int64_t kWidestHead = 256;
constexpr int64_t kPack = kCudnnAlignment / 2;  // elements of 16 bits

// An operand of the op and its place in cuDNN's operation.
struct Role {
  cudnnBackendAttributeName_t name;
  size_t operand;  // outputs are counted behind all inputs that the op may have
};

// An op as an operation.
struct Sdpa {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t scale, scores, scores_in, scores_out;  // a graph on the scores: of which to which tensor
  size_t inputs;                                                     // with optional ones
  size_t query, mask;                                                // operands: key and value follow the query
  std::vector<Role> roles;

  const TensorSpec& spec(const plan::KernelQuery& of, const Role& role) const {
    return role.operand < inputs ? of.inputs[role.operand] : of.outputs[role.operand - inputs];
  }
  // uids of what the op does not have: numbers of the call, and what is between operations.
  int64_t scale_uid() const { return cudnn_uid(inputs + 3); }
  int64_t masked_uid() const { return scale_uid() + 1; }
  int64_t virtual_uid(int64_t i) const { return masked_uid() + 1 + i; }
};

Sdpa sdpa_of(const std::string& op) {
  if (op == "attention") {
    return {.type = CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR,
            .scale = CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC,
            .scores = CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH,
            .scores_in = CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID,
            .scores_out = CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID,
            .inputs = 5,
            .query = 0,
            .mask = 3,
            .roles = {{CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, 0},
                      {CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, 1},
                      {CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, 2},
                      {CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, 5},
                      {CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, 6}}};
  }
  return {.type = CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR,
          .scale = CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC,
          .scores = CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH,
          .scores_in = CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_INPUT_UID,
          .scores_out = CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_OUTPUT_UID,
          .inputs = 9,
          .query = 1,
          .mask = 6,
          .roles = {{CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, 0},
                    {CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, 1},
                    {CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, 2},
                    {CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, 3},
                    {CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, 4},
                    {CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, 5},
                    {CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, 9},
                    {CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, 10},
                    {CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, 11}}};
}

// Heads of whole packs, each at a multiple of one.
bool has_packed_heads(const TensorSpec& spec) {
  const int64_t width = spec.shape[3];
  bool packed = width % kPack == 0 && width <= kWidestHead && spec.strides[3] == 1 && numel(spec.shape) > 0;
  for (int i = 0; i < 3; ++i)
    packed = packed && (spec.shape[i] == 1 || (spec.strides[i] > 0 && spec.strides[i] % kPack == 0));
  return packed;
}

bool takes_attention(const plan::KernelQuery& query, const Sdpa& sdpa) {
  if (plan::beside(query.attrs, plan::kDeterministic, true)) return false;
  for (size_t i = sdpa.mask; i < sdpa.inputs; ++i)  // nor dropout's state, nor a gradient of log-sum-exps
    if (cpu::has_operand(query.inputs, i)) return false;
  const DType dtype = query.inputs[sdpa.query].dtype;
  if (dtype != DType::kFloat16 && dtype != DType::kBFloat16) return false;
  return std::all_of(sdpa.roles.begin(), sdpa.roles.end(), [&](const Role& role) {
    const TensorSpec& spec = sdpa.spec(query, role);
    return spec.shape.rank() != 4 || has_packed_heads(spec);
  });
}

// Log-sum-exps have a last dim of 1 there. Strides of dims of size 1 are what they would be if they had more.
CudnnDescriptor attention_tensor(const CudnnMaker& maker, size_t operand, const TensorSpec& spec) {
  std::vector<int64_t> sizes(spec.shape.begin(), spec.shape.end()), strides(spec.strides.begin(), spec.strides.end());
  if (sizes.size() == 3) {
    sizes.push_back(1);
    strides.push_back(1);
  }
  for (size_t d = 3; d-- > 0;)
    if (sizes[d] == 1) strides[d] = strides[d + 1] * sizes[d + 1];
  return cudnn_tensor(maker, {cudnn_uid(operand), *cudnn_type(spec.dtype), sizes, strides});
}

// Scores of keys behind their row are replaced by the lowest number.
class CausalScores {
 public:
  CausalScores(const CudnnMaker& maker, const Sdpa& sdpa, const std::vector<int64_t>& sizes) {
    const auto between = [&](int64_t i, cudnnDataType_t type) {
      return cudnn_tensor(maker, {sdpa.virtual_uid(i), type, sizes, {}, CudnnTensor::In::kNothing});
    };
    tensors_.push_back(between(0, CUDNN_DATA_FLOAT));
    tensors_.push_back(between(1, CUDNN_DATA_FLOAT));
    tensors_.push_back(between(2, CUDNN_DATA_INT32));
    tensors_.push_back(between(3, CUDNN_DATA_INT32));
    tensors_.push_back(between(4, CUDNN_DATA_BOOLEAN));
    tensors_.push_back(
        cudnn_tensor(maker, {sdpa.masked_uid(), CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {}, CudnnTensor::In::kCall}));
    const CudnnDescriptor &in = tensors_[0], &out = tensors_[1], &row = tensors_[2], &column = tensors_[3],
                          &seen = tensors_[4], &lowest = tensors_[5];
    operations_.push_back(cudnn_pointwise(
        maker, {.mode = CUDNN_POINTWISE_GEN_INDEX, .compute = CUDNN_DATA_INT32, .x = in, .y = row, .axis = 2}));
    operations_.push_back(cudnn_pointwise(
        maker, {.mode = CUDNN_POINTWISE_GEN_INDEX, .compute = CUDNN_DATA_INT32, .x = in, .y = column, .axis = 3}));
    operations_.push_back(cudnn_pointwise(
        maker, {.mode = CUDNN_POINTWISE_CMP_GE, .compute = CUDNN_DATA_BOOLEAN, .x = row, .y = seen, .b = &column}));
    operations_.push_back(cudnn_pointwise(maker, {.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                                  .compute = CUDNN_DATA_FLOAT,
                                                  .x = in,
                                                  .y = out,
                                                  .b = &lowest,
                                                  .t = &seen}));
    std::vector<cudnnBackendDescriptor_t> all;
    for (const CudnnDescriptor& operation : operations_) all.push_back(operation.get());
    graph_ = maker.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, {{CUDNN_ATTR_OPERATIONGRAPH_OPS, all}});
  }
  const CudnnDescriptor& graph() const { return graph_; }

 private:
  std::vector<CudnnDescriptor> tensors_, operations_;
  CudnnDescriptor graph_{nullptr, nullptr};
};

std::unique_ptr<PreparedKernel> attention_kernel(const plan::KernelQuery& query, CudnnDevice& device, CudnnPlan plan,
                                                 std::unique_ptr<PreparedKernel> otherwise) {
  using From = Operand::From;
  const Sdpa sdpa = sdpa_of(query.op);
  std::vector<CudnnOperand> operands;
  for (const Role& role : sdpa.roles) {
    const bool input = role.operand < sdpa.inputs;
    operands.push_back({cudnn_uid(role.operand),
                        {input ? From::kInput : From::kOutput, input ? role.operand : role.operand - sdpa.inputs}});
  }
  operands.push_back({sdpa.scale_uid(), {}, static_cast<float>(get_attr<double>(query.attrs, "scale"))});
  if (get_attr<bool>(query.attrs, "is_causal"))
    operands.push_back({sdpa.masked_uid(), {}, std::numeric_limits<float>::lowest()});
  return std::make_unique<CudnnKernel>(query.op, device, CudnnPlans{std::move(plan), std::nullopt}, std::move(operands),
                                       0, std::move(otherwise));
}

}  // namespace

std::optional<CudnnPlan> cudnn_attention_plan(const CudnnMaker& maker, const CudnnTarget& target,
                                              const plan::KernelQuery& query) {
  const Sdpa sdpa = sdpa_of(query.op);
  if (maker.library.cudnnGetVersion() < kFirstVersion || !takes_attention(query, sdpa)) return std::nullopt;
  std::vector<CudnnDescriptor> tensors;
  for (const Role& role : sdpa.roles) tensors.push_back(attention_tensor(maker, role.operand, sdpa.spec(query, role)));
  tensors.push_back(
      cudnn_tensor(maker, {sdpa.scale_uid(), CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {}, CudnnTensor::In::kCall}));
  std::vector<CudnnAttribute> attributes = {{sdpa.scale, tensors.back()}};
  for (size_t i = 0; i < sdpa.roles.size(); ++i) attributes.emplace_back(sdpa.roles[i].name, tensors[i]);
  const Shape &q = query.inputs[sdpa.query].shape, &k = query.inputs[sdpa.query + 1].shape;
  std::optional<CausalScores> causal;
  const int64_t in = sdpa.virtual_uid(0), out = sdpa.virtual_uid(1);
  if (get_attr<bool>(query.attrs, "is_causal")) {
    causal.emplace(maker, sdpa, std::vector<int64_t>{q[0], q[1], q[2], k[2]});
    attributes.emplace_back(sdpa.scores, causal->graph());
    attributes.emplace_back(sdpa.scores_in, in);
    attributes.emplace_back(sdpa.scores_out, out);
  }
  cudnnStatus_t finalised = CUDNN_STATUS_SUCCESS;
  const CudnnDescriptor operation = maker.make(sdpa.type, attributes, finalised);
  if (CUDNN_STATUS_CATEGORY(finalised) == CUDNN_STATUS_NOT_SUPPORTED) return std::nullopt;
  maker.library.check(finalised, maker.op, "cudnnBackendFinalize");
  CudnnRules rules{.deterministic = false};
  rules.most_workspace = std::min(rules.most_workspace, plan::workspace_limit(query.attrs));
  std::optional<CudnnPlan> first;
  each_cudnn_plan(maker, target, rules, {operation.get()}, "", [&](CudnnPlan&& plan) {
    first = std::move(plan);
    return true;
  });
  return first;
}

std::unique_ptr<PreparedKernel> cudnn_attention(const plan::KernelQuery& query,
                                                Generated (*generate)(const plan::KernelQuery& query)) {
  if (cudnn() == nullptr || plan::beside(query.attrs, plan::kDeterministic, true)) return nullptr;
  CudnnDevice& device = cudnn_device(query.device);
  const CurrentContext current(device.context);
  std::unique_lock lock(device.mutex);
  std::optional<CudnnPlan> plan = cudnn_attention_plan({*cudnn(), query.op}, {device.handle}, query);
  lock.unlock();
  if (!plan) {
    const TensorSpec& q = query.inputs[sdpa_of(query.op).query];
    log(LogLevel::kDebug, LogArea::kKernels, "{}: cuDNN does not take queries of {}, or what comes with them", query.op,
        TensorType{q.dtype, q.shape}.str());
    return nullptr;
  }
  return attention_kernel(query, device, std::move(*plan), std::make_unique<GeneratedKernel>(query, generate(query)));
}

}  // namespace sluice::cuda
