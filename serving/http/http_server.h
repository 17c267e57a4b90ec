#pragma once
// The HTTP front end: KServe v2 with Triton's additions, or, by an option, the page of metrics alone.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "serving/core/memory_budget.h"
#include "serving/core/restrictions.h"
#include "serving/core/server.h"
#include "serving/core/tls.h"

namespace sluice::serving {

class Workers;  // workers.h

struct HttpOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;        // 0: one that is free
  bool reuse_port = false;  // other processes may listen there, too; the system deals out the connections
  int threads = 0;          // each has connections of its own; 0: by the number of cores
  bool metrics_only = false;
  TlsOptions tls = {};
  std::string base_path;                // before /v2 in every path; "" or "/serving"
  size_t max_input = size_t{64} << 20;  // bytes of a body, also unpacked
  // One more takes the place of one that has no request. If no connection is without a request, it is answered 503,
  // except to ask for health.
  int max_connections = 4096;
  // The budget of requests, from their first byte to the last of their answers; one of them holds at most 16 x
  // max_input. Null: 1 GiB of its own.
  std::shared_ptr<MemoryBudget> memory = {};
  // For what takes long: unpacking, packing, JSON. They are this front end's alone, and end with it. Null: as many as
  // there are cores, 2 to 4.
  std::shared_ptr<Workers> workers = {};
  std::function<std::string()> more_metrics = {};  // for the page of metrics, behind the server's
  bool management = true;          // whether clients may load models, change settings, register shared memory
  std::string management_token;    // who may: "Authorization: Bearer TOKEN"; "": everybody
  Restrictions restrictions = {};  // groups of calls that need a header
  std::chrono::milliseconds header_timeout{10000};    // from the first byte of a request to the end of its header
  std::chrono::milliseconds body_timeout{30000};      // without a byte of the body; all of it: this and 1 s per 10 KB
  std::chrono::milliseconds idle_timeout{120000};     // of a connection between requests
  std::chrono::milliseconds response_timeout{30000};  // for the client to take a response: the same
  std::chrono::milliseconds half_timeout{2000};       // for requests that have not come whole when the server ends
};

// Thread safety: everything may be called from any thread.
class HttpServer {
 public:
  // Serves `server`, which must outlive it, at once. Throws Error when it cannot listen there.
  HttpServer(Server& server, HttpOptions options);
  // Cancels what is under way.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const { return port_; }
  int connections() const;
  int idle_connections() const;  // those without a request
  // No new connections; those that are idle are closed, the others after the response that they wait for. A connection
  // whose request has not come whole within half_timeout is closed as well.
  void stop_accepting();
  // The same, and waits for them, or for `timeout`; then closes the rest. True when none was left.
  bool drain(std::chrono::milliseconds timeout);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
  uint16_t port_ = 0;
};

}  // namespace sluice::serving
