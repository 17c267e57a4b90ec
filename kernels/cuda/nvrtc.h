#pragma once
// CUDA's run-time compiler, loaded when the first source is to be compiled.
#include <string>

namespace sluice::cuda {

struct NvrtcProgram;  // the library's own

class Nvrtc {
 public:
  // Throws kUnsupported when the library cannot be loaded.
  Nvrtc();
  std::string version() const;  // "13.0"
  // The machine code of a source for `arch` ("sm_90"). Throws kRuntime with the compiler's log. Thread-safe.
  std::string compile(const std::string& name, const std::string& source, const std::string& arch,
                      bool contract = true) const;

 private:
  std::string text(int result) const;

  int (*version_)(int*, int*) = nullptr;
  int (*create_)(NvrtcProgram**, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*destroy_)(NvrtcProgram**) = nullptr;
  int (*compile_)(NvrtcProgram*, int, const char* const*) = nullptr;
  int (*code_size_)(NvrtcProgram*, size_t*) = nullptr;
  int (*code_)(NvrtcProgram*, char*) = nullptr;
  int (*log_size_)(NvrtcProgram*, size_t*) = nullptr;
  int (*log_)(NvrtcProgram*, char*) = nullptr;
  const char* (*error_)(int) = nullptr;
};

// The library of this process: SLUICE_NVRTC, else libnvrtc.so.13. Thread-safe.
const Nvrtc& nvrtc();

}  // namespace sluice::cuda
