#pragma once
// Modules of the fake driver: PTX of which it knows the one function, and libraries of the host from the fake NVRTC.
#include <memory>
#include <string>

#include "cuda/fake_driver/fake_driver.h"

namespace fake_cuda {

class Module {
 public:
  explicit Module(const void* image);
  ~Module();
  // Null when there is none.
  Function* find(const std::string& name);

 private:
  std::string text_;         // of PTX
  void* library_ = nullptr;  // of the fake NVRTC
  int file_ = -1;
  std::unique_ptr<Function> function_;
};

// The blocks and threads of the kernel that runs on this thread.
struct LaunchSize {
  unsigned blocks = 1, threads = 1;
};
extern thread_local LaunchSize launch_size;

}  // namespace fake_cuda
