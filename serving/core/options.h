#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "serving/core/server.h"

namespace sluice::serving {

// kNone: all models, once. kExplicit: what load() asks for, at the start `startup_models`. kPoll: as the folders
// change.
enum class ModelControl { kNone, kExplicit, kPoll };
// Of a new version: load it before the old one goes, or, to need less memory, after.
enum class Availability { kPreserve, kSaveMemory };

struct ServerOptions {
  std::string name = "sluice";
  std::vector<std::string> repositories;
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
};

// Starts loading and returns; ready() tells when it is done. Throws kNotFound for a repository that is none.
std::unique_ptr<Server> make_server(ServerOptions options);

}  // namespace sluice::serving
