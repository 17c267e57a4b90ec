#include "kernels/cuda/cudnn_plan.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/log.h"
#include "kernels/cuda/cuda_kernels.h"

namespace sluice::cuda {
namespace {

constexpr size_t kMostNotes = CUDNN_NUMERICAL_NOTE_TYPE_COUNT, kMostOperands = 12;

// Whether it is there. Throws where that is not because the library lacks something.
bool supported(const CudnnMaker& maker, cudnnStatus_t finalised) {
  if (CUDNN_STATUS_CATEGORY(finalised) == CUDNN_STATUS_NOT_SUPPORTED) return false;
  maker.library.check(finalised, maker.op, "cudnnBackendFinalize");
  return true;
}

bool allowed(const CudnnRules& rules, std::span<const cudnnBackendNumericalNote_t> notes) {
  return std::none_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: return true;
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return rules.deterministic;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS: return rules.exact;
      default: return false;
    }
  });
}

CudnnDescriptor graph_of(const CudnnMaker& maker, const CudnnTarget& target,
                         const std::vector<cudnnBackendDescriptor_t>& operations, cudnnStatus_t& finalised) {
  const CudnnAttribute ops(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  if (target.properties != nullptr) return maker.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, {ops}, finalised);
  return maker.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, {ops, {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target.handle}},
                    finalised);
}

CudnnDescriptor proposals_of(const CudnnMaker& maker, const CudnnTarget& target, const CudnnDescriptor& graph,
                             cudnnBackendHeurMode_t mode, cudnnStatus_t& finalised) {
  const CudnnAttribute of(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph), in(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (target.properties == nullptr) return maker.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, {of, in}, finalised);
  return maker.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
                    {of, in, {CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties}}, finalised);
}

CudnnDescriptor plan_of(const CudnnMaker& maker, const CudnnTarget& target, const CudnnDescriptor& config,
                        cudnnStatus_t& finalised) {
  const CudnnAttribute of(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (target.properties == nullptr) {
    return maker.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, {of, {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle}},
                      finalised);
  }
  return maker.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                    {of, {CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties}}, finalised);
}

std::vector<CudnnDescriptor> configs_of(const CudnnMaker& maker, const CudnnDescriptor& proposals) {
  const auto get = [&](size_t most, void* values) {
    return maker.get(proposals, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, values);
  };
  std::vector<CudnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> filled;
  for (size_t n = get(0, nullptr); configs.size() < n;) {
    configs.push_back(maker.empty(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    filled.push_back(configs.back().get());
  }
  const size_t given = configs.empty() ? 0 : get(filled.size(), filled.data());  // may be fewer than it had announced
  configs.erase(configs.begin() + static_cast<std::ptrdiff_t>(given), configs.end());
  return configs;
}

}  // namespace

void each_cudnn_plan(const CudnnMaker& maker, const CudnnTarget& target, const CudnnRules& rules,
                     const std::vector<cudnnBackendDescriptor_t>& operations, const std::string& name,
                     const std::function<bool(CudnnPlan&&)>& take) {
  cudnnStatus_t finalised = CUDNN_STATUS_SUCCESS;
  const CudnnDescriptor graph = graph_of(maker, target, operations, finalised);
  if (!supported(maker, finalised)) return;
  std::map<int64_t, int> seen;  // proposals by engine
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    const CudnnDescriptor proposals = proposals_of(maker, target, graph, mode, finalised);
    if (!supported(maker, finalised)) continue;
    for (CudnnDescriptor& config : configs_of(maker, proposals)) {
      const CudnnDescriptor engine = maker.empty(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      cudnnBackendDescriptor_t filled = engine.get();
      maker.get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &filled);
      int64_t number = 0;
      maker.get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
      const int same = ++seen[number];
      CudnnPlan made{std::move(config), {nullptr, nullptr}, fmt::format("engine {}", number)};
      if (same > 1) made.name += fmt::format(" ({})", same);
      if (!name.empty() && made.name != name) continue;
      std::array<cudnnBackendNumericalNote_t, kMostNotes> notes{};
      const size_t count =
          maker.get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, kMostNotes, notes.data());
      if (!allowed(rules, std::span(notes).first(std::min(count, kMostNotes)))) continue;
      made.plan = plan_of(maker, target, made.config, finalised);
      if (finalised != CUDNN_STATUS_SUCCESS) continue;  // a proposal is no promise
      int64_t bytes = 0;
      maker.get(made.plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
      made.workspace_bytes = static_cast<uint64_t>(bytes);
      if (made.workspace_bytes <= rules.most_workspace && take(std::move(made))) return;
    }
  }
}

CudnnKernel::CudnnKernel(std::string op, CudnnDevice& device, CudnnPlans plans, std::vector<CudnnOperand> operands,
                         uint64_t before, std::unique_ptr<PreparedKernel> otherwise)
    : op_(std::move(op)),
      operands_(std::move(operands)),
      before_(before),
      otherwise_(std::move(otherwise)),
      device_(device),
      plans_(std::move(plans)) {
  SLUICE_CHECK(operands_.size() <= kMostOperands, "{}: {} operands; a plan of cuDNN takes {} at most", op_,
               operands_.size(), kMostOperands);
  workspace_bytes_ = before_ + plans_.workspace_bytes();
  repeatable_ = true;
  if (otherwise_ != nullptr) {
    workspace_bytes_ = std::max(workspace_bytes_, otherwise_->workspace_bytes());
    held_bytes_ = otherwise_->held_bytes();
  }
  log(LogLevel::kDebug, LogArea::kKernels, "{}: cuDNN's {}, {} bytes of workspace", op_, plans_.aligned.name,
      workspace_bytes_);
}

CudnnKernel::~CudnnKernel() {
  const CurrentContext current(device_.context);
  const std::lock_guard lock(device_.mutex);
  plans_.aligned.plan.reset();
  plans_.any.reset();
}

void CudnnKernel::run(const KernelArgs& args) const {
  std::array<int64_t, kMostOperands> uids{};
  std::array<void*, kMostOperands> pointers{};
  size_t count = 0;
  bool aligned = true;
  for (const CudnnOperand& operand : operands_) {
    uids[count] = operand.uid;
    pointers[count] = operand.value ? const_cast<float*>(&*operand.value) : address_of(operand.from, args);
    aligned &= operand.value || reinterpret_cast<uintptr_t>(pointers[count]) % kCudnnAlignment == 0;
    ++count;
  }
  if (!aligned && !plans_.any) return otherwise_->run(args);
  const CUstream stream = compute_stream_of(args, op_).library_stream(args.context);
  if (stream == nullptr) return;
  const auto before = static_cast<int64_t>(before_);
  void* const workspace = address_of({Operand::From::kWorkspace, 0, before}, args);
  const Cudnn& library = *cudnn();
  const CudnnMaker maker{library, op_};
  const std::lock_guard lock(device_.mutex);
  library.check(library.cudnnSetStream(device_.handle, stream), op_, "cudnnSetStream");
  const CudnnDescriptor operands =
      maker.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
                 {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(uids).first(count)},
                  {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(pointers).first(count)},
                  {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace}});
  const CudnnPlan& plan = aligned ? plans_.aligned : *plans_.any;
  library.check(library.cudnnBackendExecute(device_.handle, plan.plan.get(), operands.get()), op_,
                "cudnnBackendExecute");
}

}  // namespace sluice::cuda
