#include "graph/ops/host.h"

#include "graph/executor.h"
#include "graph/ops/common.h"

namespace sluice::ops {
namespace {

using Values = std::vector<Value>;

std::vector<TensorType> infer_host_function(Types, Present, const Attrs& attrs) {
  const TensorTypes& types = attr<TensorTypes>(attrs, 1);
  SLUICE_CHECK(!types.empty(), "outputs: none given; a host function must have an output");
  for (const TensorType& type : types) numel(type.shape);
  return types;
}

const OpDef host_function_def{
    .name = "host_function",
    .doc =
        "Calls the function registered as `name` with the engine (Python or C++), on a host stream; it writes the "
        "`outputs`, a list of types. Not differentiable.",
    .inputs = {"xs*"},
    .params = {{.name = "name", .default_value = std::string(), .required = true},
               {.name = "outputs", .default_value = TensorTypes(), .required = true}},
    .num_outputs = -1,
    .infer = infer_host_function,
    .grad = [](const GradContext& c) -> Values {
      fail(ErrorKind::kUnsupported, "host_function: '{}' has no gradient; detach its inputs or use autograd.Function",
           attr<std::string>(c.attrs, 0));
    },
    .sbp = broadcast_sbp,
    .effectful = true,
    .host = true};

const OpDef* const kOps[] = {&host_function_def};

}  // namespace

std::span<const OpDef* const> host_ops() { return kOps; }

std::vector<Value> host_function(std::span<const Value> inputs, const std::string& name,
                                 std::span<const TensorType> outputs) {
  return call(host_function_def, inputs, {name, TensorTypes(outputs.begin(), outputs.end())});
}

}  // namespace sluice::ops
