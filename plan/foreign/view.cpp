#include "plan/foreign/view.h"

namespace sluice::plan {

ForeignView::ForeignView(const ForeignCluster& cluster, std::string onnx)
    : onnx_(std::move(onnx)), constants_(cluster.constants) {
  for (const TensorType& type : cluster.inputs) values_.push_back(add(type));
  for (const AttrCall& call : cluster.body.calls) {
    const int first = static_cast<int>(values_.size());
    for (const TensorSpec& result : call.results) values_.push_back(add(TensorType{result.dtype, result.shape}));
    add_call(call, first);
  }
  for (const std::string& option : cluster.options) add_option(option);
  outputs_.assign(cluster.body.outputs.begin(), cluster.body.outputs.end());
  graph_ = {.size = sizeof graph_,
            .values = values_.data(),
            .num_values = values_.size(),
            .num_inputs = cluster.inputs.size(),
            .outputs = outputs_.data(),
            .num_outputs = outputs_.size(),
            .nodes = node_list_.data(),
            .num_nodes = node_list_.size(),
            .options = option_list_.data(),
            .num_options = option_list_.size(),
            .threads = cluster.threads,
            .onnx = onnx_.empty() ? nullptr : onnx_.data(),
            .onnx_bytes = onnx_.size(),
            .constants = constants_.empty() ? nullptr : constants_.data()};
}

const sluice_offload_type* ForeignView::add(const TensorType& type) {
  const std::vector<int64_t>& shape = integers_.emplace_back(type.shape.begin(), type.shape.end());
  return &types_.emplace_back(sluice_offload_type{.size = sizeof(sluice_offload_type),
                                                  .dtype = dtype_name(type.dtype),
                                                  .item_bytes = dtype_size(type.dtype),
                                                  .shape = shape.data(),
                                                  .rank = shape.size()});
}

const sluice_offload_attribute* ForeignView::add(const std::string& name, const Attr& attr) {
  sluice_offload_attribute& to = attributes_.emplace_back();
  to = {.size = sizeof to,
        .name = name.c_str(),
        .kind = SLUICE_OFFLOAD_OTHER,
        .integer = 0,
        .number = 0,
        .text = nullptr,
        .integers = nullptr,
        .numbers = nullptr,
        .count = 0};
  if (std::holds_alternative<NoAttr>(attr)) to.kind = SLUICE_OFFLOAD_NONE;
  if (const auto* b = std::get_if<bool>(&attr)) to.kind = SLUICE_OFFLOAD_INTEGER, to.integer = *b;
  if (const auto* i = std::get_if<int64_t>(&attr)) to.kind = SLUICE_OFFLOAD_INTEGER, to.integer = *i;
  if (const auto* d = std::get_if<double>(&attr)) to.kind = SLUICE_OFFLOAD_NUMBER, to.number = *d;
  if (const auto* t = std::get_if<std::string>(&attr)) to.kind = SLUICE_OFFLOAD_TEXT, to.text = t->c_str();
  if (const auto* d = std::get_if<DType>(&attr)) to.kind = SLUICE_OFFLOAD_TEXT, to.text = dtype_name(*d);
  if (const auto* list = std::get_if<Ints>(&attr))
    to.kind = SLUICE_OFFLOAD_INTEGERS, to.integers = list->data(), to.count = list->size();
  if (const auto* list = std::get_if<Bools>(&attr)) {
    const std::vector<int64_t>& numbers = integers_.emplace_back(list->begin(), list->end());
    to.kind = SLUICE_OFFLOAD_INTEGERS, to.integers = numbers.data(), to.count = numbers.size();
  }
  if (const auto* list = std::get_if<Doubles>(&attr))
    to.kind = SLUICE_OFFLOAD_NUMBERS, to.numbers = list->data(), to.count = list->size();
  if (to.text == nullptr) to.text = keep(attr_str(attr));
  return &to;
}

void ForeignView::add_call(const AttrCall& call, int first) {
  std::vector<int32_t>& inputs = numbers_.emplace_back(call.operands.begin(), call.operands.end());
  std::vector<int32_t>& outputs = numbers_.emplace_back();
  for (int i = 0; i < call.num_results(); ++i) outputs.push_back(first + i);
  std::vector<const sluice_offload_attribute*>& attributes = lists_.emplace_back();
  for (const auto& [name, attr] : call.attrs) attributes.push_back(add(name, attr));
  node_list_.push_back(&nodes_.emplace_back(sluice_offload_node{.size = sizeof(sluice_offload_node),
                                                                .op = call.op.c_str(),
                                                                .inputs = inputs.data(),
                                                                .num_inputs = inputs.size(),
                                                                .outputs = outputs.data(),
                                                                .num_outputs = outputs.size(),
                                                                .attributes = attributes.data(),
                                                                .num_attributes = attributes.size()}));
}

void ForeignView::add_option(const std::string& option) {
  const size_t cut = option.find('=');
  const char* const name = keep(option.substr(0, cut));
  const char* const value = keep(cut == std::string::npos ? "" : option.substr(cut + 1));
  option_list_.push_back(&options_.emplace_back(
      sluice_offload_option{.size = sizeof(sluice_offload_option), .name = name, .value = value}));
}

}  // namespace sluice::plan
