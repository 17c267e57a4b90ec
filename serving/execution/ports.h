#pragma once
// The inputs and outputs of a model as its config shows them to clients, and as its bundle has them.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "inference.pb.h"
#include "serving/core/buffers.h"
#include "serving/core/request.h"
#include "sluice/plan.h"

namespace sluice::serving {

// Dims and shapes here have no batch, where the model has batches.
struct ShownPort {
  std::string name;  // the config's
  api::Port bundle;
  int port = 0;  // of the bundle's
  DataType datatype = DataType::TYPE_INVALID;
  std::vector<int64_t> dims;   // as clients see it; -1: any
  std::vector<int64_t> inner;  // as the bundle has it
  bool reshaped = false;
  std::vector<std::string> labels;
  int lengths = -1;   // of strings: the bundle's port with the length of each; -1: none
  int64_t files = 0;  // of an input of files, as decode_jpeg and decode_image read them: how many at most
  // Requests' rows lie one behind the other in the bundle's first axis: of an input with allow_ragged_batch, and of an
  // output that has a row for each of such an input's.
  bool ragged = false;
  size_t scatter = 0;  // of such an output: the input, of ModelPorts::ragged()
};

// Facts beside the config that decide how clients see inputs of a bundle.
struct PortRoles {
  std::vector<std::string> made;  // inputs that are the server's business, not the clients'
  std::map<std::string, int64_t>
      files;  // inputs that decode_jpeg or decode_image reads, and how many files it takes from there
};
// The inputs of a bundle, or of a member of a family, from its graph.txt.
std::map<std::string, int64_t> inputs_of_files(const std::string& bundle);

// An input that is batched without padding: rows of the bundle's input that are this request's, and the shape that its
// client gave it, without the batch.
struct RaggedInput {
  int64_t rows = 0;
  std::vector<int64_t> shape;
};

// The rows that are asked for of the output, from a step's result.
struct OutputRows {
  const ShownPort& port;
  const api::Tensor& whole;
  int64_t start = 0, rows = 0;           // where there are batches
  const RaggedInput* input = nullptr;    // of a ragged output: the request's input, whose shape it has
  const api::Tensor* lengths = nullptr;  // of strings, where the bundle tells how long they are
};

// Immutable, so thread-safe.
class ModelPorts {
 public:
  // Throws kInvalidArgument where the config contradicts the bundle. `folder`: of the model, for labels.
  ModelPorts(const inference::ModelConfig& config, const std::vector<api::Port>& inputs,
             const std::vector<api::Port>& outputs, const std::string& folder, PortRoles roles = {});

  const std::vector<ShownPort>& inputs() const { return inputs_; }
  const std::vector<ShownPort>& outputs() const { return outputs_; }
  const std::vector<api::Port>& bundle_inputs() const { return bundle_inputs_; }
  // Indices of the inputs() that are ragged, and how many rows of each a step takes.
  const std::vector<size_t>& ragged() const { return ragged_; }
  std::vector<int64_t> ragged_rows() const;
  int64_t max_batch() const { return max_batch_; }  // 0: the model has no batches
  // Rows that the bundle takes always, and fills up for; 0 where it takes as many as there are.
  int64_t fixed_rows() const { return fixed_rows_; }

  int64_t step_rows() const {
    return fixed_rows_ > 0 ? std::min(fixed_rows_, max_batch_) : std::max<int64_t>(max_batch_, 1);
  }

  // Bytes of all outputs of the bundle, at most: for a request's rows, or for a step's.
  uint64_t result_bytes(int64_t rows, const std::vector<RaggedInput>& ragged) const;

  struct Prepared {
    std::vector<api::Tensor> inputs;  // in the bundle's order; empty what the server makes
    int64_t rows = 1;
    std::vector<int> outputs;  // asked for
    std::vector<RaggedInput> ragged;
  };
  // Checks a request and takes its memory. Throws kInvalidArgument with what is wrong.
  Prepared prepare(InferRequest& request) const;
  // The rows of an output as clients see it. Shares the result's memory, except that of BYTES.
  Tensor show(const OutputRows& rows) const;

 private:
  void add_input(const inference::ModelInput& input);
  void add_output(const inference::ModelOutput& output, const std::string& folder);
  void check_batches();
  void find_lengths(const inference::ModelConfig& config);
  api::Tensor lengths_of(const ShownPort& port, const Tensor& given) const;
  void show_strings(const OutputRows& of, Tensor& tensor) const;
  api::Tensor input_tensor(const ShownPort& port, Tensor& given) const;
  void add_ragged(const inference::ModelInput& input, ShownPort& port);
  void find_ragged_outputs(const inference::ModelConfig& config);
  api::Tensor ragged_tensor(const ShownPort& port, Tensor& given, RaggedInput& input) const;
  void check_ragged(const Prepared& prepared) const;
  void show_ragged(const OutputRows& of, Tensor& tensor) const;
  api::Tensor pack_files(const ShownPort& port, const Tensor& given,
                         const std::vector<std::pair<size_t, uint32_t>>& elements) const;
  api::Tensor input_bytes(const ShownPort& port, const Tensor& given) const;
  std::string where(const char* what, const std::string& name) const;

  std::string model_;
  PortRoles roles_;
  std::vector<ShownPort> inputs_, outputs_;
  std::vector<size_t> ragged_;
  std::vector<api::Port> bundle_inputs_, bundle_outputs_;
  int64_t max_batch_ = 0, fixed_rows_ = 0;
};

// "[2,-1]".
std::string shape_text(const std::vector<int64_t>& shape);
// Throws kTooLarge for what is more than 2^48 bytes, kInvalidArgument for a negative dim.
uint64_t checked_bytes(const std::vector<int64_t>& shape, size_t element, const std::string& where);

}  // namespace sluice::serving
