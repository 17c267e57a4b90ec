#include "base/error.h"

#include <new>

namespace sluice {

const char* error_kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kValue: return "value";
    case ErrorKind::kType: return "type";
    case ErrorKind::kIndex: return "index";
    case ErrorKind::kRuntime: return "runtime";
    case ErrorKind::kUnsupported: return "unsupported";
    case ErrorKind::kMemory: return "memory";
    case ErrorKind::kTimeout: return "timeout";
    case ErrorKind::kIo: return "io";
    case ErrorKind::kCancelled: return "cancelled";
  }
  return "unknown";
}

std::string SourceLocation::str() const { return known() ? fmt::format("{}:{}", file, line) : std::string(); }

Status::Status(ErrorKind kind, std::string message)
    : info_(std::make_shared<const Info>(Info{kind, std::move(message)})) {}

Status Status::from_current_exception() {
  try {
    throw;
  } catch (const Error& e) {
    return {e.kind(), e.what()};
  } catch (const std::bad_alloc&) {
    return {ErrorKind::kMemory, "out of memory"};
  } catch (const std::exception& e) {
    return {ErrorKind::kRuntime, e.what()};
  } catch (...) {
    return {ErrorKind::kRuntime, "unknown exception"};
  }
}

ErrorKind Status::kind() const { return info_ ? info_->kind : ErrorKind::kRuntime; }

const std::string& Status::message() const {
  static const std::string kOk = "ok";
  return info_ ? info_->message : kOk;
}

Status Status::with_context(const std::string& context) const {
  if (ok() || context.empty()) return *this;
  return {info_->kind, fmt::format("{}  ({})", info_->message, context)};
}

void Status::throw_if_error() const {
  if (info_) throw Error(info_->kind, info_->message);
}

}  // namespace sluice
