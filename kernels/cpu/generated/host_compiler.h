#pragma once
// The machine's C++ compiler: sources that are printed at run time, compiled once and kept. It is $CXX, else g++
// or c++ in PATH, where that is GCC. Compiled sources are kept in files (base/files/file_cache.h), by the source, the
// headers, the compiler's version and the processor's instruction set.
//
// Thread safety: every function.
#include <cstdint>
#include <memory>
#include <string>

namespace sluice::generated {

// Code in memory, which goes with this.
class Code {
 public:
  virtual ~Code() = default;
  // Throws kRuntime where there is no such function.
  virtual void* function(const char* name) const = 0;
  virtual uint64_t bytes() const = 0;
  // A file of it, for as long as this is there.
  virtual std::string path() const = 0;
};

// The compiler's path; "": there is none.
const std::string& host_compiler();

// kCpp: with the flags of the library's kernels. The source may include the headers of kernels/cpu that are kept as
// text (CMakeLists.txt). kC: C99, of which no operation is joined with another, for any processor of this kind.
enum class Language : uint8_t { kCpp, kC };
// The source as code. Throws kUnsupported where there is no compiler, kRuntime with its messages where it refuses the
// source.
std::shared_ptr<const Code> compile(const std::string& source, Language language = Language::kCpp);

}  // namespace sluice::generated
