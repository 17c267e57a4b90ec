#include "streams/cuda/nccl.h"

#include <mutex>

#include "streams/cuda/library.h"

namespace sluice::cuda {
namespace {

constexpr const char* kNcclLibrary = "libnccl.so.2";
constexpr const char* kNcclVariable = "SLUICE_NCCL";

const Nccl* open() {
  const std::string named = library_path(kNcclVariable, ""), path = named.empty() ? kNcclLibrary : named;
  void* library = nullptr;
  try {
    library = load_library(path, "NCCL", fmt::format("{} must name its library", kNcclVariable));
  } catch (const Error& error) {
    if (!named.empty()) throw;
    log(LogLevel::kInfo, LogArea::kStreams, "GPUs of several ranks exchange values through the host: {}", error.what());
    return nullptr;
  }
  auto* functions = new Nccl();
  const LibraryOrigin origin{"NCCL", path, "release 2.14 or newer"};
#define SLUICE_NCCL_FIND(name) need_function(library, #name, functions->name, origin);
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
