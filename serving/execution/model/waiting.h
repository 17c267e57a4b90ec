#pragma once
// The requests of a model that wait for a step.
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "serving/execution/batcher.h"
#include "serving/execution/queue.h"
#include "serving/execution/sequences.h"

namespace sluice::serving {

// Not thread-safe: the executor's lock guards it.
//
// Invariants:
// 1. A request that waits is in one place: in the queue, in the line of its sequence, or, with direct sequences, in the
//    row of an instance that its sequence has. `due_` counts those rows that have one.
// 2. One request of a sequence at a time is due, or runs. The next one is due once finished() or remove() has been told
//    of that one; then what may run has left its line before the call returns.
class WaitingRequests {
 public:
  // `batching`: how requests are merged (batching_of()). `most`: requests that wait, of a queue that does not say.
  // Throws kInvalidArgument for a config that contradicts itself.
  WaitingRequests(const inference::ModelConfig& config, inference::ModelConfig batching, uint32_t most);

  // Before the first request. These throw kInvalidArgument where the config contradicts the bundle; `sequences`
  // outlives this.
  void open(const ModelPorts& ports);
  void open_sequences(const ModelPorts& ports, const SequencePorts& sequences, int instances);

  bool stateful() const { return sequences_ != nullptr; }
  // Takes a request in. False when there is no room. Throws Error for one that its sequence does not take.
  bool admit(const JobPtr& job, Clock::time_point now);
  bool any() const { return !queue_.empty() || due_ > 0; }
  // Those that may be in the next steps, rows of instances apart.
  const RequestQueue& queue() const { return queue_; }

  // Chooses those that an instance's next step runs. `idle`: it has no step under way.
  BatchChoice choose(int instance, bool idle, Clock::time_point now) const;
  // There is none that this instance could run, whatever comes to others.
  bool none_for(int instance) const { return direct_ && rows_[static_cast<size_t>(instance)].empty(); }
  // Takes out the next one of the instance's step, and adds it there.
  void move_next(int instance, Batch& batch, Clock::time_point now);
  // Takes the request out; false if it does not wait.
  bool remove(const JobPtr& job);
  // Takes out all.
  std::vector<JobPtr> clear();
  // Takes out those that have waited too long, which are over, and ends sequences that nobody goes on with.
  std::vector<JobPtr> expire(Clock::time_point now);
  // Requests are over, and have left these states to the next ones of their sequences; none: no state.
  void finished(const std::vector<JobPtr>& jobs, std::vector<std::vector<api::Tensor>> states = {});

  // When expire() should be called; max(): never.
  Clock::time_point next_deadline() const { return std::min(queue_.next_deadline(), sequence_deadline()); }
  Clock::time_point sequence_deadline() const;

 private:
  size_t row_of(const Job& job) const { return job.place % rows_per_instance_; }
  void make_due();
  void go_on(Job& job, std::optional<std::vector<api::Tensor>> state);
  BatchChoice choose_rows(int instance, bool idle, Clock::time_point now) const;

  const std::string where_;
  const inference::ModelSequenceBatching config_;  // of a model without sequences empty
  const inference::ModelConfig batching_;
  const bool direct_;
  const size_t rows_per_instance_;
  const uint32_t most_;
  int64_t max_batch_ = 0;
  std::unique_ptr<const Batcher> batcher_;
  RequestQueue queue_;
  const SequencePorts* sequence_ports_ = nullptr;
  std::unique_ptr<Sequences> sequences_;
  std::vector<std::map<size_t, JobPtr>> rows_;  // by instance
  size_t due_ = 0;
};

}  // namespace sluice::serving
