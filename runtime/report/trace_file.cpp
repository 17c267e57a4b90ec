#include "runtime/report/trace_file.h"

#include <utility>

#include "actors/trace_bell.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "plan/record/recording.h"

namespace sluice {

TraceFile::TraceFile(Session& session, const std::string& path, std::chrono::milliseconds interval)
    : session_(session),
      path_(path),
      names_(session.trace_names()),
      json_(path.ends_with(".json")),
      file_(path, std::ios::binary) {
  SLUICE_CHECK_KIND(kValue, file_.is_open(), "trace: cannot write '{}'; its folder must exist and be writable", path);
  session_.set_trace(false);
  session_.set_trace(true);
  const Trace begin = session_.take_trace();
  file_ << (json_ ? chrome_trace_head(names_, begin.begin_unix_ns)
                  : plan::recording_head(session_.plan(), begin, names_.rank));
  file_.flush();
  append(begin);
  thread_ = start_thread("trace", "sluice trace", [this, interval] {
    while (!stop_.load()) {
      append(take());
      session_.trace_bell().wait_for(interval);
    }
  });
}

TraceFile::~TraceFile() {
  try {
    close();
  } catch (const std::exception& error) {
    log(LogLevel::kError, LogArea::kRuntime, "{}", error.what());
  }
}

// Chrome's format has the events of all streams in the order of time, a recording those of each stream for itself.
Trace TraceFile::take() { return json_ ? session_.take_trace() : session_.take_trace_by_stream(); }

void TraceFile::append(const Trace& trace) {
  lost_ += trace.lost;
  if (trace.events.empty()) return;
  file_ << (json_ ? chrome_trace_events(trace.events, names_) : plan::recording_events(session_.plan(), trace.events));
  file_.flush();
}

void TraceFile::close() {
  if (std::exchange(closed_, true)) return;
  stop_.store(true);
  session_.trace_bell().ring();
  thread_.join();
  session_.set_trace(false);
  append(take());
  file_ << (json_ ? chrome_trace_tail(names_, lost_) : plan::recording_tail(lost_));
  file_.close();
  SLUICE_CHECK_KIND(kRuntime, file_.good(), "trace: '{}' could not be written; the disk may be full", path_);
}

}  // namespace sluice
