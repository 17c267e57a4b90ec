#include "kernels/c/function.h"

#include <fmt/format.h>

#include "base/error.h"

namespace sluice::c {

// Memory holds values of several types one after the other, which C's rules of aliasing have to be told. A product and
// a sum that become one instruction have other bits; a compiler in a mode of standard C does not join them of itself.
const char* const kPrelude = R"(#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif
#if defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2)
#error "float is computed in a wider type here: on x86 use -msse2 -mfpmath=sse"
#endif
#if defined(__FAST_MATH__)
#error "-ffast-math changes results: leave it out"
#endif
#if defined(__GNUC__)
#define ALIAS __attribute__((may_alias))
#else
#define ALIAS
#endif
typedef float ALIAS f32;
typedef double ALIAS f64;
typedef uint8_t ALIAS u8;
typedef int8_t ALIAS i8;
typedef int16_t ALIAS i16;
typedef int32_t ALIAS i32;
typedef int64_t ALIAS i64;
typedef uint32_t u32;
typedef uint64_t u64;
)";

std::string function_text(const plan::KernelQuery& query, Shared& shared, const std::map<size_t, DType>& lie) {
  const auto printer = printers().find(query.op);
  SLUICE_CHECK_KIND(kUnsupported, printer != printers().end(), "op {}: no kernel in C; write it with others", query.op);
  const std::string body = printer->second.print(query, shared);
  std::string parameters, unused;
  const auto add = [&](const char* qualifier, const char* name, size_t k, DType dtype) {
    parameters += fmt::format("{}{}{}* {}{}", parameters.empty() ? "" : ", ", qualifier, memory_type(dtype), name, k);
    if (body.find(fmt::format("{}{}[", name, k)) == std::string::npos)
      unused += fmt::format("  (void){}{};\n", name, k);
  };
  for (size_t k = 0; k < query.inputs.size(); ++k)
    add("const ", "x", k, lie.contains(k) ? lie.at(k) : query.inputs[k].dtype);
  for (size_t k = 0; k < query.outputs.size(); ++k) add("", "y", k, query.outputs[k].dtype);
  return fmt::format("({}) {{\n{}{}  return 0;\n}}\n", parameters, unused, body);
}

}  // namespace sluice::c
