#include "graph/kernel_check.h"

#include <memory>

#include "graph/nested.h"
#include "plan/query.h"

namespace sluice::graph {
namespace {

void check_kernel(const plan::Kernel& kernel, const OpDef& op) {
  check_input_count(op, kernel.inputs.size());
  std::vector<TensorType> types(op.variadic() ? kernel.inputs.size() : op.inputs.size());
  const auto present = std::make_unique<bool[]>(types.size());
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    present[i] = !plan::is_absent(kernel.inputs[i]);
    if (present[i]) types[i] = {kernel.inputs[i].spec.dtype, kernel.inputs[i].spec.shape};
  }
  const Attrs attrs = attrs_of_kernel(op, kernel.attrs);
  const std::vector<TensorType> wanted = infer_types(op, types, {present.get(), types.size()}, attrs);
  SLUICE_CHECK(wanted.size() == kernel.outputs.size(), "{}: {} outputs; its operands give {}", op.name,
               kernel.outputs.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const TensorType given{kernel.outputs[i].spec.dtype, kernel.outputs[i].spec.shape};
    SLUICE_CHECK(given == wanted[i], "{}: output {} is {}; its operands give {}", op.name, i, given.str(),
                 wanted[i].str());
  }
}

}  // namespace

void check_kernels(const plan::Plan& plan, const OpRegistry& ops) {
  for (const plan::Kernel& kernel : plan.kernels) {
    const OpDef* op = ops.find(kernel.op);
    if (op == nullptr || kernel.collective >= 0) continue;
    try {
      check_kernel(kernel, *op);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("plan '{}': kernel '{}': {}", plan.name, kernel.name, error.what()));
    }
  }
}

}  // namespace sluice::graph
