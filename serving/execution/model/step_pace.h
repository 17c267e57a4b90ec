#pragma once
// How long steps take, and what follows from that for those who wait.
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "model_config.pb.h"
#include "serving/core/request.h"

namespace sluice::serving {

// Not thread-safe: the executor's lock guards it.
//
// Invariant: the time and the rows of a step are moving averages of those that went well, in which the latest has a
// fifth of the weight. Before the first step no time is known, and a step counts as one row.
class StepPace {
 public:
  // Reads the parameter "step_timeout_ms". Throws kInvalidArgument if it is no number of milliseconds.
  explicit StepPace(const inference::ModelConfig& config);

  void went_well(Clock::duration took, int64_t rows);
  // A step that takes longer is stuck; 0: none is. `suspect`: its instance may share a thread that is lost.
  std::chrono::milliseconds limit(bool suspect) const;
  // After how long a queue of so many rows will have room, with so many instances to run them.
  std::chrono::milliseconds time_for(int64_t rows, size_t instances) const;

 private:
  const std::chrono::milliseconds timeout_;
  double period_ns_ = 0, rows_ = 1;  // of a step
};

}  // namespace sluice::serving
