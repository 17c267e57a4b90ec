#include "serving/http/infer_json.h"

#include <cmath>
#include <cstring>

#include "fuzz_targets/no_server.h"
#include "fuzz_targets/targets.h"

namespace sluice::fuzz {

namespace {

constexpr size_t kMost = size_t{1} << 20;

// Nothing where it is refused.
std::optional<serving::InferHead> parsed(const std::string& text) {
  static const NoServer server;
  serving::BufferPool buffers(0);  // so that every byte beyond a tensor is nobody's
  const auto memory = std::make_shared<serving::MemoryBudget>(32 * kMost);
  const auto share = std::make_shared<serving::MemoryShare>(memory, serving::kMemoryOfInput * kMost);
  try {
    serving::InferHead head = serving::parse_head(text, server, buffers, {kMost, share});
    for (size_t i = 0; i < head.binary.size(); ++i) {
      if (head.binary[i] == 0) continue;
      head.request.inputs[i].data = buffers.take(head.binary[i]);
      std::memset(head.request.inputs[i].data.get(), 0, head.binary[i]);
    }
    return head;
  } catch (const serving::Error& error) {
    expect(error.code() == serving::Code::kInvalidArgument || error.code() == serving::Code::kTooLarge,
           "infer_json: kind of a refusal", error.what());
    expect(*error.what() != '\0', "infer_json: an error without a text", text);
    return std::nullopt;
  }
}

bool is_the_same(const serving::Tensor& a, const serving::Tensor& b) {
  if (a.name != b.name || a.datatype != b.datatype || a.shape != b.shape || a.bytes != b.bytes) return false;
  if (a.bytes == 0 || std::memcmp(a.data.get(), b.data.get(), a.bytes) == 0) return true;
  if (a.datatype != serving::DataType::TYPE_FP64) return false;
  // Boost.JSON 1.81 reads long numbers with a last bit that may be wrong.
  const auto *x = static_cast<const double*>(a.data.get()), *y = static_cast<const double*>(b.data.get());
  for (size_t i = 0; i < a.bytes / sizeof *x; ++i)
    if (std::abs(x[i] - y[i]) > 1e-14 * std::abs(x[i]) + 1e-320) return false;
  return true;
}

// As many elements as the shape says, of a datatype that JSON has. Binary data may be anything until a model takes it.
bool has_form_in_json(const serving::Tensor& tensor) {
  uint64_t count = 1;
  for (const int64_t dim : tensor.shape) count *= static_cast<uint64_t>(dim);  // 2^48 at most, or refused
  if (tensor.datatype == serving::DataType::TYPE_FP16 || tensor.datatype == serving::DataType::TYPE_BF16) return false;
  if (tensor.datatype != serving::DataType::TYPE_STRING)
    return tensor.bytes == count * serving::datatype_size(tensor.datatype);
  const auto* const data = static_cast<const char*>(tensor.data.get());
  for (size_t at = 0; at < tensor.bytes; --count) {
    uint32_t length = 0;
    if (tensor.bytes - at < sizeof length || count == 0) return false;
    std::memcpy(&length, data + at, sizeof length);
    if (length > tensor.bytes - at - sizeof length) return false;
    at += sizeof length + length;
  }
  return count == 0;
}

}  // namespace

int infer_json(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::optional<serving::InferHead> head = parsed(text);
  if (!head) return 0;
  const std::vector<serving::Tensor>& inputs = head->request.inputs;
  expect(head->binary.size() == inputs.size(), "infer_json: inputs and their bytes", text);
  expect(head->binary_bytes() <= kMost, "infer_json: more bytes than are allowed", text);
  expect(head->form.outputs.size() == head->request.outputs.size(), "infer_json: outputs and their forms", text);
  // Values that fit their shape go out as JSON, and are the same when they come in again.
  serving::InferResponse response;
  for (const serving::Tensor& input : inputs) {
    expect(input.bytes == 0 || input.data != nullptr, "infer_json: a tensor without memory", text);
    if (has_form_in_json(input)) response.outputs.push_back(input);
  }
  const std::string out(serving::answer_of({}, response).json);
  const size_t outputs = out.find("\"outputs\":");
  expect(outputs != std::string::npos, "infer_json: the answer has no outputs", out);
  const std::optional<serving::InferHead> second = parsed("{\"inputs\":" + out.substr(outputs + 10));
  expect(second.has_value(), "infer_json: the answer is refused as a request", out);
  for (size_t i = 0; i < response.outputs.size(); ++i)
    expect(is_the_same(response.outputs[i], second->request.inputs.at(i)),
           "infer_json: not the same when it comes again", out);
  return 0;
}

}  // namespace sluice::fuzz
