#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "serving/core/latencies.h"
#include "serving/core/server.h"

namespace sluice::serving {

// kNone: all models, once. kExplicit: what load() asks for, at the start `startup_models`. kPoll: as the folders
// change.
enum class ModelControl { kNone, kExplicit, kPoll };
// The order in which a new version is loaded: before the old one goes, or, to need less memory, after.
enum class Availability { kPreserve, kSaveMemory };

// kTriton: a JSON array, as Triton's. kOpenTelemetry: lines of OTLP's JSON, as collectors read files.
enum class TraceMode { kTriton, kOpenTelemetry };

// Says where traces of requests go, and which requests are traced until clients change that (settings.h).
struct TraceOptions {
  std::string file;                     // "": requests cannot be traced
  std::vector<std::string> level = {};  // "TIMESTAMPS", "TENSORS"; none: off
  uint32_t rate = 1000;                 // one of so many requests
  int64_t count = -1;                   // so many in all; -1: without end
  uint32_t log_frequency = 0;           // traces of a file, "file.0" and so on; 0: all in one
  TraceMode mode = TraceMode::kTriton;
};

// The file in which requests are kept for audit, each with its inputs, to be sent again by sluice-perf.
struct RequestLogOptions {
  std::string file;                // "": none are
  double share = 0.01;             // of the requests
  uint64_t max_bytes = 1u << 30u;  // of the file; then no more are kept
};

// Says what the page of metrics has of latencies, beside counts.
struct MetricsOptions : LatencyOptions {
  bool counters = true;  // sums of microseconds
};

struct ServerOptions {
  std::string name = "sluice";
  std::vector<std::string> repositories;
  std::string
      model_config_file;  // a list of more models (proto/model_list.proto), read again with every poll; "": none
  // Links in repositories are followed, as far as they stay beneath the repository, or the folder of a listed model.
  bool follow_links = false;
  ModelControl control = ModelControl::kNone;
  std::chrono::milliseconds poll{15000};
  std::vector<std::string> startup_models;  // with kExplicit; "*": all
  bool auto_config = true;                  // complete a config, or make one where there is none, from the bundle
  Availability availability = Availability::kPreserve;
  uint64_t memory_limit = 0;                     // bytes of all ledgers together; 0: none
  int cores = 0;                                 // lent to models; 0: all
  uint32_t max_queue_size = 256;                 // of a model that does not say
  uint64_t response_cache_bytes = 0;             // 0: none
  std::map<std::string, uint32_t> rate_limits;   // by resource
  bool shared_memory = false;                    // clients may register regions
  std::string shared_memory_prefix = "/sluice";  // of their names
  bool strict_readiness = true;                  // ready only when every model is
  TraceOptions trace;
  RequestLogOptions request_log;
  MetricsOptions metrics;
};

// Starts loading and returns; ready() tells when it is done. Throws kNotFound for a repository that is none.
std::unique_ptr<Server> make_server(ServerOptions options);

}  // namespace sluice::serving
