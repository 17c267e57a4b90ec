#pragma once
// Requests and responses as gRPC's messages. No grpc++ here.
#include "inference.pb.h"
#include "serving/core/buffers.h"
#include "serving/core/server.h"

namespace sluice::serving {

// Throws Error for what is wrong by itself; names and shapes of the model are the executor's business. Inputs in shared
// memory are those of `server`; they and copies of the others count in `share`.
InferRequest request_of(const inference::ModelInferRequest& message, const Server& server, BufferPool& buffers,
                        const MemoryPtr& share);
// REQUIRES: no error. Outputs that were asked for in shared memory (`shared`, by their name) say so.
void fill(inference::ModelInferResponse& message, const InferResponse& response,
          const std::map<std::string, SharedRegion>& shared);
// The places in shared memory in which the client asked for outputs.
std::map<std::string, SharedRegion> shared_outputs(const InferRequest& request);

}  // namespace sluice::serving
