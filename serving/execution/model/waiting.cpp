#include "serving/execution/model/waiting.h"

#include <fmt/format.h>

#include <algorithm>

#include "serving/core/trace.h"

namespace sluice::serving {

WaitingRequests::WaitingRequests(const inference::ModelConfig& config, inference::ModelConfig batching, uint32_t most)
    : where_("model '" + config.name() + "'"),
      config_(config.sequence_batching()),
      batching_(std::move(batching)),
      direct_(config.sequence_batching().has_direct()),
      rows_per_instance_(static_cast<size_t>(std::max(config.max_batch_size(), 1))),
      most_(most),
      batcher_(std::make_unique<const Batcher>(batching_, INT64_MAX)),
      queue_(batching_, most_) {}

void WaitingRequests::open(const ModelPorts& ports) {
  max_batch_ = ports.max_batch();
  batcher_ = std::make_unique<const Batcher>(batching_, ports.step_rows(), ports.ragged_rows());
}

void WaitingRequests::open_sequences(const ModelPorts& ports, const SequencePorts& sequences, int instances) {
  sequence_ports_ = &sequences;
  if (ports.max_batch() > ports.step_rows())
    throw Error(Code::kInvalidArgument, where_ + ": sequence_batching: max_batch_size is more than the bundle's rows");
  const size_t places = static_cast<size_t>(instances) * rows_per_instance_;
  const auto candidates = config_.oldest().max_candidate_sequences();
  if (candidates < 0)
    throw Error(Code::kInvalidArgument, where_ + ": sequence_batching: max_candidate_sequences must not be negative");
  if (config_.direct().minimum_slot_utilization() < 0 || config_.direct().minimum_slot_utilization() > 1)
    throw Error(Code::kInvalidArgument, where_ + ": sequence_batching: minimum_slot_utilization must be of 0 to 1");
  Sequences::Limits limits;
  limits.active = config_.has_oldest() && candidates > 0 ? static_cast<size_t>(candidates) : places;
  if (config_.has_oldest()) limits.active = std::min<size_t>(limits.active, most_);
  limits.waiting = most_;
  const uint64_t idle_us = config_.max_sequence_idle_microseconds();
  constexpr uint64_t kYearUs = 365ull * 24 * 3600 * 1000000;
  limits.idle = std::chrono::microseconds(idle_us == 0 ? 1000000 : std::min(idle_us, kYearUs));
  sequences_ = std::make_unique<Sequences>(limits);
  rows_.resize(static_cast<size_t>(instances));
}

bool WaitingRequests::admit(const JobPtr& job, Clock::time_point now) {
  if (sequences_ == nullptr) return queue_.push(job);
  if (max_batch_ > 0 && job->rows != 1)
    throw Error(Code::kInvalidArgument, fmt::format("infer: {} rows; a request of a sequence has one", job->rows));
  sequence_ports_->check(*job);
  sequences_->admit(job, now);
  make_due();
  return true;
}

// Requests of sequences that may run leave their lines.
void WaitingRequests::make_due() {
  while (JobPtr job = sequences_ != nullptr ? sequences_->next() : nullptr) {
    sequence_ports_->fill(*job, sequences_->state(*job));
    if (direct_) {
      rows_[job->place / rows_per_instance_][row_of(*job)] = job;
      ++due_;
    } else {
      static_cast<void>(queue_.push(job));  // who has a place has room
    }
  }
}

// Once for each request.
void WaitingRequests::go_on(Job& job, std::optional<std::vector<api::Tensor>> state) {
  if (sequences_ == nullptr || std::exchange(job.gone_on, true)) return;
  sequences_->finished(job, std::move(state), Clock::now());
}

void WaitingRequests::finished(const std::vector<JobPtr>& jobs, std::vector<std::vector<api::Tensor>> states) {
  for (size_t j = 0; j < jobs.size(); ++j)
    go_on(*jobs[j], j < states.size() ? std::optional(std::move(states[j])) : std::nullopt);
  make_due();
}

BatchChoice WaitingRequests::choose(int instance, bool idle, Clock::time_point now) const {
  return direct_ ? choose_rows(instance, idle, now) : batcher_->choose(queue_, now, idle);
}

// All that is due, when enough is, or the oldest has waited for long enough.
BatchChoice WaitingRequests::choose_rows(int instance, bool idle, Clock::time_point now) const {
  BatchChoice choice;
  const std::map<size_t, JobPtr>& rows = rows_[static_cast<size_t>(instance)];
  if (rows.empty() || !idle) return choice;
  const inference::ModelSequenceBatching::StrategyDirect& direct = config_.direct();
  Clock::time_point oldest = Clock::time_point::max();
  for (const auto& [row, job] : rows) oldest = std::min(oldest, job->queued);
  const auto due =
      oldest + std::chrono::microseconds(std::min<uint64_t>(direct.max_queue_delay_microseconds(), 3600000000));
  const double used = static_cast<double>(rows.size()) / static_cast<double>(rows_per_instance_);
  if (now < due && used < static_cast<double>(direct.minimum_slot_utilization())) {
    choice.wait = due;
    return choice;
  }
  choice.jobs = rows.size();
  choice.rows = static_cast<int64_t>(choice.jobs);
  return choice;
}

void WaitingRequests::move_next(int instance, Batch& batch, Clock::time_point now) {
  JobPtr job;
  if (direct_) {
    auto& rows = rows_[static_cast<size_t>(instance)];
    job = std::move(rows.begin()->second);
    rows.erase(rows.begin());
    --due_;
  } else {
    job = queue_.pop();
  }
  job->state = Job::State::kRunning;
  job->started = now;
  if (job->request.trace != nullptr) job->request.trace->stamp(Stamp::kComputeStart, now);
  batch.at.push_back(direct_ ? static_cast<int64_t>(row_of(*job)) : batch.rows);
  batch.rows += job->rows;
  batch.end = batch.at.back() + job->rows;
  batch.jobs.push_back(std::move(job));
}

bool WaitingRequests::remove(const JobPtr& job) {
  if (sequences_ == nullptr) return queue_.remove(*job);
  bool found = sequences_->remove(*job);
  if (!found) {
    found = !direct_ && queue_.remove(*job);
    for (auto& rows : rows_) {
      const auto row = rows.find(row_of(*job));
      if (row == rows.end() || row->second != job) continue;
      rows.erase(row);
      --due_;
      found = true;
    }
    if (found) go_on(*job, std::nullopt);
  }
  make_due();
  return found;
}

std::vector<JobPtr> WaitingRequests::clear() {
  std::vector<JobPtr> all = queue_.clear();
  for (auto& rows : rows_) {
    for (const auto& [row, job] : rows) all.push_back(job);
    rows.clear();
  }
  due_ = 0;
  if (sequences_ == nullptr) return all;
  const std::vector<JobPtr> waiting = sequences_->clear();
  for (const JobPtr& job : all) go_on(*job, std::nullopt);
  all.insert(all.end(), waiting.begin(), waiting.end());
  return all;
}

std::vector<JobPtr> WaitingRequests::expire(Clock::time_point now) {
  std::vector<JobPtr> late = queue_.expire(now);
  for (const JobPtr& job : late) job->state = Job::State::kOver;
  for (const JobPtr& job : late) go_on(*job, std::nullopt);
  if (sequences_ != nullptr) sequences_->expire(now);
  make_due();
  return late;
}

Clock::time_point WaitingRequests::sequence_deadline() const {
  return sequences_ != nullptr ? sequences_->next_deadline() : Clock::time_point::max();
}

}  // namespace sluice::serving
