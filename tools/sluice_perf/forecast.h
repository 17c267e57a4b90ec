#pragma once
// How many requests share a step, from how long steps take: a batcher that takes what waits is a queue with bulk
// service.
#include <cstdint>
#include <map>
#include <vector>

namespace sluice::perf {

// Seconds of a step with so many rows, as measured; what was not is interpolated, and beyond, continued.
class StepTimes {
 public:
  void add(int64_t rows, double seconds, uint64_t count);
  // Sets the time of the server between two steps, when requests wait.
  void set_gap(double seconds) { gap_ = seconds; }
  bool empty() const { return sums_.empty(); }
  double of(int64_t rows) const;
  // In which so many steps of so many rows each would have been busy; for the gap.
  double busy() const;
  uint64_t steps() const;

 private:
  struct Sum {
    double seconds = 0;
    uint64_t count = 0;
  };
  std::map<int64_t, Sum> sums_;
  double gap_ = 0;
};

struct BatchForecast {
  double mean_rows = 0;               // of a step
  std::vector<double> share_of_rows;  // at index b: of the steps with b rows
  bool saturated = false;             // requests come faster than the largest steps take them
};

// Forecasts batches of requests of one row each that come by chance at `rate` a second, to one instance that takes at
// once what waits, at most `max_batch`, and that never waits for more.
BatchForecast forecast_batches(double rate, int64_t max_batch, const StepTimes& times);

}  // namespace sluice::perf
