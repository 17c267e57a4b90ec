#pragma once
// Records what the engine does in the steps of traced requests: it takes it from an instance's session, and adds it to
// their records.
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "serving/core/trace.h"
#include "serving/execution/job.h"
#include "sluice/session.h"

namespace sluice::serving {

// The recorder of one instance. Not thread-safe.
class StepRecorder {
 public:
  // Says what is to be told of a step, and to whom.
  struct Step {
    std::shared_ptr<StepTrace> trace = std::make_shared<StepTrace>();
    std::vector<std::shared_ptr<RequestTrace>> requests;
  };
  // Before and after the submission of a step: records it if one of its requests wants that.
  Step begin(api::Session& session, int instance, const Batch& batch);
  void submitted(uint64_t number, Step step);
  // Takes what has come. When to look again; nothing while the session records nothing.
  std::optional<Clock::time_point> collect(api::Session& session, Clock::time_point now);
  bool waits() const { return !steps_.empty(); }
  void drop();  // the session has ended: records are closed as they are

 private:
  bool on_ = false;
  Clock::time_point last_;  // when a step was recorded
  std::map<uint64_t, Step> steps_;
};

}  // namespace sluice::serving
