// NVRTC without CUDA: compiles a generated source for the host, with cpu_shim.h in front, into a shared library, which
// the fake driver loads as a module.
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

// A function that launches the kernel of `source`, and the sizes of its parameters.
std::string launcher(const std::string& source) {
  std::smatch match;
  if (!std::regex_search(source, match, std::regex(R"(__global__ void (\w+)\(([^)]*)\))"))) return "#error no kernel\n";
  const std::string name = match[1], params = match[2];
  std::string types, call, sizes;
  const std::regex comma(", ");
  int n = 0;
  for (std::sregex_token_iterator p(params.begin(), params.end(), comma, -1), end; p != end; ++p, ++n) {
    const std::string param = *p;
    const std::string index = std::to_string(n), separator = n > 0 ? ", " : "";
    types += "using P" + index + " = " + param.substr(0, param.rfind(' ')) + ";\n";
    call += separator + "*static_cast<P" + index + "*>(params[" + index + "])";
    sizes += separator + "sizeof(P" + index + ")";
  }
  return types + "extern \"C\" const unsigned long sluice_param_bytes[] = {" + sizes +
         "};\nextern \"C\" const int sluice_params = " + std::to_string(n) +
         ";\nextern \"C\" void sluice_launch(unsigned blocks, unsigned threads, void** params) {\n"
         "  gridDim.x = blocks;\n  blockDim.x = threads;\n"
         "  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)\n"
         "    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) " +
         name + "(" + call + ");\n}\n";
}

}  // namespace

extern "C" {

FAKE_CUDA_API int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 99;  // none that exists
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

FAKE_CUDA_API int nvrtcCompileProgram(NvrtcProgram* program, int, const char* const*) {
  std::string base = (std::filesystem::temp_directory_path() / "fake_nvrtc_XXXXXX").string();
  const int file = mkstemp(base.data());
  if (file < 0) return kCompilation;
  close(file);
  const std::string path = base, library = path + ".so";
  std::ofstream(path) << "#include \"" FAKE_CUDA_SHIM "\"\n" << program->source << launcher(program->source);
  const std::string command =
      FAKE_CUDA_COMPILER " -std=c++17 -O0 -w -shared -fPIC -x c++ " + path + " -o " + library + " 2> " + path + ".log";
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
