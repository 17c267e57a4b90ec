#include "cuda/fake_driver/modules.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fake_cuda {
namespace {

struct Word {
  uint64_t ticket;
  int64_t values[3];
};

void merge(void** params) {
  auto* to = static_cast<Word*>(shadow(*static_cast<void**>(params[0])));
  const auto* from = static_cast<const Word*>(shadow(*static_cast<void**>(params[1])));
  if (to->ticket == 0) *to = *from;
}

void* open_bytes(const void* bytes, size_t size) {
  const int file = memfd_create("fake_module", MFD_CLOEXEC);
  if (file < 0 || write(file, bytes, size) != static_cast<ssize_t>(size)) std::abort();
  void* library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  close(file);
  return library;
}

}  // namespace

thread_local LaunchSize launch_size;

Module::Module(const void* image) {
  const char* text = static_cast<const char*>(image);
  size_t size = 0;
  int begin = 0;
  if (std::sscanf(text, "fake code %zu%n", &size, &begin) == 1) {
    library_ = open_bytes(text + begin + 1, size);
  } else {
    text_ = text;
  }
}

Module::~Module() {
  if (library_ != nullptr) dlclose(library_);
}

Function* Module::find(const std::string& name) {
  if (function_ != nullptr) return function_->name == name ? function_.get() : nullptr;
  auto made = std::make_unique<Function>();
  made->name = name;
  if (library_ == nullptr) {
    if (name != "sluice_merge_failures" || text_.find(".entry " + name + "(") == std::string::npos) return nullptr;
    made->param_bytes = {sizeof(void*), sizeof(void*)};
    made->run = merge;
    made->accesses = [](void** params, std::vector<Access>& accesses) {
      accesses.push_back({*static_cast<void**>(params[0]), sizeof(Word), true});
      accesses.push_back({*static_cast<void**>(params[1]), sizeof(Word), false});
    };
  } else {
    if (dlsym(library_, name.c_str()) == nullptr) return nullptr;
    const auto* sizes = static_cast<const unsigned long*>(dlsym(library_, "sluice_param_bytes"));
    made->param_bytes.assign(sizes, sizes + *static_cast<const int*>(dlsym(library_, "sluice_params")));
    const auto launch = reinterpret_cast<void (*)(unsigned, unsigned, void**)>(dlsym(library_, "sluice_launch"));
    // Pointers are the parameters that are device addresses; the last one is written. How far they reach is not known.
    made->run = [launch, n = made->param_bytes.size()](void** params) {
      for (size_t i = 0; i < n; ++i) {
        void*& value = *static_cast<void**>(params[i]);
        value = shadow(value);
      }
      launch(launch_size.blocks, launch_size.threads, params);
    };
    made->accesses = [n = made->param_bytes.size()](void** params, std::vector<Access>& accesses) {
      for (size_t i = 0; i < n; ++i) {
        void* value = *static_cast<void**>(params[i]);
        if (shadow(value) != value) accesses.push_back({value, 1, i + 1 == n});
      }
    };
  }
  function_ = std::move(made);
  return function_.get();
}

}  // namespace fake_cuda
