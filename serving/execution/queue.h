#pragma once
// Requests that wait: by priority, then in the order of arrival; those that have waited too long, where their policy is
// DELAY, behind the others of their priority. Bounded.
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "model_config.pb.h"
#include "serving/execution/job.h"

namespace sluice::serving {

// Not thread-safe.
class RequestQueue {
 public:
  // Throws kInvalidArgument for a config that contradicts itself. `most`: of a policy that does not say.
  RequestQueue(const inference::ModelConfig& config, uint32_t most);

  // Its priority; throws kInvalidArgument when there is no such.
  uint64_t level_of(const RequestOptions& options) const;
  // How many requests of this priority may wait, and do.
  size_t limit(uint64_t level) const;
  std::map<uint64_t, inference::ModelQueuePolicy> policies() const;  // by priority; 0: of all requests
  size_t waiting(uint64_t level) const;
  size_t size() const { return size_; }
  int64_t rows() const { return rows_; }
  bool empty() const { return size_ == 0; }

  // False when there is no room. Sets its deadline.
  bool push(JobPtr job);
  // Visits requests in the order in which they are due, until `visit` returns false.
  void visit(const std::function<bool(const JobPtr& job)>& visit) const;
  JobPtr front() const;
  JobPtr pop();
  bool remove(const Job& job);  // false when it is not there
  // Takes out what is refused for having waited too long, and moves back what is delayed.
  std::vector<JobPtr> expire(Clock::time_point now);
  Clock::time_point next_deadline() const;  // max(): none
  std::vector<JobPtr> clear();

 private:
  struct Level {
    inference::ModelQueuePolicy policy;
    std::deque<JobPtr> fresh, delayed;
    size_t size() const { return fresh.size() + delayed.size(); }
  };
  void count(const Job& job, int by) {
    size_ += static_cast<size_t>(by);
    rows_ += by * job.rows;
  }

  std::map<uint64_t, Level> levels_;
  uint64_t default_level_ = 0;
  bool any_level_ = false;  // the model has no priorities: all are one
  uint32_t most_ = 0;
  size_t size_ = 0;
  int64_t rows_ = 0;
};

}  // namespace sluice::serving
