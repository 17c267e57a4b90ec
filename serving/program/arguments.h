#pragma once
// The command line of sluice-serve.
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "serving/core/log.h"
#include "serving/core/options.h"
#include "serving/core/restrictions.h"
#include "serving/core/tls.h"

namespace sluice::serving {

struct Endpoint {
  bool on = true;
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0: any that is free
  TlsOptions tls = {};
  bool reuse_port = false;
};

struct Arguments {
  ServerOptions server;
  Endpoint http{true, "127.0.0.1", 8000}, grpc{true, "127.0.0.1", 8001}, metrics{true, "127.0.0.1", 8002};
  std::string http_base_path;
  uint64_t http_max_input_bytes = 64u << 20u;
  uint64_t request_memory_bytes = 1u << 30u;  // of all requests together, while they come and run
  int http_threads = 0;                       // 0: the front end's own choice
  int max_connections = 4096;                 // of HTTP
  std::chrono::seconds exit_timeout{30};
  bool exit_with_stdin = false;
  bool exit_on_error = true;
  std::map<std::string, int> grpc_tuning;
  std::vector<std::string> passed_over;  // options that tune what is not here
  Restrictions http_restrictions, grpc_restrictions;
  std::string token_file;  // of who may change the server: load and unload models, settings, shared memory
  LogSettings log;
  std::string log_file;
};

// Each of these throws std::runtime_error that names the option and says how to write it.
uint64_t parse_bytes(const std::string& option, const std::string& text);  // "512MiB", "2G", "1048576"
// "GPU-ish:4": so many of a resource.
void parse_rate_limit(const std::string& text, std::map<std::string, uint32_t>& resources);
// "file=t.json", "rate=100", "level=TIMESTAMPS", several of them separated by commas; "triton," or
// "opentelemetry," may stand before.
void parse_trace(const std::string& text, TraceOptions& trace);
// "counter_latencies=true", "summary_latencies=true", "summary_quantiles=0.5:0.05,0.99:0.001",
// "histogram_latencies=true".
void parse_metrics(const std::string& text, MetricsOptions& metrics);
void parse_request_log(const std::string& file, double share, const std::string& max_bytes, RequestLogOptions& log);
// The token in a file that nobody else can read.
std::string read_token(const std::string& file);

}  // namespace sluice::serving
