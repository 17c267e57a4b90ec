#pragma once
// Trace events of a run, written as a Perfetto / Chrome trace.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/provenance.h"

namespace sluice {

// Why a firing began when it did, or what a wait was for. A firing whose last message had come while its stream was in
// a firing of the same actor has the cause kStream.
struct TraceCause {
  enum class Kind : uint8_t { kNone, kData, kCredit, kStart, kStream, kCores, kDevice };
  Kind kind = Kind::kNone;
  int index = 0;  // of the edge (kData) or the register (kCredit) whose message made the actor ready
  bool operator==(const TraceCause&) const = default;
};

struct TraceEvent {
  int stream = 0;  // lane
  int actor = -1;
  int kernel = -1;  // -1: a whole firing
  int kernels = 1;  // from `kernel` on, run as one
  uint64_t step = 0;
  int64_t begin_ns = 0;  // since the start of the trace
  int64_t end_ns = 0;
  bool wait = false;      // the stream was parked or the device waited for an event
  bool left_out = false;  // the kernel did not run: an input was void, of a branch not taken
  int firing = 0;         // of a whole firing: how many others of the actor in this step came before it
  TraceCause cause = {};  // of a whole firing, and of a wait: for cores, for a device, or for messages (kNone)
};

struct Trace {
  std::vector<TraceEvent> events;
  uint64_t lost = 0;           // events that are missing, since nobody took them in time
  int64_t begin_unix_ns = 0;   // since when, by the system's clock
  int64_t begin_clock_ns = 0;  // and by now_ns()
};

// Names of lanes and of what runs on them, by index; whose trace it is.
struct TraceNames {
  std::vector<std::string> streams, actors, kernels;
  std::vector<Provenance> origins;                      // of the kernels
  int rank = -1;                                        // of a job of several ranks
  std::map<uint64_t, std::string> tags = {};            // of steps that have one
  std::vector<std::string> edges = {}, registers = {};  // which causes tell of; those of edges are their registers'
};

// The events in Chrome's JSON trace format, which Perfetto opens; a rank is a process. Pure function.
std::string chrome_trace_json(const Trace& trace, const TraceNames& names);

// The same in pieces, for a trace that is written while it grows: a head, events as they come, a tail.
std::string chrome_trace_head(const TraceNames& names, int64_t begin_unix_ns);
std::string chrome_trace_events(const std::vector<TraceEvent>& events, const TraceNames& names);
std::string chrome_trace_tail(const TraceNames& names, uint64_t lost);

}  // namespace sluice
