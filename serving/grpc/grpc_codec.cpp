#include "serving/grpc/grpc_codec.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

namespace sluice::serving {

namespace {

using inference::InferParameter;
using ParameterMap = google::protobuf::Map<std::string, InferParameter>;
using InputMessage = inference::ModelInferRequest::InferInputTensor;

// Memory that counts in a request's share.
struct Buffers {
  BufferPool& pool;
  const MemoryPtr& share;
  std::shared_ptr<void> take(size_t bytes) { return pool.take(bytes, share); }
};

std::optional<Parameter> value_of(const InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case InferParameter::kBoolParam: return parameter.bool_param();
    case InferParameter::kInt64Param: return parameter.int64_param();
    case InferParameter::kUint64Param: return parameter.uint64_param();
    case InferParameter::kDoubleParam: return parameter.double_param();
    case InferParameter::kStringParam: return parameter.string_param();
    case InferParameter::PARAMETER_CHOICE_NOT_SET: return std::nullopt;
  }
  return std::nullopt;
}

uint64_t unsigned_of(const ParameterMap& map, const std::string& name, const std::string& where, uint64_t absent) {
  const auto found = map.find(name);
  if (found == map.end()) return absent;
  const InferParameter& value = found->second;
  if (value.parameter_choice_case() == InferParameter::kUint64Param) return value.uint64_param();
  if (value.parameter_choice_case() == InferParameter::kInt64Param && value.int64_param() >= 0)
    return static_cast<uint64_t>(value.int64_param());
  throw Error(Code::kInvalidArgument, where + ": parameter '" + name + "' must be a number that is not negative");
}

std::optional<SharedRegion> region_of(const ParameterMap& map, const std::string& where) {
  const auto found = map.find("shared_memory_region");
  if (found == map.end()) return std::nullopt;
  if (found->second.parameter_choice_case() != InferParameter::kStringParam)
    throw Error(Code::kInvalidArgument, where + ": parameter 'shared_memory_region' must be a name");
  if (map.find("shared_memory_byte_size") == map.end())
    throw Error(Code::kInvalidArgument, where + ": parameter 'shared_memory_byte_size' is missing");
  return SharedRegion{found->second.string_param(), unsigned_of(map, "shared_memory_offset", where, 0),
                      unsigned_of(map, "shared_memory_byte_size", where, 0)};
}

void take_bytes(Tensor& tensor, const void* data, size_t bytes, Buffers& buffers) {
  tensor.data = buffers.take(bytes);
  tensor.bytes = bytes;
  if (bytes > 0) std::memcpy(tensor.data.get(), data, bytes);
}

// Numbers of `from`, each in the range of T.
template <class T, class Field>
void take_numbers(Tensor& tensor, const Field& from, const std::string& where, Buffers& buffers) {
  tensor.bytes = sizeof(T) * static_cast<size_t>(from.size());
  tensor.data = buffers.take(tensor.bytes);
  T* out = static_cast<T*>(tensor.data.get());
  for (const auto value : from) {
    if constexpr (sizeof(T) < sizeof(value))
      if (value < std::numeric_limits<T>::lowest() || value > std::numeric_limits<T>::max())
        throw Error(Code::kInvalidArgument, fmt::format("{}: contents: {} is out of the range of {}", where, value,
                                                        datatype_name(tensor.datatype)));
    *out++ = static_cast<T>(value);
  }
}

void take_strings(Tensor& tensor, const google::protobuf::RepeatedPtrField<std::string>& from, Buffers& buffers) {
  size_t bytes = 0;
  for (const std::string& text : from) bytes += sizeof(uint32_t) + text.size();
  tensor.bytes = bytes;
  tensor.data = buffers.take(bytes);
  char* out = static_cast<char*>(tensor.data.get());
  for (const std::string& text : from) {
    const auto size = static_cast<uint32_t>(text.size());  // a message has less than 4 GiB
    std::memcpy(out, &size, sizeof size);
    if (!text.empty()) std::memcpy(out + sizeof size, text.data(), text.size());
    out += sizeof size + text.size();
  }
}

// Which field of the contents a datatype has is the protocol's choice; the others must be empty.
void take_contents(Tensor& tensor, const inference::InferTensorContents& c, const std::string& where,
                   Buffers& buffers) {
  const int all = c.bool_contents_size() + c.int_contents_size() + c.int64_contents_size() + c.uint_contents_size() +
                  c.uint64_contents_size() + c.fp32_contents_size() + c.fp64_contents_size() + c.bytes_contents_size();
  const auto only = [&](int size) {
    if (size != all)
      throw Error(Code::kInvalidArgument, fmt::format("{}: contents are in another field than that of {}", where,
                                                      datatype_name(tensor.datatype)));
  };
  switch (tensor.datatype) {
    case DataType::TYPE_BOOL:
      only(c.bool_contents_size());
      return take_numbers<bool>(tensor, c.bool_contents(), where, buffers);
    case DataType::TYPE_INT8:
      only(c.int_contents_size());
      return take_numbers<int8_t>(tensor, c.int_contents(), where, buffers);
    case DataType::TYPE_INT16:
      only(c.int_contents_size());
      return take_numbers<int16_t>(tensor, c.int_contents(), where, buffers);
    case DataType::TYPE_INT32:
      only(c.int_contents_size());
      return take_numbers<int32_t>(tensor, c.int_contents(), where, buffers);
    case DataType::TYPE_INT64:
      only(c.int64_contents_size());
      return take_numbers<int64_t>(tensor, c.int64_contents(), where, buffers);
    case DataType::TYPE_UINT8:
      only(c.uint_contents_size());
      return take_numbers<uint8_t>(tensor, c.uint_contents(), where, buffers);
    case DataType::TYPE_UINT16:
      only(c.uint_contents_size());
      return take_numbers<uint16_t>(tensor, c.uint_contents(), where, buffers);
    case DataType::TYPE_UINT32:
      only(c.uint_contents_size());
      return take_numbers<uint32_t>(tensor, c.uint_contents(), where, buffers);
    case DataType::TYPE_UINT64:
      only(c.uint64_contents_size());
      return take_numbers<uint64_t>(tensor, c.uint64_contents(), where, buffers);
    case DataType::TYPE_FP32:
      only(c.fp32_contents_size());
      return take_numbers<float>(tensor, c.fp32_contents(), where, buffers);
    case DataType::TYPE_FP64:
      only(c.fp64_contents_size());
      return take_numbers<double>(tensor, c.fp64_contents(), where, buffers);
    case DataType::TYPE_STRING: only(c.bytes_contents_size()); return take_strings(tensor, c.bytes_contents(), buffers);
    default:
      throw Error(Code::kInvalidArgument, fmt::format("{}: {} has no contents of its own; send raw_input_contents",
                                                      where, datatype_name(tensor.datatype)));
  }
}

void check_shape(const InputMessage& input, const std::string& where) {
  check_count(static_cast<size_t>(input.shape_size()), kMostDims, "dims");
  for (const int64_t dim : input.shape())
    if (dim < 0)
      throw Error(Code::kInvalidArgument, fmt::format("{}: shape: {}; dims must not be negative", where, dim));
}

}  // namespace

InferRequest request_of(const inference::ModelInferRequest& message, const Server& server, BufferPool& pool,
                        const MemoryPtr& share) {
  Buffers buffers{pool, share};
  check_count(static_cast<size_t>(message.inputs_size()), kMostTensors, "inputs");
  check_count(static_cast<size_t>(message.outputs_size()), kMostTensors, "outputs");
  check_count(message.parameters().size(), kMostParameters, "parameters");
  InferRequest request;
  request.memory = share;
  request.model = message.model_name();
  request.version = message.model_version();
  request.id = message.id();
  request.transport = Transport::kGrpc;
  for (const auto& [name, parameter] : message.parameters()) {
    const auto value = value_of(parameter);
    if (!value) throw Error(Code::kInvalidArgument, "infer: parameter '" + name + "' has no value");
    request.parameters.emplace(name, *value);
  }
  const auto& raw = message.raw_input_contents();
  int next = 0;
  for (const InputMessage& input : message.inputs()) {
    const std::string where = "infer: input '" + input.name() + "'";
    check_shape(input, where);
    Tensor tensor;
    tensor.name = input.name();
    tensor.datatype = datatype_of(input.datatype());
    tensor.shape.assign(input.shape().begin(), input.shape().end());
    if (const auto region = region_of(input.parameters(), where)) {
      if (input.has_contents()) throw Error(Code::kInvalidArgument, where + ": both contents and shared memory");
      check_region(tensor, *region, where);
      tensor.data = server.shared_bytes(*region, share);
      tensor.bytes = region->bytes;
    } else if (!raw.empty()) {
      if (input.has_contents())
        throw Error(Code::kInvalidArgument,
                    where + ": contents beside raw_input_contents; one of the two must hold all inputs");
      if (next == raw.size())
        throw Error(Code::kInvalidArgument,
                    fmt::format("{}: raw_input_contents has {} entries, fewer than inputs", where, raw.size()));
      const std::string& bytes = raw[next++];
      take_bytes(tensor, bytes.data(), bytes.size(), buffers);
    } else {
      take_contents(tensor, input.contents(), where, buffers);
    }
    request.inputs.push_back(std::move(tensor));
  }
  if (next != raw.size())
    throw Error(Code::kInvalidArgument,
                fmt::format("infer: raw_input_contents has {} entries; {} inputs read them", raw.size(), next));
  for (const auto& output : message.outputs()) {
    const std::string where = "infer: output '" + output.name() + "'";
    const uint64_t classes = unsigned_of(output.parameters(), "classification", where, 0);
    if (classes > std::numeric_limits<uint32_t>::max())
      throw Error(Code::kInvalidArgument, fmt::format("{}: classification: {} classes are too many", where, classes));
    RequestedOutput asked{output.name(), static_cast<uint32_t>(classes), region_of(output.parameters(), where)};
    if (asked.shared && classes > 0)
      throw Error(Code::kInvalidArgument, where + ": classification cannot be written to shared memory");
    request.outputs.push_back(std::move(asked));
  }
  return request;
}

std::map<std::string, SharedRegion> shared_outputs(const InferRequest& request) {
  std::map<std::string, SharedRegion> shared;
  for (const RequestedOutput& output : request.outputs)
    if (output.shared) shared.emplace(output.name, *output.shared);
  return shared;
}

void fill(inference::ModelInferResponse& message, const InferResponse& response,
          const std::map<std::string, SharedRegion>& shared) {
  message.set_model_name(response.model);
  message.set_model_version(response.version);
  message.set_id(response.id);
  for (const auto& [name, value] : response.parameters) {
    InferParameter& parameter = (*message.mutable_parameters())[name];
    if (const auto* b = std::get_if<bool>(&value)) parameter.set_bool_param(*b);
    if (const auto* i = std::get_if<int64_t>(&value)) parameter.set_int64_param(*i);
    if (const auto* u = std::get_if<uint64_t>(&value)) parameter.set_uint64_param(*u);
    if (const auto* d = std::get_if<double>(&value)) parameter.set_double_param(*d);
    if (const auto* s = std::get_if<std::string>(&value)) parameter.set_string_param(*s);
  }
  for (const Tensor& tensor : response.outputs) {
    auto& output = *message.add_outputs();
    output.set_name(tensor.name);
    output.set_datatype(std::string(datatype_name(tensor.datatype)));
    output.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    const auto found = shared.find(tensor.name);
    if (found == shared.end()) {
      message.add_raw_output_contents(static_cast<const char*>(tensor.data.get()), tensor.bytes);
      continue;
    }
    auto& parameters = *output.mutable_parameters();
    parameters["shared_memory_region"].set_string_param(found->second.region);
    parameters["shared_memory_byte_size"].set_uint64_param(found->second.bytes);
    if (found->second.offset > 0) parameters["shared_memory_offset"].set_uint64_param(found->second.offset);
    message.add_raw_output_contents();  // as many entries as outputs
  }
}

}  // namespace sluice::serving
