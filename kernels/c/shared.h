#pragma once
// Texts that several kernels of one file share: functions of one element, and the texts of errors.
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/scalar_ops.h"

namespace sluice::c {

class Shared {
 public:
  // The name of a function of one element: "op_relu_float(a)", "op_maximum_int64_t(a, b)". Throws kUnsupported where
  // the op is not defined for the dtype.
  std::string scalar(const ScalarOp& op, DType operands);
  // The function that says for which elements it has no result, and the number of that error; "" and 0: for none.
  std::pair<std::string, int> bad(const ScalarOp& op, DType operands);
  // The name of a function of i64 of base/scalar/fixed_point.inc: "requantized_i".
  std::string of_integers(const std::string& name);
  // Puts a text among the functions, once.
  void add(const std::string& name, const std::string& text);
  // The number of an error: what a kernel returns. 0 is none.
  int error(const std::string& text);

  const std::string& functions() const { return functions_; }  // in an order in which C takes them
  const std::vector<std::string>& errors() const { return errors_; }
  // The functions of <math.h> that are called and whose last bits C leaves to its library: "sinf".
  const std::set<std::string>& inexact() const { return inexact_; }

 private:
  // The text for one type, with what it calls added before it.
  std::string written(std::string_view text, const std::string& type);
  std::string called(const std::string& name, const std::string& type);
  std::string instance(const ScalarFunction& function, const std::string& type);
  // The name, and whether it is new.
  std::pair<std::string, bool> named(const std::string& name, const std::string& type);

  std::map<std::pair<std::string, std::string>, std::string> names_;  // of functions, by what they are and their type
  std::string functions_;
  std::vector<std::string> errors_;
  std::set<std::string> inexact_;
};

}  // namespace sluice::c
