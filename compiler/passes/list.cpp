#include <algorithm>
#include <string_view>

#include "compiler/pass.h"
#include "graph/ops/loops.h"
#include "graph/ops/micro_batches.h"
#include "plan/query.h"

namespace sluice::compiler {
namespace {

constexpr Pass kGraphPasses[] = {
    {"dead_code", "Removes what no output, update or effect needs.", dead_code},
    {"simplify", "Removes identities: x * 1, x - 0, casts to the same type, views of views.", simplify},
    {"common_subexpressions", "Computes equal expressions once.", common_subexpressions},
    {"patterns", "Replaces what the caller's patterns name.", patterns},
    {"partition", "Splits a graph over the devices that to_global names.", partition},
    {"assign_devices", "Gives nodes that name no device the first, in the order of devices, that has a kernel.",
     assign_devices},
    {"choose_regions", "Chooses what is computed again to need less memory.", choose_regions},
    {"recompute", "Computes values of checkpoints again where the backward pass reads them.", recompute},
    {"offload", "Makes clusters of what a foreign backend takes.", offload},
    {"fuse_bias", "Makes one linear op of a product and the addition of a row.", fuse_bias},
    {"fold_norms", "Makes batch norm, and a constant factor, a part of the weights beside it.", fold_norms},
    {"fuse_activation", "Moves a relu, or what the options allow, into the linear op that feeds it.", fuse_activation},
    {"fuse_pad", "Makes zeros around the input of a convolution a part of its padding.", fuse_pad},
    {"fuse_convolution", "Moves batch norm, an addition and a relu into the convolution that feeds them.",
     fuse_convolution},
    {"fuse_batch_norm", "Makes one op of batch norm in training, its running statistics, an addition and a relu.",
     fuse_batch_norm},
    {"fuse_quantized", "Makes kernels of 8-bit integers of convolutions and products of dequantized operands.",
     fuse_quantized},
    {"fuse_add", "Moves an addition into the product of matrices that feeds it.", fuse_add},
    {"loops", "Compiles the bodies of loops.", loops},
    {"decompose", "Replaces ops without a kernel on their device by simpler ones.", decompose},
    {"assign_devices", "", assign_devices},
    {"pad_products", "Makes products larger by zeros, where the device is sooner done with more.", pad_products},
    {"fold_constants", "Computes what depends on constants alone.", fold_constants},
    {"simplify", "", simplify},
    {"common_subexpressions", "", common_subexpressions},
    {"dead_code", "", dead_code},
    {"fuse_rows", "Makes one op of elementwise ops and the reductions of rows among them.", fuse_rows},
    {"fuse_elementwise", "Makes one op of elementwise ops that follow one another.", fuse_elementwise},
    {"fuse_updates", "Makes one op of an optimizer's steps for many parameters, and of what scales gradients.",
     fuse_updates},
};

}  // namespace

std::span<const Pass> graph_passes() { return kGraphPasses; }

bool PassContext::has_kernel(const OpDef& op, DeviceKind kind) const {
  const bool loop = &op == &ops::scan_op() || &op == &ops::while_loop_op(), pack = &op == &ops::pack_op();
  return target.has_kernel(loop ? ops::loop_op().name : pack ? "concat" : op.name, kind);
}

DeviceId PassContext::device_for(const OpDef& op, const graph::Placement& placement) const {
  if (placement.device) return *placement.device;
  for (const DeviceId& device : options.devices)
    if (has_kernel(op, device.kind)) return device;
  return options.device;
}

plan::KernelQuery PassContext::query_of(const graph::Graph& graph, const graph::Node& node) const {
  plan::KernelQuery query{node.op->name, name_attrs(*node.op, node.attrs), {}, {}, device_of(node)};
  for (graph::ValueId input : node.inputs)
    query.inputs.push_back(input == graph::kNoValue ? TensorSpec{} : TensorSpec::contiguous(graph.type(input)));
  for (graph::ValueId output : node.outputs) query.outputs.push_back(TensorSpec::contiguous(graph.type(output)));
  set_precision(query, *node.op, options);
  return query;
}

bool PassContext::can_fuse(const graph::Graph& graph, const graph::Node& node) const {
  return std::find(node.inputs.begin(), node.inputs.end(), graph::kNoValue) == node.inputs.end() &&
         target.can_fuse(query_of(graph, node));
}

void set_precision(plan::KernelQuery& query, const OpDef& op, const CompileOptions& options) {
  if (op.precision == OpDef::Precision::kNone || query.outputs[0].dtype != DType::kFloat32) return;
  const std::string& precision =
      op.precision == OpDef::Precision::kConv ? options.float32_conv_precision : options.float32_matmul_precision;
  if (precision != "highest") query.attrs.emplace_back(plan::kPrecision, precision);
}

const void* PassContext::constant_data(const std::string& name) const {
  const auto it = constants.find(name);
  if (it != constants.end()) return it->second.data();
  return lookup ? lookup(name) : nullptr;
}

std::optional<double> PassContext::number(const graph::Graph& graph, graph::ValueId value) const {
  const graph::ValueInfo& info = graph.values()[value];
  if (info.type.shape.rank() != 0 || !is_floating(info.type.dtype)) return std::nullopt;
  if (info.kind == graph::ValueKind::kNode) {
    const graph::Node& made = graph.nodes()[info.index];
    if (std::string_view(made.op->name) != "full") return std::nullopt;
    return attr<double>(made.attrs, made.op->find_param("value"));
  }
  if (info.kind != graph::ValueKind::kVariable) return std::nullopt;
  const graph::Variable& variable = graph.variables()[info.index];
  const void* const data = variable.constant ? constant_data(variable.name) : nullptr;
  if (data == nullptr) return std::nullopt;
  switch (info.type.dtype) {
    case DType::kFloat32: return static_cast<double>(*static_cast<const float*>(data));
    case DType::kFloat64: return *static_cast<const double*>(data);
    default: return std::nullopt;
  }
}

std::vector<int> count_uses(const graph::Graph& graph) {
  std::vector<int> uses(graph.values().size(), 0);
  for (const graph::Node& node : graph.nodes()) {
    for (graph::ValueId input : node.inputs) {
      if (input != graph::kNoValue) ++uses[input];
    }
  }
  for (const graph::Output& output : graph.outputs()) ++uses[output.value];
  for (const graph::Variable& v : graph.variables()) {
    if (v.update != graph::kNoValue) ++uses[v.update];
  }
  return uses;
}

std::string describe(const graph::Node& node) {
  return node.source.known() ? fmt::format("op {} ({})", node.op->name, node.source.str())
                             : fmt::format("op {}", node.op->name);
}

}  // namespace sluice::compiler
