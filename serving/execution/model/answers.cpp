#include "serving/execution/model/answers.h"

#include <utility>

namespace sluice::serving {

void Answers::expect(size_t requests) {
  pending_ += requests;
  undelivered_ += requests;
}

void Answers::arrived(Job& job) {
  if (!in_order_) return;
  const std::lock_guard lock(order_mutex_);
  job.number = ++arrivals_;
  due_.emplace(job.number, std::nullopt);
}

InferResponse Answers::blank(const Job& job) const {
  InferResponse response;
  response.model = model_;
  response.version = version_;
  response.id = job.request.id;
  response.trace = job.request.trace;
  return response;
}

void Answers::fail(const std::vector<JobPtr>& jobs, const Error& error) {
  for (const JobPtr& job : jobs) fail(job, error);
}

void Answers::fail(const JobPtr& job, const Error& error) {
  if (job->answered.exchange(true)) return;
  if (!job->part) statistics_.failed(job->received, error.code(), Clock::now());
  InferResponse response = blank(*job);
  response.error = error;
  deliver(job, std::move(response));
}

// Requests that never arrived have no place in the order.
void Answers::deliver(const JobPtr& job, InferResponse response) {
  if (job->number == 0) return tell(job, std::move(response));
  std::unique_lock lock(order_mutex_);
  due_.at(job->number).emplace(job, std::move(response));
  if (std::exchange(delivering_, true)) return;
  while (!due_.empty() && due_.begin()->second.has_value()) {
    auto [first, due] = *std::move(due_.begin()->second);
    due_.erase(due_.begin());
    lock.unlock();
    tell(first, std::move(due));
    lock.lock();
  }
  delivering_ = false;
}

void Answers::tell(const JobPtr& job, InferResponse response) {
  --pending_;
  job->own = Held();  // whoever has a handle may have it for longer
  job->respond(std::move(response), true);
  job->respond = nullptr;
  if (--undelivered_ > 0) return;
  const std::lock_guard lock(told_mutex_);
  all_told_.notify_all();
}

bool Answers::wait_until(Clock::time_point until) const {
  std::unique_lock lock(told_mutex_);
  return all_told_.wait_until(lock, until, [&] { return undelivered_ == 0; });
}

}  // namespace sluice::serving
