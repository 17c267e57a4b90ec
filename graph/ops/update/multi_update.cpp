#include "graph/ops/multi_update.h"

#include <algorithm>
#include <optional>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/fused.h"
#include "graph/ops/optimizer_updates.h"

namespace sluice::ops {
namespace {

constexpr size_t kMostOperands = 8;  // of a step

// The calls of an op, and where their operands are.
struct Calls {
  Calls(const Attrs& attrs, size_t inputs)
      : body(attr<AttrGraph>(attrs, multi_update_attr::kBody)), count(attr<int64_t>(attrs, multi_update_attr::kCount)) {
    SLUICE_CHECK(count >= 1 && count <= kMostUpdates, "count: {} calls; must be 1 to {}", count, kMostUpdates);
    check_attr_graph(body, static_cast<size_t>(body.inputs), 1);
    SLUICE_CHECK(inputs == static_cast<size_t>(count) * static_cast<size_t>(body.inputs),
                 "xs: {} operands for {} calls; must be {} of each", inputs, count, body.inputs);
    update = &builtin_ops().get(body.calls.back().op);
    SLUICE_CHECK(is_update(*update) && body.outputs[0] == body.inputs + static_cast<int>(body.calls.size()) - 1,
                 "body: gives what {} makes; must give what a step of an optimizer makes", update->name);
    const std::string& as = attr<std::string>(attrs, multi_update_attr::kCopy);
    if (!as.empty()) copy = parse_dtype(as);
    SLUICE_CHECK(!copy || count == 1, "copy: \"{}\" of {} calls; must be of one", as, count);
    replaced = static_cast<size_t>(update->num_outputs);
    SLUICE_CHECK(static_cast<size_t>(body.inputs) > replaced, "body: {} inputs; must be more than the {} that change",
                 body.inputs, replaced);
  }

  template <class T>
  std::vector<T> operands(std::span<const T> xs, size_t call) const {
    const size_t others = static_cast<size_t>(body.inputs) - replaced, n = static_cast<size_t>(count);
    std::vector<T> operands(xs.begin() + static_cast<ptrdiff_t>(call * replaced),
                            xs.begin() + static_cast<ptrdiff_t>((call + 1) * replaced));
    const auto rest = xs.begin() + static_cast<ptrdiff_t>(n * replaced + call * others);
    operands.insert(operands.end(), rest, rest + static_cast<ptrdiff_t>(others));
    return operands;
  }
  // The operands of the step of the optimizer, after the steps before it.
  template <class T>
  std::vector<T> of_update(std::vector<T> values) const {
    for (size_t i = 0; i + 1 < body.calls.size(); ++i) add_step(body.calls[i], values);
    std::vector<T> operands;
    for (int operand : body.calls.back().operands) operands.push_back(values[static_cast<size_t>(operand)]);
    return operands;
  }
  Attrs update_attrs() const { return order_attrs(*update, body.calls.back().attrs); }

  const AttrGraph& body;
  const int64_t count;
  std::optional<DType> copy;
  const OpDef* update = nullptr;
  size_t replaced = 0;
};

std::vector<TensorType> infer(Types in, Present, const Attrs& attrs) {
  const Calls calls(attrs, in.size());
  std::vector<TensorType> types;
  for (size_t c = 0; c < static_cast<size_t>(calls.count); ++c) {
    const std::vector<TensorType> own = calls.operands(in, c), first = calls.operands(in, 0);
    for (size_t i = 0; i < own.size(); ++i)
      SLUICE_CHECK(own[i].dtype == first[i].dtype, "xs: operand {} of call {} is {}; must be {}, as in the first", i, c,
                   own[i].str(), dtype_name(first[i].dtype));
    std::vector<TensorType> operands = calls.of_update(own);
    check_input_count(*calls.update, operands.size());
    const size_t given = operands.size();
    operands.resize(calls.update->inputs.size());
    bool has[kMostOperands] = {};
    std::fill(has, has + given, true);
    const std::vector<TensorType> made =
        infer_types(*calls.update, operands, std::span<const bool>(has).first(operands.size()), calls.update_attrs());
    for (size_t o = 0; o < made.size(); ++o)
      SLUICE_CHECK(made[o] == own[o], "xs: operand {} of call {} is {}; must be what it becomes, {}", o, c,
                   own[o].str(), made[o].str());
    types.insert(types.end(), made.begin(), made.end());
  }
  if (calls.copy) types.push_back({*calls.copy, types[0].shape});
  return types;
}

std::vector<Value> decompose(std::span<const Value> in, const Attrs& attrs) {
  const Calls calls(attrs, in.size());
  std::vector<Value> values;
  for (size_t c = 0; c < static_cast<size_t>(calls.count); ++c) {
    const std::vector<Value> made = call(*calls.update, calls.of_update(calls.operands(in, c)), calls.update_attrs());
    values.insert(values.end(), made.begin(), made.end());
  }
  if (calls.copy) values.push_back(cast(values[0], *calls.copy));
  return values;
}

std::vector<SbpRow> sbp(Types in, const Attrs& attrs) {
  const Calls calls(attrs, in.size());
  return {{std::vector<Sbp>(in.size()),
           std::vector<Sbp>(calls.replaced * static_cast<size_t>(calls.count) + (calls.copy ? 1 : 0))}};
}

Cost cost(Types in, Types out, const Attrs&) {
  double elements = 0;
  for (const TensorType& type : out) elements += static_cast<double>(numel(type.shape));
  return {4 * elements, operand_bytes(in, out)};
}

const SampleInput kMatrix{.shape = {3, 7}}, kRow{.shape = {5}}, kScale{.shape = {}, .low = 0.5, .high = 2};
const SampleInput kLr{.shape = {}, .low = 0.01, .high = 0.1}, kSquares{.shape = {3, 7}, .low = 0.1, .high = 1};
const SampleInput kStep{.shape = {}, .dtype = DType::kInt64, .low = 1, .high = 5};

// An update whose gradient is scaled takes: param, grad, scale, lr.
AttrGraph scaled_sgd() {
  return {4, {{"mul", {}, {1, 2}}, {"sgd_update", {{"weight_decay", 0.1}, {"maximize", false}}, {0, 4, 3}}}, {5}};
}
AttrGraph momentum() {
  return {4,
          {{"sgd_momentum_update",
            {{"momentum", 0.9}, {"dampening", 0.0}, {"weight_decay", 0.01}, {"nesterov", true}, {"maximize", false}},
            {0, 2, 1, 3}}},
          {4}};
}
AttrGraph adam() {
  return {6,
          {{"adam_update",
            {{"beta1", 0.8},
             {"beta2", 0.95},
             {"eps", 1e-6},
             {"weight_decay", 0.1},
             {"decoupled", true},
             {"maximize", false}},
            {0, 3, 1, 2, 4, 5}}},
          {6}};
}

const OpDef multi_update_def{
    .name = "multi_update",
    .doc =
        "Steps of an optimizer for several parameters in one sweep: `count` calls of `body`, which may cast and scale "
        "the "
        "gradient first, and give the parameter in the dtype `copy`, too. What compiling makes of single ones.",
    .inputs = {"xs*"},
    .params = {{.name = "body", .default_value = AttrGraph(), .required = true},
               {.name = "count", .default_value = int64_t{1}},
               {.name = "copy", .default_value = std::string()}},
    .num_outputs = -1,
    .infer = infer,
    .decompose = decompose,
    .sbp = sbp,
    .cost = cost,
    .samples = {{{kMatrix, kRow, kMatrix, kScale, kLr, kRow, kScale, kLr}, {scaled_sgd(), int64_t{2}}},
                {{kMatrix, kMatrix, kRow, kRow, kMatrix, kLr, kRow, kLr}, {momentum(), int64_t{2}}},
                {{kMatrix, kMatrix, kSquares, kMatrix, kStep, kLr}, {adam(), int64_t{1}}},
                {{kMatrix, kMatrix, kScale, kLr}, {scaled_sgd(), int64_t{1}, std::string("bfloat16")}},
                {{kMatrix, kMatrix, kSquares, kMatrix, kStep, kLr}, {adam(), int64_t{1}, std::string("float16")}}}};

}  // namespace

const OpDef& multi_update_op() { return multi_update_def; }

bool is_update(const OpDef& op) {
  const std::span<const OpDef* const> ops = optimizer_updates_ops();
  return std::find(ops.begin(), ops.end(), &op) != ops.end();
}

std::span<const OpDef* const> multi_update_ops() {
  static const OpDef* const ops[] = {&multi_update_def};
  return ops;
}

}  // namespace sluice::ops
