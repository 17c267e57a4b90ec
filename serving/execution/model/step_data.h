#pragma once
// Makes the inputs of steps from requests, and answers from the results: it stands between the memory of requests and
// that of the bundle.
#include <memory>
#include <string>
#include <vector>

#include "serving/core/buffers.h"
#include "serving/execution/job.h"
#include "serving/execution/model/answers.h"
#include "serving/execution/ports.h"
#include "serving/execution/ragged.h"
#include "serving/execution/sequences.h"

namespace sluice::serving {

struct StepResults;

// Immutable once open, so that any thread may use it without a lock.
//
// Invariants:
// 1. A step has the rows of its requests at Batch::at, and rows of nobody around them: as many as the bundle's fixed
//    rows, or the next allowed batch, ask for.
// 2. Memory that is held for a request counts in its share: its texts and answer from prepare() and count_answer()
//    on, a step's rows of nobody with its first request.
class StepData {
 public:
  // `config` outlives this.
  StepData(const inference::ModelConfig& config, std::string folder, std::string where)
      : config_(config), folder_(std::move(folder)), where_(std::move(where)), buffers_(size_t{64} << 20) {}

  // Sizes to which batches are filled up, ascending; before open(). None: all.
  void allow_batches(std::vector<int64_t> sizes) { allowed_ = std::move(sizes); }
  // These throw Error where the config contradicts the bundle.
  void open(const std::vector<api::Port>& inputs, const std::vector<api::Port>& outputs, const std::string& bundle);
  void open_sequences(const std::vector<api::Port>& inputs, const std::vector<api::Port>& outputs);
  bool is_open() const { return ports_ != nullptr; }
  const ModelPorts& ports() const { return *ports_; }
  const SequencePorts* sequences() const { return sequence_ports_.get(); }  // null: of a model without any

  // Checks a request and takes its memory. Throws what is wrong with it.
  void prepare(Job& job) const;
  // Counts what it will be answered with, before there is any of it. Throws what the request's share does.
  void count_answer(Job& job) const;
  // The inputs of the step, in the bundle's order; takes those of its requests.
  std::vector<api::Tensor> gather(Batch& batch);
  // Each request's answer, or why it has none, from the results of a step. `counts`: keeps the memory counted until the
  // answers do; null where nobody counts.
  struct Shown {
    std::vector<InferResponse> responses;
    std::shared_ptr<const void> counts;
  };
  Shown show(Batch& batch, const std::vector<api::Tensor>& outputs, const Answers& answers) const;
  // The states that the requests of a step leave for the next ones of their sequences.
  std::vector<std::vector<api::Tensor>> states_after(const Batch& batch, const std::vector<api::Tensor>& outputs) const;

  // A request of more rows than a step takes becomes several, which nobody answers yet.
  std::vector<JobPtr> cut(const Job& job) const;
  // The outputs of all parts, one behind the other. Throws what the request's share of memory does.
  std::vector<Tensor> join(const Job& job, const std::vector<InferResponse>& parts);

 private:
  void count_texts(Job& job) const;
  void count_padding(Batch& batch) const;
  api::Tensor gather_input(const Batch& batch, size_t input);
  std::vector<Tensor> show_job(const Batch& batch, size_t j, const std::vector<api::Tensor>& outputs,
                               const std::shared_ptr<StepResults>& results) const;
  std::vector<api::Tensor> state_after(const std::vector<api::Tensor>& outputs, int64_t row, bool alone) const;

  const inference::ModelConfig& config_;
  const std::string folder_, where_;
  std::vector<int64_t> allowed_;
  std::unique_ptr<const ModelPorts> ports_;
  std::unique_ptr<const RaggedBatch> ragged_;            // of a model with ragged inputs
  std::unique_ptr<const SequencePorts> sequence_ports_;  // of a model with sequences
  BufferPool buffers_;                                   // thread-safe
};

}  // namespace sluice::serving
