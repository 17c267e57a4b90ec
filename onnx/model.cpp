#include "onnx/model.h"

#include <filesystem>

#include "base/error.h"
#include "base/files/file.h"
#include "onnx/body.h"
#include "onnx/runner.h"
#include "tensor/chosen.h"

namespace sluice::onnx {
namespace {

Port port_of(const format::ValueInfoProto& info) {
  Port port{info.name(), "tensor", {}, {}};
  const format::TypeProto* type = &info.type();
  while (type->has_optional_type() || type->has_sequence_type()) {
    if (port.kind == "tensor") port.kind = type->has_optional_type() ? "optional" : "sequence";
    type = type->has_optional_type() ? &type->optional_type().elem_type() : &type->sequence_type().elem_type();
  }
  if (!type->has_tensor_type()) return port;
  port.dtype = dtype_of(type->tensor_type().elem_type());
  SLUICE_CHECK_KIND(kUnsupported, port.dtype || type->tensor_type().elem_type() == 0,
                    "onnx: '{}': type {}; Sluice has no tensors of it", info.name(),
                    data_type_name(type->tensor_type().elem_type()));
  if (port.kind != "tensor" || !type->tensor_type().has_shape()) return port;
  port.dims.emplace();
  for (const auto& dim : type->tensor_type().shape().dim())
    port.dims->push_back(dim.has_dim_value() ? std::to_string(dim.dim_value()) : dim.dim_param());
  return port;
}

bool is_size(const std::string& dim) {
  return !dim.empty() && dim.find_first_not_of("0123456789") == std::string::npos;
}

// Dims of one name have one size.
void check_input(const Port& port, const Item& item, std::map<std::string, int64_t>& sizes) {
  if (port.kind != "tensor") return;
  SLUICE_CHECK(item.tensor.defined(), "onnx: input '{}' is missing; the model needs it", port.name);
  const Value& value = item.tensor;
  SLUICE_CHECK_KIND(kType, !port.dtype || value.dtype() == *port.dtype, "onnx: input '{}' is of {}; the model wants {}",
                    port.name, dtype_name(value.dtype()), dtype_name(*port.dtype));
  if (!port.dims) return;
  SLUICE_CHECK(value.rank() == static_cast<int>(port.dims->size()),
               "onnx: input '{}' has shape {}; the model wants {} dims", port.name, value.shape().str(),
               port.dims->size());
  for (int d = 0; d < value.rank(); ++d) {
    const std::string& dim = (*port.dims)[static_cast<size_t>(d)];
    if (dim.empty()) continue;
    const int64_t size = is_size(dim) ? std::stoll(dim) : sizes.try_emplace(dim, value.shape()[d]).first->second;
    SLUICE_CHECK(value.shape()[d] == size, "onnx: input '{}' has shape {}; dim {} ({}) must be {}", port.name,
                 value.shape().str(), d, dim, size);
  }
}

void check_text(const std::string& name) {
  SLUICE_CHECK(utf8_length(name) == name.size(), "onnx: '{}': a name that is no UTF-8; must be text", name);
}

}  // namespace

struct Model::Impl {
  Impl(format::ModelProto parsed, std::string path)
      : folder(std::move(path)), model(std::move(parsed)), bodies(model, folder) {
    for (const auto& input : model.graph().input()) {
      const auto& names = bodies.main().inputs;
      if (std::find(names.begin(), names.end(), input.name()) != names.end()) inputs.push_back(port_of(input));
    }
    for (const auto& output : model.graph().output()) outputs.push_back(port_of(output));
    for (const auto* ports : {&inputs, &outputs})
      for (const Port& port : *ports) {
        check_text(port.name);
        for (const std::string& dim : port.dims.value_or(std::vector<std::string>())) check_text(dim);
      }
    for (const auto& [name, tensor] : bodies.parameters()) check_text(name);
    check_text(model.graph().name());
  }

  const Folder folder;
  const format::ModelProto model;
  const Bodies bodies;
  std::vector<Port> inputs, outputs;
};

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Model Model::load(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return Model(std::make_unique<Impl>(read_model(path), folder.empty() ? "." : folder));
}

Model Model::parse(std::string_view bytes, const std::string& folder) {
  return Model(std::make_unique<Impl>(parse_model(bytes, "bytes"), folder));
}

const std::vector<Port>& Model::inputs() const { return impl_->inputs; }
const std::vector<Port>& Model::outputs() const { return impl_->outputs; }
const std::vector<std::pair<std::string, Tensor>>& Model::parameters() const { return impl_->bodies.parameters(); }
std::map<std::string, int64_t> Model::opsets() const { return impl_->bodies.opsets(); }
std::string Model::name() const { return impl_->model.graph().name(); }

std::map<std::string, std::string> Model::metadata() const {
  std::map<std::string, std::string> metadata;
  for (const auto& entry : impl_->model.metadata_props()) metadata[entry.key()] = entry.value();
  return metadata;
}

std::vector<Item> Model::run(std::span<const Item> inputs, std::span<const Value> parameters,
                             Generator& generator) const {
  SLUICE_CHECK(inputs.size() == impl_->inputs.size(), "onnx: {} inputs; the model has {}", inputs.size(),
               impl_->inputs.size());
  const auto& weights = impl_->bodies.parameters();
  SLUICE_CHECK(parameters.size() == weights.size(), "onnx: {} parameters; the model has {}", parameters.size(),
               weights.size());
  std::map<std::string, int64_t> sizes;
  Scope scope{{}, nullptr};
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_input(impl_->inputs[i], inputs[i], sizes);
    scope.values[impl_->inputs[i].name] = inputs[i];
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    SLUICE_CHECK(parameters[i].defined() && parameters[i].type() == weights[i].second.type(),
                 "onnx: parameter '{}' is {}; must be {}", weights[i].first,
                 parameters[i].defined() ? parameters[i].type().str() : "missing", weights[i].second.type().str());
    scope.values[weights[i].first] = parameters[i];
  }
  // A shape that a node asks for is a fact while tracing; that of a value as long as the data say would be none.
  const FixedLengthsScope fixed;
  return Runner(impl_->bodies, impl_->folder, generator).run(impl_->bodies.main(), scope);
}

}  // namespace sluice::onnx
