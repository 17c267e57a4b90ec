#pragma once
// Models as a server runs them: what `sluice-serve check --json` says of their queues, batcher and instances, with the
// plans of their bundles.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan_viz {

struct ServedModel {
  struct Queue {
    uint64_t priority = 0;  // 0: all requests
    uint64_t places = 0;
    uint64_t timeout_us = 0;
    bool delays = false;  // what has timed out comes behind the others
  };
  struct Member {
    std::string sizes;  // "batch 4"; "" of a plan alone
    plan::Plan plan;
  };
  std::string name, version, bundle;  // bundle "": of its steps
  std::vector<std::string> inputs, outputs;
  std::vector<std::string> steps;  // of an ensemble: models
  std::string sequences;           // how they are scheduled; "": requests are of none
  int instances = 1;
  std::vector<Queue> queues;
  bool merges = false, ordered = false;
  int64_t most_rows = 1;
  std::vector<int64_t> preferred;
  uint64_t delay_us = 0;
  std::vector<Member> members;
};

// Reads the text, and the bundles that it names. Reads the model called so; "": all of them. Throws kValue, kIo.
std::vector<ServedModel> served_models(std::string_view text, const std::string& file, const std::string& name);

}  // namespace sluice::plan_viz
