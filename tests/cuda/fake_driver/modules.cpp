#include "cuda/fake_driver/modules.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "cuda/fake_driver/threads.h"

namespace fake_cuda {
namespace {

struct Word {
  uint64_t ticket;
  int64_t values[4];
};

void merge(void** params) {
  auto* to = static_cast<Word*>(shadow(*static_cast<void**>(params[0])));
  const auto* from = static_cast<const Word*>(shadow(*static_cast<void**>(params[1])));
  if (to->ticket != 0 || from->ticket == 0) return;
  *to = *from;
  to->ticket |= uint64_t{1} << 62;
}

// The file stays open with the library: its name is the descriptor, and the loader takes equal names to be one library.
void* open_bytes(const void* bytes, size_t size, int& file) {
  file = memfd_create("fake_module", MFD_CLOEXEC);
  if (file < 0 || write(file, bytes, size) != static_cast<ssize_t>(size)) std::abort();
  return dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

thread_local LaunchSize launch_size;

Module::Module(const void* image) {
  const char* text = static_cast<const char*>(image);
  size_t size = 0;
  int begin = 0;
  if (std::sscanf(text, "fake code %zu%n", &size, &begin) == 1) {
    library_ = open_bytes(text + begin + 1, size, file_);
  } else {
    text_ = text;
  }
}

Module::~Module() {
  if (library_ != nullptr) dlclose(library_);
  if (file_ >= 0) close(file_);
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
    const auto run = reinterpret_cast<void (*)(Thread*, void**)>(dlsym(library_, "sluice_run"));
    const auto* writes = static_cast<const bool*>(dlsym(library_, "sluice_param_writes"));
    const auto* reach = static_cast<const unsigned long*>(dlsym(library_, "sluice_param_reach"));
    const bool barriers = *static_cast<const bool*>(dlsym(library_, "sluice_barriers"));
    // Pointers are the parameters that are device addresses. A module's shared memory is static: one launch at a time.
    made->run = [run, barriers, n = made->param_bytes.size(), one = std::make_shared<std::mutex>()](void** params) {
      const std::lock_guard lock(*one);
      for (size_t i = 0; i < n; ++i) {
        void*& value = *static_cast<void**>(params[i]);
        value = shadow(value);
      }
      run_threads(launch_size.blocks, launch_size.threads, barriers, [&](Thread& thread) { run(&thread, params); });
    };
    made->accesses = [writes, reach, n = made->param_bytes.size()](void** params, std::vector<Access>& accesses) {
      for (size_t i = 0; i < n; ++i) {
        void* value = *static_cast<void**>(params[i]);
        if (shadow(value) != value) accesses.push_back({value, reach[i], writes[i]});
      }
    };
  }
  function_ = std::move(made);
  return function_.get();
}

}  // namespace fake_cuda
