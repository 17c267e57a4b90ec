#include "kernels/cuda/cudnn.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <optional>

#include "base/log.h"

namespace sluice::cuda {
namespace {

constexpr const char* kLibrary = "libcudnn.so.9";
constexpr const char* kVariable = "SLUICE_CUDNN";

std::optional<Cudnn> open() {
  const char* named = std::getenv(kVariable);
  const std::string path = named != nullptr ? named : "";
  if (path == "off") return std::nullopt;
  if (!path.empty()) return load_cudnn(path);
  try {
    return load_cudnn(kLibrary);
  } catch (const Error& error) {
    log(LogLevel::kWarn, LogArea::kKernels, "{}", error.what());
    return std::nullopt;
  }
}

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
       cudnnGetErrorString(status), *more != '\0' ? ": " : "", more, kVariable);
}

Cudnn load_cudnn(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    fail(ErrorKind::kUnsupported,
         "cuDNN, which computes convolutions on the GPU, could not be loaded: {}; install cuDNN 9 for CUDA 13, name it "
         "in {}, or say {}=off for generated kernels",
         why != nullptr ? why : path, kVariable, kVariable);
  }
  Cudnn functions;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    SLUICE_CHECK_KIND(kUnsupported, function != nullptr, "cuDNN: '{}' has no {}; install cuDNN 9", path, name);
  };
#define SLUICE_CUDNN_FIND(name) find(#name, functions.name);
  SLUICE_CUDNN_CALLS(SLUICE_CUDNN_FIND)
#undef SLUICE_CUDNN_FIND
  SLUICE_CHECK_KIND(kUnsupported, functions.cudnnGetVersion() / 10000 == CUDNN_MAJOR,
                    "cuDNN: '{}' is {}; this build needs version {}", path, functions.version(), CUDNN_MAJOR);
  return functions;
}

const Cudnn* cudnn() {
  static const std::optional<Cudnn> loaded = open();
  return loaded ? &*loaded : nullptr;
}

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

CudnnDescriptor CudnnMaker::make(cudnnBackendDescriptorType_t type, std::initializer_list<CudnnAttribute> attributes,
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
                                 std::initializer_list<CudnnAttribute> attributes) const {
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
