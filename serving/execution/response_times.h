#pragma once
// How long clients wait for the first response, counted by bounds.
#include <optional>

#include "model_config.pb.h"
#include "serving/core/latencies.h"
#include "serving/core/request.h"

namespace sluice::serving {

inline constexpr const char* kFirstResponseMetric = "nv_inference_first_response_histogram_ms";

// Empty unless histograms are measured. Throws kInvalidArgument for what the config says of metrics and is wrong.
std::optional<LatencyHistogram> first_response_of(const inference::ModelConfig& config, const LatencyOptions& options);
void add(LatencyHistogram& histogram, Clock::duration duration);

}  // namespace sluice::serving
