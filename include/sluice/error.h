#pragma once
// The one exception type of the C++ API.
#include <stdexcept>
#include <string>

#include "export.h"

namespace sluice::api {

// kDevice: a device is lost to this process; everything on it fails from now on. kEndOfData: a source has no more.
// kLinAlg: a matrix has no such inverse, solution or factorization.
enum class ErrorKind {
  kValue,
  kType,
  kIndex,
  kRuntime,
  kUnsupported,
  kMemory,
  kTimeout,
  kIo,
  kCancelled,
  kDevice,
  kEndOfData,
  kLinAlg
};

// what(): "<where>: <what is wrong>: <what came>; <what must hold>".
class SLUICE_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace sluice::api
