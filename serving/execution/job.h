#pragma once
// A request on its way through an executor, and the step that runs several of them.
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serving/core/request.h"
#include "serving/execution/ports.h"
#include "sluice/session.h"

namespace sluice::serving {

class ModelCore;

// A field that has no other note is changed under the core's lock.
struct Job final : RequestHandle, std::enable_shared_from_this<Job> {
  enum class State { kNew, kWaiting, kRunning, kOver };

  void cancel() override;

  std::weak_ptr<ModelCore> core;
  InferRequest request;  // without its inputs' memory, once it is prepared
  Respond respond;
  RequestOptions options;
  std::vector<api::Tensor> inputs;  // in the bundle's order; those that the server makes are empty
  std::vector<int> outputs;         // asked for, of the config's; in the order of the response
  int64_t rows = 1;
  std::vector<RaggedInput> ragged;  // in the order of ModelPorts::ragged()
  std::string key;                  // of the cache, "" when it is not asked
  Held answer, own;                 // counts what it will be answered with; what it has beside its request's memory
  uint64_t number = 0;              // in the order of arrival
  uint64_t sequence = 0;            // that it belongs to; 0: none
  size_t place = 0;                 // of its sequence: an instance, and a row there
  bool gone_on = false;             // its sequence does not wait for it any more

  std::vector<std::shared_ptr<Job>> parts;  // that it was cut into
  bool part = false;                        // it is one of these

  State state = State::kNew;
  Clock::time_point received, queued, started;
  Clock::time_point deadline = Clock::time_point::max();  // in the queue
  std::atomic<bool> answered{false};
};
using JobPtr = std::shared_ptr<Job>;

// A step, and whose rows it has, in this order.
struct Batch {
  std::vector<JobPtr> jobs;
  int64_t rows = 0;                             // of the jobs
  std::vector<int64_t> at;                      // where each job's begin
  int64_t end = 0;                              // of the last row
  std::vector<std::vector<int64_t>> ragged_at;  // by ragged input: where each job's rows begin
  Clock::time_point started, submitted;
  std::optional<api::Result> result;
  int64_t step_rows = 0;  // with those of nobody
  Held padding;           // counts what the step gives for those
  std::string error;      // of a step that failed
  bool traced = false;    // one of its requests is
};
using BatchPtr = std::shared_ptr<Batch>;

}  // namespace sluice::serving
