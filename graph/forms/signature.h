#pragma once
// Signatures of public functions, in torch's schema notation: "sum(Tensor input, int[1]? dim=None, *, ScalarType?
// dtype=None) -> Tensor". They are kept as text and parsed once.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/attr.h"

namespace sluice {

// The kinds of values that an argument may have. As in torch's schemas, and Operand: a tensor or a number.
enum class ArgKind : uint8_t {
  kTensor,   // Tensor
  kOperand,  // Operand
  kScalar,   // Scalar: a number
  kInt,      // int
  kFloat,    // float
  kBool,     // bool
  kStr,      // str
  kDType,    // ScalarType
  kInts,     // int[]; int[1] takes a single int too, int?[] None entries, which are given as -1
  kTensors,  // Tensor[], and Tensor..., which are given one by one or as one sequence
  kFloats,   // float[]; float[1] takes a single number too
};
inline constexpr int kNumArgKinds = 11;

struct SignatureParam {
  std::string name = {};
  ArgKind kind = ArgKind::kTensor;
  bool nullable = false;      // "?": accepts None
  bool single = false;        // int[1]: an int is accepted
  bool holes = false;         // int?[]: entries may be None
  bool variadic = false;      // Tensor...
  bool keyword_only = false;  // after "*"
  bool required = true;
  Attr default_value = {};  // of one that is not required
};

enum class ResultKind : uint8_t { kTensor, kTensors, kTuple, kBool, kInt, kFloat, kInts };

struct Signature {
  std::string text = {};    // without the module: "softmax(Tensor input, ...) -> Tensor"
  std::string module = {};  // "nn.functional" of "nn.functional.softmax(...)"; "" at the top
  std::string name = {};    // "softmax"
  std::vector<SignatureParam> params = {};
  ResultKind result = ResultKind::kTensor;
  std::vector<std::string> fields = {};  // kTuple: names of the results; empty ones are not named

  int num_positional() const;
  // A last param "bool inplace", which callers act on instead of passing it to the function: F.relu(x, inplace=True).
  bool has_inplace() const;
  // The module and the name: "nn.functional.softmax".
  std::string qualified() const;
};

// Throws kValue, naming the text, for one that is malformed.
Signature parse_signature(std::string_view text);

const char* arg_kind_name(ArgKind kind);  // as signatures spell it
// How an error says what an argument must be: "Tensor or Number", "tuple of ints".
std::string expected(const SignatureParam& param);
// The type as Python's stubs write it: "Tensor | float", "Sequence[int] | None".
std::string python_type(const SignatureParam& param);
// A default as Python writes it: None, 1, 'mean', [0, 1].
std::string python_default(const SignatureParam& param);

}  // namespace sluice
