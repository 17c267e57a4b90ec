#pragma once
// TensorFlow Serving's file of batching parameters, for those who have one.
#include <string>
#include <vector>

#include "model_config.pb.h"

namespace sluice::serving {

// If the config's parameter "batching_parameters_file" names a file in the model's folder, changes the config as it
// says: max_batch_size, batch_timeout_micros (the queue delay), max_enqueued_batches (of the queue, in requests of a
// full batch's rows), num_batch_threads (instances). Returns allowed_batch_sizes, to which batches are filled up;
// ascending, none where the file does not say. Throws kInvalidArgument naming the line or the contradiction.
std::vector<int64_t> apply_batching_file(inference::ModelConfig& config, const std::string& folder);

}  // namespace sluice::serving
