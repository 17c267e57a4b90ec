#include "kernels/cuda/cudnn.h"

#include <map>

#include "streams/cuda/library.h"

namespace sluice::cuda {
namespace {

constexpr const char* kCudnnLibrary = "libcudnn.so.9";
constexpr const char* kCudnnVariable = "SLUICE_CUDNN";

}  // namespace

std::string Cudnn::version() const {
  const size_t version = cudnnGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void Cudnn::check(cudnnStatus_t status, const std::string& op, const char* call) const {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char more[512] = {};
  cudnnGetLastErrorString(more, sizeof(more) - 1);
  fail(ErrorKind::kRuntime, "{}: {}: {}{}{}; {}=off computes without the library", op, call,
       cudnnGetErrorString(status), *more != '\0' ? ": " : "", more, kCudnnVariable);
}

Cudnn load_cudnn(const std::string& path) {
  void* library = load_library(
      path, "cuDNN, which computes convolutions on the GPU,",
      fmt::format("install cuDNN 9 for CUDA 13, name it in {0}, or say {0}=off for generated kernels", kCudnnVariable));
  const LibraryOrigin origin{"cuDNN", path, "cuDNN 9"};
  Cudnn functions;
#define SLUICE_CUDNN_FIND(name) need_function(library, #name, functions.name, origin);
  SLUICE_CUDNN_CALLS(SLUICE_CUDNN_FIND)
#undef SLUICE_CUDNN_FIND
  SLUICE_CHECK_KIND(kUnsupported, functions.cudnnGetVersion() / 10000 == CUDNN_MAJOR,
                    "cuDNN: '{}' is {}; this build needs version {}", path, functions.version(), CUDNN_MAJOR);
  return functions;
}

const Cudnn* cudnn() {
  static const std::optional<Cudnn> loaded = load_unless_off(kCudnnVariable, kCudnnLibrary, load_cudnn);
  return loaded ? &*loaded : nullptr;
}

std::string cudnn_name() { return cudnn() != nullptr ? "cuDNN " + cudnn()->version() : ""; }

CudnnDevice& cudnn_device(const DeviceId& device) {
  static std::mutex mutex;
  static auto* const devices = new std::map<DeviceId, std::unique_ptr<CudnnDevice>>();
  const std::lock_guard lock(mutex);
  std::unique_ptr<CudnnDevice>& known = (*devices)[device];
  if (known == nullptr) {
    std::unique_ptr<CudnnDevice> made(new CudnnDevice{{device, driver(), 0}});
    const CurrentContext current(made->context);
    cudnn()->check(cudnn()->cudnnCreate(&made->handle), device.str(), "cudnnCreate");
    known = std::move(made);
  }
  return *known;
}

CudnnDescriptor CudnnMaker::empty(cudnnBackendDescriptorType_t type) const {
  cudnnBackendDescriptor_t made = nullptr;
  library.check(library.cudnnBackendCreateDescriptor(type, &made), op, "cudnnBackendCreateDescriptor");
  return {made, library.cudnnBackendDestroyDescriptor};
}

CudnnDescriptor CudnnMaker::make(cudnnBackendDescriptorType_t type, const std::vector<CudnnAttribute>& attributes,
                                 cudnnStatus_t& finalised) const {
  CudnnDescriptor made = empty(type);
  for (const CudnnAttribute& a : attributes) {
    library.check(library.cudnnBackendSetAttribute(made.get(), a.name, a.type, a.count, a.data()), op,
                  "cudnnBackendSetAttribute");
  }
  finalised = library.cudnnBackendFinalize(made.get());
  return made;
}

CudnnDescriptor CudnnMaker::make(cudnnBackendDescriptorType_t type,
                                 const std::vector<CudnnAttribute>& attributes) const {
  cudnnStatus_t finalised = CUDNN_STATUS_SUCCESS;
  CudnnDescriptor made = make(type, attributes, finalised);
  library.check(finalised, op, "cudnnBackendFinalize");
  return made;
}

size_t CudnnMaker::get(const CudnnDescriptor& from, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       size_t most, void* values) const {
  int64_t count = 0;
  library.check(library.cudnnBackendGetAttribute(from.get(), name, type, static_cast<int64_t>(most), &count, values),
                op, "cudnnBackendGetAttribute");
  return static_cast<size_t>(count);
}

}  // namespace sluice::cuda
