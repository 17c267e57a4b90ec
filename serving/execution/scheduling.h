#pragma once
// Reads from a config how requests become steps, as the executor and those who show it read it.
#include <cstdint>
#include <vector>

#include "model_config.pb.h"

namespace sluice::serving {

// The instances of all groups together. Throws Error for what cannot be.
int instances_of(const inference::ModelConfig& config);

// With the dynamic batching by which the oldest of several sequences are merged, as requests are otherwise.
inference::ModelConfig batching_of(const inference::ModelConfig& config);

struct Scheduling {
  struct Queue {
    uint64_t priority = 0;  // 0: all requests
    uint64_t places = 0;    // what comes when they are taken is refused
    uint64_t timeout_us = 0;
    bool delays = false;  // what has timed out comes behind all others, and is not refused
  };
  std::vector<Queue> queues;  // as they are served
  bool merges = false;        // requests share steps
  int64_t most_rows = 1;      // of a step
  std::vector<int64_t> preferred;
  uint64_t delay_us = 0;  // for more to come
  bool ordered = false;   // answers come as their requests did
};
// Throws Error for a config that contradicts itself. `max_queue_size`: of a model that does not say.
Scheduling scheduling_of(const inference::ModelConfig& config, uint32_t max_queue_size);

}  // namespace sluice::serving
