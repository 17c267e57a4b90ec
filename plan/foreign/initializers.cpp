#include "plan/foreign/initializers.h"

#include "base/error.h"
#include "base/layout.h"

namespace sluice::plan {
namespace {

// Fields of ModelProto, GraphProto and TensorProto, and numbers of DataType.
enum Field : uint64_t { kGraph = 7, kInitializer = 5, kDims = 1, kDataType = 2, kName = 8, kRawData = 9 };

uint64_t number_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 1;
    case DType::kUInt8: return 2;
    case DType::kInt8: return 3;
    case DType::kInt16: return 5;
    case DType::kInt32: return 6;
    case DType::kInt64: return 7;
    case DType::kBool: return 9;
    case DType::kFloat16: return 10;
    case DType::kFloat64: return 11;
    case DType::kBFloat16: return 16;
    default: return 0;
  }
}

void append_varint(std::string& to, uint64_t value) {
  for (; value >= 128; value >>= 7) to += static_cast<char>(value | 128);
  to += static_cast<char>(value);
}
void append_number(std::string& to, Field field, uint64_t value) {
  append_varint(to, field << 3);
  append_varint(to, value);
}
// The head of a field of so many bytes, which follow.
void append_head(std::string& to, Field field, uint64_t bytes) {
  append_varint(to, field << 3 | 2);
  append_varint(to, bytes);
}

}  // namespace

bool has_onnx_type(DType dtype) { return number_of(dtype) != 0; }

std::string onnx_initializers(const std::vector<TensorType>& inputs, const std::vector<const void*>& constants) {
  std::string tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (constants[i] == nullptr) continue;
    SLUICE_CHECK(has_onnx_type(inputs[i].dtype), "a constant of {}; ONNX has none", dtype_name(inputs[i].dtype));
    const uint64_t bytes = TensorSpec::contiguous(inputs[i]).extent_bytes();
    const std::string name = "i" + std::to_string(i);
    std::string head;
    for (const int64_t size : inputs[i].shape) append_number(head, kDims, static_cast<uint64_t>(size));
    append_number(head, kDataType, number_of(inputs[i].dtype));
    append_head(head, kName, name.size());
    head += name;
    append_head(head, kRawData, bytes);
    append_head(tensors, kInitializer, head.size() + bytes);
    tensors += head;
    tensors.append(static_cast<const char*>(constants[i]), bytes);
  }
  std::string graph;
  if (tensors.empty()) return graph;
  append_head(graph, kGraph, tensors.size());
  return graph + tensors;
}

}  // namespace sluice::plan
