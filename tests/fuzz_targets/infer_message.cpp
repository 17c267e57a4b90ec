#include <google/protobuf/stubs/logging.h>

#include "fuzz_targets/no_server.h"
#include "fuzz_targets/targets.h"
#include "serving/grpc/grpc_codec.h"

namespace sluice::fuzz {

int infer_message(const uint8_t* data, size_t size) {
  static const NoServer server;
  serving::BufferPool buffers(0);
  static const auto log = google::protobuf::SetLogHandler(nullptr);  // which tells of every text that is none
  static_cast<void>(log);
  inference::ModelInferRequest message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  serving::InferRequest request;
  try {
    request = serving::request_of(message, server, buffers, nullptr);
  } catch (const serving::Error& error) {
    expect(error.code() == serving::Code::kInvalidArgument || error.code() == serving::Code::kTooLarge,
           "infer_message: kind of a refusal", error.what());
    return 0;
  }
  expect(request.inputs.size() == static_cast<size_t>(message.inputs_size()), "infer_message: inputs");
  uint64_t bytes = 0;
  for (const serving::Tensor& input : request.inputs) {
    expect(input.bytes == 0 || input.data != nullptr, "infer_message: a tensor without memory", input.name);
    bytes += input.bytes;
    for (const int64_t dim : input.shape) expect(dim >= 0, "infer_message: a negative dim", input.name);
  }
  // Eight bytes for each of the message, and shared memory.
  expect(bytes <= 8 * size + NoServer::kRegion * request.inputs.size(), "infer_message: more bytes than were sent");
  serving::InferResponse response;
  response.outputs = request.inputs;
  response.parameters = request.parameters;
  inference::ModelInferResponse out;
  fill(out, response, serving::shared_outputs(request));
  expect(out.outputs_size() == message.inputs_size() && out.raw_output_contents_size() == out.outputs_size(),
         "infer_message: outputs");
  return 0;
}

}  // namespace sluice::fuzz
