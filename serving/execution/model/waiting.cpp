// Executors of stateful models: where the requests of sequences wait, and what becomes of their state.
#include <algorithm>
#include <cstring>

#include "serving/execution/model/core.h"

namespace sluice::serving {

void ModelCore::open_sequences(const std::vector<api::Port>& inputs, const std::vector<api::Port>& outputs,
                               int instances) {
  if (!spec_.config.has_sequence_batching()) return;
  const inference::ModelSequenceBatching& config = spec_.config.sequence_batching();
  sequence_ports_ = std::make_unique<SequencePorts>(spec_.config, inputs, outputs, spec_.folder);
  if (ports_->max_batch() > ports_->step_rows())
    throw Error(Code::kInvalidArgument, where_ + ": sequence_batching: max_batch_size is more than the bundle's rows");
  const size_t places = static_cast<size_t>(instances) * rows_per_instance();
  const auto candidates = config.oldest().max_candidate_sequences();
  if (candidates < 0)
    throw Error(Code::kInvalidArgument, where_ + ": sequence_batching: max_candidate_sequences must not be negative");
  if (config.direct().minimum_slot_utilization() < 0 || config.direct().minimum_slot_utilization() > 1)
    throw Error(Code::kInvalidArgument, where_ + ": sequence_batching: minimum_slot_utilization must be of 0 to 1");
  Sequences::Limits limits;
  limits.active = config.has_oldest() && candidates > 0 ? static_cast<size_t>(candidates) : places;
  if (config.has_oldest()) limits.active = std::min<size_t>(limits.active, most_waiting_);
  limits.waiting = most_waiting_;
  const uint64_t idle_us = config.max_sequence_idle_microseconds();
  constexpr uint64_t kYearUs = 365ull * 24 * 3600 * 1000000;
  limits.idle = std::chrono::microseconds(idle_us == 0 ? 1000000 : std::min(idle_us, kYearUs));
  sequences_ = std::make_unique<Sequences>(limits);
}

void ModelCore::pump() {
  while (JobPtr job = sequences_ != nullptr ? sequences_->next() : nullptr) {
    sequence_ports_->fill(*job, sequences_->state(*job));
    if (direct()) {
      instances_[job->place / rows_per_instance()]->rows[job->place % rows_per_instance()] = job;
      ++due_rows_;
    } else {
      static_cast<void>(queue_.push(job));  // who has a place has room
    }
  }
  if (sequences_ != nullptr && crew_ != nullptr) arm(sequences_->next_deadline());
}

// Once for each request.
void ModelCore::sequence_goes_on(Job& job, std::optional<std::vector<api::Tensor>> state) {
  if (std::exchange(job.gone_on, true)) return;
  sequences_->finished(job, std::move(state), Clock::now());
}

BatchChoice ModelCore::choose(const Instance& instance, Clock::time_point now) const {
  return direct() ? choose_direct(instance, now) : batcher_->choose(queue_, now, instance.running == 0);
}

// All that is due, when enough is, or the oldest has waited for long enough.
BatchChoice ModelCore::choose_direct(const Instance& instance, Clock::time_point now) const {
  BatchChoice choice;
  if (instance.rows.empty() || instance.running > 0) return choice;
  const inference::ModelSequenceBatching::StrategyDirect& direct = spec_.config.sequence_batching().direct();
  Clock::time_point oldest = Clock::time_point::max();
  for (const auto& [row, job] : instance.rows) oldest = std::min(oldest, job->queued);
  const auto due =
      oldest + std::chrono::microseconds(std::min<uint64_t>(direct.max_queue_delay_microseconds(), 3600000000));
  const double used = static_cast<double>(instance.rows.size()) / static_cast<double>(rows_per_instance());
  if (now < due && used < static_cast<double>(direct.minimum_slot_utilization())) {
    choice.wait = due;
    return choice;
  }
  choice.jobs = instance.rows.size();
  choice.rows = static_cast<int64_t>(choice.jobs);
  return choice;
}

JobPtr ModelCore::take_direct(Instance& instance) {
  const auto first = instance.rows.begin();
  JobPtr job = std::move(first->second);
  instance.rows.erase(first);
  --due_rows_;
  return job;
}

// The next one of its sequence is due then.
bool ModelCore::take_out(const JobPtr& job) {
  if (sequences_ == nullptr) return queue_.remove(*job);
  if (sequences_->remove(*job)) {
    pump();
    return true;
  }
  bool found = !direct() && queue_.remove(*job);
  for (const auto& instance : instances_) {
    const auto row = instance->rows.find(job->place % rows_per_instance());
    if (row == instance->rows.end() || row->second != job) continue;
    instance->rows.erase(row);
    --due_rows_;
    found = true;
  }
  if (found) sequence_goes_on(*job, std::nullopt);
  pump();
  return found;
}

std::vector<JobPtr> ModelCore::take_all() {
  std::vector<JobPtr> all = queue_.clear();
  for (const auto& instance : instances_) {
    for (const auto& [row, job] : instance->rows) all.push_back(job);
    instance->rows.clear();
  }
  due_rows_ = 0;
  if (sequences_ == nullptr) return all;
  const std::vector<JobPtr> waiting = sequences_->clear();
  for (const JobPtr& job : all) sequence_goes_on(*job, std::nullopt);
  all.insert(all.end(), waiting.begin(), waiting.end());
  return all;
}

std::vector<api::Tensor> ModelCore::state_after(const std::vector<api::Tensor>& outputs, int64_t row,
                                                bool alone) const {
  std::vector<api::Tensor> state;
  for (const StatePort& port : sequence_ports_->states()) {
    const api::Tensor& whole = outputs.at(static_cast<size_t>(port.output));
    const bool batched = ports_->max_batch() > 0;
    if (!batched || (alone && whole.shape()[0] == 1)) {
      // A response may show it, too; then it must stay as it is.
      const bool shown = std::any_of(ports_->outputs().begin(), ports_->outputs().end(),
                                     [&](const ShownPort& output) { return output.port == port.output; });
      if (!shown) {
        state.push_back(whole);
        continue;
      }
    }
    std::vector<int64_t> shape = whole.shape();
    if (batched) shape[0] = 1;
    api::Tensor copy(whole.dtype(), std::move(shape));
    const size_t from = batched ? static_cast<size_t>(row) * copy.bytes() : 0;
    if (copy.bytes() > 0) std::memcpy(copy.raw(), static_cast<const uint8_t*>(whole.raw()) + from, copy.bytes());
    state.push_back(std::move(copy));
  }
  return state;
}

}  // namespace sluice::serving
