#pragma once
// cuBLASLt without a GPU: libfake_cublaslt.so has the functions that kernels/cuda/cublaslt.h asks for. Products are
// computed as NVIDIA documents them, by columns, when the fake driver's stream comes to them. It refuses what the
// library's documentation says is refused; memory that is not the device's is one of the fake driver's violations.
#include <cublasLt.h>

#include <cstdint>
#include <string>

#include "cuda/fake_driver/fake_driver.h"

namespace fake_cublaslt {

// The nth call of `function` from now on returns `status`.
FAKE_CUDA_API void fail_call(const std::string& function, int nth, cublasStatus_t status);

struct Counts {
  uint64_t products = 0;             // queued
  uint64_t parts = 0;                // of the last: more than one when it was summed in the workspace
  uint64_t alignment = 0;            // that its algorithm asks of operands
  cublasComputeType_t compute = {};  // of the last
};
FAKE_CUDA_API Counts counts();

}  // namespace fake_cublaslt
