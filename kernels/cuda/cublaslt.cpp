#include "kernels/cuda/cublaslt.h"

#include <map>
#include <memory>
#include <mutex>

#include "streams/cuda/library.h"

namespace sluice::cuda {
namespace {

constexpr const char* kCublasltLibrary = "libcublasLt.so.13";
constexpr const char* kCublasltVariable = "SLUICE_CUBLASLT";

}  // namespace

std::string CublasLt::version() const {
  int parts[3] = {};
  for (int i = 0; i < 3; ++i) {
    const libraryPropertyType part[] = {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
    static_cast<void>(cublasLtGetProperty(part[i], &parts[i]));
  }
  return fmt::format("{}.{}.{}", parts[0], parts[1], parts[2]);
}

void CublasLt::check(cublasStatus_t status, const std::string& op, const char* call) const {
  SLUICE_CHECK_KIND(kRuntime, status == CUBLAS_STATUS_SUCCESS, "{}: {}: {}; {}=off multiplies without the library", op,
                    call, cublasLtGetStatusName(status), kCublasltVariable);
}

CublasLt load_cublaslt(const std::string& path) {
  void* library = load_library(
      path, "cuBLASLt, which multiplies matrices on the GPU,",
      fmt::format("install CUDA 13's, name it in {0}, or say {0}=off for generated kernels", kCublasltVariable));
  const LibraryOrigin origin{"cuBLASLt", path, "CUDA 13's"};
  CublasLt functions;
#define SLUICE_CUBLASLT_FIND(name) need_function(library, #name, functions.name, origin);
  SLUICE_CUBLASLT_CALLS(SLUICE_CUBLASLT_FIND)
#undef SLUICE_CUBLASLT_FIND
  return functions;
}

const CublasLt* cublaslt() {
  static const std::optional<CublasLt> loaded = load_unless_off(kCublasltVariable, kCublasltLibrary, load_cublaslt);
  return loaded ? &*loaded : nullptr;
}

CublasLtDevice::CublasLtDevice(const CublasLt& library, const DeviceId& device)
    : library_(library), context_(device, driver(), 0) {
  const CurrentContext current(context_);
  library_.check(library_.cublasLtCreate(&handle_), device.str(), "cublasLtCreate");
}

CublasLtDevice::~CublasLtDevice() {
  const CurrentContext current(context_);
  static_cast<void>(library_.cublasLtDestroy(handle_));
}

std::shared_ptr<const CublasLtDevice> cublaslt_device(const DeviceId& device) {
  static std::mutex mutex;
  static auto* const devices = new std::map<DeviceId, std::weak_ptr<const CublasLtDevice>>();
  const std::lock_guard lock(mutex);
  std::weak_ptr<const CublasLtDevice>& known = (*devices)[device];
  std::shared_ptr<const CublasLtDevice> alive = known.lock();
  if (alive == nullptr) known = alive = std::make_shared<const CublasLtDevice>(*cublaslt(), device);
  return alive;
}

}  // namespace sluice::cuda
