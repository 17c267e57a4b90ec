#include "kernels/cuda/expressions.h"

#include "base/error.h"

namespace sluice::cuda {

const char* expression_text(const ScalarOp& op, DType operands) {
  return is_floating(operands) ? op.floating : op.integer;
}

std::string functions_for(std::string_view expressions) {
  std::string text;
  for (const ScalarFunction* f : scalar_functions_of(expressions)) {
    text += fmt::format("{}__device__ inline {} {}{} {{ {} }}\n", f->of_floats ? "template <class T> " : "",
                        f->of_floats ? "T" : "i64", f->name, f->parameters, f->body);
  }
  return text;
}

}  // namespace sluice::cuda
