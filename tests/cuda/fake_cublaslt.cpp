#include "cuda/fake_cublaslt.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "base/dtype.h"

namespace {

using fake_cuda::shadow;
using sluice::BFloat16;
using sluice::Float16;

// The contents of the opaque descriptors.
struct Layout {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t leading, batch_stride;
  int32_t batch, order;
};
struct Operation {
  cublasComputeType_t compute;
  cudaDataType scale;
  int32_t transpose_a, transpose_b, bias_type;
  uint32_t epilogue;
  const void* bias;
};
struct Preference {
  uint64_t workspace_bytes;
  uint32_t reductions, alignments[4];
};
struct Algorithm {
  uint64_t problem, workspace_bytes;
  uint32_t parts, alignments[4], bias_alignment;
};
Layout& inside(cublasLtMatrixLayout_t d) { return *reinterpret_cast<Layout*>(d); }
Operation& inside(cublasLtMatmulDesc_t d) { return *reinterpret_cast<Operation*>(d); }
Preference& inside(cublasLtMatmulPreference_t d) { return *reinterpret_cast<Preference*>(d); }

struct State {
  std::mutex mutex;
  fake_cublaslt::Counts counts;
  std::map<std::string, std::pair<int, cublasStatus_t>> failures;
} state;

cublasStatus_t enter(const char* function) {
  const std::lock_guard lock(state.mutex);
  const auto failure = state.failures.find(function);
  if (failure == state.failures.end() || --failure->second.first > 0) return CUBLAS_STATUS_SUCCESS;
  const cublasStatus_t status = failure->second.second;
  state.failures.erase(failure);
  return status;
}

// A descriptor's attribute of type T from what the caller has.
template <class T>
cublasStatus_t put(T& attribute, const void* from, size_t bytes) {
  if (from == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&attribute, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

size_t size_of(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

// Everything of one product, by value: what a task of the stream keeps.
struct Product {
  Operation operation;
  Layout a, b, z;
  const void *a_data, *b_data;
  void *z_data, *workspace;
  uint64_t workspace_bytes;
  double alpha, beta;
  uint32_t parts;
  uint64_t m() const { return z.rows; }
  uint64_t n() const { return z.columns; }
  uint64_t k() const { return operation.transpose_a == CUBLAS_OP_N ? a.columns : a.rows; }
};

bool known(const Operation& o) {
  const bool f32 =
      o.scale == CUDA_R_32F && (o.compute == CUBLAS_COMPUTE_32F || o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                                o.compute == CUBLAS_COMPUTE_32F_FAST_16BF);
  return f32 || (o.scale == CUDA_R_64F && o.compute == CUBLAS_COMPUTE_64F);
}

bool well_formed(const Layout& l) {
  const auto least = static_cast<int64_t>(l.order == CUBLASLT_ORDER_ROW ? l.columns : l.rows);
  const bool order = l.order == CUBLASLT_ORDER_COL || l.order == CUBLASLT_ORDER_ROW;
  return l.rows > 0 && l.columns > 0 && l.leading >= least && order && l.batch > 0;
}

// As the table of cublasLtMatmul() in NVIDIA's documentation has the combinations.
cublasStatus_t check(const Operation& o, const Layout& a, const Layout& b, const Layout& c, const Layout& z) {
  for (const Layout* l : {&a, &b, &c, &z}) {
    if (!well_formed(*l) || l->batch != z.batch) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool na = o.transpose_a == CUBLAS_OP_N, nb = o.transpose_b == CUBLAS_OP_N;
  const uint64_t m = na ? a.rows : a.columns, k = na ? a.columns : a.rows;
  if (m != z.rows || k != (nb ? b.rows : b.columns) || z.columns != (nb ? b.columns : b.rows))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (c.rows != z.rows || c.columns != z.columns) return CUBLAS_STATUS_INVALID_VALUE;
  if (z.batch > 1 && z.batch_stride == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (a.type != b.type || a.type != z.type || c.type != z.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool narrow = z.type == CUDA_R_16F || z.type == CUDA_R_16BF;
  const bool legal = z.type == CUDA_R_64F   ? o.compute == CUBLAS_COMPUTE_64F
                     : z.type == CUDA_R_32F ? o.compute != CUBLAS_COMPUTE_64F
                                            : narrow && o.compute == CUBLAS_COMPUTE_32F;
  if (!legal) return CUBLAS_STATUS_NOT_SUPPORTED;
  const uint32_t activation = o.epilogue & ~uint32_t{CUBLASLT_EPILOGUE_BIAS};
  const bool bias = (o.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  const bool epilogue = activation == CUBLASLT_EPILOGUE_RELU || activation == CUBLASLT_EPILOGUE_GELU ||
                        (activation == 0 && bias) || o.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  if (!epilogue) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (z.type == CUDA_R_64F && o.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (bias && o.bias_type != -1 && o.bias_type != static_cast<int32_t>(z.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

uint64_t hash_of(const Operation& o, const Layout& a, const Layout& b, const Layout& z) {
  std::string text = std::to_string(o.compute) + " " + std::to_string(o.epilogue) + " " +
                     std::to_string(o.transpose_a) + " " + std::to_string(o.transpose_b);
  for (const Layout* l : {&a, &b, &z}) {
    for (const int64_t v : {int64_t{l->type}, static_cast<int64_t>(l->rows), static_cast<int64_t>(l->columns),
                            l->leading, l->batch_stride, int64_t{l->batch}, int64_t{l->order}}) {
      text += " " + std::to_string(v);
    }
  }
  return std::hash<std::string>()(text);
}

// The arithmetic.

float load(const float* at) { return *at; }
double load(const double* at) { return *at; }
float load(const Float16* at) { return to_float(*at); }
float load(const BFloat16* at) { return to_float(*at); }
void store(float* at, float v) { *at = v; }
void store(double* at, double v) { *at = v; }
void store(Float16* at, float v) { *at = sluice::to_float16(v); }
void store(BFloat16* at, float v) { *at = sluice::to_bfloat16(v); }

double rounded(double v, cublasComputeType_t) { return v; }
float rounded(float v, cublasComputeType_t compute) {
  if (compute == CUBLAS_COMPUTE_32F_FAST_16BF) return to_float(sluice::to_bfloat16(v));
  if (compute != CUBLAS_COMPUTE_32F_FAST_TF32) return v;
  uint32_t bits = 0;
  std::memcpy(&bits, &v, 4);
  bits = (bits + 0x0fff + ((bits >> 13) & 1)) & ~uint32_t{0x1fff};  // 10 bits of mantissa, to nearest even
  std::memcpy(&v, &bits, 4);
  return v;
}

int64_t place(const Layout& l, uint64_t row, uint64_t column, int64_t g) {
  const bool by_row = l.order == CUBLASLT_ORDER_ROW;
  const uint64_t major = by_row ? row : column, minor = by_row ? column : row;
  return g * l.batch_stride + static_cast<int64_t>(major) * l.leading + static_cast<int64_t>(minor);
}

template <class T>
void multiply(const Product& p) {
  using C = decltype(load(static_cast<const T*>(nullptr)));
  const Operation& o = p.operation;
  const auto *a = static_cast<const T*>(shadow(p.a_data)), *b = static_cast<const T*>(shadow(p.b_data)),
             *bias = static_cast<const T*>(shadow(o.bias));
  auto* z = static_cast<T*>(shadow(p.z_data));
  auto* sums = static_cast<C*>(shadow(p.workspace));  // of the parts
  const uint64_t each = (p.k() + p.parts - 1) / p.parts;
  for (int64_t g = 0; g < p.z.batch; ++g) {
    for (uint64_t column = 0; column < p.n(); ++column) {
      for (uint64_t row = 0; row < p.m(); ++row) {
        C total = 0;
        for (uint64_t part = 0; part < p.parts; ++part) {
          C sum = 0;
          for (uint64_t k = part * each; k < std::min(p.k(), (part + 1) * each); ++k) {
            const bool na = o.transpose_a == CUBLAS_OP_N, nb = o.transpose_b == CUBLAS_OP_N;
            sum += rounded(load(a + place(p.a, na ? row : k, na ? k : row, g)), o.compute) *
                   rounded(load(b + place(p.b, nb ? k : column, nb ? column : k, g)), o.compute);
          }
          if (p.parts > 1) sums[part] = sum;
          total += p.parts > 1 ? sums[part] : sum;
        }
        T* at = z + place(p.z, row, column, g);
        C value = static_cast<C>(p.alpha) * total;
        if (p.beta != 0) value += static_cast<C>(p.beta) * load(at);
        if ((o.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) value += load(bias + row);
        if ((o.epilogue & CUBLASLT_EPILOGUE_RELU) != 0) value = std::max(value, C(0));
        if ((o.epilogue & CUBLASLT_EPILOGUE_GELU) != 0)
          value =
              C(0.5) * value * (1 + std::tanh(C(0.7978845608028654) * (value + C(0.044715) * value * value * value)));
        store(at, value);
      }
    }
  }
}

void run(void** params) {
  const Product& p = *static_cast<const Product*>(params[0]);
  switch (p.z.type) {
    case CUDA_R_64F: return multiply<double>(p);
    case CUDA_R_32F: return multiply<float>(p);
    case CUDA_R_16F: return multiply<Float16>(p);
    default: return multiply<BFloat16>(p);
  }
}

// From the first element to the last.
uint64_t reach(const Layout& l) {
  return static_cast<uint64_t>(place(l, l.rows - 1, l.columns - 1, l.batch - 1) + 1) * size_of(l.type);
}

void accesses(void** params, std::vector<fake_cuda::Access>& all) {
  const Product& p = *static_cast<const Product*>(params[0]);
  all.push_back({p.a_data, reach(p.a), false});
  all.push_back({p.b_data, reach(p.b), false});
  all.push_back({p.z_data, reach(p.z), true});
  if ((p.operation.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0)
    all.push_back({p.operation.bias, p.m() * size_of(p.z.type), false});
  if (p.workspace_bytes > 0) all.push_back({p.workspace, p.workspace_bytes, true});
}

bool lies(const void* data, uint64_t alignment) { return reinterpret_cast<uintptr_t>(data) % alignment == 0; }
bool on_device(const void* data) { return data != nullptr && shadow(data) != data; }

}  // namespace

namespace fake_cublaslt {

void fail_call(const std::string& function, int nth, cublasStatus_t status) {
  const std::lock_guard lock(state.mutex);
  state.failures[function] = {nth, status};
}

Counts counts() {
  const std::lock_guard lock(state.mutex);
  return state.counts;
}

}  // namespace fake_cublaslt

extern "C" {

FAKE_CUDA_API cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  CUcontext current = nullptr;
  if (cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (const cublasStatus_t status = enter("cublasLtCreate"); status != CUBLAS_STATUS_SUCCESS) return status;
  *handle = reinterpret_cast<cublasLtHandle_t>(current);
  return CUBLAS_STATUS_SUCCESS;
}

FAKE_CUDA_API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  CUcontext current = nullptr;
  const bool here = cuCtxGetCurrent(&current) == CUDA_SUCCESS && reinterpret_cast<cublasLtHandle_t>(current) == handle;
  return here ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

FAKE_CUDA_API cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int* value) {
  *value = type == MAJOR_VERSION ? 13 : type == MINOR_VERSION ? 99 : 0;
  return CUBLAS_STATUS_SUCCESS;
}

FAKE_CUDA_API const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    default: return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}

FAKE_CUDA_API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows,
                                                        uint64_t columns, int64_t leading) {
  if (const cublasStatus_t status = enter("cublasLtMatrixLayoutCreate"); status != CUBLAS_STATUS_SUCCESS) return status;
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, leading, 0, 1, CUBLASLT_ORDER_COL});
  return CUBLAS_STATUS_SUCCESS;
}

FAKE_CUDA_API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &inside(layout);
  return CUBLAS_STATUS_SUCCESS;
}

FAKE_CUDA_API cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                              cublasLtMatrixLayoutAttribute_t attribute,
                                                              const void* from, size_t bytes) {
  Layout& to = inside(layout);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return put(to.order, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return put(to.batch, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return put(to.batch_stride, from, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

FAKE_CUDA_API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                                      cudaDataType_t scale) {
  if (const cublasStatus_t status = enter("cublasLtMatmulDescCreate"); status != CUBLAS_STATUS_SUCCESS) return status;
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(
      new Operation{compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, -1, CUBLASLT_EPILOGUE_DEFAULT, nullptr});
  return CUBLAS_STATUS_SUCCESS;
}

FAKE_CUDA_API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete &inside(operation);
  return CUBLAS_STATUS_SUCCESS;
}

FAKE_CUDA_API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                                            cublasLtMatmulDescAttributes_t attribute, const void* from,
                                                            size_t bytes) {
  Operation& to = inside(operation);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return put(to.transpose_a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return put(to.transpose_b, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return put(to.epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return put(to.bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return put(to.bias_type, from, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

FAKE_CUDA_API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  if (const cublasStatus_t status = enter("cublasLtMatmulPreferenceCreate"); status != CUBLAS_STATUS_SUCCESS)
    return status;
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(
      new Preference{0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
  return CUBLAS_STATUS_SUCCESS;
}

FAKE_CUDA_API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete &inside(preference);
  return CUBLAS_STATUS_SUCCESS;
}

FAKE_CUDA_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                                  cublasLtMatmulPreferenceAttributes_t attribute,
                                                                  const void* from, size_t bytes) {
  Preference& to = inside(preference);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return put(to.workspace_bytes, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return put(to.reductions, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return put(to.alignments[0], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return put(to.alignments[1], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return put(to.alignments[2], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return put(to.alignments[3], from, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

// One algorithm, which asks for all the alignment there is. Long sums are split where the preference allows it.
FAKE_CUDA_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t z,
                                                            cublasLtMatmulPreference_t preference, int requested,
                                                            cublasLtMatmulHeuristicResult_t* results, int* count) {
  CUcontext current = nullptr;
  *count = 0;
  if (cuCtxGetCurrent(&current) != CUDA_SUCCESS || reinterpret_cast<cublasLtHandle_t>(current) != handle)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (const cublasStatus_t status = enter("cublasLtMatmulAlgoGetHeuristic"); status != CUBLAS_STATUS_SUCCESS)
    return status;
  const Operation& o = inside(operation);
  if (const cublasStatus_t status = check(o, inside(a), inside(b), inside(c), inside(z));
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const Preference& preferred = inside(preference);
  Algorithm chosen{hash_of(o, inside(a), inside(b), inside(z)), 0, 1, {}, 1};
  std::copy_n(preferred.alignments, 4, chosen.alignments);
  while (o.bias != nullptr && chosen.bias_alignment < 256 && lies(o.bias, 2 * chosen.bias_alignment))
    chosen.bias_alignment *= 2;
  const uint64_t k = o.transpose_a == CUBLAS_OP_N ? inside(a).columns : inside(a).rows;
  const bool splits = k >= 512 && (preferred.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
  const uint64_t bytes = 4 * inside(z).rows * inside(z).columns * sizeof(double);
  if (splits && bytes <= preferred.workspace_bytes) {
    chosen.parts = 4;
    chosen.workspace_bytes = bytes;
  }
  static_assert(sizeof(chosen) <= sizeof(results[0].algo));
  const auto propose = [&] {
    cublasLtMatmulHeuristicResult_t& to = results[(*count)++] = {};
    std::memcpy(&to.algo, &chosen, sizeof(chosen));
    to.workspaceSize = chosen.workspace_bytes;
    to.state = CUBLAS_STATUS_SUCCESS;
  };
  propose();
  chosen.parts = 1;
  if (chosen.workspace_bytes > 0 && requested > 1) {
    chosen.workspace_bytes = 0;
    propose();
  }
  return CUBLAS_STATUS_SUCCESS;
}

FAKE_CUDA_API cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha,
                                            const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                                            cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                                            cublasLtMatrixLayout_t c_layout, void* z, cublasLtMatrixLayout_t z_layout,
                                            const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                                            cudaStream_t stream) {
  CUcontext current = nullptr;
  if (cuCtxGetCurrent(&current) != CUDA_SUCCESS || reinterpret_cast<cublasLtHandle_t>(current) != handle)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  if (const cublasStatus_t status = enter("cublasLtMatmul"); status != CUBLAS_STATUS_SUCCESS) return status;
  const Operation& o = inside(operation);
  Product p{o, inside(a_layout), inside(b_layout), inside(z_layout), a, b, z, workspace, 0, 0, 0, 1};
  if (const cublasStatus_t status = check(o, p.a, p.b, inside(c_layout), p.z); status != CUBLAS_STATUS_SUCCESS)
    return status;
  if (!known(o) || c != z || algo == nullptr) return CUBLAS_STATUS_NOT_SUPPORTED;
  Algorithm chosen{};
  std::memcpy(&chosen, algo, sizeof(chosen));
  const void* operands[] = {a, b, c, z};
  for (int i = 0; i < 4; ++i) {
    if (!on_device(operands[i]) || !lies(operands[i], chosen.alignments[i])) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if ((o.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0 && (!on_device(o.bias) || !lies(o.bias, chosen.bias_alignment)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (chosen.problem != hash_of(o, p.a, p.b, p.z) || workspace_bytes < chosen.workspace_bytes)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (chosen.workspace_bytes > 0 && (!on_device(workspace) || !lies(workspace, 256)))
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool wide = o.scale == CUDA_R_64F;
  p.alpha = wide ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  p.beta = wide ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  p.workspace_bytes = chosen.workspace_bytes;
  p.parts = chosen.parts;
  {
    const std::lock_guard lock(state.mutex);
    ++state.counts.products;
    state.counts.parts = p.parts;
    state.counts.alignment = chosen.alignments[0];
    state.counts.compute = o.compute;
  }
  static fake_cuda::Function function{"cublasLtMatmul", {sizeof(Product)}, run, accesses};
  void* params[] = {&p};
  const CUresult queued =
      cuLaunchKernel(handle_of(function), 1, 1, 1, 1, 1, 1, 0, reinterpret_cast<CUstream>(stream), params, nullptr);
  return queued == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
