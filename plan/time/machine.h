#pragma once
// The machine a forecast is for: what links between devices and kernels cost. A small file, apart from the plan.
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

bool fits(std::string_view pattern, std::string_view text);  // `*` stands for any characters

// Between two devices, either way. Names are "rank/kind:index", with `*` for any characters: "0/*", "*/cuda:*".
struct LinkCost {
  std::string one, other;
  double latency_ns = 0, bytes_per_s = 0;
};
struct KernelCost {
  std::string name;  // of kernels, with `*`
  double cost_ns = 0;
};

// Everything that the time of a kernel depends on: kernels of equal signatures, in whatever plans, take equally long. A
// function of the program is known by its name, which is among the attributes.
struct KernelSignature {
  std::string op, attrs, operands;  // "sum", "dim = [1]", "float32(4, 3) -> float32(4,)"
  std::string device;               // without the rank: "cpu:0"
  int cores = 1;
  auto operator<=>(const KernelSignature&) const = default;
};
// The times that runs of such a kernel took.
inline constexpr int64_t kMostRuns = 1'000'000'000'000;  // that are counted
struct KernelHistory {
  KernelSignature kernel;
  int64_t runs = 0;
  double mean_ns = 0, min_ns = 0, max_ns = 0;
  double squares = 0;     // of the deviations from the mean, their sum
  double std_ns() const;  // standard deviation of the sample; of one run 0
};

struct Machine {
  std::vector<LinkCost> links = {};          // the first that fits counts
  std::vector<KernelCost> kernels = {};      // likewise
  std::vector<KernelHistory> measured = {};  // ascending, each signature once
};

// {"links": [{"between": ["0/*", "1/*"], "latency_ns": 20000, "bytes_per_s": 1.2e9}],
//  "kernels": [{"name": "*/matmul", "cost_ns": 1500}], "measured": [...]}; of a signature that is there twice, the runs
// are put together. Throws kValue naming the field, and for a version that this build does not know.
Machine machine_from_json(std::string_view text, const std::string& file_name);
std::string to_json(const Machine& machine);  // which that reads

// The plan with what its kernels take on `machine` as their cost_ns:
//  - of a name in machine.kernels: that;
//  - of a signature in machine.measured: the mean;
//  - collectives: from when all ranks have come, by the algorithm they run by (streams/collective/gloo.cpp);
//  - a copy between two memories: the link;
//  - others: as they were.
// Links are full duplex, and nothing else is on them. Throws kValue naming two devices without a link.
// REQUIRES: structure and sizes hold.
Plan on_machine(Plan plan, const Machine& machine);

}  // namespace sluice::plan
