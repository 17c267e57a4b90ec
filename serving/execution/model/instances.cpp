// What the clock brings, and the end: requests that wait too long, steps that are stuck, draining.
#include <algorithm>
#include <cmath>

#include "serving/execution/inside.h"
#include "serving/execution/model/core.h"

namespace sluice::serving {

std::optional<Clock::time_point> ModelCore::tick() {
  const Inside here;
  std::vector<JobPtr> late, stuck;
  Clock::time_point next;
  std::vector<int> wakes;
  int wake = -1;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    late = queue_.expire(now);
    for (const JobPtr& job : late) {
      job->state = Job::State::kOver;
      if (sequences_ != nullptr) sequence_goes_on(*job, std::nullopt);
    }
    if (sequences_ != nullptr) sequences_->expire(now);
    pump();
    Clock::time_point next_stuck = Clock::time_point::max();
    stuck = stuck_jobs(now, next_stuck);
    for (const auto& instance : instances_)
      if (!instance->broken.empty() && instance->state == Instance::State::kUp) wakes.push_back(instance->number);
    next = std::min(next_stuck, queue_.next_deadline());
    if (sequences_ != nullptr) next = std::min(next, sequences_->next_deadline());
    armed_ = next;
    if (!late.empty() || sequences_ != nullptr) wake = whom_to_wake(now);
  }
  refuse(late, Error(Code::kTimeout, where_ + ": the request waited in the queue for longer than its timeout"));
  refuse(stuck, Error(Code::kUnavailable, where_ + ": its step took too long; its instance is restarted"));
  for (const int broken : wakes) crew_->wake(broken);
  if (wake >= 0) crew_->wake(wake);
  if (next == Clock::time_point::max()) return std::nullopt;
  return next;
}

void SharedResources::add(std::weak_ptr<ModelCore> model) {
  const std::lock_guard lock(mutex_);
  std::erase_if(models_, [](const auto& one) { return one.expired(); });
  models_.push_back(std::move(model));
}

void SharedResources::lost_a_thread() {
  std::vector<std::weak_ptr<ModelCore>> models;
  {
    const std::lock_guard lock(mutex_);
    models = models_;
  }
  for (const std::weak_ptr<ModelCore>& model : models)
    if (const std::shared_ptr<ModelCore> core = model.lock()) core->suspect();
}

void ModelCore::suspect() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (const auto& instance : instances_) {
    if (instance->state != Instance::State::kUp || crew_ == nullptr) continue;
    instance->suspect = true;
    if (instance->running == 0) continue;
    instance->busy_since = now;
    arm(now + time_limit(*instance));
  }
}

std::chrono::milliseconds ModelCore::time_limit(const Instance& instance) const {
  if (!instance.suspect) return step_timeout_;
  const auto usual = std::chrono::milliseconds(static_cast<int64_t>(20 * period_ns_ / 1e6));
  const auto limit = std::max(std::chrono::milliseconds(1000), usual);
  return step_timeout_.count() > 0 ? std::min(limit, step_timeout_) : limit;
}

// Of steps that take too long; their instances are broken. `next`: when the next one will.
std::vector<JobPtr> ModelCore::stuck_jobs(Clock::time_point now, Clock::time_point& next) {
  std::vector<JobPtr> stuck;
  for (const auto& instance : instances_) {
    const std::chrono::milliseconds limit = time_limit(*instance);
    if (instance->running == 0 || limit.count() == 0) continue;
    const auto due = instance->busy_since + limit;
    if (due > now) {
      next = std::min(next, due);
      continue;
    }
    if (!instance->broken.empty() || instance->state != Instance::State::kUp) continue;
    instance->broken = "a step took longer than " + std::to_string(limit.count()) + " ms";
    const std::shared_ptr<Flight> flight = instance->flying;
    const std::lock_guard flying(flight->mutex);
    for (const BatchPtr& batch : flight->in_flight) stuck.insert(stuck.end(), batch->jobs.begin(), batch->jobs.end());
  }
  for (const JobPtr& job : stuck) job->state = Job::State::kOver;
  return stuck;
}

std::chrono::milliseconds ModelCore::retry_after() const {
  const auto up = static_cast<double>(std::max<ptrdiff_t>(
      1, std::count_if(instances_.begin(), instances_.end(),
                       [](const auto& instance) { return instance->state == Instance::State::kUp; })));
  const double steps = std::ceil(static_cast<double>(queue_.rows()) / std::max(1.0, rows_per_step_)) + 1;
  const double ms = std::ceil(period_ns_ / 1e6 * steps / up);
  return std::chrono::milliseconds(std::clamp<int64_t>(static_cast<int64_t>(ms), 1, 60000));
}

bool ModelCore::drain(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  constexpr std::chrono::hours kLong(24 * 365);
  const auto until = Clock::now() + std::min<std::chrono::milliseconds>(timeout, kLong);
  const bool all = all_delivered_.wait_until(lock, until, [&] { return undelivered_ == 0; });
  if (all) return true;
  std::vector<JobPtr> left = take_all();
  for (const auto& instance : instances_) {
    const std::shared_ptr<Flight> flight = instance->flying;
    if (flight == nullptr) continue;
    const std::lock_guard flying(flight->mutex);
    for (const BatchPtr& batch : flight->in_flight) left.insert(left.end(), batch->jobs.begin(), batch->jobs.end());
  }
  for (const JobPtr& job : left) job->state = Job::State::kOver;
  lock.unlock();
  refuse(left, Error(Code::kUnavailable, where_ + ": it is being unloaded"));
  return false;
}

void ModelCore::close() {
  std::vector<JobPtr> left;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    left = take_all();
    for (const JobPtr& job : left) job->state = Job::State::kOver;
  }
  refuse(left, Error(Code::kUnavailable, where_ + ": it is being unloaded"));
  if (crew_ == nullptr) return;
  crew_->end();
  if (!is_inside()) crew_->wait();
}
}  // namespace sluice::serving
