#pragma once
// The error with which a request is refused. The front ends map codes to HTTP's and gRPC's; the text is for the client
// as it stands: it names no path outside the repository, no address, nothing internal. It is UTF-8, as messages of
// protobuf have to be; names of files and what clients send need not be.
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>

#include "serving/core/json_string.h"

namespace sluice::serving {

enum class Code {
  kInvalidArgument,
  kNotFound,
  kAlreadyExists,
  kTooLarge,     // of a body or a tensor, over the limit
  kUnsupported,  // known, but not offered here
  kForbidden,    // a switch of the server's says no
  kOverloaded,   // the queue is full: ask again after `retry_after`
  kUnavailable,  // being loaded, unloaded or restarted; shutting down
  kTimeout,      // waited longer than the request or its queue allows
  kCancelled,    // by the client
  kInternal,
};

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message, std::optional<std::chrono::milliseconds> retry_after = {})
      : std::runtime_error(utf8_of(message)), code_(code), retry_after_(retry_after) {}
  Code code() const { return code_; }
  std::optional<std::chrono::milliseconds> retry_after() const { return retry_after_; }

 private:
  Code code_;
  std::optional<std::chrono::milliseconds> retry_after_;
};

[[noreturn]] inline void wrong(const std::string& what) { throw Error(Code::kInvalidArgument, what); }

}  // namespace sluice::serving
