#include "graph/ops/fused.h"

#include <algorithm>

#include "graph/nested.h"
#include "graph/ops/common.h"

namespace sluice::ops {
namespace {

constexpr size_t kMostOperands = 3;

const AttrGraph& body_of(const Attrs& attrs, size_t num_inputs) {
  const AttrGraph& body = attr<AttrGraph>(attrs, 0);
  check_attr_graph(body, num_inputs, 1);
  return body;
}

std::vector<TensorType> infer_fused(Types in, Present, const Attrs& attrs) {
  const AttrGraph& body = body_of(attrs, in.size());
  for (const AttrCall& step : body.calls) {
    const OpDef& op = builtin_ops().get(step.op);
    SLUICE_CHECK(can_be_step(op), "body: op {}; must be elementwise, with no more than a mode or a dtype", op.name);
  }
  return output_types(body, infer_nested(body, in));
}

std::vector<Value> decompose_fused(std::span<const Value> inputs, const Attrs& attrs) {
  return call_nested(body_of(attrs, inputs.size()), inputs);
}

Cost cost_fused(Types in, Types out, const Attrs& attrs) {
  return {
      .flops = static_cast<double>(body_of(attrs, in.size()).calls.size()) * static_cast<double>(numel(out[0].shape)),
      .bytes = operand_bytes(in, out)};
}

SampleInput input(Shape shape, DType dtype = DType::kFloat32, double low = -2) {
  return {.shape = shape, .dtype = dtype, .low = low, .high = 2};
}

AttrGraph chain(int inputs, std::vector<AttrCall> calls) {
  const int last = inputs + static_cast<int>(calls.size()) - 1;
  return {inputs, std::move(calls), {last}};
}

const OpDef fused_def{
    .name = "fused",
    .doc = "Elementwise ops, one after the other, in one pass over memory: `body`, a graph. Made by the compiler.",
    .inputs = {"xs*"},
    .params = {{.name = "body", .default_value = AttrGraph(), .required = true}},
    .infer = infer_fused,
    .decompose = decompose_fused,
    .sbp = elementwise_sbp,
    .cost = cost_fused,
    .samples = {
        {.inputs = {input({5, 7}), input({5, 7})},
         .attrs = {chain(2, {{"mul", {}, {0, 1}}, {"tanh", {}, {2}}, {"add", {}, {3, 0}}})}},
        {.inputs = {input({2, 3, 4}), input({4}), input({3, 1})},
         .attrs = {chain(3, {{"add", {}, {0, 1}},
                             {"gelu", {{"approximate", std::string("tanh")}}, {3}},
                             {"mul", {}, {4, 2}},
                             {"gelu", {{"approximate", std::string("none")}}, {5}}})}},
        {.inputs = {input({0, 4}), input({})}, .attrs = {chain(2, {{"mul", {}, {0, 1}}, {"sigmoid", {}, {2}}})}},
        {.inputs = {input({3, 4}), input({3, 4}), input({4})},
         .attrs = {chain(3, {{"gt", {}, {0, 1}},
                             {"where", {}, {3, 0, 2}},
                             {"mul", {}, {4, 4}},
                             {"cast", {{"dtype", DType::kFloat64}}, {5}},
                             {"exp", {}, {6}}})}},
        {.inputs = {input({9}, DType::kInt32, 0), input({9}, DType::kInt32, 0)},
         .attrs = {chain(2, {{"add", {}, {0, 1}},
                             {"maximum", {}, {2, 1}},
                             {"cast", {{"dtype", DType::kBool}}, {3}},
                             {"logical_not", {}, {4}}})}},
    }};

}  // namespace

const OpDef& fused_op() { return fused_def; }

bool can_be_step(const OpDef& op) {
  const bool fits = std::all_of(op.params.begin(), op.params.end(), [](const Param& param) {
    return std::holds_alternative<DType>(param.default_value) ||
           std::holds_alternative<std::string>(param.default_value);
  });
  return fits && op.params.size() <= 1 && op.num_outputs == 1 && !op.variadic() && op.inputs.size() <= kMostOperands &&
         !op.random && !op.effectful && op.view == nullptr && op.extension.empty();
}

std::span<const OpDef* const> fused_ops() {
  static const OpDef* const ops[] = {&fused_def};
  return ops;
}

}  // namespace sluice::ops
