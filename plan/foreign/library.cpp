// Finding and loading the libraries of foreign backends.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/mutex.h"
#include "include/sluice/offload.h"
#include "plan/foreign/foreign.h"

namespace sluice::plan {
namespace {

namespace fs = std::filesystem;

// Backends that options and flags know by name, and what each is an adapter to.
struct Known {
  const char *name, *of, *missing;
};
constexpr const char* kNoAdapter =
    "there is no adapter to it in this version; a library of your own for sluice/offload.h, called so, takes its "
    "place: build it beside Sluice with cmake -DSLUICE_FOREIGN_BACKENDS=NAME=SOURCE (docs/backends.md)";
constexpr Known kKnown[] = {
    {"onnxruntime", "ONNX Runtime",
     "it is the target sluice_onnxruntime of the build, and needs no package there; name its folder in "
     "SLUICE_BACKENDS"},
    {"openvino", "OpenVINO",
     "it is the target sluice_openvino of a build that has OpenVINO's headers: cmake -DSLUICE_OPENVINO=FOLDER, the "
     "folder "
     "of Python's package openvino"},
    {"tensorrt", "TensorRT", kNoAdapter},
    {"xla", "XLA", kNoAdapter},
    {"onednn_graph", "oneDNN Graph",
     "it is the target sluice_onednn_graph of a build that has oneDNN 3's headers: cmake -DSLUICE_ONEDNN_GRAPH=FOLDER, "
     "which has include/ and lib/"},
};

bool is_path(const std::string& given) { return given.find('/') != std::string::npos || given.ends_with(".so"); }

class Libraries {
 public:
  const ForeignBackend* find(const std::string& given) {
    const MutexLock lock(mutex_);
    const auto found = by_text_.find(given);
    return found == by_text_.end() ? nullptr : found->second;
  }

  const ForeignBackend& load(const std::string& given) {
    const MutexLock lock(mutex_);
    if (const auto found = by_text_.find(given); found != by_text_.end()) return *found->second;
    const std::string path = place_of(given);
    const auto known = by_path_.find(path);
    const ForeignBackend& backend = known != by_path_.end() ? *known->second : keep(open(path), path);
    return *by_text_.try_emplace(given, &backend).first->second;
  }

  const ForeignBackend& add(const sluice_offload_backend& backend, const std::string& path) {
    const MutexLock lock(mutex_);
    check(&backend, path);
    const auto known = by_path_.find(path);
    return known != by_path_.end() ? *known->second : keep(backend, path);
  }

  static std::atomic<uint64_t> generation;

 private:
  const ForeignBackend& keep(const sluice_offload_backend& library, const std::string& path) SLUICE_REQUIRES(mutex_) {
    const auto other = by_text_.find(library.name);
    SLUICE_CHECK(other == by_text_.end(),
                 "backend: {}: calls itself '{}', as {} does, which is loaded; each needs its own name", path,
                 library.name, other->second->path());
    const ForeignBackend& backend = loaded_.emplace_back(library, path);
    by_path_[path] = by_text_[backend.name()] = &backend;
    generation.fetch_add(1, std::memory_order_acq_rel);
    log(LogLevel::kInfo, LogArea::kPlan, "backend '{}' {}: loaded from {}", backend.name(), backend.version(), path);
    return backend;
  }

  static fs::path own_folder() {
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
    return fs::absolute(info.dli_fname).parent_path();
  }

  static std::vector<fs::path> folders() {
    std::vector<fs::path> folders;
    const char* const variable = std::getenv("SLUICE_BACKENDS");
    const std::string named = variable == nullptr ? "" : variable;
    for (size_t at = 0; at < named.size();) {
      const size_t end = std::min(named.find(':', at), named.size());
      if (end > at) folders.emplace_back(named.substr(at, end - at));
      at = end + 1;
    }
    const fs::path own = own_folder();
    for (const fs::path& beside :
         {own, own / "lib", own.parent_path(), own.parent_path() / "lib", own.parent_path().parent_path()})
      folders.push_back(beside);
    return folders;
  }

  static std::string place_of(const std::string& given) {
    std::error_code ignored;
    if (is_path(given)) {
      SLUICE_CHECK_KIND(kIo, fs::is_regular_file(given, ignored),
                        "backend: {}: no such file; must be a library for sluice/offload.h", given);
      return fs::canonical(given).string();
    }
    const bool name = !given.empty() && std::all_of(given.begin(), given.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '-';
    });
    SLUICE_CHECK(name, "backend: '{}': no name; must be letters, digits, '_' and '-', or the path of a library", given);
    const std::string file = fmt::format("libsluice_{}.so", given);
    for (const fs::path& folder : folders())
      if (fs::is_regular_file(folder / file, ignored)) return fs::canonical(folder / file).string();
    for (const Known& known : kKnown)
      SLUICE_CHECK_KIND(kUnsupported, known.name != given,
                        "backend '{}': not built with {}: {} is in no folder of "
                        "SLUICE_BACKENDS and not beside Sluice: {}",
                        given, known.of, file, known.missing);
    fail(ErrorKind::kIo,
         "backend '{}': {} is in no folder of SLUICE_BACKENDS and not beside Sluice; give the library's "
         "path, or a folder that has it",
         given, file);
  }

  // Symbols stay the library's own: another version of what it links may be in the process already.
  static const sluice_offload_backend& open(const std::string& path) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = dlerror();
      fail(ErrorKind::kIo, "backend: {}: cannot be loaded: {}; must be a shared library for this machine", path,
           why == nullptr ? "unknown error" : why);
    }
    using Entry = const sluice_offload_backend* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(library, "sluice_offload"));
    SLUICE_CHECK(entry != nullptr,
                 "backend: {}: no function sluice_offload(); a backend must export it (sluice/offload.h)", path);
    const sluice_offload_backend* backend = nullptr;
    try {
      backend = entry();
    } catch (...) {
      fail(ErrorKind::kRuntime, "backend: {}: sluice_offload() has thrown; it must return the backend", path);
    }
    check(backend, path);
    return *backend;
  }

  static void check(const sluice_offload_backend* backend, const std::string& path) {
    SLUICE_CHECK(backend != nullptr, "backend: {}: sluice_offload() gives NULL; must be the backend", path);
    SLUICE_CHECK(backend->abi == SLUICE_OFFLOAD_ABI,
                 "backend: {}: made for version {} of sluice/offload.h; must be {}: build it again", path, backend->abi,
                 SLUICE_OFFLOAD_ABI);
    SLUICE_CHECK(backend->size >= sizeof(sluice_offload_backend),
                 "backend: {}: its struct has {} bytes; must have at least {}", path, backend->size,
                 sizeof(sluice_offload_backend));
    const std::string name = backend->name == nullptr ? "" : backend->name;
    SLUICE_CHECK(!name.empty() && !is_path(name), "backend: {}: name '{}'; must be letters, digits, '_' and '-'", path,
                 name);
    SLUICE_CHECK(backend->version != nullptr, "backend: {}: no version; must be a text", path);
    const std::pair<const char*, bool> functions[] = {{"supports", backend->supports != nullptr},
                                                      {"compile", backend->compile != nullptr},
                                                      {"output_type", backend->output_type != nullptr},
                                                      {"run", backend->run != nullptr},
                                                      {"destroy", backend->destroy != nullptr}};
    for (const auto& [function, there] : functions)
      SLUICE_CHECK(there, "backend: {}: no function {}; all of sluice_offload_backend must be there", path, function);
  }

  Mutex mutex_;
  std::list<ForeignBackend> loaded_ SLUICE_GUARDED_BY(mutex_);
  std::map<std::string, const ForeignBackend*> by_path_ SLUICE_GUARDED_BY(mutex_), by_text_ SLUICE_GUARDED_BY(mutex_);
};

std::atomic<uint64_t> Libraries::generation{0};

Libraries& libraries() {
  static Libraries* const all = new Libraries;  // kernels may outlive statics
  return *all;
}

}  // namespace

const ForeignBackend& load_foreign(const std::string& given) { return libraries().load(given); }
const ForeignBackend& add_foreign(const sluice_offload_backend& backend, const std::string& path) {
  return libraries().add(backend, path);
}
bool is_foreign(const std::string& given) {
  if (!is_path(given)) return true;
  // It stays in memory: someone loads it next, and a library that has made threads or objects must not go.
  void* const library = dlopen(given.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return false;
  const bool found = dlsym(library, "sluice_offload") != nullptr;
  dlclose(library);
  return found;
}
const ForeignBackend* find_foreign(const std::string& given) { return libraries().find(given); }
uint64_t foreign_generation() { return Libraries::generation.load(std::memory_order_acquire); }

}  // namespace sluice::plan
