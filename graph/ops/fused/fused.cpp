#include "graph/ops/fused.h"

#include <algorithm>

#include "graph/nested.h"
#include "graph/ops/common.h"
#include "graph/ops/reduction.h"

namespace sluice::ops {
namespace {

constexpr size_t kMostOperands = 3;

const AttrGraph& body_of(const Attrs& attrs, size_t num_inputs) {
  const AttrGraph& body = attr<AttrGraph>(attrs, 0);
  check_attr_graph(body, num_inputs, 1);
  return body;
}

// A graph of one step, whose operands are among `count` values.
AttrGraph alone(const AttrCall& step, size_t count) {
  const OpDef& op = builtin_ops().get(step.op);
  SLUICE_CHECK(can_be_step(op), "body: op {}; must be elementwise, with no more than a mode or a dtype, or dropout",
               op.name);
  const auto n = static_cast<int>(count);
  return {n, {step}, {n}};
}

std::vector<TensorType> infer_fused(Types in, Present, const Attrs& attrs) {
  std::vector<TensorType> types(in.begin(), in.end());
  std::vector<Shape> drawn;  // of random steps
  const AttrGraph& body = body_of(attrs, in.size());
  for (const AttrCall& step : body.calls) {
    add_step(step, types);
    if (builtin_ops().get(step.op).random) drawn.push_back(types.back().shape);
  }
  const TensorType& result = types[static_cast<size_t>(body.outputs[0])];
  for (const Shape& shape : drawn)  // what is drawn for an element depends on its place
    SLUICE_CHECK(shape == result.shape, "body: a random step of {}; must be of the result's shape, {}", shape.str(),
                 result.shape.str());
  return {result};
}

std::vector<Value> decompose_fused(std::span<const Value> inputs, const Attrs& attrs) {
  return call_nested(body_of(attrs, inputs.size()), inputs);
}

// Infers the type of what is summed: operands that are one element take no part in its shape.
std::vector<TensorType> infer_fused_reduce(Types in, Present present, const Attrs& attrs) {
  const TensorType made = infer_fused(in, present, attrs).at(0);
  const std::string& reduction = attr<std::string>(attrs, 1);
  SLUICE_CHECK(reduction == "sum" || reduction == "mean", "reduction: got \"{}\"; must be sum or mean", reduction);
  check_floating(made, "body");
  for (const TensorType& t : in)
    SLUICE_CHECK(t.shape.rank() == 0 || t.shape == made.shape, "xs: an operand of {}; must be one element or {}",
                 t.shape.str(), made.shape.str());
  return {{made.dtype, {}}};
}
std::vector<Value> decompose_fused_reduce(std::span<const Value> inputs, const Attrs& attrs) {
  const Value made = decompose_fused(inputs, attrs).at(0);
  return {attr<std::string>(attrs, 1) == "mean" ? mean(made) : sum(made)};
}
Cost cost_fused_reduce(Types in, Types out, const Attrs& attrs) {
  double elements = 0;
  for (const TensorType& t : in) elements = std::max(elements, static_cast<double>(numel(t.shape)));
  return {.flops = static_cast<double>(attr<AttrGraph>(attrs, 0).calls.size() + 1) * elements,
          .bytes = operand_bytes(in, out)};
}

// Which elements a random step drops depends on their places in the whole.
std::vector<SbpRow> sbp_fused(Types in, const Attrs& attrs) {
  const AttrGraph& body = body_of(attrs, in.size());
  const bool random = std::any_of(body.calls.begin(), body.calls.end(),
                                  [](const AttrCall& step) { return builtin_ops().get(step.op).random; });
  return random ? broadcast_sbp(in, attrs) : elementwise_sbp(in, attrs);
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
    .sbp = sbp_fused,
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

const OpDef fused_reduce_def{
    .name = "fused_reduce",
    .doc =
        "The sum or the mean of all elements that the elementwise ops of `body` give, which are kept nowhere. Made by "
        "the "
        "compiler.",
    .inputs = {"xs*"},
    .params = {{.name = "body", .default_value = AttrGraph(), .required = true},
               {.name = "reduction", .default_value = std::string("sum")}},
    .infer = infer_fused_reduce,
    .decompose = decompose_fused_reduce,
    .sbp = broadcast_sbp,
    .cost = cost_fused_reduce,
    .samples = {
        {.inputs = {input({5, 7}), input({5, 7})},
         .attrs = {chain(2, {{"mul", {}, {0, 1}}, {"tanh", {}, {2}}}), std::string("mean")}},
        {.inputs = {input({3, 700}), input({})}, .attrs = {chain(2, {{"mul", {}, {0, 1}}}), std::string("sum")}},
        {.inputs = {input({9}, DType::kFloat64)}, .attrs = {chain(1, {{"exp", {}, {0}}}), std::string("sum")}},
    }};

}  // namespace

const OpDef& fused_op() { return fused_def; }
const OpDef& fused_reduce_op() { return fused_reduce_def; }

bool can_be_step(const OpDef& op) {
  if (op.random) return op.inputs.size() == 2 && op.num_outputs == 1;  // changes a tensor by its state
  const bool fits = std::all_of(op.params.begin(), op.params.end(), [](const Param& param) {
    return std::holds_alternative<DType>(param.default_value) ||
           std::holds_alternative<std::string>(param.default_value);
  });
  return fits && op.params.size() <= 1 && op.num_outputs == 1 && !op.variadic() && op.inputs.size() <= kMostOperands &&
         !op.effectful && op.view == nullptr && op.extension.empty();
}

void add_step(const AttrCall& step, std::vector<TensorType>& types) {
  types.push_back(infer_nested(alone(step, types.size()), types).back());
}

void add_step(const AttrCall& step, std::vector<Value>& values) {
  values.push_back(call_nested(alone(step, values.size()), values).at(0));
}

std::span<const OpDef* const> fused_ops() {
  static const OpDef* const ops[] = {&fused_def, &fused_reduce_def};
  return ops;
}

}  // namespace sluice::ops
