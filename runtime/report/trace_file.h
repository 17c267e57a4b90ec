#pragma once
// Writes a session's trace to a file while steps run, so that it may last longer than the streams' rings hold. A disk
// that is full ends the recording, not the run.
#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/session/session.h"

namespace sluice {

// Thread safety: close() from one thread.
class TraceFile {
 public:
  static constexpr std::chrono::milliseconds kInterval{200};
  // Switches the session's tracing on. A thread takes what the streams have recorded every `interval`, or as soon as
  // one of them has filled half of its ring, and appends it to `path`: in Chrome's JSON trace format where that ends in
  // ".json", else as a recording (plan/record/recording.h), which plan-viz reads. Throws kValue when the file cannot be
  // made. REQUIRES: `session` outlives it, and nobody else takes its trace.
  TraceFile(Session& session, const std::string& path, std::chrono::milliseconds interval = kInterval);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Switches tracing off and finishes the file, with the number of events that came too fast for it. Throws kRuntime
  // when the file could not be written. Idempotent.
  void close();

 private:
  Trace take();
  void append(const Trace& trace);

  Session& session_;
  const std::string path_;
  const TraceNames names_;
  const bool json_;
  std::ofstream file_;
  uint64_t lost_ = 0;
  bool closed_ = false;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sluice
