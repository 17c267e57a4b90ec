#pragma once
// The smallest change that avoids an error, as data: programs apply it, people read it behind the message. Forms:
//   option, value              an option of the compiler           {"option": "memory_budget", "value": 4096}
//   option, key, value         one entry of it; none removes it    {"option": "quotas", "key": "x", "value": 2}
//   call, line, input, to_...  an operand of an op call            {"call": "matmul", "line": "net.py:4", "input": 1,
//                              to_dtype, to_shape, to_order         "to_order": [1, 0]}
//   call, line, attribute, value                                   {..., "attribute": "dim", "value": 1}
//   call, line, device|stream  where it runs                       {..., "device": "cpu:0"}
//   line, rewrite "where"      a choice by a tensor's content, in Python, becomes torch.where(condition, a, b)
//   register, quota|initial_tokens   a register of a plan file     {"register": "x", "quota": 2}
#include <optional>
#include <string>
#include <utility>

#include "base/attr.h"
#include "base/error.h"

namespace sluice {

using Fix = NamedAttrs;

// "option memory_budget, value 4096".
inline std::string fix_str(const Fix& fix) {
  std::string text;
  for (const auto& [name, value] : fix) {
    const auto* words = std::get_if<std::string>(&value);
    text += (text.empty() ? "" : ", ") + name + " " + (words ? *words : attr_str(value));
  }
  return text;
}

class FixableError : public Error {
 public:
  FixableError(ErrorKind kind, std::string message, Fix fix) : Error(kind, std::move(message)), fix_(std::move(fix)) {}
  const Fix& fix() const { return fix_; }

 private:
  Fix fix_;
};

// The fix of an error, empty when it has none.
inline Fix fix_of(const Error& error) {
  const auto* fixable = dynamic_cast<const FixableError*>(&error);
  return fixable ? fixable->fix() : Fix();
}

}  // namespace sluice
