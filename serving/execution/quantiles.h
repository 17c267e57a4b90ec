#pragma once
// Quantiles of durations of the last minute, to 3 %: counts in buckets of which each is a sixteenth wider than the one
// before, in five parts of the minute, of which the oldest is dropped when a new one begins.
#include <array>
#include <cstdint>
#include <vector>

#include "serving/core/request.h"

namespace sluice::serving {

// One thread at a time.
class Quantiles {
 public:
  void add(Clock::duration duration, Clock::time_point now);
  // In microseconds; NaN where nothing was added for a minute. REQUIRES: 0 to 1.
  double value(double quantile, Clock::time_point now) const;

 private:
  static constexpr size_t kParts = 5, kBuckets = 512;
  struct Part {
    int64_t number = -1;
    uint64_t count = 0;
    std::vector<uint32_t> buckets = {};  // empty until there is something
  };
  static int64_t number_of(Clock::time_point now);
  std::array<Part, kParts> parts_;
};

}  // namespace sluice::serving
