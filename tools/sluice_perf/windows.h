#pragma once
// Latencies by windows of time, and whether the last windows agree.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/sluice_perf/load.h"

namespace sluice::perf {

struct Window {
  double seconds = 0;
  uint64_t begun = 0;
  std::vector<int64_t> ok, failed;  // ns
  std::map<int, uint64_t> errors;
  double throughput() const { return seconds > 0 ? static_cast<double>(ok.size()) / seconds : 0; }
};

// Whether the last `options.windows` differ by at most `options.stability` from their mean, in throughput and p50.
bool stable(const std::vector<Window>& windows, const LoadOptions& options);
// All of the last `options.windows` together.
LevelResult merged(const std::vector<Window>& windows, const LoadOptions& options);

}  // namespace sluice::perf
