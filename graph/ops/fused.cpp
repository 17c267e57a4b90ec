#include "graph/ops/fused.h"

#include <algorithm>

#include "graph/executor.h"
#include "graph/ops/common.h"

namespace sluice::ops {
namespace {

constexpr bool kPresent[] = {true, true, true};

std::vector<FusedStep> steps_of(const Attrs& attrs, size_t num_inputs) {
  return parse_fused(attr<std::string>(attrs, 0), static_cast<int>(num_inputs));
}

Attrs attrs_of(const OpDef& op, const FusedStep& step) {
  SLUICE_CHECK(can_be_step(op), "steps: op {}; must be elementwise, with no more than a mode or a dtype", op.name);
  Attrs attrs;
  for (const Param& param : op.params)
    attrs.push_back(std::holds_alternative<DType>(param.default_value) ? Attr(parse_dtype(step.mode))
                                                                       : Attr(step.mode));
  return attrs;
}

template <class T>
std::vector<T> operands_of(const FusedStep& step, const std::vector<T>& values) {
  std::vector<T> operands;
  for (int operand : step.operands) operands.push_back(values[static_cast<size_t>(operand)]);
  return operands;
}

std::vector<TensorType> infer_fused(Types in, Present, const Attrs& attrs) {
  std::vector<TensorType> types(in.begin(), in.end());
  for (const FusedStep& step : steps_of(attrs, in.size())) {
    const OpDef& op = builtin_ops().get(step.op);
    const std::vector<TensorType> operands = operands_of(step, types);
    check_input_count(op, operands.size());
    const Attrs its_attrs = attrs_of(op, step);  // checks the op first
    types.push_back(infer_types(op, operands, std::span(kPresent).first(operands.size()), its_attrs).at(0));
  }
  return {types.back()};
}

std::vector<Value> decompose_fused(std::span<const Value> inputs, const Attrs& attrs) {
  std::vector<Value> values(inputs.begin(), inputs.end());
  for (const FusedStep& step : steps_of(attrs, inputs.size())) {
    const OpDef& op = builtin_ops().get(step.op);
    values.push_back(call(op, operands_of(step, values), attrs_of(op, step)).at(0));
  }
  return {values.back()};
}

Cost cost_fused(Types in, Types out, const Attrs& attrs) {
  return {.flops = static_cast<double>(steps_of(attrs, in.size()).size()) * static_cast<double>(numel(out[0].shape)),
          .bytes = operand_bytes(in, out)};
}

SampleInput input(Shape shape, DType dtype = DType::kFloat32, double low = -2) {
  return {.shape = shape, .dtype = dtype, .low = low, .high = 2};
}

const OpDef fused_def{
    .name = "fused",
    .doc = "Elementwise ops, one after the other, in one pass over memory: \"mul 0 1; relu 2\". Made by the compiler.",
    .inputs = {"xs*"},
    .params = {{.name = "steps", .default_value = std::string(), .required = true}},
    .infer = infer_fused,
    .decompose = decompose_fused,
    .sbp = elementwise_sbp,
    .cost = cost_fused,
    .samples = {
        {.inputs = {input({5, 7}), input({5, 7})}, .attrs = {std::string("mul 0 1; tanh 2; add 3 0")}},
        {.inputs = {input({2, 3, 4}), input({4}), input({3, 1})},
         .attrs = {std::string("add 0 1; gelu:tanh 3; mul 4 2; gelu:none 5")}},
        {.inputs = {input({0, 4}), input({})}, .attrs = {std::string("mul 0 1; sigmoid 2")}},
        {.inputs = {input({3, 4}), input({3, 4}), input({4})},
         .attrs = {std::string("gt 0 1; where 3 0 2; mul 4 4; cast:float64 5; exp 6")}},
        {.inputs = {input({9}, DType::kInt32, 0), input({9}, DType::kInt32, 0)},
         .attrs = {std::string("add 0 1; maximum 2 1; cast:bool 3; logical_not 4")}},
    }};

}  // namespace

const OpDef& fused_op() { return fused_def; }

bool can_be_step(const OpDef& op) {
  const bool fits = std::all_of(op.params.begin(), op.params.end(), [](const Param& param) {
    return std::holds_alternative<DType>(param.default_value) ||
           std::holds_alternative<std::string>(param.default_value);
  });
  return fits && op.params.size() <= 1 && op.num_outputs == 1 && !op.variadic() &&
         op.inputs.size() <= std::size(kPresent) && !op.random && !op.effectful && op.view == nullptr &&
         op.extension.empty();
}

FusedStep step_of(const OpDef& op, const Attrs& attrs, std::vector<int> operands) {
  FusedStep step{.op = op.name, .operands = std::move(operands)};
  if (attrs.empty()) return step;
  const auto* dtype = std::get_if<DType>(&attrs[0]);
  step.mode = dtype != nullptr ? dtype_name(*dtype) : std::get<std::string>(attrs[0]);
  return step;
}

std::span<const OpDef* const> fused_ops() {
  static const OpDef* const ops[] = {&fused_def};
  return ops;
}

}  // namespace sluice::ops
