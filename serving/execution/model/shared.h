#pragma once
// The parts that the executors of a server share.
#include <memory>
#include <mutex>
#include <vector>

#include "serving/core/executor.h"
#include "serving/execution/cache.h"
#include "serving/execution/limiter.h"

namespace sluice::serving {

class ModelCore;

// Thread-safe.
class SharedResources {
 public:
  explicit SharedResources(const ServerOptions& options)
      : cache(options.response_cache_bytes), limiter(options.rate_limits) {}
  ResponseCache cache;
  RateLimiter limiter;

  void add(std::weak_ptr<ModelCore> model);
  // A step that never returns has kept a thread of the engine for ever, which sessions of other models may share.
  void lost_a_thread();

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<ModelCore>> models_;
};

}  // namespace sluice::serving
