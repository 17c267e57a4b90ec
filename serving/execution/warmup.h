#pragma once
// Requests that a model is asked before it counts as ready.
#include <string>
#include <vector>

#include "serving/execution/ports.h"

namespace sluice::serving {

// The request of one warm-up. Throws kInvalidArgument.
InferRequest warmup_request(const inference::ModelConfig& config, const inference::ModelWarmup& warmup,
                            const std::string& folder);

// Requests that are stored with the model, in the order in which they were kept: `warmup/requests.log`, as
// --request-log writes it. None where there is no such file. Throws kInvalidArgument for one that cannot be read.
std::vector<InferRequest> stored_requests(const inference::ModelConfig& config, const std::string& folder);

}  // namespace sluice::serving
