#include "streams/backend.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "base/log.h"
#include "streams/linked_backend.h"

namespace sluice {
namespace {

constexpr std::string_view kVariableBegin = "SLUICE_", kVariableEnd = "_LIBRARY";

std::string library_of(DeviceKind kind) { return fmt::format("libsluice_{}.so", kind.str()); }

std::string variable_of(DeviceKind kind) {
  std::string upper = kind.str();
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return fmt::format("{}{}{}", kVariableBegin, upper, kVariableEnd);
}

// The file in which the code of this function lies: the program, or the library it was linked into.
std::filesystem::path own_directory() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_directory), &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::absolute(info.dli_fname).parent_path();
}

// The path for dlopen() for a kind of device.
std::string place_of(DeviceKind kind) {
  if (const char* path = std::getenv(variable_of(kind).c_str()); path != nullptr && *path != '\0') return path;
  for (const char* folder : {"", "lib"}) {
    const std::filesystem::path beside = own_directory() / folder / library_of(kind);
    if (std::error_code ignored; std::filesystem::exists(beside, ignored)) return beside;
  }
  return library_of(kind);
}

std::string dl_error() {
  const char* text = dlerror();
  return text != nullptr ? text : "unknown error";
}

bool of_core(DeviceKind kind) { return kind == DeviceKind::kCpu || kind == DeviceKind::kSim; }

std::string names_of(const std::vector<DeviceKind>& kinds) {
  std::string names;
  for (const DeviceKind kind : kinds) names += (names.empty() ? "" : ", ") + kind.str();
  return names;
}

DeviceKind kind_of(const Backend& backend, const std::string& path) {
  try {
    return DeviceKind::named(backend.kind == nullptr ? "" : backend.kind);
  } catch (const Error& error) {
    fail(ErrorKind::kUnsupported, "the backend '{}': {}", path, error.what());
  }
}

// Checks an open library, and returns the backend in it.
const Backend* checked_backend(void* library, const std::string& path) {
  const auto entry = reinterpret_cast<const Backend* (*)()>(dlsym(library, "sluice_backend"));
  SLUICE_CHECK_KIND(kUnsupported, entry != nullptr, "'{}' is no backend: {}; it must export sluice_backend()", path,
                    dl_error());
  const Backend* backend = entry();
  SLUICE_CHECK_KIND(kUnsupported, std::strcmp(backend->abi, SLUICE_BACKEND_ABI) == 0,
                    "the backend '{}' belongs to another build: {}; it must be of {}", path, backend->abi,
                    SLUICE_BACKEND_ABI);
  SLUICE_CHECK_KIND(kUnsupported, !of_core(kind_of(*backend, path)),
                    "the backend '{}' is of kind '{}'; it must have a kind of its own", path, backend->kind);
  return backend;
}

struct Loaded {
  const Backend* backend = nullptr;
  std::string path;
};
struct Registry {
  std::mutex mutex;
  std::map<DeviceKind, Loaded> loaded;
};
Registry& registry() {
  static Registry all;
  return all;
}

// REQUIRES: the registry's mutex is held.
void keep(DeviceKind kind, const Backend* backend, const std::string& path) {
  registry().loaded[kind] = {backend, path};
  log(LogLevel::kInfo, LogArea::kStreams, "backend of {} loaded: {}", kind.str(), path);
}

DeviceKind keep_only(const Backend* backend, const std::string& path) {
  const DeviceKind kind = DeviceKind::named(backend->kind);
  std::lock_guard lock(registry().mutex);
  if (const auto it = registry().loaded.find(kind); it != registry().loaded.end()) {
    SLUICE_CHECK(it->second.backend == backend,
                 "backend '{}': its kind is {}, which has a backend: '{}'; a kind has one", path, kind.str(),
                 it->second.path);
    return kind;
  }
  keep(kind, backend, path);
  return kind;
}

}  // namespace

const Backend* open_backend(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fail(ErrorKind::kUnsupported,
         "the backend '{}' could not be loaded: {}; it must be a library made as "
         "docs/adding-a-device.md says",
         path, dl_error());
  }
  return checked_backend(library, path);
}

const Backend* backend_of(DeviceKind kind) {
  if (of_core(kind)) return nullptr;
  {
    std::lock_guard lock(registry().mutex);
    if (const auto it = registry().loaded.find(kind); it != registry().loaded.end()) return it->second.backend;
  }
  const std::string path = place_of(kind);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fail(ErrorKind::kUnsupported,
         "the backend of {} could not be loaded: {}; the kinds here are {}; another is {} in {} or where the loader "
         "looks, named in {}, or loaded by its path (Engine::load_backend, sluice.backends.load)",
         kind.str(), dl_error(), names_of(known_kinds()), library_of(kind), own_directory().string(),
         variable_of(kind));
  }
  const Backend* backend = checked_backend(library, path);
  SLUICE_CHECK_KIND(kUnsupported, kind == DeviceKind::named(backend->kind),
                    "'{}' is the backend of {}: it cannot be that of {}; ask for its own devices, as in '{}:0'", path,
                    backend->kind, kind.str(), backend->kind);
  std::lock_guard lock(registry().mutex);
  if (!registry().loaded.contains(kind)) keep(kind, backend, path);
  return registry().loaded[kind].backend;
}

DeviceKind load_backend(const std::string& path) {
  // A name without a slash would be searched for in the system's folders.
  return keep_only(open_backend(std::filesystem::absolute(path).string()), path);
}

void add_backend(const Backend& backend) {
  const std::string place = "of this program";
  SLUICE_CHECK(!of_core(kind_of(backend, place)), "backend {}: its kind is {}; it must have a kind of its own", place,
               backend.kind);
  keep_only(&backend, place);
}

std::vector<DeviceKind> known_kinds() {
  std::set<DeviceKind> others;
  {
    std::lock_guard lock(registry().mutex);
    for (const auto& [kind, loaded] : registry().loaded) others.insert(kind);
  }
  // The one that is shipped.
  if (std::error_code ignored; std::filesystem::exists(place_of(DeviceKind::kCuda), ignored))
    others.insert(DeviceKind::kCuda);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view name(*entry);
    name = name.substr(0, name.find('='));
    if (!name.starts_with(kVariableBegin) || !name.ends_with(kVariableEnd)) continue;
    if (name.size() <= kVariableBegin.size() + kVariableEnd.size()) continue;
    std::string kind(name.substr(kVariableBegin.size(), name.size() - kVariableBegin.size() - kVariableEnd.size()));
    std::transform(kind.begin(), kind.end(), kind.begin(), [](unsigned char c) { return std::tolower(c); });
    try {
      others.insert(DeviceKind::named(kind));
    } catch (const Error&) {  // another program's variable
    }
  }
  std::vector<DeviceKind> kinds = {DeviceKind::kCpu, DeviceKind::kSim};
  std::copy_if(others.begin(), others.end(), std::back_inserter(kinds), [](DeviceKind kind) { return !of_core(kind); });
  return kinds;
}

}  // namespace sluice
