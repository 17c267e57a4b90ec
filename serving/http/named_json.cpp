#include "serving/http/named_json.h"

#include <fmt/format.h>

#include <cstring>

#include "serving/core/json_string.h"
#include "serving/http/base64.h"
#include "serving/http/json_body.h"
#include "serving/http/json_tensors.h"

namespace sluice::serving {

namespace {

namespace json = boost::json;
using inference::ModelMetadataResponse;
using TensorInfo = ModelMetadataResponse::TensorMetadata;

// {"b64": ".."} stands for the bytes. It goes as deep as the parser allows.
void decode_bytes(json::value& value) {
  if (value.is_array())
    for (json::value& item : value.get_array()) decode_bytes(item);
  if (!value.is_object()) return;
  const json::object& object = value.get_object();
  const json::value* const text = object.if_contains("b64");
  if (text == nullptr || object.size() != 1 || !text->is_string())
    wrong("predict: an object within a tensor must be {\"b64\": \"..\"}");
  value = json::string(from_base64(std::string_view(text->get_string()), "predict: b64"), value.storage());
}

std::vector<int64_t> shape_of(const json::value& value) {
  std::vector<int64_t> shape;
  for (const json::value* at = &value; at->is_array(); at = &at->get_array().front()) {
    shape.push_back(static_cast<int64_t>(at->get_array().size()));
    if (at->get_array().empty()) break;
  }
  return shape;
}

void check_rectangle(const json::value& value, const std::vector<int64_t>& shape, size_t axis,
                     const std::string& where) {
  if (!value.is_array()) {
    if (axis != shape.size()) wrong(where + ": its lists are not equally deep");
    return;
  }
  if (axis == shape.size()) wrong(where + ": its lists are not equally deep");
  if (static_cast<int64_t>(value.get_array().size()) != shape[axis])
    wrong(fmt::format("{}: a list of {} beside one of {}", where, value.get_array().size(), shape[axis]));
  for (const json::value& item : value.get_array()) check_rectangle(item, shape, axis + 1, where);
}

class NamedParser {
 public:
  NamedParser(const ModelMetadataResponse& model, BufferPool& buffers, const InferLimits& limits)
      : model_(model), buffers_(buffers), limits_(limits) {}

  NamedRequest predict(json::object& root) {
    json::value *const rows = root.if_contains("instances"), *const columns = root.if_contains("inputs");
    if ((rows != nullptr) == (columns != nullptr)) wrong("predict: it must have 'instances' or 'inputs'");
    for (const auto& [key, value] : root)
      if (key != "instances" && key != "inputs" && key != "signature_name")
        wrong(fmt::format("predict: '{}'; there are instances, inputs and signature_name", std::string(key)));
    result_.form = rows != nullptr ? NamedForm::kRows : NamedForm::kColumns;
    json::value& given = rows != nullptr ? *rows : *columns;
    if (rows != nullptr && !given.is_array()) wrong("predict: 'instances' must be a list");
    if (rows != nullptr && !given.get_array().empty() && is_named(given.get_array().front())) {
      instances(given.get_array());
    } else if (is_named(given)) {
      for (auto& [key, value] : given.get_object()) tensor(std::string(key), value);
    } else {
      if (model_.inputs_size() != 1)
        wrong(fmt::format("predict: a tensor without a name is for models of one input; this one has {}",
                          model_.inputs_size()));
      tensor(model_.inputs(0).name(), given);
    }
    return std::move(result_);
  }

  NamedRequest generate(json::object& root) {
    result_.form = NamedForm::kValues;
    for (auto& [key, value] : root) {
      if (key == "id") {
        if (!value.is_string()) wrong("generate: 'id' must be a string");
        result_.request.id = std::string(value.get_string());
      } else if (key == "parameters") {
        const json::object& all = object_of(value, "generate: parameters");
        check_count(all.size(), kMostParameters, "parameters");
        for (const auto& [name, parameter] : all)
          result_.request.parameters.emplace(std::string(name), parameter_of(parameter, std::string(name)));
      } else {
        tensor(std::string(key), value);
      }
    }
    return std::move(result_);
  }

 private:
  static bool is_named(const json::value& value) {
    return value.is_object() && !(value.get_object().size() == 1 && value.get_object().contains("b64"));
  }

  // Reads rows of objects, one for each instance, with a tensor for each of their names.
  void instances(json::array& rows) {
    const size_t names = rows.front().get_object().size();
    for (const TensorInfo& info : model_.inputs()) {
      json::array column(rows.storage());
      column.reserve(rows.size());
      for (json::value& row : rows) {
        if (!is_named(row) || row.get_object().size() != names)
          wrong("predict: the instances do not have the same names");
        json::value* const value = row.get_object().if_contains(info.name());
        if (value != nullptr) column.push_back(std::move(*value));
      }
      if (column.empty()) continue;
      if (column.size() != rows.size()) wrong("predict: the instances do not have the same names");
      json::value all(std::move(column), rows.storage());
      tensor(info.name(), all);
    }
    if (result_.request.inputs.size() != names)
      for (const auto& [key, value] : rows.front().get_object()) find(std::string(key));
  }

  const TensorInfo& find(const std::string& name) const {
    for (const TensorInfo& info : model_.inputs())
      if (info.name() == name) return info;
    wrong(fmt::format("infer: input '{}': model '{}' has none of this name", name.substr(0, 128), model_.name()));
  }

  void tensor(const std::string& name, json::value& value) {
    const TensorInfo& info = find(name);
    const std::string where = "infer: input '" + name + "'";
    decode_bytes(value);
    Tensor& tensor = result_.request.inputs.emplace_back();
    tensor.name = name;
    tensor.datatype = datatype_of(info.datatype());
    tensor.shape = shape_of(value);
    check_rectangle(value, tensor.shape, 0, where);
    if (result_.form == NamedForm::kValues && tensor.shape.size() < 2)
      tensor.shape = flat_shape(info, tensor.shape.empty() ? 1 : tensor.shape[0], where);
    if (!value.is_array()) {
      json::array one(value.storage());
      one.push_back(std::move(value));
      value = std::move(one);
    }
    take_json(tensor, value, where, buffers_, limits_.most_bytes, limits_.memory);
  }

  // The model's shape for so many elements; one dim may vary, the others that do are 1.
  static std::vector<int64_t> flat_shape(const TensorInfo& info, int64_t count, const std::string& where) {
    std::vector<int64_t> shape(info.shape().begin(), info.shape().end());
    int64_t known = 1, *varying = nullptr;
    for (int64_t& dim : shape) {
      if (dim < 0) {
        dim = 1;
        varying = &dim;  // the last
      } else if (__builtin_mul_overflow(known, dim, &known)) {
        wrong(where + ": the model takes more than can be sent");
      }
    }
    if (varying != nullptr && known > 0) *varying = count / known;
    if (known * (varying != nullptr ? *varying : 1) != count)
      wrong(fmt::format("{}: {} elements do not fit the model's shape", where, count));
    return shape;
  }

  const ModelMetadataResponse& model_;
  BufferPool& buffers_;
  const InferLimits& limits_;
  NamedRequest result_;
};

// The elements of a tensor, one by one and in nested lists.
class Nested {
 public:
  explicit Nested(const Tensor& tensor) : tensor_(tensor), bytes_as_base64_(tensor.name.ends_with("_bytes")) {
    if (tensor.datatype != DataType::TYPE_STRING) return;
    const auto* const data = static_cast<const char*>(tensor.data.get());
    for (size_t at = 0; tensor.bytes - at >= sizeof(uint32_t);) {
      uint32_t size = 0;
      std::memcpy(&size, data + at, sizeof size);
      at += sizeof size;
      if (size > tensor.bytes - at) break;
      texts_.emplace_back(data + at, size);
      at += size;
    }
  }
  uint64_t elements(size_t axis) const {
    uint64_t count = 1;
    for (; axis < tensor_.shape.size(); ++axis) count *= static_cast<uint64_t>(tensor_.shape[axis]);
    return count;
  }
  // The lists from `axis` on, beginning with element `at`, in turns.
  Turns append(Text& out, size_t axis, uint64_t at) const {
    const size_t rank = tensor_.shape.size();
    if (axis == rank) {
      append_elements(out, at, at + 1);
      co_return;
    }
    const uint64_t count = elements(axis), inner = elements(rank - 1);
    if (count == 0) {
      append_empty(out, axis);
      co_return;
    }
    const auto lists = [&](uint64_t element) {  // that begin, or have ended, at this one
      size_t found = 0;
      for (size_t a = axis; a < rank; ++a) found += element % elements(a) == 0 ? 1 : 0;
      return found;
    };
    uint64_t turn = 0;
    for (uint64_t row = 0; row < count; row += inner) {
      if (row > 0) out += ',';
      out.append(lists(row), '[');
      for (uint64_t first = 0; first < inner; first += kElementsOfTurn) {
        if (first > 0) out += ',';
        const uint64_t end = std::min<uint64_t>(inner, first + kElementsOfTurn);
        append_elements(out, at + row + first, at + row + end);
        if ((turn += end - first) < kElementsOfTurn) continue;
        turn = 0;
        co_yield Turn();
      }
      out.append(lists(row + inner), ']');
    }
  }
  Turns append_flat(Text& out) const {
    const uint64_t count = elements_of(tensor_.shape, tensor_.name);
    if (count != 1) out += '[';
    for (uint64_t first = 0; first < count; first += kElementsOfTurn) {
      if (first > 0) {
        co_yield Turn();
        out += ',';
      }
      append_elements(out, first, std::min<uint64_t>(count, first + kElementsOfTurn));
    }
    if (count != 1) out += ']';
  }

 private:
  // Appends a shape that has no elements.
  void append_empty(Text& out, size_t axis) const {
    out += '[';
    for (int64_t i = 0; axis + 1 < tensor_.shape.size() && i < tensor_.shape[axis]; ++i) {
      if (i > 0) out += ',';
      append_empty(out, axis + 1);
    }
    out += ']';
  }
  void append_elements(Text& out, uint64_t first, uint64_t end) const {
    if (tensor_.datatype != DataType::TYPE_STRING) {
      if (end * datatype_size(tensor_.datatype) > tensor_.bytes)
        throw Error(Code::kInternal, "infer: an output ends too early");
      return serving::append_elements(out, tensor_, first, end);
    }
    if (end > texts_.size()) throw Error(Code::kInternal, "infer: an output of BYTES ends too early");
    for (uint64_t i = first; i < end; ++i) {
      if (!bytes_as_base64_ && !is_utf8(texts_[i]))
        wrong(fmt::format(
            "infer: output '{}': element {} is no UTF-8, which strings of JSON are; ask for it by infer, as "
            "binary data, or call it '{}_bytes' in the config",
            tensor_.name, i, tensor_.name));
      if (i > first) out += ',';
      if (bytes_as_base64_)
        out.append("{\"b64\":\"").append(to_base64(texts_[i])).append("\"}");
      else
        out += json_string(texts_[i]);
    }
  }

  const Tensor& tensor_;
  const bool bytes_as_base64_;
  std::vector<std::string_view> texts_;
};

Turns rows_of(const InferResponse& response, Text& out) {
  std::vector<Nested> outputs;
  int64_t rows = -1;
  for (const Tensor& tensor : response.outputs) {
    outputs.emplace_back(tensor);
    if (tensor.shape.empty() || (rows >= 0 && tensor.shape[0] != rows))
      wrong(fmt::format("predict: output '{}' has no row for each instance; send 'inputs' instead of 'instances'",
                        tensor.name));
    rows = tensor.shape[0];
  }
  out = "{\"predictions\":[";
  for (int64_t row = 0; row < rows; ++row) {
    if (row > 0) out += ',';
    if (outputs.size() > 1) out += '{';
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs.size() > 1) out += (o > 0 ? "," : "") + json_string(response.outputs[o].name) + ":";
      const uint64_t at = static_cast<uint64_t>(row) * outputs[o].elements(1);
      for (Turns turns = outputs[o].append(out, 1, at); turns.next();) co_yield Turn();
    }
    if (outputs.size() > 1) out += '}';
  }
  out += "]}";
}

Turns columns_of(const InferResponse& response, Text& out) {
  out = response.outputs.size() == 1 ? "{\"outputs\":" : "{\"outputs\":{";
  for (size_t o = 0; o < response.outputs.size(); ++o) {
    if (response.outputs.size() > 1) out += (o > 0 ? "," : "") + json_string(response.outputs[o].name) + ":";
    const Nested nested(response.outputs[o]);
    for (Turns turns = nested.append(out, 0, 0); turns.next();) co_yield Turn();
  }
  out += response.outputs.size() == 1 ? "}" : "}}";
}

Turns values_of(const InferResponse& response, Text& out) {
  out = "{\"model_name\":" + json_string(response.model) + ",\"model_version\":" + json_string(response.version);
  if (!response.id.empty()) out += ",\"id\":" + json_string(response.id);
  for (const Tensor& tensor : response.outputs) {
    out += "," + json_string(tensor.name) + ":";
    const Nested nested(tensor);
    for (Turns turns = nested.append_flat(out); turns.next();) co_yield Turn();
  }
  out += "}";
}

}  // namespace

NamedRequest predict_request(std::string_view body, const ModelMetadataResponse& model, BufferPool& buffers,
                             const InferLimits& limits) {
  JsonBody parsed(body, "predict", limits);
  NamedRequest named = NamedParser(model, buffers, limits).predict(parsed.object());
  named.request.memory = limits.memory;
  return named;
}

NamedRequest generate_request(std::string_view body, const ModelMetadataResponse& model, BufferPool& buffers,
                              const InferLimits& limits) {
  JsonBody parsed(body, "generate", limits);
  NamedRequest named = NamedParser(model, buffers, limits).generate(parsed.object());
  named.request.memory = limits.memory;
  return named;
}

Turns write_named(NamedForm form, const InferResponse& response, Text& out) {
  switch (form) {
    case NamedForm::kRows: return rows_of(response, out);
    case NamedForm::kColumns: return columns_of(response, out);
    case NamedForm::kValues: break;
  }
  return values_of(response, out);
}

}  // namespace sluice::serving
