#include <cstring>

#include "fuzz_targets/bytes.h"
#include "fuzz_targets/targets.h"
#include "serving/execution/ports.h"
#include "serving/http/infer_json.h"

namespace sluice::fuzz {

namespace {

// Texts of at most 24 bytes: one, or one a row of at most four.
serving::ModelPorts ports_of(bool batched) {
  inference::ModelConfig config;
  config.set_name("m");
  config.set_max_batch_size(batched ? 4 : 0);
  auto& input = *config.add_input();
  input.set_name("x");
  input.set_data_type(serving::DataType::TYPE_STRING);
  input.add_dims(1);
  api::Port port{.name = "x", .dtype = api::DType::kUInt8, .shape = {24}};
  if (batched) {
    port.shape = {4, 24};
    port.dims = {"batch", ""};
  }
  auto& output = *config.add_output();
  output.set_name("y");
  output.set_data_type(serving::DataType::TYPE_UINT8);
  output.add_dims(24);
  api::Port result = port;
  result.name = "y";
  return {config, {port}, {result}, ""};
}

}  // namespace

int bytes_tensor(const uint8_t* data, size_t size) {
  static const serving::ModelPorts alone = ports_of(false), batched = ports_of(true);
  Bytes bytes(data, size);
  const serving::ModelPorts& ports = bytes.flag() ? batched : alone;
  serving::InferRequest request;
  serving::Tensor& tensor = request.inputs.emplace_back();
  tensor.name = "x";
  tensor.datatype = serving::DataType::TYPE_STRING;
  for (int n = bytes.below(4); n > 0; --n) tensor.shape.push_back(bytes.integer());
  const std::string content = bytes.rest();
  tensor.bytes = content.size();
  tensor.data = serving::BufferPool(0).take(content.size());
  if (!content.empty()) std::memcpy(tensor.data.get(), content.data(), content.size());
  serving::InferResponse response;
  response.outputs.push_back(tensor);
  try {
    const std::string out(serving::answer_of({}, response).json);  // reads no further than there is something
    expect(out.size() <= 6 * content.size() + 200 + 25 * tensor.shape.size(), "bytes_tensor: a large answer", out);
  } catch (const serving::Error& error) {  // strings of JSON are UTF-8
    expect(error.code() == serving::Code::kInvalidArgument, "bytes_tensor: kind of a refusal", error.what());
  }
  try {
    const serving::ModelPorts::Prepared prepared = ports.prepare(request);
    expect(prepared.inputs.size() == 1, "bytes_tensor: inputs");
    const api::Tensor& made = prepared.inputs[0];
    expect(made.dtype() == api::DType::kUInt8 && made.bytes() <= 4 * 24, "bytes_tensor: a larger tensor than the port");
    expect(prepared.rows >= 1 && prepared.rows <= 4, "bytes_tensor: rows");
    volatile uint8_t all = 0;
    for (uint64_t i = 0; i < made.bytes(); ++i) all = all ^ static_cast<const uint8_t*>(made.raw())[i];
  } catch (const serving::Error& error) {
    expect(error.code() == serving::Code::kInvalidArgument || error.code() == serving::Code::kTooLarge,
           "bytes_tensor: kind of a refusal", error.what());
  }
  return 0;
}

}  // namespace sluice::fuzz
