#pragma once
// A matmul problem in cuBLASLt's words.
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/product/matmul.h"

namespace sluice::cuda {

// The library's matrices lie by columns, so what it is told is z^T = b^T a^T: its A is our b, its B our a, and its rows
// are our columns. No order of memory is changed by that.
struct CublasLtProblem {
  struct Matrix {
    int64_t rows = 0, columns = 0, leading = 0, batch_stride = 0;  // as they lie in memory
    bool transposed = false;
  };
  Matrix a, b, z;
  int batch = 1;
  cudaDataType_t type = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;  // of alpha and beta
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  bool bias = false;
  bool activates = true;  // the epilogue is the problem's activation; else that is to be computed afterwards
};
// Nothing for what the library does not have: other dtypes, matrices without a leading dimension, batches that are not
// one stride apart.
std::optional<CublasLtProblem> cublaslt_problem(const MatmulProblem& problem);

// The library's descriptors of a problem. They need no device.
class CublasLtDescriptors {
 public:
  CublasLtDescriptors(const CublasLt& library, const CublasLtProblem& problem, const std::string& op);
  void set_bias(const void* bias);
  struct Algorithm {
    cublasLtMatmulAlgo_t algo{};
    size_t workspace_bytes = 0;
  };
  // The algorithms that are fastest by the library's estimate, of those that take operands of such alignment, at most
  // so much workspace, and sum in an order of their own and in the compute type: two runs give the same bits.
  // REQUIRES: the handle's context is current.
  std::vector<Algorithm> choose(cublasLtHandle_t handle, uint32_t alignment, uint64_t workspace_bytes, int most);

  cublasLtMatmulDesc_t operation() const { return operation_.get(); }
  cublasLtMatrixLayout_t a() const { return a_.get(); }
  cublasLtMatrixLayout_t b() const { return b_.get(); }
  cublasLtMatrixLayout_t z() const { return z_.get(); }

 private:
  template <class Descriptor>
  using Owned = std::unique_ptr<std::remove_pointer_t<Descriptor>, cublasStatus_t (*)(Descriptor)>;
  Owned<cublasLtMatrixLayout_t> layout(const CublasLtProblem::Matrix& matrix, const CublasLtProblem& problem) const;

  const CublasLt& library_;
  const std::string op_;
  const bool bias_;
  Owned<cublasLtMatmulDesc_t> operation_;
  Owned<cublasLtMatrixLayout_t> a_, b_, z_;
};

// The workspace that a plan gives each of the library's products: as NVIDIA recommends for the architecture ("sm_90"),
// whichever algorithm is taken, so that plans do not depend on the library's version.
uint64_t cublaslt_workspace_bytes(const std::string& architecture);

}  // namespace sluice::cuda
