#pragma once
// The gRPC front end: GRPCInferenceService of proto/inference.proto, and the standard health service.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "serving/core/memory_budget.h"
#include "serving/core/restrictions.h"
#include "serving/core/server.h"
#include "serving/core/tls.h"

namespace sluice::serving {

// A setting of connections that Triton's users tune: its option, gRPC's name for it, and what it is.
struct GrpcTuning {
  const char *option, *argument, *what;
};
inline constexpr GrpcTuning kGrpcTuning[] = {
    {"--grpc-keepalive-time", "grpc.keepalive_time_ms", "ms without a sign of a client, until it is asked for one"},
    {"--grpc-keepalive-timeout", "grpc.keepalive_timeout_ms", "ms that it has to give one"},
    {"--grpc-keepalive-permit-without-calls", "grpc.keepalive_permit_without_calls", "1: also without calls under way"},
    {"--grpc-http2-max-pings-without-data", "grpc.http2.max_pings_without_data", "asked in a row; 0: any number"},
    {"--grpc-http2-min-recv-ping-interval-without-data", "grpc.http2.min_ping_interval_without_data_ms",
     "ms between signs that clients may send without being asked"},
    {"--grpc-http2-max-ping-strikes", "grpc.http2.max_ping_strikes", "of those too early, until it is let go; 0: any"},
    {"--grpc-max-connection-age", "grpc.max_connection_age_ms", "ms until a client has to connect again"},
    {"--grpc-max-connection-age-grace", "grpc.max_connection_age_grace_ms", "ms that its calls have then"},
};

struct GrpcOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;                      // 0: one that is free
  size_t max_message = size_t{64} << 20;  // bytes, of a request and of a response
  // Whether models may be loaded and unloaded, settings changed, and shared memory registered; and who may:
  // metadata "authorization: Bearer TOKEN". "": everybody.
  bool management = true;
  std::string management_token = {};
  // Groups of calls that need metadata "triton-grpc-protocol-HEADER", which is what Triton's clients send.
  Restrictions restrictions = {};
  TlsOptions tls = {};
  bool reuse_port = false;                 // other processes may listen there, too
  std::map<std::string, int> tuning = {};  // of gRPC's own, by its names: kGrpcTuning
  // The bytes that requests hold, from their first ones until their answers are taken; one of them holds at most 16 x
  // max_message. Null: 1 GiB of its own.
  std::shared_ptr<MemoryBudget> memory = {};
  std::chrono::milliseconds half_timeout{2000};  // for messages that have not come whole when the server ends
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
  // Takes no more calls, ends streams that wait for requests, waits for what is under way, or for `timeout`; then
  // cancels the rest. True when nothing was left but calls whose messages have not come whole within half_timeout. A
  // second call returns the same.
  bool drain(std::chrono::milliseconds timeout);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  uint16_t port_ = 0;
};

}  // namespace sluice::serving
