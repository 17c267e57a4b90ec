#pragma once
// The gRPC front end: GRPCInferenceService of proto/inference.proto, and the standard health service.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "serving/core/memory_budget.h"
#include "serving/core/server.h"

namespace sluice::serving {

struct GrpcOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;                      // 0: one that is free
  size_t max_message = size_t{64} << 20;  // bytes, of a request and of a response
  // Whether models may be loaded and unloaded, settings changed, and shared memory registered; and who may:
  // metadata "authorization: Bearer TOKEN". "": everybody.
  bool management = true;
  std::string management_token = {};
  // What requests hold until they are answered: twice their size. Null: 1 GiB of its own.
  std::shared_ptr<MemoryBudget> memory = {};
};

// Thread safety: everything may be called from any thread.
class GrpcServer {
 public:
  // Serves `server`, which must outlive it, at once. Throws Error when it cannot listen there.
  GrpcServer(Server& server, const GrpcOptions& options);
  // Cancels what is under way.
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  uint16_t port() const { return port_; }
  // Takes no more calls, waits for those under way, or for `timeout`; then cancels the rest. True when nothing was
  // left.
  bool drain(std::chrono::milliseconds timeout);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  uint16_t port_ = 0;
};

}  // namespace sluice::serving
