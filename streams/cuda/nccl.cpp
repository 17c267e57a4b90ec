#include "streams/cuda/nccl.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

#include "base/error.h"
#include "base/log.h"

namespace sluice::cuda {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";
constexpr const char* kVariable = "SLUICE_NCCL";

const Nccl* open() {
  const char* named = std::getenv(kVariable);
  const bool is_named = named != nullptr && *named != '\0';
  const char* path = is_named ? named : kLibrary;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    SLUICE_CHECK_KIND(kUnsupported, !is_named, "NCCL could not be loaded: {}; {} must name its library",
                      why != nullptr ? why : path, kVariable);
    log(LogLevel::kInfo, LogArea::kStreams, "no NCCL, GPUs of several ranks exchange values through the host: {}",
        why != nullptr ? why : path);
    return nullptr;
  }
  auto* functions = new Nccl();
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    SLUICE_CHECK_KIND(kUnsupported, function != nullptr, "NCCL: '{}' has no {}; install release 2.14 or newer", path,
                      name);
  };
#define SLUICE_NCCL_FIND(name) find(#name, functions->name);
  SLUICE_NCCL_CALLS(SLUICE_NCCL_FIND)
#undef SLUICE_NCCL_FIND
  int version = 0;
  static_cast<void>(functions->ncclGetVersion(&version));
  log(LogLevel::kInfo, LogArea::kStreams, "NCCL loaded: {}, {}", path, version);
  return functions;
}

}  // namespace

const Nccl* nccl() {
  static std::once_flag once;
  static const Nccl* loaded = nullptr;  // for the process: threads may outlive main()
  std::call_once(once, [] { loaded = open(); });
  return loaded;
}

}  // namespace sluice::cuda
