#pragma once
// Requests that a model is asked before it counts as ready.
#include <string>
#include <vector>

#include "serving/execution/ports.h"

namespace sluice::serving {

// The request of one warm-up. Throws kInvalidArgument.
InferRequest warmup_request(const inference::ModelConfig& config, const inference::ModelWarmup& warmup,
                            const std::string& folder);

}  // namespace sluice::serving
