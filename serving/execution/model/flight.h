#pragma once
// The steps that one session has been handed and that are not answered yet.
#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "serving/execution/job.h"

namespace sluice::serving {

// Thread-safe.
//
// Invariants:
// 1. A step that took off is in the air, in the order of submission, or failed and not looked at; it leaves once: by
//    land() without an error, next_failed(), turn_back() or end().
// 2. After end() nothing lands, whatever the session still tells.
class Flight {
 public:
  // Ahead of the step's submission, in the order of submissions.
  void take_off(const BatchPtr& batch) {
    const std::lock_guard lock(mutex_);
    in_air_.push_back(batch);
  }
  // Its submission failed. Nothing where it has left.
  void turn_back(const BatchPtr& batch) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find(in_air_.begin(), in_air_.end(), batch);
    if (found != in_air_.end()) in_air_.erase(found);
  }
  // The oldest step is over, and is returned; null where none is in the air. With an error it stays for next_failed().
  BatchPtr land(const std::string& error) {
    const std::lock_guard lock(mutex_);
    if (over_ || in_air_.empty()) return nullptr;
    BatchPtr batch = std::move(in_air_.front());
    in_air_.pop_front();
    if (error.empty()) return batch;
    batch->error = error;
    failed_.push_back(batch);
    return batch;
  }
  // A step that failed, the oldest first; null: there is none.
  BatchPtr next_failed() {
    const std::lock_guard lock(mutex_);
    if (failed_.empty()) return nullptr;
    BatchPtr batch = std::move(failed_.front());
    failed_.pop_front();
    return batch;
  }
  // Adds the requests of all steps in the air.
  void add_jobs(std::vector<JobPtr>& jobs) const {
    const std::lock_guard lock(mutex_);
    for (const BatchPtr& batch : in_air_) jobs.insert(jobs.end(), batch->jobs.begin(), batch->jobs.end());
  }
  // The session has ended. Returns the steps that nobody has answered.
  std::vector<BatchPtr> end() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    std::vector<BatchPtr> left(failed_.begin(), failed_.end());
    left.insert(left.end(), in_air_.begin(), in_air_.end());
    failed_.clear();
    in_air_.clear();
    return left;
  }

 private:
  mutable std::mutex mutex_;
  bool over_ = false;
  std::deque<BatchPtr> in_air_, failed_;
};

}  // namespace sluice::serving
