#include "streams/cuda/driver.h"

#include <mutex>

#include "streams/cuda/library.h"

namespace sluice::cuda {
namespace {

constexpr const char* kDriverLibrary = "libcuda.so.1";
constexpr const char* kDriverVariable = "SLUICE_CUDA_DRIVER";
constexpr const char* kLeastRelease = "580";  // the first that supports CUDA 13

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

template <class Function>
void find(void* library, const char* name, Function& function) {
  SLUICE_CHECK_KIND(kUnsupported, find_function(library, name, function),
                    "the NVIDIA driver is too old: it has no {}; install release {} or newer", name, kLeastRelease);
}

Driver open() {
  const std::string path = library_path(kDriverVariable, kDriverLibrary);
  void* library =
      load_library(path, "the NVIDIA driver",
                   fmt::format("install release {} or newer, or name it in {}", kLeastRelease, kDriverVariable));
  Driver driver;
#define SLUICE_CUDA_NAME(name) #name
#define SLUICE_CUDA_FIND(name) find(library, SLUICE_CUDA_NAME(name), driver.name);
  SLUICE_CUDA_CALLS(SLUICE_CUDA_FIND)
#undef SLUICE_CUDA_FIND
#undef SLUICE_CUDA_NAME
  int version = 0;
  CUresult result = driver.cuDriverGetVersion(&version);
  SLUICE_CHECK_KIND(kUnsupported, result == CUDA_SUCCESS,
                    "the NVIDIA driver does not tell its version: {}; reinstall it", driver.text(result));
  SLUICE_CHECK_KIND(
      kUnsupported, version / 1000 >= CUDA_VERSION / 1000,
      "the NVIDIA driver is too old: it supports CUDA {}; this build needs CUDA {}, which release {} of the "
      "driver has: install that or a newer one",
      version_text(version), version_text(CUDA_VERSION / 1000 * 1000), kLeastRelease);
  result = driver.cuInit(0);
  SLUICE_CHECK_KIND(kUnsupported, result == CUDA_SUCCESS,
                    "the NVIDIA driver finds no device it can use: {}; see what nvidia-smi says", driver.text(result));
  log(LogLevel::kInfo, LogArea::kStreams, "CUDA driver loaded: {}, CUDA {}", path, version_text(version));
  return driver;
}

}  // namespace

std::string Driver::text(CUresult result) const {
  const char *name = nullptr, *meaning = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) return fmt::format("CUDA error {}", +result);
  if (cuGetErrorString(result, &meaning) != CUDA_SUCCESS || meaning == nullptr) return name;
  return fmt::format("{} ({})", name, meaning);
}

const Driver& driver() {
  static std::mutex mutex;
  static const Driver* loaded = nullptr;  // for the process: threads may outlive main()
  std::lock_guard lock(mutex);
  if (loaded == nullptr) loaded = new Driver(open());
  return *loaded;
}

}  // namespace sluice::cuda
