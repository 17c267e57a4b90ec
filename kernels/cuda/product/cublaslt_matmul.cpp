#include "kernels/cuda/product/cublaslt_matmul.h"

#include <array>
#include <limits>
#include <mutex>

#include "base/log.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cuda/expressions.h"
#include "kernels/cuda/generated.h"
#include "plan/query.h"

namespace sluice::cuda {
namespace {

constexpr uint64_t kWorkspaceAlignment = 256;  // asked for by the library; a plan's buffers have kAlignment
static_assert(kWorkspaceAlignment % plan::kAlignment == 0);
constexpr uint64_t kWorkspacePadding = kWorkspaceAlignment - plan::kAlignment;

// A row-major matrix of so many rows and columns as the library sees it: by columns, and so transposed, unless it lies
// by columns already. Nothing when neither dim is dense.
std::optional<CublasLtProblem::Matrix> by_columns(const MatmulProblem::Matrix& m, int64_t rows, int64_t columns) {
  if ((m.column_stride == 1 || columns == 1) && (m.row_stride >= columns || rows == 1))
    return CublasLtProblem::Matrix{columns, rows, rows == 1 ? columns : m.row_stride};
  if ((m.row_stride == 1 || rows == 1) && (m.column_stride >= rows || columns == 1))
    return CublasLtProblem::Matrix{rows, columns, columns == 1 ? rows : m.column_stride, 0, true};
  return std::nullopt;
}

bool set_types(const MatmulProblem& problem, CublasLtProblem& to) {
  switch (problem.dtype) {
    case DType::kFloat32:
      if (problem.precision == "high") to.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
      if (problem.precision == "medium") to.compute = CUBLAS_COMPUTE_32F_FAST_16BF;
      return true;
    case DType::kFloat16: to.type = CUDA_R_16F; return true;
    case DType::kBFloat16: to.type = CUDA_R_16BF; return true;
    case DType::kFloat64:
      to.type = to.scale = CUDA_R_64F;
      to.compute = CUBLAS_COMPUTE_64F;
      return true;
    default: return false;
  }
}

// False where the activation is to be a kernel of its own: the library's GELU is gelu_tanh with an error of 5e-6 (seen
// on an H100), which only products that are rounded more than float32's hide.
bool set_epilogue(const MatmulProblem& problem, CublasLtProblem& to) {
  to.bias = problem.bias;
  to.epilogue = problem.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (problem.activation == "none") return true;
  if (problem.activation == "relu") {
    to.epilogue = problem.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    return true;
  }
  const bool rounded = to.compute != CUBLAS_COMPUTE_32F || to.type != CUDA_R_32F;
  if (problem.activation != "gelu_tanh" || !rounded || to.type == CUDA_R_64F) return false;
  to.epilogue = problem.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return true;
}

// An activation of what a product has written, in place.
std::unique_ptr<GeneratedKernel> activation_kernel(const plan::KernelQuery& product, const std::string& activation) {
  plan::KernelQuery query = product;
  query.op = activation;
  query.attrs.clear();
  if (activation == "gelu_tanh") {
    query.op = "gelu";
    query.attrs = {{"approximate", std::string("tanh")}};
  }
  query.inputs = query.outputs;
  return std::make_unique<GeneratedKernel>(query, Generated{{elementwise_source(query)}});
}

// The workspace that an algorithm may take, of what the plan is to give it.
uint64_t most_workspace(const plan::KernelQuery& query) {
  const uint64_t limit = plan::workspace_limit(query.attrs);
  if (limit < kWorkspacePadding) return 0;
  return std::min(cublaslt_workspace_bytes(architecture(query.device)), limit - kWorkspacePadding);
}

class CublasLtMatmul final : public PreparedKernel {
 public:
  using Algorithm = CublasLtDescriptors::Algorithm;

  CublasLtMatmul(const plan::KernelQuery& query, const CublasLtProblem& problem,
                 std::shared_ptr<const CublasLtDevice> device, std::unique_ptr<CublasLtDescriptors> descriptors,
                 const Algorithm& aligned, const Algorithm& any, std::unique_ptr<GeneratedKernel> activation)
      : op_(query.op),
        bias_(problem.bias),
        float64_(problem.scale == CUDA_R_64F),
        device_(std::move(device)),
        descriptors_(std::move(descriptors)),
        aligned_(aligned),
        any_(any),
        activation_(std::move(activation)) {
    const uint64_t most = most_workspace(query);
    workspace_bytes_ = most == 0 ? 0 : most + kWorkspacePadding;
    repeatable_ = true;
  }
  const char* library() const override { return "cuBLASLt"; }

  void run(const KernelArgs& args) const override {
    const CUstream stream = compute_stream_of(args, op_).library_stream(args.context);
    if (stream == nullptr) return;
    const void *x = args.inputs[0], *y = args.inputs[1], *bias = bias_ ? args.inputs[2] : nullptr;
    void* z = args.outputs[0];
    const bool aligned = (number(x) | number(y) | number(z) | number(bias)) % plan::kAlignment == 0;
    const Algorithm& chosen = aligned ? aligned_ : any_;
    void* workspace = reinterpret_cast<void*>(align_up(number(args.workspace), kWorkspaceAlignment));
    const double one64 = 1, zero64 = 0;
    const float one32 = 1, zero32 = 0;
    const void* alpha = float64_ ? static_cast<const void*>(&one64) : &one32;
    const void* beta = float64_ ? static_cast<const void*>(&zero64) : &zero32;
    const CublasLt& library = *cublaslt();
    const CublasLtDescriptors& d = *descriptors_;
    const std::lock_guard lock(mutex_);
    if (bias_) descriptors_->set_bias(bias);
    library.check(library.cublasLtMatmul(device_->handle(), d.operation(), alpha, y, d.a(), x, d.b(), beta, z, d.z(), z,
                                         d.z(), &chosen.algo, workspace, chosen.workspace_bytes, stream),
                  op_, "cublasLtMatmul");
    if (activation_ == nullptr) return;
    KernelArgs activated = args;
    const void* const written[] = {z};
    activated.inputs = written;
    activation_->run(activated);
  }

 private:
  static uintptr_t number(const void* data) { return reinterpret_cast<uintptr_t>(data); }

  const std::string op_;
  const bool bias_, float64_;
  const std::shared_ptr<const CublasLtDevice> device_;
  mutable std::mutex mutex_;  // the descriptors name the run's bias
  const std::unique_ptr<CublasLtDescriptors> descriptors_;
  const Algorithm aligned_, any_;  // for operands as a plan's buffers lie, and for views of them
  const std::unique_ptr<GeneratedKernel>
      activation_;  // of what is written; null: there is none, or it is the library's
};

}  // namespace

std::optional<CublasLtProblem> cublaslt_problem(const MatmulProblem& problem) {
  CublasLtProblem to;
  const int64_t batch = numel(problem.batch);
  for (const int64_t size : {problem.m, problem.n, problem.k, batch}) {
    if (size < 1 || size > std::numeric_limits<int32_t>::max()) return std::nullopt;
  }
  if (!set_types(problem, to)) return std::nullopt;
  to.activates = set_epilogue(problem, to);
  const auto a = by_columns(problem.b, problem.k, problem.n), b = by_columns(problem.a, problem.m, problem.k),
             z = by_columns(problem.z, problem.m, problem.n);
  if (!a || !b || !z || z->transposed) return std::nullopt;
  const auto nest = cpu::LoopNest::in_order(
      problem.batch, std::array{problem.b.batch_strides, problem.a.batch_strides, problem.z.batch_strides});
  if (nest.outer_rank() > 0) return std::nullopt;
  to.batch = static_cast<int>(batch);
  to.a = *a;
  to.b = *b;
  to.z = *z;
  for (const auto& [matrix, operand] : {std::pair{&to.a, 0}, {&to.b, 1}, {&to.z, 2}})
    matrix->batch_stride = batch == 1 ? 0 : nest.inner_stride(operand);
  return to;
}

CublasLtDescriptors::CublasLtDescriptors(const CublasLt& library, const CublasLtProblem& problem, const std::string& op)
    : library_(library),
      op_(op),
      bias_(problem.bias),
      operation_(nullptr, library.cublasLtMatmulDescDestroy),
      a_(layout(problem.a, problem)),
      b_(layout(problem.b, problem)),
      z_(layout(problem.z, problem)) {
  cublasLtMatmulDesc_t made = nullptr;
  library_.check(library_.cublasLtMatmulDescCreate(&made, problem.compute, problem.scale), op_,
                 "cublasLtMatmulDescCreate");
  operation_.reset(made);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    library_.check(library_.cublasLtMatmulDescSetAttribute(made, attribute, &value, sizeof(value)), op_,
                   "cublasLtMatmulDescSetAttribute");
  };
  const int32_t transpose_a = problem.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                transpose_b = problem.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_a);
  set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_b);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(problem.epilogue));
  if (bias_) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(problem.type));
}

auto CublasLtDescriptors::layout(const CublasLtProblem::Matrix& matrix, const CublasLtProblem& problem) const
    -> Owned<cublasLtMatrixLayout_t> {
  cublasLtMatrixLayout_t made = nullptr;
  library_.check(library_.cublasLtMatrixLayoutCreate(&made, problem.type, static_cast<uint64_t>(matrix.rows),
                                                     static_cast<uint64_t>(matrix.columns), matrix.leading),
                 op_, "cublasLtMatrixLayoutCreate");
  Owned<cublasLtMatrixLayout_t> owned(made, library_.cublasLtMatrixLayoutDestroy);
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
    library_.check(library_.cublasLtMatrixLayoutSetAttribute(made, attribute, &value, sizeof(value)), op_,
                   "cublasLtMatrixLayoutSetAttribute");
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(problem.batch));
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.batch_stride);
  return owned;
}

void CublasLtDescriptors::set_bias(const void* bias) {
  library_.check(
      library_.cublasLtMatmulDescSetAttribute(operation_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)),
      op_, "cublasLtMatmulDescSetAttribute");
}

auto CublasLtDescriptors::choose(cublasLtHandle_t handle, uint32_t alignment, uint64_t workspace_bytes, int most)
    -> std::vector<Algorithm> {
  cublasLtMatmulPreference_t made = nullptr;
  library_.check(library_.cublasLtMatmulPreferenceCreate(&made), op_, "cublasLtMatmulPreferenceCreate");
  const Owned<cublasLtMatmulPreference_t> preference(made, library_.cublasLtMatmulPreferenceDestroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    library_.check(library_.cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof(value)), op_,
                   "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(operand, alignment);
  }
  if (bias_) set_bias(reinterpret_cast<const void*>(uintptr_t{alignment}));  // stands for one that lies so
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
  int count = 0;
  const cublasStatus_t status = library_.cublasLtMatmulAlgoGetHeuristic(handle, operation(), a(), b(), z(), z(), made,
                                                                        most, found.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  library_.check(status, op_, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < count; ++i)
    if (found[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back({found[i].algo, found[i].workspaceSize});
  return algorithms;
}

uint64_t cublaslt_workspace_bytes(const std::string& architecture) {
  return std::stoi(architecture.substr(3)) >= 90 ? uint64_t{32} << 20 : uint64_t{4} << 20;
}

namespace {

// A query as the library takes it, where it does.
struct Taken {
  CublasLtProblem problem;
  std::shared_ptr<const CublasLtDevice> device;
  std::unique_ptr<CublasLtDescriptors> descriptors;

  explicit operator bool() const { return descriptors != nullptr; }
  std::vector<CublasLtDescriptors::Algorithm> algorithms(const plan::KernelQuery& query, uint64_t alignment,
                                                         int most) const {
    const CurrentContext current(device->context());
    return descriptors->choose(device->handle(), static_cast<uint32_t>(alignment), most_workspace(query), most);
  }
};

Taken taken(const plan::KernelQuery& query) {
  if (cublaslt() == nullptr) return {};
  const auto problem = cublaslt_problem(matmul_problem(query));
  if (!problem) return {};
  return {*problem, cublaslt_device(query.device),
          std::make_unique<CublasLtDescriptors>(*cublaslt(), *problem, query.op)};
}

std::string name_of(size_t proposal) { return fmt::format("proposal {}", proposal + 1); }

}  // namespace

std::vector<std::string> cublaslt_matmul_names(const plan::KernelQuery& query) {
  std::vector<std::string> names;
  const Taken found = taken(query);
  const size_t count = found ? found.algorithms(query, plan::kAlignment, kMostImplementations).size() : 0;
  for (size_t i = 0; i < count; ++i) names.push_back(name_of(i));
  return names;
}

std::unique_ptr<PreparedKernel> cublaslt_matmul(const plan::KernelQuery& query) {
  Taken found = taken(query);
  if (!found) return nullptr;
  const auto wanted = plan::beside<std::string>(query.attrs, plan::kImplementation, "");
  const auto aligned = found.algorithms(query, plan::kAlignment, wanted.empty() ? 1 : kMostImplementations);
  const auto any = found.algorithms(query, dtype_size(query.outputs[0].dtype), 1);
  if (!aligned.empty() && !any.empty()) {
    size_t chosen = 0;  // the usual one, also in place of one that is not there
    for (size_t i = 0; i < aligned.size(); ++i)
      if (name_of(i) == wanted) chosen = i;
    auto activation = found.problem.activates ? nullptr : activation_kernel(query, matmul_problem(query).activation);
    return std::make_unique<CublasLtMatmul>(query, found.problem, std::move(found.device), std::move(found.descriptors),
                                            aligned[chosen], any[0], std::move(activation));
  }
  log(LogLevel::kInfo, LogArea::kKernels, "{}: cuBLASLt has no algorithm for {} and {}; a generated kernel takes it",
      query.op, TensorType{query.inputs[0].dtype, query.inputs[0].shape}.str(),
      TensorType{query.inputs[1].dtype, query.inputs[1].shape}.str());
  return nullptr;
}

}  // namespace sluice::cuda
