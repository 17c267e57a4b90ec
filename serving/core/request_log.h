#pragma once
// Requests that are kept for audit: a share of them, whole, so that sluice-perf --replay can send them again.
#include <memory>
#include <string>

#include "serving/core/options.h"
#include "serving/core/record_file.h"

namespace sluice::serving {

// A record is a line of JSON ("model", "version", "time_ms" since 1970, "header_bytes", "bytes") and then the body that
// a client would post over HTTP: a head of JSON of header_bytes, and the tensors in binary; `bytes` long in all.
// Thread safety: everything, from any thread.
class RequestLog {
 public:
  // Throws Error(kInvalidArgument) when the file cannot be written or the share is none.
  explicit RequestLog(const RequestLogOptions& options);
  void maybe_add(const InferRequest& request);  // by chance
  void flush() { file_.flush(); }

 private:
  const double share_;
  RecordFile file_;
};

// The record of a request.
std::string request_record(const InferRequest& request);

}  // namespace sluice::serving
