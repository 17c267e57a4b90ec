#pragma once
// Which of the waiting requests the next step runs, and when.
#include <optional>

#include "model_config.pb.h"
#include "serving/execution/queue.h"

namespace sluice::serving {

struct BatchChoice {
  size_t jobs = 0;  // the first of the queue; 0: none yet
  int64_t rows = 0;
  std::optional<Clock::time_point> wait;  // when to look again, where none is due
};

// Immutable, so thread-safe.
class Batcher {
 public:
  // Throws kInvalidArgument for a config that contradicts itself.
  // `step_rows`: that a step takes at most; `ragged_rows`: of each ragged input.
  Batcher(const inference::ModelConfig& config, int64_t step_rows, std::vector<int64_t> ragged_rows = {});
  // For an instance that is idle, or for one that has a step at work: then only what waiting cannot make larger.
  BatchChoice choose(const RequestQueue& queue, Clock::time_point now, bool idle) const;

 private:
  bool merges_ = false;
  int64_t most_ = 1;
  std::vector<int64_t> most_ragged_;
  std::vector<int64_t> preferred_;  // ascending
  std::chrono::microseconds delay_{0};
};

// May rows of both be in one step? Their shapes are equal but for the batch.
bool mergeable(const Job& a, const Job& b);

}  // namespace sluice::serving
