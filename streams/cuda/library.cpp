#include "streams/cuda/library.h"

namespace sluice::cuda {

std::string library_path(const char* variable, const char* otherwise) {
  const char* named = std::getenv(variable);
  return named != nullptr && *named != '\0' ? named : otherwise;
}

void* load_library(const std::string& path, const std::string& what, const std::string& advice) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* why = dlerror();
  fail(ErrorKind::kUnsupported, "{} could not be loaded: {}; {}", what, why != nullptr ? why : path, advice);
}

}  // namespace sluice::cuda
