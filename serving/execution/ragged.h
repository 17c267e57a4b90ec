#pragma once
// Ragged inputs: requests of other lengths share a step without padding. Their elements lie one behind the other in one
// input of the bundle, and further inputs, which the server makes, tell the model whose they are.
//
// A request of such a model has one row. With a family of plans, a step is filled up here, to the member that fits, so
// that elements beyond the last request mean nobody: zeros, but the last value for accumulated counts.
#include <string>
#include <vector>

#include "model_config.pb.h"
#include "serving/core/buffers.h"
#include "serving/execution/job.h"
#include "serving/execution/ports.h"

namespace sluice::serving {

// Immutable, so thread-safe.
class RaggedBatch {
 public:
  // Inputs of the bundle that are made here, by its own names.
  static std::vector<std::string> made(const inference::ModelConfig& config, const std::vector<api::Port>& inputs);

  // `dims`, `members`: of the bundle's plans (api::Plan). Throws kInvalidArgument where the config contradicts the
  // bundle. `ports` outlives it.
  RaggedBatch(const inference::ModelConfig& config, const ModelPorts& ports, const std::vector<std::string>& dims,
              std::vector<std::vector<int64_t>> members);

  // The inputs of a step, in the bundle's order. Fills batch.ragged_at.
  std::vector<api::Tensor> gather(Batch& batch, BufferPool& buffers) const;

 private:
  using Kind = inference::BatchInput;
  struct Made {
    int port = 0;  // of the bundle's inputs
    inference::BatchInput::Kind kind = Kind::BATCH_ELEMENT_COUNT;
    size_t source = 0;  // of ModelPorts::ragged()
  };
  // How long the first axes of the bundle's inputs are: of a family as long as those of the member that fits.
  std::vector<int64_t> extents(std::vector<int64_t> needed) const;
  std::vector<int64_t> values_of(const Made& made, const Batch& batch) const;
  void check(const Made& made, const std::string& where) const;

  static constexpr int kFixed = -1, kAsNeeded = -2;
  const ModelPorts& ports_;
  std::vector<Made> made_;
  std::vector<int> dims_;                      // of the bundle's inputs: of their first axis
  std::vector<std::vector<int64_t>> members_;  // extents by dim
};

}  // namespace sluice::serving
