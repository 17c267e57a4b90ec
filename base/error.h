#pragma once
// Errors of Sluice. Thrown on the caller's thread; carried as Status values between actors.
#include <fmt/format.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace sluice {

// The kinds of failure, in terms that a caller can act on. Python maps each kind to a builtin exception. kDevice: a
// device is lost to this process; everything on it fails from now on. kEndOfData: a source has no more; nothing is
// broken. kLinAlg: a matrix has no such inverse, solution or factorization.
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
inline constexpr ErrorKind kLastErrorKind = ErrorKind::kLinAlg;

const char* error_kind_name(ErrorKind kind);

// A line of the user's program; empty when unknown.
struct SourceLocation {
  std::string file;
  int line = 0;
  bool known() const { return line > 0; }
  std::string str() const;  // "train.py:41", or ""
  bool operator==(const SourceLocation&) const = default;
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message) : std::runtime_error(std::move(message)), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Success, or an error that travels by value. One pointer wide; copying a success is free.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorKind kind, std::string message);
  // The error now in flight as a Status. REQUIRES: called inside a catch block.
  static Status from_current_exception();

  bool ok() const { return info_ == nullptr; }
  ErrorKind kind() const;
  const std::string& message() const;
  // The same error with `context` appended in parentheses; success stays success.
  Status with_context(const std::string& context) const;
  void throw_if_error() const;

 private:
  struct Info {
    ErrorKind kind;
    std::string message;
  };
  std::shared_ptr<const Info> info_;
};

// Throws Error(kind) with a formatted message "<where>: <what>: <got>; <what must hold>".
template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sluice

// Throws Error(kValue) unless `cond`; the message is mandatory.
#define SLUICE_CHECK(cond, ...)                                 \
  do {                                                          \
    if (!(cond)) [[unlikely]]                                   \
      ::sluice::fail(::sluice::ErrorKind::kValue, __VA_ARGS__); \
  } while (false)

// The same for a chosen kind: SLUICE_CHECK_KIND(kType, cond, "...", ...).
#define SLUICE_CHECK_KIND(kind, cond, ...)                    \
  do {                                                        \
    if (!(cond)) [[unlikely]]                                 \
      ::sluice::fail(::sluice::ErrorKind::kind, __VA_ARGS__); \
  } while (false)
