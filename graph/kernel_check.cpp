#include "graph/kernel_check.h"

#include <memory>

#include "graph/nested.h"
#include "plan/query.h"

namespace sluice::graph {
namespace {

// `inputs`: null where an optional one is absent.
void check_call(const OpDef& op, const NamedAttrs& named, const std::vector<const TensorSpec*>& inputs,
                const std::vector<const TensorSpec*>& outputs) {
  check_input_count(op, inputs.size());
  std::vector<TensorType> types(op.variadic() ? inputs.size() : op.inputs.size());
  const auto present = std::make_unique<bool[]>(types.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    present[i] = inputs[i] != nullptr;
    if (present[i]) types[i] = {inputs[i]->dtype, inputs[i]->shape};
  }
  const Attrs attrs = attrs_of_kernel(op, named);
  const std::vector<TensorType> wanted = infer_types(op, types, {present.get(), types.size()}, attrs);
  SLUICE_CHECK(wanted.size() == outputs.size(), "{}: {} outputs; its operands give {}", op.name, outputs.size(),
               wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const TensorType given{outputs[i]->dtype, outputs[i]->shape};
    SLUICE_CHECK(given == wanted[i], "{}: output {} is {}; its operands give {}", op.name, i, given.str(),
                 wanted[i].str());
  }
}

void check_kernel(const plan::Kernel& kernel, const OpDef& op) {
  std::vector<const TensorSpec*> inputs, outputs;
  for (const plan::View& view : kernel.inputs) inputs.push_back(plan::is_absent(view) ? nullptr : &view.spec);
  for (const plan::View& view : kernel.outputs) outputs.push_back(&view.spec);
  check_call(op, kernel.attrs, inputs, outputs);
}

void check_derivation(const plan::Plan& plan, const plan::Derivation& derived, const OpDef& op) {
  std::vector<const TensorSpec*> inputs;
  for (const int v : derived.inputs) inputs.push_back(v < 0 ? nullptr : &plan.variables[v].spec);
  check_call(op, derived.attrs, inputs, {&derived.spec});
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
  for (const plan::PackedCopy& copy : plan.packed) {
    const OpDef* op = copy.derived ? ops.find(copy.derived->op) : nullptr;
    if (op == nullptr) continue;
    try {
      check_derivation(plan, *copy.derived, *op);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("plan '{}': packed copy '{}': {}", plan.name, copy.name, error.what()));
    }
  }
}

}  // namespace sluice::graph
