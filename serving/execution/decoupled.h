#pragma once
// A model that answers a request in parts: it runs step by step, outputs of a step are inputs of the next, and each
// step is a response. A step is an ordinary request to the model's executor, so steps of several clients share batches.
//
//   model_transaction_policy { decoupled: true }
//   parameters { key: "feedback" value { string_value: "window:tokens" } }    # output:input, several with commas
//   parameters { key: "stop" value { string_value: "token:0" } }              # the last step is that with this output
//   parameters { key: "max_responses" value { string_value: "256" } }
#include <memory>

#include "serving/core/executor.h"

namespace sluice::serving {

// Makes an executor of whole requests from the executor of one step. A request may ask for fewer steps by its parameter
// "max_tokens". Throws kInvalidArgument for a config that contradicts itself.
void check_decoupled(const inference::ModelConfig& config);
std::shared_ptr<Executor> make_decoupled(std::shared_ptr<Executor> steps, const inference::ModelConfig& config,
                                         const LatencyOptions& options);

}  // namespace sluice::serving
