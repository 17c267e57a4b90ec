#pragma once
// How long calls take, measured as Google Benchmark does: more and more calls, until they take long enough together.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sluice::bench {

// Something to measure. `run(n)` does it n times.
struct Case {
  std::string name;
  std::function<void(int64_t n)> run;
  double items = 1;  // of one iteration, for items_per_second
};

// The times of one iteration, on average over many.
struct Measured {
  std::string name;
  std::string aggregate;  // "mean", "median", "stddev", "cv"; "" of a run
  int repetition = 0, repetitions = 1;
  int64_t iterations = 0;
  double real_ns = 0, cpu_ns = 0;  // cpu: of all threads of the process
  double items_per_second = 0;
};

struct MeasureOptions {
  double min_seconds = 0.5;
  int repetitions = 1;
  // Replaced by tests.
  std::function<int64_t()> real_ns, cpu_ns;
};

// A row per repetition; where there are several, also their mean, median, standard deviation and its share of the mean.
std::vector<Measured> measure(const Case& of, const MeasureOptions& options);

}  // namespace sluice::bench
