#include "kernels/cuda/cublaslt.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/log.h"

namespace sluice::cuda {
namespace {

constexpr const char* kLibrary = "libcublasLt.so.13";
constexpr const char* kVariable = "SLUICE_CUBLASLT";

std::optional<CublasLt> open() {
  const char* named = std::getenv(kVariable);
  const std::string path = named != nullptr ? named : "";
  if (path == "off") return std::nullopt;
  if (!path.empty()) return load_cublaslt(path);
  try {
    return load_cublaslt(kLibrary);
  } catch (const Error& error) {
    log(LogLevel::kWarn, LogArea::kKernels, "{}", error.what());
    return std::nullopt;
  }
}

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
                    call, cublasLtGetStatusName(status), kVariable);
}

CublasLt load_cublaslt(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    fail(
        ErrorKind::kUnsupported,
        "cuBLASLt, which multiplies matrices on the GPU, could not be loaded: {}; install CUDA 13's, name it in {}, or "
        "say {}=off for generated kernels",
        why != nullptr ? why : path, kVariable, kVariable);
  }
  CublasLt functions;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    SLUICE_CHECK_KIND(kUnsupported, function != nullptr, "cuBLASLt: '{}' has no {}; install CUDA 13's", path, name);
  };
#define SLUICE_CUBLASLT_FIND(name) find(#name, functions.name);
  SLUICE_CUBLASLT_CALLS(SLUICE_CUBLASLT_FIND)
#undef SLUICE_CUBLASLT_FIND
  return functions;
}

const CublasLt* cublaslt() {
  static const std::optional<CublasLt> loaded = open();
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
