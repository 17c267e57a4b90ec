#include "tools/sluice_bench/measure.h"

#include <algorithm>
#include <cmath>
#include <ctime>

namespace sluice::bench {
namespace {

int64_t read(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

struct Times {
  int64_t real_ns = 0, cpu_ns = 0;
};

Times time_of(const Case& of, int64_t n, const MeasureOptions& options) {
  const int64_t real = options.real_ns(), cpu = options.cpu_ns();
  of.run(n);
  return {options.real_ns() - real, options.cpu_ns() - cpu};
}

// How many iterations take as long as asked for: found by trying, as Google Benchmark does. The tries warm up.
int64_t enough(const Case& of, const MeasureOptions& options) {
  constexpr int64_t kMost = 1'000'000'000;
  const double wanted_ns = options.min_seconds * 1e9;
  int64_t n = 1;
  while (n < kMost) {
    const auto taken_ns = static_cast<double>(time_of(of, n, options).real_ns);
    if (taken_ns >= wanted_ns) break;
    // A tenth of the time is enough to know the rate; before that, at most ten times as many.
    const double factor = taken_ns > 0.1 * wanted_ns ? 1.4 * wanted_ns / taken_ns : 10;
    n = std::min(kMost, std::max(n + 1, static_cast<int64_t>(static_cast<double>(n) * factor)));
  }
  return n;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double deviation(const std::vector<double>& values) {
  const double m = mean(values);
  double sum = 0;
  for (const double v : values) sum += (v - m) * (v - m);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double relative(const std::vector<double>& values) {
  const double m = mean(values);
  return m == 0 ? 0 : deviation(values) / m;
}

Measured aggregate(const std::vector<Measured>& runs, const char* name,
                   const std::function<double(const std::vector<double>&)>& of) {
  const auto over = [&](double Measured::*field) {
    std::vector<double> values;
    for (const Measured& run : runs) values.push_back(run.*field);
    return of(values);
  };
  Measured result = runs.front();
  result.aggregate = name;
  result.iterations = static_cast<int64_t>(runs.size());
  result.real_ns = over(&Measured::real_ns);
  result.cpu_ns = over(&Measured::cpu_ns);
  result.items_per_second = over(&Measured::items_per_second);
  return result;
}

}  // namespace

std::vector<Measured> measure(const Case& of, const MeasureOptions& given) {
  MeasureOptions options = given;
  if (!options.real_ns) options.real_ns = [] { return read(CLOCK_MONOTONIC); };
  if (!options.cpu_ns) options.cpu_ns = [] { return read(CLOCK_PROCESS_CPUTIME_ID); };
  const int64_t n = enough(of, options);
  std::vector<Measured> rows;
  for (int r = 0; r < options.repetitions; ++r) {
    const Times times = time_of(of, n, options);
    Measured row{of.name, "", r, options.repetitions, n};
    row.real_ns = static_cast<double>(times.real_ns) / static_cast<double>(n);
    row.cpu_ns = static_cast<double>(times.cpu_ns) / static_cast<double>(n);
    row.items_per_second = row.real_ns > 0 ? of.items * 1e9 / row.real_ns : 0;
    rows.push_back(row);
  }
  if (rows.size() < 2) return rows;
  const std::vector<Measured> runs = rows;
  rows.push_back(aggregate(runs, "mean", mean));
  rows.push_back(aggregate(runs, "median", median));
  rows.push_back(aggregate(runs, "stddev", deviation));
  rows.push_back(aggregate(runs, "cv", relative));
  return rows;
}

}  // namespace sluice::bench
