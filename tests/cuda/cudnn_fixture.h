#pragma once
// Helpers that tests of cuDNN's kernels share: the fake library's controls, and the real library where it is at hand.
#include <dlfcn.h>

#include <optional>

#include "cuda/fake_cudnn/fake_cudnn.h"
#include "cuda/on_fakes.h"
#include "kernels/cuda/cudnn.h"

namespace sluice::cuda {

inline const fake_cudnn::Controls& fake() {
  static const auto* const controls = [] {
    void* library = dlopen(FAKE_CUDNN, RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<const fake_cudnn::Controls* (*)()>(dlsym(library, "fake_cudnn_controls"))();
  }();
  return *controls;
}

// For each input: numbers from -2 to 2.
inline std::vector<test::Bytes> numbers(const plan::KernelQuery& query) {
  std::mt19937_64 random(7);
  std::vector<test::Bytes> inputs;
  for (const TensorSpec& spec : query.inputs) {
    test::Bytes& bytes = inputs.emplace_back(spec.extent_bytes());
    for (size_t at = 0; at < bytes.size(); at += dtype_size(spec.dtype))
      test::set(spec.dtype, bytes.data() + at, static_cast<double>(random() % 401) / 100 - 2);
  }
  return inputs;
}

// An H100 as the library itself describes one.
inline constexpr std::string_view kH100 =
    R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
    R"("multiProcessorCount":132,"smCountOrigin":0,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
    R"("maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"oversizedSharedMemoryPerBlock":0,)"
    R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,)"
    R"("isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":85899345920,"smClockRateKHz":1980000,)"
    R"("memClockRateKHz":2619000,"memoryBusWidth":5120,"l2CacheSize":52428800,"cudaDeviceId":0,"deviceVer":900,)"
    R"("driverVer":13000,"deviceName":"NVIDIA H100 80GB HBM3"})";

// The library that SLUICE_TEST_CUDNN names, because most machines that build have none, and an H100 as it needs no GPU
// to plan for one.
struct CudnnLibrary : testing::Test {
  void SetUp() override {
    const char* path = std::getenv("SLUICE_TEST_CUDNN");
    if (path == nullptr) GTEST_SKIP() << "SLUICE_TEST_CUDNN names no cuDNN";
    library = load_cudnn(path);
    h100 = maker.empty(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    library.check(library.cudnnBackendSetAttribute(h100.get(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                   CUDNN_TYPE_CHAR, static_cast<int64_t>(kH100.size()), kH100.data()),
                  op, "cudnnBackendSetAttribute");
    library.check(library.cudnnBackendFinalize(h100.get()), op, "cudnnBackendFinalize");
  }
  Cudnn library;
  const std::string op = "test";
  const CudnnMaker maker{library, op};
  CudnnDescriptor h100{nullptr, nullptr};
};

}  // namespace sluice::cuda
