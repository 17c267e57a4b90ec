#pragma once
// A plan with the events of a run of it, and the compact file that keeps both.
//
// The file: "SLUICETR" and a version; then sections, each a letter, a length and so many bytes: H (times, the rank), P
// (the plan, as JSON), E (events of one stream, in the order of their ends: a column after the other, numbers as
// differences in LEB128), and last Z (how many events are missing). An event takes 4 to 8 bytes.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/trace.h"
#include "plan/plan.h"

namespace sluice::plan {

// Names of streams, actors, kernels and registers, by which a trace is read.
TraceNames trace_names_of(const Plan& plan);

struct Recording {
  Plan plan;
  Trace trace;    // by stream, and of each in the order of their ends
  int rank = -1;  // of a job of several ranks
};

// The file in pieces, for one that is written while it grows: a head, events as they come, a tail.
// REQUIRES, of the events: they are of one run of the plan.
std::string recording_head(const Plan& plan, const Trace& begin, int rank);
std::string recording_events(const Plan& plan, std::span<const TraceEvent> events);
std::string recording_tail(uint64_t lost);
std::string recording_of(const Recording& recording);

inline constexpr std::string_view kRecordingMagic = "SLUICETR";

// Throws kValue "<file>: byte <n>: <what is wrong>" for a file that is cut, foreign or broken, and for a plan whose
// structure does not hold.
Recording read_recording(std::string_view bytes, const std::string& file_name);
// Also throws kIo. A file that ends between two sections is read with a warning: its program was killed, or still runs.
Recording load_recording(const std::string& path);

}  // namespace sluice::plan
