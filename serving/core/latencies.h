#pragma once
// How long requests take, beyond sums: quantiles of the last minute, and counts by bounds.
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sluice::serving {

// Says which latencies are measured.
struct LatencyOptions {
  bool summaries = false, histograms = false;
  std::vector<double> quantiles = {0.5, 0.9, 0.95, 0.99, 0.999};
};

struct LatencyHistogram {
  std::vector<double> bounds_ms;
  std::vector<uint64_t> counts;  // of what is at most the bound, and above the one before; one more than bounds
  double sum_ms = 0;
};

struct Latencies {
  // Quantiles and their microseconds, by what takes the time ("request", "queue", ..); NaN where there was nothing.
  std::map<std::string, std::vector<std::pair<double, double>>> summaries;
  std::optional<LatencyHistogram> first_response;
};

}  // namespace sluice::serving
