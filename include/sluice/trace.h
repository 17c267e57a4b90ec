#pragma once
// Records what steps did and when: Session::set_trace() switches it on, take_trace() gives it.
//
//   session.set_trace(true);
//   Result step = session.submit(inputs, {.tag = "request 17"});
//   step.get();
//   std::ofstream("trace.json") << session.take_trace().chrome_json();  // for https://ui.perfetto.dev
#include <cstdint>
#include <string>
#include <vector>

#include "export.h"

namespace sluice::api {

struct TraceEvent {
  enum class Kind : uint8_t {
    kFiring,   // of an actor, with all that follows here while it lasts
    kKernel,   // or several that run as one
    kWait,     // of an actor for a device; without an actor, of a stream that has nothing to do
    kLeftOut,  // a kernel that did not run: it is on a branch that was not taken
  };
  Kind kind = Kind::kFiring;
  int plan = 0;  // of a family of plans, the member's number
  int stream = 0, actor = -1, kernel = -1;
  int kernels = 1;                   // from `kernel` on
  uint64_t step = 0;                 // as Result::step(); nothing where there is no actor
  int64_t begin_ns = 0, end_ns = 0;  // since the trace began
};

struct Trace {
  struct Plan {
    std::vector<std::string> streams, actors, kernels;  // names, by index
  };
  struct Step {
    uint64_t step = 0;
    std::string tag;    // StepOptions::tag
    bool over = false;  // all its events have been given; it is not told of again
  };
  std::vector<TraceEvent> events;  // of all steps that ran, in the order of their begin
  std::vector<Step> steps;         // that were submitted while it was on, the latest 4,096
  std::vector<Plan> plans;
  uint64_t lost = 0;          // events that were overwritten before they were taken
  int64_t begin_ns = 0;       // when the trace began, of std::chrono::steady_clock
  int64_t begin_unix_ns = 0;  // the same, of the system's clock
  // In the format of Chrome and Perfetto, with the tags of the steps that are in `steps`.
  SLUICE_API std::string chrome_json() const;
};

}  // namespace sluice::api
