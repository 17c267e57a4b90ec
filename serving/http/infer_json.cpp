#include "serving/http/infer_json.h"

#include <fmt/format.h>

#include <boost/json/value.hpp>
#include <cstring>
#include <limits>
#include <set>

#include "serving/core/json_string.h"
#include "serving/http/json_body.h"
#include "serving/http/json_tensors.h"

namespace sluice::serving {

namespace {

namespace json = boost::json;

std::string string_of(const json::object& object, const char* key, const std::string& where) {
  const json::value* const value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) wrong(where + ": '" + key + "' must be a string");
  return std::string(value->get_string());
}
const json::array* list_of(const json::object& object, const char* key, const std::string& where) {
  const json::value* const value = object.if_contains(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) wrong(where + ": '" + key + "' must be a list");
  return &value->get_array();
}
uint64_t unsigned_of(const json::value& value, const std::string& what) {
  if (value.is_uint64()) return value.get_uint64();
  if (value.is_int64() && value.get_int64() >= 0) return static_cast<uint64_t>(value.get_int64());
  wrong(what + " must be a number that is not negative");
}
bool bool_of(const json::value& value, const std::string& what) {
  if (!value.is_bool()) wrong(what + " must be true or false");
  return value.get_bool();
}

// The `parameters` of a tensor.
struct TensorParameters {
  std::optional<uint64_t> binary_bytes;
  std::optional<bool> binary;
  uint64_t classes = 0;
  std::optional<SharedRegion> shared;
};
TensorParameters parameters_of(const json::object& object, const std::string& where) {
  TensorParameters p;
  const json::value* const value = object.if_contains("parameters");
  if (value == nullptr) return p;
  std::optional<uint64_t> bytes, offset;
  std::optional<std::string> region;
  for (const auto& [key, v] : object_of(*value, where + ": parameters")) {
    const std::string what = where + ": parameter '" + std::string(key) + "'";
    if (key == "binary_data_size") p.binary_bytes = unsigned_of(v, what);
    if (key == "binary_data") p.binary = bool_of(v, what);
    if (key == "classification") p.classes = unsigned_of(v, what);
    if (key == "shared_memory_byte_size") bytes = unsigned_of(v, what);
    if (key == "shared_memory_offset") offset = unsigned_of(v, what);
    if (key == "shared_memory_region") {
      if (!v.is_string()) wrong(what + " must be a name");
      region = std::string(v.get_string());
    }
  }
  if (region) {
    if (!bytes) wrong(where + ": parameter 'shared_memory_byte_size' is missing");
    p.shared = SharedRegion{*region, offset.value_or(0), *bytes};
  } else if (bytes || offset) {
    wrong(where + ": parameter 'shared_memory_region' is missing");
  }
  return p;
}

std::vector<int64_t> shape_of(const json::object& object, const std::string& where) {
  const json::array* const list = list_of(object, "shape", where);
  if (list == nullptr) wrong(where + ": 'shape' is missing");
  check_count(list->size(), kMostDims, "dims");
  std::vector<int64_t> shape;
  for (const json::value& dim : *list) {
    if (!dim.is_int64() || dim.get_int64() < 0)
      wrong(where + ": shape: dims must be whole numbers that are not negative");
    shape.push_back(dim.get_int64());
  }
  return shape;
}

}  // namespace

size_t InferHead::binary_bytes() const {
  size_t bytes = 0;
  for (size_t i = 0; i < binary.size(); ++i) bytes += binary[i];
  return bytes;
}

namespace {

class HeadParser {
 public:
  HeadParser(const Server& server, BufferPool& buffers, const InferLimits& limits)
      : server_(server), buffers_(buffers), limits_(limits) {}

  InferHead parse(const json::object& root) {
    if (const json::value* const id = root.if_contains("id"); id != nullptr) {
      if (!id->is_string()) wrong("infer: 'id' must be a string");
      head_.request.id = std::string(id->get_string());
    }
    if (const json::value* const parameters = root.if_contains("parameters"); parameters != nullptr) {
      const json::object& all = object_of(*parameters, "infer: parameters");
      check_count(all.size(), kMostParameters, "parameters");
      for (const auto& [key, value] : all) request_parameter(std::string(key), value);
    }
    const json::array* const inputs = list_of(root, "inputs", "infer");
    if (inputs == nullptr) wrong("infer: 'inputs' is missing");
    check_count(inputs->size(), kMostTensors, "inputs");
    for (const json::value& value : *inputs) input(object_of(value, "infer: inputs"));
    const json::array* const outputs = list_of(root, "outputs", "infer");
    if (outputs == nullptr) return std::move(head_);
    check_count(outputs->size(), kMostTensors, "outputs");
    for (const json::value& value : *outputs) output(object_of(value, "infer: outputs"));
    return std::move(head_);
  }

 private:
  void request_parameter(const std::string& name, const json::value& value) {
    if (name == "binary_data_output") {
      head_.form.binary = bool_of(value, "infer: parameter 'binary_data_output'");
    } else if (name == "headers") {
      return;  // those of HTTP, for models that ask for them; there are none
    } else {
      head_.request.parameters.emplace(name, parameter_of(value, name));
    }
  }

  void input(const json::object& object) {
    Tensor tensor;
    tensor.name = string_of(object, "name", "infer: inputs");
    const std::string where = "infer: input '" + tensor.name.substr(0, 128) + "'";
    tensor.datatype = datatype_of(string_of(object, "datatype", where));
    tensor.shape = shape_of(object, where);
    elements_of(tensor.shape, where);
    const TensorParameters p = parameters_of(object, where);
    const json::value* const data = object.if_contains("data");
    if ((data != nullptr) + p.binary_bytes.has_value() + p.shared.has_value() != 1)
      wrong(where + ": it must have one of 'data', 'binary_data_size' and 'shared_memory_region'");
    size_t behind = 0;
    if (data != nullptr) {
      take_json(tensor, *data, where, buffers_, limits_.most_bytes, limits_.memory);
    } else if (p.shared) {
      check_region(tensor, *p.shared, where);
      tensor.data = server_.shared_bytes(*p.shared, limits_.memory);
      tensor.bytes = p.shared->bytes;
    } else {
      binary_ += *p.binary_bytes;
      if (*p.binary_bytes > limits_.most_bytes || binary_ > limits_.most_bytes)
        throw Error(Code::kTooLarge, fmt::format("{}: {} bytes of binary data; at most {} are allowed", where,
                                                 *p.binary_bytes, limits_.most_bytes));
      behind = tensor.bytes = *p.binary_bytes;
    }
    head_.binary.push_back(behind);
    head_.request.inputs.push_back(std::move(tensor));
  }

  void output(const json::object& object) {
    RequestedOutput asked;
    asked.name = string_of(object, "name", "infer: outputs");
    const std::string where = "infer: output '" + asked.name.substr(0, 128) + "'";
    if (!names_.insert(asked.name).second) wrong(where + ": it is asked for twice");
    const TensorParameters p = parameters_of(object, where);
    if (p.classes > std::numeric_limits<uint32_t>::max())
      wrong(where + ": classification: so many classes there are not");
    asked.classes = static_cast<uint32_t>(p.classes);
    asked.shared = p.shared;
    if (p.shared && (p.classes > 0 || p.binary.value_or(false)))
      wrong(where + ": shared memory, and classification or binary data; one of them");
    head_.form.outputs.push_back({p.binary.value_or(head_.form.binary), p.shared});
    head_.request.outputs.push_back(std::move(asked));
  }

  const Server& server_;
  BufferPool& buffers_;
  const InferLimits& limits_;
  InferHead head_;
  uint64_t binary_ = 0;
  std::set<std::string> names_;
};

}  // namespace

InferHead parse_head(std::string_view text, const Server& server, BufferPool& buffers, const InferLimits& limits) {
  JsonBody body(text, "infer", limits);
  InferHead head = HeadParser(server, buffers, limits).parse(body.object());
  head.request.transport = Transport::kHttp;
  head.request.memory = limits.memory;
  return head;
}

RawInput raw_head(const inference::ModelMetadataResponse& model, bool batched, size_t bytes) {
  if (model.inputs_size() != 1)
    wrong(fmt::format("infer: a body without a head is for models of one input; this one has {}", model.inputs_size()));
  const auto& input = model.inputs(0);
  RawInput raw;
  InferRequest& request = raw.head.request;
  request.transport = Transport::kHttp;
  raw.head.form.binary = true;
  Tensor& tensor = request.inputs.emplace_back();
  tensor.name = input.name();
  tensor.datatype = datatype_of(input.datatype());
  tensor.shape.assign(input.shape().begin(), input.shape().end());
  if (batched && !tensor.shape.empty()) tensor.shape[0] = 1;
  const std::string where = "infer: input '" + tensor.name + "'";
  if (tensor.datatype == DataType::TYPE_STRING) {  // one element, whose length stands before it
    for (int64_t& dim : tensor.shape)
      if (dim == -1) dim = 1;
    if (elements_of(tensor.shape, where) != 1) wrong(where + ": a body without a head is one element of BYTES");
    const auto size = static_cast<uint32_t>(bytes);
    raw.prefix.assign(reinterpret_cast<const char*>(&size), sizeof size);
    tensor.bytes = bytes + raw.prefix.size();
  } else {
    uint64_t known = datatype_size(tensor.datatype);
    int64_t* varying = nullptr;
    for (int64_t& dim : tensor.shape) {
      if (dim >= 0) {
        known *= static_cast<uint64_t>(dim);
      } else if (varying != nullptr) {
        wrong(where + ": a body without a head is for models of which one dim at most varies");
      } else {
        varying = &dim;
      }
    }
    if (varying != nullptr) *varying = known == 0 ? 0 : static_cast<int64_t>(bytes / known);
    if (varying != nullptr ? known == 0 || bytes % known != 0 : bytes != known)
      wrong(fmt::format("{}: {} bytes in a body without a head; {} {}", where, bytes,
                        varying != nullptr ? "it must be a multiple of" : "the model takes", known));
    tensor.bytes = bytes;
  }
  raw.head.binary.push_back(bytes);
  return raw;
}

InferAnswer answer_of(const AnswerForm& form, const InferResponse& response) {
  InferAnswer answer;
  write_answer(form, response, answer).finish();
  return answer;
}

Turns write_answer(const AnswerForm& form, const InferResponse& response, InferAnswer& answer) {
  Text& out = answer.json;
  out.reserve(512);
  out = "{";
  if (!response.id.empty()) out += "\"id\":" + json_string(response.id) + ",";
  out += "\"model_name\":" + json_string(response.model) + ",\"model_version\":" + json_string(response.version);
  if (!response.parameters.empty()) {
    out += ",\"parameters\":{";
    for (auto it = response.parameters.begin(); it != response.parameters.end(); ++it) {
      if (it != response.parameters.begin()) out += ',';
      out += json_string(it->first) + ":";
      std::visit(
          [&](const auto& value) {
            using T = std::decay_t<decltype(value)>;
            if constexpr (std::is_same_v<T, std::string>)
              out += json_string(value);
            else if constexpr (std::is_same_v<T, bool>)
              out += value ? "true" : "false";
            else
              out += fmt::format("{}", value);
          },
          it->second);
    }
    out += '}';
  }
  out += ",\"outputs\":[";
  for (size_t i = 0; i < response.outputs.size(); ++i) {
    const Tensor& tensor = response.outputs[i];
    if (i > 0) out += ',';
    out += "{\"name\":" + json_string(tensor.name) + ",\"datatype\":\"" + std::string(datatype_name(tensor.datatype)) +
           "\",\"shape\":[";
    for (size_t d = 0; d < tensor.shape.size(); ++d) out += (d > 0 ? "," : "") + std::to_string(tensor.shape[d]);
    out += ']';
    const AnswerForm::Output asked = i < form.outputs.size() ? form.outputs[i] : AnswerForm::Output{form.binary, {}};
    if (asked.shared) {
      out += fmt::format(",\"parameters\":{{\"shared_memory_region\":{},\"shared_memory_byte_size\":{}",
                         json_string(asked.shared->region), asked.shared->bytes);
      if (asked.shared->offset > 0) out += fmt::format(",\"shared_memory_offset\":{}", asked.shared->offset);
      out += '}';
    } else if (asked.binary) {
      out += fmt::format(",\"parameters\":{{\"binary_data_size\":{}}}", tensor.bytes);
      answer.has_binary |= tensor.bytes > 0;
      if (tensor.bytes > 0) answer.binary.push_back(tensor);
    } else {
      out += ",\"data\":";
      for (Turns turns = append_json(out, tensor); turns.next();) co_yield Turn();
    }
    out += '}';
  }
  out += "]}";
}

}  // namespace sluice::serving
