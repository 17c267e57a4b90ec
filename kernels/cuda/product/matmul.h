#pragma once
// matmul and linear as one product of matrices, for the kernels that compute it.
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/generated.h"

namespace sluice::cuda {

// z = activation(a b + bias), as often as the batch dims say; each matrix a view with any strides.
struct MatmulProblem {
  struct Matrix {
    int64_t row_stride = 0, column_stride = 0;
    Strides batch_strides;  // along MatmulProblem::batch, 0 where it repeats
  };
  Shape batch;
  int64_t m = 0, n = 0, k = 0;
  Matrix a, b, z;
  DType dtype = DType::kFloat32;
  bool bias = false;  // of n elements, the third input
  std::string activation = "none";
  std::string precision = "highest";  // of float32: CompileOptions::float32_matmul_precision
};
MatmulProblem matmul_problem(const plan::KernelQuery& query);

// cuBLASLt's kernel of a matmul or linear. Null where the library is not to be had, has no words for the problem, or
// has no algorithm for it: then tiles are generated. Decided here alone, when a kernel is prepared.
std::unique_ptr<PreparedKernel> cublaslt_matmul(const plan::KernelQuery& query);
// The proposals by their names for plan::kImplementation, the usual one first: "proposal 1" and so on, at most 8. Empty
// where it has none.
std::vector<std::string> cublaslt_matmul_names(const plan::KernelQuery& query);
// The sizes of a matmul or linear for tensor cores, with rows that they load: plan::Target::padded_sizes.
Ints cublaslt_sizes(const plan::KernelQuery& query);

}  // namespace sluice::cuda
