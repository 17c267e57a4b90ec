#include "serving/execution/model/instances.h"

#include <algorithm>

#include "serving/core/trace.h"

namespace sluice::serving {

void InstanceSession::put(std::shared_ptr<api::Session> session, std::shared_ptr<Flight> flight) {
  const std::lock_guard submitting(submit_);
  session_ = std::move(session);
  flight_ = std::move(flight);
}

void InstanceSession::submit(int instance, const BatchPtr& batch, std::vector<api::Tensor> inputs,
                             const std::string& where) {
  const std::lock_guard submitting(submit_);
  if (session_ == nullptr) throw Error(Code::kUnavailable, where + ": its instance has ended");
  batch->submitted = Clock::now();
  flight_->take_off(batch);
  try {
    StepRecorder::Step traced = recorder_.begin(*session_, instance, *batch);
    batch->traced = !traced.requests.empty();
    if (batch->traced) records_ = true;
    batch->result = session_->hand_over(std::move(inputs));
    recorder_.submitted(batch->result->step(), std::move(traced));
    for (const JobPtr& job : batch->jobs) {
      if (job->request.trace == nullptr) continue;
      job->request.trace->stamp(Stamp::kComputeInputEnd, batch->submitted);
      job->request.trace->ran(instance, batch->result->step());
    }
  } catch (...) {
    flight_->turn_back(batch);
    throw;
  }
}

InstanceSession::Traces InstanceSession::collect_traces() {
  if (!records_) return {};
  const auto now = Clock::now();
  // A thread that submits may wait there until this one ends the session.
  const std::unique_lock submitting(submit_, std::try_to_lock);
  if (!submitting) return {now + std::chrono::milliseconds(5), true};
  if (session_ == nullptr) return {};
  const Traces traces{recorder_.collect(*session_, now), recorder_.waits()};
  records_ = traces.next.has_value();
  return traces;
}

BatchPtr InstanceSession::next_failed() {
  if (flight_ == nullptr) return nullptr;  // which this thread alone changes
  BatchPtr batch = flight_->next_failed();
  if (batch != nullptr) {
    const std::lock_guard submitted(submit_);  // the result is there
  }
  return batch;
}

// A thread that waits in a submission has the lock, and is let go by this.
bool InstanceSession::stop() noexcept {
  try {
    if (session_ != nullptr) session_->stop();
    return true;
  } catch (const api::Error&) {
    return false;
  }
}

std::shared_ptr<Flight> InstanceSession::take_away() {
  std::shared_ptr<api::Session> session;  // ends behind the lock
  const std::lock_guard submitting(submit_);
  session = std::move(session_);
  session_ = nullptr;
  recorder_.drop();
  records_ = false;
  return std::exchange(flight_, nullptr);
}

std::optional<api::Counters> InstanceSession::counters() const {
  std::shared_ptr<api::Session> session;
  {
    const std::lock_guard lock(submit_);
    session = session_;
  }
  return session == nullptr ? std::nullopt : std::optional(session->counters());
}

void Instance::starts_anew(std::shared_ptr<Flight> flight) {
  flying = std::move(flight);
  broken.clear();
  suspect = false;
  woken = false;
  armed = Clock::time_point::max();
  state = State::kUp;
}

Instance& Instances::add(std::shared_ptr<api::Session> session, std::shared_ptr<Flight> flight) {
  Instance& instance = *all_.emplace_back(std::make_unique<Instance>());
  instance.number = static_cast<int>(all_.size()) - 1;
  instance.flying = flight;
  instance.depth = std::max(1, session->counters().max_in_flight);
  instance.session.put(std::move(session), std::move(flight));
  return instance;
}

size_t Instances::up() const {
  return static_cast<size_t>(std::count_if(all_.begin(), all_.end(), [](const auto& one) { return one->up(); }));
}

bool Instances::any_up() const {
  return std::any_of(all_.begin(), all_.end(), [](const auto& one) { return one->up(); });
}

bool Instances::any_left() const {
  return std::any_of(all_.begin(), all_.end(), [](const auto& one) { return one->state != Instance::State::kGone; });
}

Instance* Instances::least_busy() const {
  Instance* best = nullptr;
  for (const auto& one : all_) {
    if (!one->has_room() || !one->broken.empty() || one->woken) continue;
    if (best == nullptr || one->running < best->running) best = one.get();
  }
  return best;
}

std::vector<JobPtr> Instances::break_stuck(const StepPace& pace, Clock::time_point now, Clock::time_point& next) {
  std::vector<JobPtr> stuck;
  for (const auto& one : all_) {
    const std::chrono::milliseconds limit = pace.limit(one->suspect);
    if (one->running == 0 || limit.count() == 0) continue;
    const auto due = one->busy_since + limit;
    if (due > now) {
      next = std::min(next, due);
      continue;
    }
    if (!one->broken.empty() || !one->up()) continue;
    one->breaks("a step took longer than " + std::to_string(limit.count()) + " ms");
    one->flying->add_jobs(stuck);
  }
  for (const JobPtr& job : stuck) job->state = Job::State::kOver;
  return stuck;
}

std::vector<int> Instances::broken() const {
  std::vector<int> numbers;
  for (const auto& one : all_)
    if (!one->broken.empty() && one->up()) numbers.push_back(one->number);
  return numbers;
}

std::vector<JobPtr> Instances::jobs() const {
  std::vector<JobPtr> jobs;
  for (const auto& one : all_)
    if (one->flying != nullptr) one->flying->add_jobs(jobs);
  return jobs;
}

}  // namespace sluice::serving
