#include "serving/execution/response_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sluice::serving {

std::optional<LatencyHistogram> first_response_of(const inference::ModelConfig& config, const LatencyOptions& options) {
  LatencyHistogram histogram;
  histogram.bounds_ms = {100, 500, 2000, 5000};
  const std::string here = fmt::format("model '{}': model_metrics: ", config.name());
  for (const auto& control : config.model_metrics().metric_control()) {
    const std::string& family = control.metric_identifier().family();
    if (family != kFirstResponseMetric)
      wrong(fmt::format("{}family '{}'; only {} can be controlled", here, family, kFirstResponseMetric));
    const auto& buckets = control.histogram_options().buckets();
    histogram.bounds_ms.assign(buckets.begin(), buckets.end());
    const bool finite = std::all_of(buckets.begin(), buckets.end(), [](double bound) { return std::isfinite(bound); });
    if (buckets.empty() || !finite ||
        std::adjacent_find(buckets.begin(), buckets.end(), std::greater_equal<>()) != buckets.end())
      wrong(here + "buckets must be bounds in milliseconds, each above the one before, as in [1, 10, 100]");
  }
  if (!options.histograms) return std::nullopt;
  histogram.counts.assign(histogram.bounds_ms.size() + 1, 0);
  return histogram;
}

void add(LatencyHistogram& histogram, Clock::duration duration) {
  const double ms = std::chrono::duration<double, std::milli>(duration).count();
  const auto bound = std::lower_bound(histogram.bounds_ms.begin(), histogram.bounds_ms.end(), ms);
  ++histogram.counts[static_cast<size_t>(bound - histogram.bounds_ms.begin())];
  histogram.sum_ms += ms;
}

}  // namespace sluice::serving
