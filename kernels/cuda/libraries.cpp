#include <functional>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/nvrtc.h"

namespace sluice::cuda {

std::vector<LibraryVersion> cuda_libraries() {
  const auto told = [](const char* name, const std::function<std::string()>& version) -> LibraryVersion {
    try {
      return {name, version()};
    } catch (const Error&) {
      return {name, "(could not be loaded)"};
    }
  };
  return {
      told("NVRTC", [] { return nvrtc().version(); }),
      told("cuDNN", [] { return cudnn() != nullptr ? cudnn()->version() : "(absent: generated kernels convolve)"; }),
      told("cuBLASLt",
           [] { return cublaslt() != nullptr ? cublaslt()->version() : "(absent: generated kernels multiply)"; })};
}

}  // namespace sluice::cuda
