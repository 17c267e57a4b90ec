#pragma once
// The answers of one executor in the cache of its server.
#include <optional>
#include <string>
#include <vector>

#include "model_config.pb.h"
#include "serving/execution/cache.h"
#include "serving/execution/job.h"

namespace sluice::serving {

// Thread-safe.
//
// Invariants:
// 1. Keys begin with the executor's own number, since a version that is loaded anew may answer otherwise; its answers
//    leave the cache with it.
// 2. A kept answer lies in memory that counts for no client, and holds no more than itself.
class CachedAnswers {
 public:
  // Keeps none unless the config says so. `cache` outlives this.
  CachedAnswers(const inference::ModelConfig& config, ResponseCache& cache);
  ~CachedAnswers();
  CachedAnswers(const CachedAnswers&) = delete;
  CachedAnswers& operator=(const CachedAnswers&) = delete;

  bool on() const { return !prefix_.empty(); }
  // Throws kInvalidArgument where answers would be kept, and the server has no room for any. `where`: for errors.
  void check(const std::string& where) const;
  // The outputs of an equal request; the kept one stays where it is. Null where there is none: then the job knows its
  // key, and counts it.
  ResponseCache::Outputs find(Job& job);
  // Keeps the outputs as the answer to a job that knows its key. `shares`: their memory is that of a batch, or counts
  // for a client.
  void keep(const Job& job, const std::vector<Tensor>& outputs, bool shares);

 private:
  ResponseCache& cache_;
  const std::string prefix_;  // "": none are kept
};

}  // namespace sluice::serving
