#pragma once
// Calls under way, as grpc++ has them. Only for the sources of this folder.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "inference.grpc.pb.h"
#include "serving/core/buffers.h"
#include "serving/core/memory_budget.h"
#include "serving/core/server.h"
#include "serving/grpc/open_calls.h"

namespace sluice::serving {

grpc::Status status_of(const Error& error);
// The status of the exception in flight: an Error as it is, everything else without its text.
grpc::Status status_of_current();

// Cancels a request that may be cancelled before it is known: one whose infer() has not returned.
class Cancellation {
 public:
  void is(std::shared_ptr<RequestHandle> handle);
  void cancel();

 private:
  std::mutex mutex_;
  std::shared_ptr<RequestHandle> handle_;
  bool cancelled_ = false;
};

// The objects that calls work with. Outlives them.
struct CallContext {
  Server& server;
  BufferPool& buffers;
  OpenCalls& open;
  std::shared_ptr<MemoryBudget> memory;
  uint64_t most_of_request = 0;  // bytes, with its answer
  uint64_t most_unread = 0;      // bytes of responses that a stream's client has not taken
  MemoryPtr share() const { return std::make_shared<MemoryShare>(memory, most_of_request); }
};

// Answers a ModelInfer call.
grpc::ServerUnaryReactor* infer_call(grpc::CallbackServerContext& context, const CallContext& with,
                                     const grpc::ByteBuffer& message, grpc::ByteBuffer* response);
// Answers the requests of a stream, as they are done. `most`: requests of a stream that are read and not yet answered.
// A client that does not take its responses loses its stream before they fill the memory.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* stream_call(grpc::CallbackServerContext& context,
                                                                         const CallContext& with, size_t most);

// Ends a stream before it has begun.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* refuse_stream(const grpc::Status& status);

}  // namespace sluice::serving
