#pragma once
// Requests that a model is asked before it counts as ready.
#include <functional>
#include <string>

#include "serving/execution/ports.h"

namespace sluice::serving {

// The request of one warm-up. Throws kInvalidArgument.
InferRequest warmup_request(const inference::ModelConfig& config, const inference::ModelWarmup& warmup,
                            const std::string& folder);

// Calls `use` with each request that is stored with the model, in the order in which they were kept:
// `warmup/requests.log`, as --request-log writes it. There may be no such file. Throws kInvalidArgument for one that
// cannot be read, before any is used; an Error of `use` as kInvalidArgument that tells the request's number.
void for_stored_requests(const inference::ModelConfig& config, const std::string& folder,
                         const std::function<void(InferRequest request)>& use);

}  // namespace sluice::serving
