// NVRTC without CUDA: compiles a generated source for the host, with cpu_shim.h in front, into a shared library, which
// the fake driver loads as a module. If SLUICE_TEST_NVRTC names the true compiler, that must take the source as well.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include "cuda/fake_driver/fake_driver.h"

struct NvrtcProgram {
  std::string source, log, code;
};

namespace {

constexpr int kOk = 0, kCompilation = 6;

// A function that runs a thread of the kernel of `source`; the sizes of its parameters, how far they reach, and
// whether it writes there.
std::string launcher(const std::string& source) {
  std::smatch match;
  if (!std::regex_search(source, match, std::regex(R"(__global__ void (\w+)\(([^)]*)\))"))) return "#error no kernel\n";
  const std::string name = match[1], params = match[2];
  std::string types, call, sizes, writes, reach;
  const std::regex comma(", ");
  int n = 0;
  for (std::sregex_token_iterator p(params.begin(), params.end(), comma, -1), end; p != end; ++p, ++n) {
    const std::string param = *p;
    const std::string index = std::to_string(n), separator = n > 0 ? ", " : "";
    types += "using P" + index + " = " + param.substr(0, param.rfind(' ')) + ";\n";
    call += separator + "*static_cast<P" + index + "*>(params[" + index + "])";
    sizes += separator + "sizeof(P" + index + ")";
    std::smatch note;
    const std::regex bytes("// " + param.substr(param.rfind(' ') + 1) + ": (\\d+) bytes");
    reach += separator + (std::regex_search(source, note, bytes) ? note.str(1) : "1");
    writes += separator + (param.find("const ") == 0 ? "false" : "true");
  }
  return types + "extern \"C\" const unsigned long sluice_param_bytes[] = {" + sizes +
         "};\nextern \"C\" const bool sluice_param_writes[] = {" + writes +
         "};\nextern \"C\" const unsigned long sluice_param_reach[] = {" + reach +
         "};\nextern \"C\" const int sluice_params = " + std::to_string(n) +
         ";\nextern \"C\" const bool sluice_barriers = " +
         (source.find("__syncthreads()") == std::string::npos ? "false" : "true") +
         ";\nextern \"C\" void sluice_run(FakeThread* thread, void** params) {\n  fake_thread = thread;\n  " + name +
         "(" + call + ");\n}\n";
}

// The objection of the true compiler to the source; empty when it takes it, or is not asked.
std::string refusal(const std::string& source, int count, const char* const* options) {
  static void* const library = [] {
    const char* name = std::getenv("SLUICE_TEST_NVRTC");
    void* opened = name == nullptr ? nullptr : dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (name != nullptr && opened == nullptr) std::abort();
    return opened;
  }();
  if (library == nullptr) return {};
  const auto call = [](const char* name, auto... args) {
    return reinterpret_cast<int (*)(decltype(args)...)>(dlsym(library, name))(args...);
  };
  void* program = nullptr;
  const char* const* none = nullptr;
  call("nvrtcCreateProgram", &program, source.c_str(), "source.cu", 0, none, none);
  std::string log;
  if (call("nvrtcCompileProgram", program, count, options) != kOk) {
    size_t bytes = 0;
    call("nvrtcGetProgramLogSize", program, &bytes);
    log.resize(bytes);
    call("nvrtcGetProgramLog", program, log.data());
  }
  call("nvrtcDestroyProgram", &program);
  return log;
}

}  // namespace

extern "C" {

// None that exists, and another for each state of this library, of the shim and of what that includes: programs are
// kept by it.
FAKE_CUDA_API int nvrtcVersion(int* major, int* minor) {
  static const size_t state = [] {
    Dl_info library;
    if (dladdr(reinterpret_cast<void*>(nvrtcVersion), &library) == 0) std::abort();
    std::string all;
    for (const char* path : {library.dli_fname, FAKE_CUDA_SHIM, FAKE_CUDA_MATH}) {
      std::ifstream file(path, std::ios::binary);
      all.append(std::istreambuf_iterator<char>(file), {});
    }
    return std::hash<std::string>()(all);
  }();
  *major = 13;
  *minor = 99 + static_cast<int>(state % 1000000);
  return kOk;
}

FAKE_CUDA_API int nvrtcCreateProgram(NvrtcProgram** program, const char* source, const char*, int, const char* const*,
                                     const char* const*) {
  *program = new NvrtcProgram{source, {}, {}};
  return kOk;
}

FAKE_CUDA_API int nvrtcDestroyProgram(NvrtcProgram** program) {
  delete *program;
  *program = nullptr;
  return kOk;
}

FAKE_CUDA_API int nvrtcCompileProgram(NvrtcProgram* program, int count, const char* const* options) {
  program->log = refusal(program->source, count, options);
  if (!program->log.empty()) return kCompilation;
  std::string base = (std::filesystem::temp_directory_path() / "fake_nvrtc_XXXXXX").string();
  const int file = mkstemp(base.data());
  if (file < 0) return kCompilation;
  close(file);
  const std::string path = base, library = path + ".so";
  std::ofstream(path) << "#include \"" FAKE_CUDA_SHIM "\"\n" << program->source << launcher(program->source);
  const std::string command = FAKE_CUDA_COMPILER
                              " -std=c++17 -O1 -w -ffp-contract=off -fno-gnu-unique -shared -fPIC -x c++ " +
                              path + " -o " + library + " 2> " + path + ".log";
  const int result = std::system(command.c_str());
  std::ifstream log(path + ".log");
  program->log.assign(std::istreambuf_iterator<char>(log), {});
  std::remove((path + ".log").c_str());
  std::remove(path.c_str());
  if (result != 0) return kCompilation;
  std::ifstream code(library, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(code), {});
  std::remove(library.c_str());
  program->code = "fake code " + std::to_string(bytes.size()) + "\n" + bytes;
  return kOk;
}

FAKE_CUDA_API int nvrtcGetCUBINSize(NvrtcProgram* program, size_t* bytes) {
  *bytes = program->code.size();
  return kOk;
}
FAKE_CUDA_API int nvrtcGetCUBIN(NvrtcProgram* program, char* code) {
  std::memcpy(code, program->code.data(), program->code.size());
  return kOk;
}
FAKE_CUDA_API int nvrtcGetProgramLogSize(NvrtcProgram* program, size_t* bytes) {
  *bytes = program->log.size() + 1;
  return kOk;
}
FAKE_CUDA_API int nvrtcGetProgramLog(NvrtcProgram* program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return kOk;
}
FAKE_CUDA_API const char* nvrtcGetErrorString(int result) {
  return result == kOk ? "NVRTC_SUCCESS" : "NVRTC_ERROR_COMPILATION";
}

}  // extern "C"
