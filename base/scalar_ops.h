#pragma once
// The tables of base/scalar as data: what each elementwise op computes on one element, and what its text calls.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/attr.h"

namespace sluice {

// Why an op of integers has no result for some elements.
enum class ScalarError : uint8_t { kNone, kDivisionByZero };
std::string scalar_error_text(std::string_view op, ScalarError error);

// The expressions are C++ in `a`, `b` of type T (base/scalar/README.md).
struct ScalarOp {
  const char* name;
  // The value of the op's string attribute that this form is for; "": any other. kComplexMode: of complex
  // operands, whose expression `floating` is then.
  const char* mode;
  int inputs;
  const char* floating;  // null: not defined for floats
  const char* integer;   // null: not defined for integers
  bool gives_bool;       // otherwise the operands' type, or, with gives_real, that of their parts
  bool heavy;            // tens of operations
  ScalarError error;     // what integers raise for which `bad` holds
  const char* bad;       // null: nothing
  bool gives_real = false;
};
inline constexpr const char* kComplexMode = "complex";

std::span<const ScalarOp> scalar_ops();  // without the forms for complex operands
// The form of an op for a mode, else the one for any. Null: `name` is none of these.
const ScalarOp* find_scalar_op(std::string_view name, std::string_view mode = "");
// The mode is that of the string attribute, where there is one.
const ScalarOp* find_scalar_op(std::string_view name, const NamedAttrs& attrs);

inline constexpr int kMostFusedInputs = 12;  // of a chain of ops that the compiler makes (op "fused")
inline constexpr int kMostFusedOutputs = 4;

// The form of an op for complex operands. Null: it has none.
const ScalarOp* find_complex_op(std::string_view name);

// A function that expressions call, as the parts of its text.
struct ScalarFunction {
  const char* name;
  const char* parameters;  // with their brackets
  const char* body;
  bool of_floats;  // a template of T that gives T; otherwise of i64, and gives that
};

// Those that `text` needs, each behind the ones it calls itself.
std::vector<const ScalarFunction*> scalar_functions_of(std::string_view text);

}  // namespace sluice
