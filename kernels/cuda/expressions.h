#pragma once
// Elementwise functions as C++ expressions, in the few types computed in.
#include <span>
#include <string_view>

namespace sluice::cuda {

// `a` and `b` are the operands' elements as T: float (also for 16-bit floats), double, or long long for integers and
// bool. An integer expression may raise: `bad` is when, and the op then fails as the cpu's does.
struct Expression {
  const char* op;  // tanh variants are named "gelu:tanh"
  int inputs;
  const char* floating;           // null: not defined for floats
  const char* integer = nullptr;  // null: not defined for integers
  bool gives_bool = false;
  const char* bad = nullptr;
};

std::span<const Expression> expressions();
const Expression* find_expression(std::string_view name);  // null when there is none

// What the expressions call, beside what CUDA has.
extern const char* const kExpressionFunctions;

}  // namespace sluice::cuda
