#include "tools/sluice_perf/forecast.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sluice::perf {

namespace {

// The chances of 0, 1, .. arrivals, `mean` on average; the last one has all that is left.
std::vector<double> poisson(double mean, size_t size) {
  std::vector<double> chances(size);
  double left = 1, logarithm = -mean;
  for (size_t k = 0; k + 1 < size; ++k) {
    chances[k] = std::exp(logarithm);
    left -= chances[k];
    logarithm += std::log(mean) - std::log(static_cast<double>(k + 1));
  }
  chances.back() = std::max(left, 0.0);
  return chances;
}

}  // namespace

void StepTimes::add(int64_t rows, double seconds, uint64_t count) {
  if (rows < 1 || count == 0) return;
  sums_[rows].seconds += seconds;
  sums_[rows].count += count;
}

double StepTimes::of(int64_t rows) const {
  const auto mean = [](const Sum& sum) { return sum.seconds / static_cast<double>(sum.count); };
  auto above = sums_.lower_bound(rows);
  if (above != sums_.end() && (above->first == rows || above == sums_.begin())) return mean(above->second) + gap_;
  if (above == sums_.end()) {
    if (sums_.size() == 1) return mean(sums_.begin()->second) + gap_;
    above = std::prev(above);
  }
  const auto below = std::prev(above);
  const double slope = (mean(above->second) - mean(below->second)) / static_cast<double>(above->first - below->first);
  return mean(below->second) + std::max(slope, 0.0) * static_cast<double>(rows - below->first) + gap_;
}

double StepTimes::busy() const {
  return std::accumulate(sums_.begin(), sums_.end(), 0.0,
                         [](double all, const auto& entry) { return all + entry.second.seconds; });
}

uint64_t StepTimes::steps() const {
  return std::accumulate(sums_.begin(), sums_.end(), uint64_t{0},
                         [](uint64_t all, const auto& entry) { return all + entry.second.count; });
}

// The states are how many requests wait at the end of a step. With n of them the next step takes b = min(n, most), with
// none it takes the first that comes; while it runs, others come. The chances of the states are where that settles.
BatchForecast forecast_batches(double rate, int64_t max_batch, const StepTimes& times) {
  const auto most = static_cast<size_t>(std::max<int64_t>(max_batch, 1));
  BatchForecast forecast;
  forecast.share_of_rows.assign(most + 1, 0);
  if (rate * times.of(max_batch) >= 0.999 * static_cast<double>(most)) {
    forecast.saturated = true;
    forecast.mean_rows = static_cast<double>(most);
    forecast.share_of_rows[most] = 1;
    return forecast;
  }
  const size_t states = 16 * most + 64;
  std::vector<std::vector<double>> arrivals(most + 1);
  for (size_t b = 1; b <= most; ++b) arrivals[b] = poisson(rate * times.of(static_cast<int64_t>(b)), states);
  std::vector<double> now(states, 0), next(states);
  now[0] = 1;
  for (int round = 0; round < 20000; ++round) {
    std::fill(next.begin(), next.end(), 0);
    for (size_t n = 0; n < states; ++n) {
      if (now[n] < 1e-15) continue;
      const size_t b = std::clamp<size_t>(n, 1, most), stay = n - std::min(n, b);
      for (size_t k = 0; k < states; ++k) next[std::min(stay + k, states - 1)] += now[n] * arrivals[b][k];
    }
    double change = 0;
    for (size_t n = 0; n < states; ++n) change += std::abs(next[n] - now[n]);
    now.swap(next);
    if (change < 1e-10) break;
  }
  for (size_t n = 0; n < states; ++n) forecast.share_of_rows[std::clamp<size_t>(n, 1, most)] += now[n];
  for (size_t b = 1; b <= most; ++b) forecast.mean_rows += static_cast<double>(b) * forecast.share_of_rows[b];
  return forecast;
}

}  // namespace sluice::perf
