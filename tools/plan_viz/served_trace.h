#pragma once
// Requests that a server traced (sluice-serve --trace-config), joined with what its engine did for them.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan_viz {

struct ServedEvent {
  enum class Kind { kFiring, kKernel, kWait, kLeftOut };
  Kind kind = Kind::kFiring;
  int actor = -1, kernel = -1;  // of the plan
  int kernels = 1;              // from `kernel` on, as one
  int64_t begin_ns = 0, end_ns = 0;
};

// One execution: of several requests, where they were batched.
struct ServedStep {
  std::vector<uint64_t> ids;  // of the traced ones
  int instance = 0;
  uint64_t number = 0;              // of the instance's session
  std::vector<ServedEvent> events;  // in the order of their begin
};

struct ServedRequest {
  uint64_t id = 0;
  std::string model, version, request_id;
  std::vector<std::pair<std::string, int64_t>> stamps;  // by time
  std::vector<int> steps;                               // of ServedTrace
  int64_t at_ns(std::string_view stamp) const;          // 0: there is none
};

// Times count from the first.
struct ServedTrace {
  std::vector<ServedRequest> requests;  // that ran this plan, by id
  std::vector<ServedStep> steps;
  size_t others = 0;    // requests of other models, and that ran other plans
  size_t unjoined = 0;  // of which nothing is known of the engine
  int64_t end_ns = 0;
};

struct ServedOptions {
  std::string model = "";  // "": all
  int member = 0;          // the plan's number in its family
};

// Reads a file of traces. Throws kValue for one that is none, and where no request ran `plan`.
ServedTrace served_trace(std::string_view text, const std::string& file, const plan::Plan& plan,
                         const ServedOptions& options);

// The name of a firing or kernel, by names of the plan.
std::string name_of(const plan::Plan& plan, const ServedEvent& event);

}  // namespace sluice::plan_viz
