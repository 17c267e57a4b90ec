#pragma once
// The error that a call throws, as text: "value: <message>", or "no error".
#include <string>

#include "base/error.h"

namespace sluice::test {

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return std::string(error_kind_name(error.kind())) + ": " + error.what();
  }
  return "no error";
}

// The same without the kind.
template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace sluice::test
