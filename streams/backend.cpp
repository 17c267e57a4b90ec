#include "streams/backend.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <vector>

#include "base/log.h"

namespace sluice {
namespace {

constexpr const char* kCudaLibrary = "libsluice_cuda.so";
constexpr const char* kCudaVariable = "SLUICE_CUDA_LIBRARY";

// Where the code of this function lies: the program, or the library it was linked into.
std::filesystem::path own_directory() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_directory), &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::absolute(info.dli_fname).parent_path();
}

std::string dl_error() {
  const char* text = dlerror();
  return text != nullptr ? text : "unknown error";
}

}  // namespace

const Backend* load_backend(const char* library, const std::string& path) {
  std::vector<std::string> places = {path};
  if (path.empty()) {
    const std::filesystem::path here = own_directory();
    places.clear();
    for (const char* folder : {"", "lib"}) {
      const std::filesystem::path beside = here / folder / library;
      if (std::error_code ignored; std::filesystem::exists(beside, ignored)) places.push_back(beside);
    }
    places.push_back(library);
  }
  void* handle = dlopen(places.front().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    fail(ErrorKind::kUnsupported,
         "the CUDA backend could not be loaded: {}; build with -DSLUICE_CUDA=ON, or name it in {}", dl_error(),
         kCudaVariable);
  }
  const auto entry = reinterpret_cast<const Backend* (*)()>(dlsym(handle, "sluice_backend"));
  SLUICE_CHECK_KIND(kUnsupported, entry != nullptr, "'{}' is no backend: {}; it must export sluice_backend()",
                    places.front(), dl_error());
  const Backend* backend = entry();
  SLUICE_CHECK_KIND(kUnsupported, std::strcmp(backend->abi, SLUICE_BACKEND_ABI) == 0,
                    "the backend '{}' belongs to another build: {}; it must be of {}", places.front(), backend->abi,
                    SLUICE_BACKEND_ABI);
  log(LogLevel::kInfo, LogArea::kStreams, "backend loaded: {}", places.front());
  return backend;
}

const Backend* backend_of(DeviceKind kind) {
  if (kind != DeviceKind::kCuda) return nullptr;
  static std::mutex mutex;
  static const Backend* cuda = nullptr;
  std::lock_guard lock(mutex);
  if (cuda == nullptr) {
    const char* path = std::getenv(kCudaVariable);
    cuda = load_backend(kCudaLibrary, path != nullptr ? path : "");
  }
  return cuda;
}

}  // namespace sluice
