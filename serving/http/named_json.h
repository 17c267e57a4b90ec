#pragma once
// Requests whose JSON names tensors and says nothing of their datatypes and shapes: TensorFlow Serving's predict, and
// the generate extension. Those are the model's. No network here.
#include <string>
#include <string_view>

#include "serving/http/infer_json.h"

namespace sluice::serving {

// How the response is written.
enum class NamedForm {
  kRows,     // {"predictions": [..]}: a value, or an object of them, for each instance
  kColumns,  // {"outputs": ..}: a tensor, or an object of them
  kValues,   // {"model_name": .., "OUTPUT": ..}: a value where there is one, else a flat list
};

struct NamedRequest {
  InferRequest request;
  NamedForm form = NamedForm::kColumns;
};

// "instances" or "inputs", as TensorFlow Serving's clients send them. Throws Error for whatever is wrong.
NamedRequest predict_request(std::string_view body, const inference::ModelMetadataResponse& model, BufferPool& buffers,
                             const InferLimits& limits);
// {"INPUT": .., "parameters": {..}, "id": ".."}.
NamedRequest generate_request(std::string_view body, const inference::ModelMetadataResponse& model, BufferPool& buffers,
                              const InferLimits& limits);
// Writes the answer into `out`, in turns. REQUIRES: no error. Throws kInvalidArgument for outputs that have no rows,
// where rows are asked for.
Turns write_named(NamedForm form, const InferResponse& response, Text& out);

}  // namespace sluice::serving
