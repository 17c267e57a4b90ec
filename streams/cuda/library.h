#pragma once
// Libraries that are loaded when they are first asked for, and kept: the driver, NVRTC, cuBLASLt, cuDNN, NCCL.
#include <dlfcn.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"

namespace sluice::cuda {

// The value of an environment variable, else `otherwise`.
std::string library_path(const char* variable, const char* otherwise);
// Throws kUnsupported "<what> could not be loaded: <why>; <advice>".
void* load_library(const std::string& path, const std::string& what, const std::string& advice);

// False where the library has no function of that name.
template <class Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Names the library at `path`, its owner, and the release which has all of its functions: for errors.
struct LibraryOrigin {
  const char* name;
  std::string path;
  const char* release;
};
// Throws kUnsupported where the library has no function of that name.
template <class Function>
void need_function(void* library, const char* name, Function& function, const LibraryOrigin& origin) {
  SLUICE_CHECK_KIND(kUnsupported, find_function(library, name, function), "{}: '{}' has no {}; install {}", origin.name,
                    origin.path, name, origin.release);
}

// A library that others may stand in for: none where the variable is "off", or it names none and load(otherwise)
// throws, which is logged.
template <class Functions>
std::optional<Functions> load_unless_off(const char* variable, const char* otherwise,
                                         Functions (*load)(const std::string& path)) {
  const std::string named = library_path(variable, "");
  if (named == "off") return std::nullopt;
  if (!named.empty()) return load(named);
  try {
    return load(otherwise);
  } catch (const Error& error) {
    log(LogLevel::kWarn, LogArea::kKernels, "{}", error.what());
    return std::nullopt;
  }
}

}  // namespace sluice::cuda
