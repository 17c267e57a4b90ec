#pragma once
// The exception of a call, of whatever type, as text; "no error" when it does not throw.
#include <exception>
#include <string>

namespace sluice::test {

template <class F>
std::string what_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace sluice::test
