#pragma once
// Counters of models as text for Prometheus, by the names that Triton documents.
#include <map>
#include <string>
#include <vector>

#include "inference.pb.h"
#include "serving/core/options.h"

namespace sluice::serving {

struct ModelMetrics {
  inference::ModelStatistics statistics;
  size_t pending = 0;
  std::map<std::string, uint64_t> failures;  // by reason: Executor::failures()
  Latencies latencies = {};
};
std::string metrics_text(const std::vector<ModelMetrics>& models, const MetricsOptions& options = {});

}  // namespace sluice::serving
