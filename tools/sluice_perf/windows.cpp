#include "tools/sluice_perf/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sluice::perf {

namespace {

size_t first_of(const std::vector<Window>& windows, const LoadOptions& options) {
  return windows.size() - std::min(windows.size(), static_cast<size_t>(options.windows));
}

bool agree(const std::vector<double>& values, double tolerance) {
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  return std::all_of(values.begin(), values.end(),
                     [&](double value) { return std::abs(value - mean) <= tolerance * mean; });
}

}  // namespace

std::string Level::name() const {
  return concurrency > 0 ? std::to_string(concurrency) : fmt::format("{:g}/s", request_rate);
}

Summary summarize(std::vector<int64_t> ns) {
  Summary summary;
  summary.count = ns.size();
  if (ns.empty()) return summary;
  std::sort(ns.begin(), ns.end());
  const auto at = [&](double share) {  // the least value that so large a share does not exceed
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(ns.size())));
    return static_cast<double>(ns[std::max<size_t>(rank, 1) - 1]) / 1e3;
  };
  summary.mean = std::accumulate(ns.begin(), ns.end(), 0.0) / static_cast<double>(ns.size()) / 1e3;
  summary.p50 = at(0.5);
  summary.p90 = at(0.9);
  summary.p95 = at(0.95);
  summary.p99 = at(0.99);
  summary.p999 = at(0.999);
  summary.max = static_cast<double>(ns.back()) / 1e3;
  return summary;
}

bool stable(const std::vector<Window>& windows, const LoadOptions& options) {
  if (windows.size() < static_cast<size_t>(options.windows)) return false;
  std::vector<double> rates, medians;
  for (size_t i = first_of(windows, options); i < windows.size(); ++i) {
    rates.push_back(windows[i].throughput());
    medians.push_back(summarize(windows[i].ok).p50);
  }
  return agree(rates, options.stability) && agree(medians, options.stability);
}

LevelResult merged(const std::vector<Window>& windows, const LoadOptions& options) {
  LevelResult result;
  std::vector<int64_t> ok, failed;
  uint64_t begun = 0;
  for (size_t i = first_of(windows, options); i < windows.size(); ++i) {
    const Window& window = windows[i];
    result.seconds += window.seconds;
    begun += window.begun;
    ok.insert(ok.end(), window.ok.begin(), window.ok.end());
    failed.insert(failed.end(), window.failed.begin(), window.failed.end());
    for (const auto& [status, count] : window.errors) result.errors[status] += count;
  }
  if (result.seconds > 0) {
    result.throughput = static_cast<double>(ok.size()) / result.seconds;
    result.offered = static_cast<double>(begun) / result.seconds;
  }
  result.ok = summarize(std::move(ok));
  result.failed = summarize(std::move(failed));
  result.windows = static_cast<int>(windows.size());
  result.stable = stable(windows, options);
  return result;
}

}  // namespace sluice::perf
