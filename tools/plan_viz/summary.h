#pragma once
// A summary of runs of a plan: how much was done at the same time, what took longest, how busy streams were.
#include <cstdint>
#include <string>
#include <vector>

#include "tools/plan_viz/page.h"

namespace sluice::plan_viz {

// The bytes that a kernel reads in one memory and writes into another.
struct Move {
  int from = 0, to = 0;  // spaces
  uint64_t bytes = 0;
};
std::vector<Move> moves_of(const plan::Plan& plan, const plan::Kernel& kernel);
uint64_t bytes_of(const plan::Kernel& kernel);  // that it reads and writes

struct RunSummary {
  // How long kernels of all lanes ran in a part of the time.
  struct Part {
    int64_t from_ns = 0, to_ns = 0, busy_ns = 0;
  };
  struct Task {
    int kernel = 0;
    int64_t runs = 0, total_ns = 0, longest_ns = 0;
    bool critical = false;  // its actor is in the cycle that limits the plan
  };
  struct Lane {
    int64_t firings = 0, kernels = 0, firings_ns = 0, kernels_ns = 0;
  };
  // Kernels that took from_ns or longer, but less than to_ns.
  struct Bucket {
    int64_t from_ns = 0, to_ns = 0, runs = 0, total_ns = 0;
  };
  struct Actor {
    int64_t firings = 0, kernels_ns = 0;
    uint64_t bytes = 0;  // of what its kernels read and wrote
  };
  // The bytes that kernels read in one memory and wrote into another.
  struct Link {
    int from = 0, to = 0;  // spaces
    int64_t transfers = 0, total_ns = 0;
    uint64_t bytes = 0;
  };
  int64_t total_ns = 0;
  std::vector<Part> parts;
  std::vector<int64_t> levels;  // by how many kernels ran at once, for how long; they add up to total_ns
  std::vector<Task> tasks;      // the critical ones first, of these the longest first
  std::vector<Lane> lanes;      // of the run, as its firings count them
  std::vector<Bucket> buckets;  // powers of two, without those that have no runs
  std::vector<Actor> actors;    // of the plan
  std::vector<Link> links;
};

// `critical`: the actors of the cycle that limits the plan.
RunSummary summary_of(const plan::Plan& plan, const Run& run, const std::vector<int64_t>& critical);

// The panels of the page: "parallelism", "levels", "tasks", "utilization", "durations", as an object.
std::string panels_json(const plan::Plan& plan, const Run& run, const RunSummary& summary);

}  // namespace sluice::plan_viz
