#pragma once
// The answers that the requests of a model are given.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serving/execution/job.h"
#include "serving/execution/statistics.h"

namespace sluice::serving {

// Thread-safe. An answer is given without any lock held, on the thread that has it.
//
// Invariants:
// 1. Each request that was expected is answered once, by whoever makes its `answered` true.
// 2. pending() counts the requests that have no answer yet. A caller who is just being told does not count there, but
//    wait_until() waits for it, too.
// 3. In order, an answer waits in `due_` until all requests that arrived before have theirs, and one thread at a time
//    gives those that are due.
class Answers {
 public:
  // `in_order`: answers come as their requests did. `statistics` outlives this.
  Answers(std::string model, std::string version, bool in_order, Statistics& statistics)
      : model_(std::move(model)), version_(std::move(version)), in_order_(in_order), statistics_(statistics) {}

  // So many requests more will be answered.
  void expect(size_t requests);
  // Gives the request its place in the order. REQUIRES: the caller's lock says in which order requests arrive.
  void arrived(Job& job);
  // An answer to the request, still without results.
  InferResponse blank(const Job& job) const;
  // Answers with an error, unless somebody has answered.
  void fail(const JobPtr& job, const Error& error);
  void fail(const std::vector<JobPtr>& jobs, const Error& error);
  // REQUIRES: this thread has made the job's `answered` true.
  void deliver(const JobPtr& job, InferResponse response);

  size_t pending() const { return pending_; }
  // Waits until all callers have been told, and says whether they have.
  bool wait_until(Clock::time_point until) const;

 private:
  void tell(const JobPtr& job, InferResponse response);

  const std::string model_, version_;
  const bool in_order_;
  Statistics& statistics_;
  std::atomic<size_t> pending_{0};      // not answered
  std::atomic<size_t> undelivered_{0};  // whose callers have not been told, or are just being told

  mutable std::mutex told_mutex_;
  mutable std::condition_variable all_told_;

  std::mutex order_mutex_;  // guards what follows
  uint64_t arrivals_ = 0;
  std::map<uint64_t, std::optional<std::pair<JobPtr, InferResponse>>> due_;
  bool delivering_ = false;
};

}  // namespace sluice::serving
