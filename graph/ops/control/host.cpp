#include "graph/ops/host.h"

#include "graph/executor.h"
#include "graph/ops/common.h"

namespace sluice::ops {
namespace {

constexpr int kName = 0, kOutputs = 1, kDims = 2, kInputDims = 3, kOutputDims = 4;  // of the params

std::vector<TensorType> infer_host_function(Types in, Present, const Attrs& attrs) {
  std::vector<TensorType> types = attr<TensorTypes>(attrs, kOutputs);
  SLUICE_CHECK(!types.empty(), "outputs: none given; a host function must have an output");
  for (const TensorType& type : types) numel(type.shape);
  const HostDims dims = host_dims_of(attrs);
  types.insert(types.end(), static_cast<size_t>(dims.given()), TensorType{DType::kInt64, {}});
  room_of(dims, in, types);
  return types;
}

// Extents are the last inputs, those of its own dims the last outputs.
std::vector<OpDef::Varying> varying_of_host_function(Types in, Types out, const Attrs& attrs) {
  const HostDims dims = host_dims_of(attrs);
  std::vector<OpDef::Varying> varying;
  for (const HostDims::Axis& axis : dims.outputs) {
    const bool taken = axis.dim < dims.taken;
    const auto dim = static_cast<size_t>(axis.dim);
    const size_t extent = dim + (taken ? in.size() - static_cast<size_t>(dims.taken) : out.size() - dims.names.size());
    varying.push_back({axis.tensor, axis.axis, static_cast<int>(extent), taken, dims.names[dim]});
  }
  return varying;
}

const OpDef host_function_def{
    .name = "host_function",
    .doc =
        "Calls the function registered as `name` with the engine (Python or C++), on a host stream; it writes the "
        "`outputs`, a list of types. Axes of `output_dims` (output, axis, dim, ...) may be shorter in a step, up to "
        "their "
        "size: their extents are further outputs. Those of `input_dims` it gets as long as further inputs, the "
        "extents, "
        "say. Not differentiable.",
    .inputs = {"xs*"},
    .params = {{.name = "name", .default_value = std::string(), .required = true},
               {.name = "outputs", .default_value = TensorTypes(), .required = true},
               {.name = "dims", .default_value = Strings()},
               {.name = "input_dims", .default_value = Ints()},
               {.name = "output_dims", .default_value = Ints()}},
    .num_outputs = -1,
    .infer = infer_host_function,
    .grad = [](const GradContext& c) -> Values {
      fail(ErrorKind::kUnsupported, "host_function: '{}' has no gradient; detach its inputs or use autograd.Function",
           host_function_name(c.attrs));
    },
    .sbp = broadcast_sbp,
    .varying = varying_of_host_function,
    .effectful = true,
    .host = true};

}  // namespace

std::span<const OpDef* const> host_ops() {
  static const OpDef* const ops[] = {&host_function_def};
  return ops;
}

bool is_host_function(const OpDef& op) { return &op == &host_function_def; }

const std::string& host_function_name(const Attrs& attrs) { return attr<std::string>(attrs, kName); }
HostDims host_dims_of(const Attrs& attrs) {
  return host_dims(attr<Strings>(attrs, kDims), attr<Ints>(attrs, kInputDims), attr<Ints>(attrs, kOutputDims));
}

std::vector<Value> host_function(std::span<const Value> inputs, const std::string& name,
                                 std::span<const TensorType> outputs, const HostDims& dims) {
  return call(
      host_function_def, inputs,
      {name, TensorTypes(outputs.begin(), outputs.end()), dims.names, axes_list(dims.inputs), axes_list(dims.outputs)});
}

}  // namespace sluice::ops
