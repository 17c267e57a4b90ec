#include "kernels/cuda/nvrtc.h"

#include <mutex>

#include "streams/cuda/library.h"

namespace sluice::cuda {
namespace {

constexpr const char* kNvrtcLibrary = "libnvrtc.so.13";
constexpr const char* kNvrtcVariable = "SLUICE_NVRTC";

}  // namespace

Nvrtc::Nvrtc() {
  const std::string path = library_path(kNvrtcVariable, kNvrtcLibrary);
  void* library = load_library(path, "NVRTC, which compiles kernels for the GPU,",
                               fmt::format("install CUDA 13's, or name it in {}", kNvrtcVariable));
  const LibraryOrigin origin{"NVRTC", path, "CUDA 13's"};
  const auto find = [&](const char* name, auto& function) { need_function(library, name, function, origin); };
  find("nvrtcVersion", version_);
  find("nvrtcCreateProgram", create_);
  find("nvrtcDestroyProgram", destroy_);
  find("nvrtcCompileProgram", compile_);
  find("nvrtcGetCUBINSize", code_size_);
  find("nvrtcGetCUBIN", code_);
  find("nvrtcGetProgramLogSize", log_size_);
  find("nvrtcGetProgramLog", log_);
  find("nvrtcGetErrorString", error_);
}

std::string Nvrtc::text(int result) const { return error_(result); }

std::string Nvrtc::version() const {
  int major = 0, minor = 0;
  version_(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}

std::string Nvrtc::compile(const std::string& name, const std::string& source, const std::string& arch,
                           bool contract) const {
  NvrtcProgram* program = nullptr;
  int result = create_(&program, source.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr);
  SLUICE_CHECK_KIND(kRuntime, result == 0, "NVRTC: {}: {}", name, text(result));
  const auto destroy = [&] { destroy_(&program); };
  const std::string architecture = "--gpu-architecture=" + arch;
  const char* options[] = {architecture.c_str(), "--std=c++17", contract ? "--fmad=true" : "--fmad=false"};
  result = compile_(program, 3, options);
  if (result != 0) {
    size_t bytes = 0;
    std::string log;
    if (log_size_(program, &bytes) == 0 && bytes > 1) {
      log.resize(bytes);
      log_(program, log.data());
      log.resize(bytes - 1);
    }
    destroy();
    fail(ErrorKind::kRuntime, "NVRTC: {} for {}: {}: {}", name, arch, text(result), log);
  }
  size_t bytes = 0;
  std::string code;
  result = code_size_(program, &bytes);
  if (result == 0) {
    code.resize(bytes);
    result = code_(program, code.data());
  }
  destroy();
  SLUICE_CHECK_KIND(kRuntime, result == 0 && bytes > 0,
                    "NVRTC: {} for {}: no machine code: {}; the architecture must "
                    "be one it knows",
                    name, arch, text(result));
  return code;
}

const Nvrtc& nvrtc() {
  static std::mutex mutex;
  static const Nvrtc* loaded = nullptr;  // for the process: threads may outlive main()
  std::lock_guard lock(mutex);
  if (loaded == nullptr) loaded = new Nvrtc();
  return *loaded;
}

}  // namespace sluice::cuda
