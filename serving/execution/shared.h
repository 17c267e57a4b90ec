#pragma once
// What the executors of a server share.
#include "serving/core/executor.h"
#include "serving/execution/cache.h"
#include "serving/execution/limiter.h"

namespace sluice::serving {

class SharedResources {
 public:
  explicit SharedResources(const ServerOptions& options)
      : cache(options.response_cache_bytes), limiter(options.rate_limits) {}
  ResponseCache cache;
  RateLimiter limiter;
};

}  // namespace sluice::serving
