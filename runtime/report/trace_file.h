#pragma once
// Writes a session's trace to a file while steps run, so that it may last longer than the streams' rings hold. A disk
// that is full ends the recording, not the run.
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/session/session.h"

namespace sluice {

// Thread safety: close() from one thread.
class TraceFile {
 public:
  // Switches the session's tracing on. A thread takes what the streams have recorded every `interval` and appends it to
  // `path`: in Chrome's JSON trace format where that ends in ".json", else as a recording (plan/record/recording.h),
  // which plan-viz reads. Throws kValue when the file cannot be made. REQUIRES: `session` outlives it, and nobody else
  // takes its trace.
  TraceFile(Session& session, const std::string& path,
            std::chrono::milliseconds interval = std::chrono::milliseconds(20));
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Switches tracing off and finishes the file, with the number of events that came too fast for it. Throws kRuntime
  // when the file could not be written. Idempotent.
  void close();

 private:
  void append(const Trace& trace);

  Session& session_;
  const std::string path_;
  const TraceNames names_;
  const bool json_;
  std::ofstream file_;
  uint64_t lost_ = 0;
  bool closed_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace sluice
