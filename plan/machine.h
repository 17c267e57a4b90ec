#pragma once
// The machine a forecast is for: what links between devices and chosen kernels cost. A small file, apart from the plan.
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

// Between two devices, either way. Names are "rank/kind:index", with `*` for any characters: "0/*", "*/cuda:*".
struct LinkCost {
  std::string one, other;
  double latency_ns = 0, bytes_per_s = 0;
};
struct KernelCost {
  std::string name;  // of kernels, with `*`
  double cost_ns = 0;
};
struct Machine {
  std::vector<LinkCost> links;  // the first that fits counts
  std::vector<KernelCost> kernels;
};

// {"links": [{"between": ["0/*", "1/*"], "latency_ns": 20000, "bytes_per_s": 1.2e9}],
//  "kernels": [{"name": "*/matmul", "cost_ns": 1500}]}. Throws kValue naming the field. (In json_read.cpp.)
Machine machine_from_json(std::string_view text, const std::string& file_name);

// The plan with what its kernels take on `machine` as their cost_ns:
//  - of a name in machine.kernels: that;
//  - collectives: from when all ranks have come, by the algorithm they run by (streams/collective/gloo.cpp);
//  - a copy between two memories: the link;
//  - others: as they were.
// Links are full duplex, and nothing else is on them. Throws kValue naming two devices without a link.
// REQUIRES: structure and sizes hold.
Plan on_machine(Plan plan, const Machine& machine);

}  // namespace sluice::plan
