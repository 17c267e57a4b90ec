#include "base/error.h"

#include <new>

namespace sluice {
namespace {

// Made before memory can run out, and for ever: threads may outlive main().
const Status& out_of_memory() {
  static const Status* const status = new Status(ErrorKind::kMemory, "out of memory");
  return *status;
}
[[maybe_unused]] const Status& made_at_start = out_of_memory();

}  // namespace

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
    case ErrorKind::kDevice: return "device";
    case ErrorKind::kEndOfData: return "end of data";
    case ErrorKind::kLinAlg: return "linear algebra";
  }
  return "unknown";
}

std::string SourceLocation::str() const { return known() ? fmt::format("{}:{}", file, line) : std::string(); }

Status::Status(ErrorKind kind, std::string message)
    : info_(std::make_shared<const Info>(Info{kind, std::move(message)})) {}

Status Status::from_current_exception() {
  try {
    try {
      throw;
    } catch (const Error& e) {
      return {e.kind(), e.what()};
    } catch (const std::bad_alloc&) {
      return out_of_memory();
    } catch (const std::exception& e) {
      return {ErrorKind::kRuntime, e.what()};
    } catch (...) {
      return {ErrorKind::kRuntime, "unknown exception"};
    }
  } catch (const std::bad_alloc&) {
    return out_of_memory();  // no room for the message
  }
}

ErrorKind Status::kind() const { return info_ ? info_->kind : ErrorKind::kRuntime; }

const std::string& Status::message() const {
  static const auto* const ok = new std::string("ok");  // threads may outlive main()
  return info_ ? info_->message : *ok;
}

Status Status::with_context(const std::string& context) const {
  if (ok() || context.empty()) return *this;
  try {
    return {info_->kind, fmt::format("{}  ({})", info_->message, context)};
  } catch (const std::bad_alloc&) {
    return *this;  // what went wrong matters more than where
  }
}

void Status::throw_if_error() const {
  if (info_) throw Error(info_->kind, info_->message);
}

}  // namespace sluice
