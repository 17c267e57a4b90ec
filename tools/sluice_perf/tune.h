#pragma once
// Which config serves a model best: each candidate is loaded, measured, and the best one left in place.
#include <cstdint>
#include <string>
#include <vector>

#include "tools/sluice_perf/target.h"

namespace sluice::perf {

// The part of a config that changes. A model without batches has `batching` false.
struct Candidate {
  int instances = 1;
  bool batching = false;
  int64_t delay_us = 0;
  std::string name() const;  // "2 instances, batching, delay 500 us"
  std::string text() const;  // as in config.pbtxt
};

// Instances: 1, 2, 4 .. up to `cores`; each without batching, with it, and with each of the delays.
std::vector<Candidate> candidates(int64_t max_batch, int cores, const std::vector<int64_t>& delays_us);

// The model's config as JSON. Throws std::runtime_error for models whose requests are ordered otherwise than by a
// queue: of sequences, and ensembles.
std::string config_of(const Target& target);
// Loads the model with `config`, or with it and the candidate's settings. Throws std::runtime_error with what the
// server says; it must be started with --model-control-mode explicit.
void load_with(const Target& target, const std::string& config, const Candidate* candidate);

}  // namespace sluice::perf
