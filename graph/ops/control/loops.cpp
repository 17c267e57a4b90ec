// scan, while_loop, loop.
#include "graph/ops/loops.h"

#include <algorithm>

#include "graph/executor.h"
#include "graph/nested.h"
#include "graph/ops/common.h"
#include "graph/ops/creation.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

constexpr int64_t kAsLongAsTrue = -1;

// A loop's attributes, whichever op it is.
struct LoopOf {
  const AttrGraph& body;
  int64_t states, rows, length;
  bool whole = false;  // the length is known
};

LoopOf scan_of(const Attrs& attrs) {
  return {attr<AttrGraph>(attrs, scan_attr::kBody), attr<int64_t>(attrs, scan_attr::kStates),
          attr<int64_t>(attrs, scan_attr::kRows), attr<int64_t>(attrs, scan_attr::kLength), true};
}
LoopOf while_of(const Attrs& attrs) {
  return {attr<AttrGraph>(attrs, while_attr::kBody), attr<int64_t>(attrs, while_attr::kStates), 0, kAsLongAsTrue};
}
LoopOf loop_of(const Attrs& attrs) {
  const int64_t length = attr<int64_t>(attrs, loop_attr::kLength);
  return {attr<AttrGraph>(attrs, loop_attr::kProgram), attr<int64_t>(attrs, loop_attr::kStates),
          attr<int64_t>(attrs, loop_attr::kRows), length, length != kAsLongAsTrue};
}

TensorType row_of_type(TensorType type) {
  type.shape.erase(0);
  return type;
}

// The types that a turn's body takes.
std::vector<TensorType> types_of_turn(const LoopOf& loop, Types in) {
  SLUICE_CHECK(loop.states >= 0 && loop.rows >= 0 && static_cast<size_t>(loop.states) <= in.size() &&
                   static_cast<size_t>(loop.rows) <= in.size() - static_cast<size_t>(loop.states),
               "states, rows: {} and {} of {} inputs; must be no more than these", loop.states, loop.rows, in.size());
  SLUICE_CHECK(!loop.whole || loop.length >= 0, "length: {}; must be at least 0", loop.length);
  std::vector<TensorType> types(in.begin(), in.end());
  for (int64_t i = loop.states; i < loop.states + loop.rows; ++i) {
    TensorType& type = types[static_cast<size_t>(i)];
    SLUICE_CHECK(type.shape.rank() > 0 && type.shape[0] == loop.length,
                 "input {}: {} is taken apart in {} turns; its first axis must be as long", i, type.str(), loop.length);
    type = row_of_type(type);
  }
  if (loop.whole) return types;
  SLUICE_CHECK(loop.states > 0 && loop.rows == 0 && types[0] == (TensorType{DType::kBool, {}}),
               "states: {}; the first must be there, a bool scalar that says whether there is a turn more",
               loop.states == 0 ? "none" : types[0].str());
  return types;
}

std::vector<TensorType> infer_loop(const LoopOf& loop, Types in) {
  const std::vector<TensorType> taken = types_of_turn(loop, in);
  const size_t states = static_cast<size_t>(loop.states);
  SLUICE_CHECK(loop.body.outputs.size() >= states && (loop.whole || loop.body.outputs.size() == states),
               "body: {} outputs; must give {} states{}", loop.body.outputs.size(), states,
               loop.whole ? ", and what is stacked" : "");
  check_attr_graph(loop.body, in.size(), loop.body.outputs.size(), true);
  std::vector<TensorType> types = output_types(loop.body, infer_nested(loop.body, taken));
  for (size_t i = 0; i < types.size(); ++i) {
    if (i < states) {
      SLUICE_CHECK_KIND(kType, types[i] == taken[i],
                        "state {}: {} at first, and {} after a turn; must stay of one type", i, taken[i].str(),
                        types[i].str());
      continue;
    }
    types[i].shape.insert(0, loop.length);
  }
  return types;
}

std::vector<SbpRow> sbp_loop(const LoopOf& loop, Types in) {
  return {
      {std::vector<Sbp>(in.size(), Sbp::broadcast()), std::vector<Sbp>(loop.body.outputs.size(), Sbp::broadcast())}};
}

Cost cost_loop(const LoopOf& loop, Types in) {
  const Cost turn = cost_of_nested(loop.body, infer_nested(loop.body, types_of_turn(loop, in)));
  constexpr double kUnknownTurns = 100;  // where values decide
  const double turns = loop.whole ? static_cast<double>(loop.length) : kUnknownTurns;
  return {turn.flops * turns, turn.bytes * turns};
}

// A state that no turn changes, as a value of its own.
Value own(const Value& value, std::span<const Value> inputs) {
  const bool given = std::any_of(inputs.begin(), inputs.end(), [&](const Value& v) { return v.ptr() == value.ptr(); });
  return given ? copy(value) : value;
}

Values unrolled(std::span<const Value> in, const Attrs& attrs) {
  const LoopOf loop = scan_of(attrs);
  const size_t states = static_cast<size_t>(loop.states), rows = static_cast<size_t>(loop.rows);
  const size_t stacked = loop.body.outputs.size() - states;
  Values taken(in.begin(), in.end()), outputs;
  std::vector<Values> made(stacked, Values(static_cast<size_t>(loop.length)));
  for (int64_t turn = 0; turn < loop.length; ++turn) {
    const int64_t row = attr<bool>(attrs, scan_attr::kReverse) ? loop.length - 1 - turn : turn;
    for (size_t i = states; i < states + rows; ++i) taken[i] = select(in[i], 0, row);
    const Values given = call_nested(loop.body, taken);
    std::copy_n(given.begin(), states, taken.begin());
    for (size_t i = 0; i < stacked; ++i) made[i][static_cast<size_t>(row)] = given[states + i];
  }
  std::vector<TensorType> types;
  for (const Value& input : in) types.push_back(input.type());
  types = infer_loop(loop, types);
  for (size_t i = 0; i < states; ++i) outputs.push_back(own(taken[i], in));
  for (size_t i = 0; i < stacked; ++i) {
    const TensorType& type = types[states + i];
    outputs.push_back(loop.length > 0 ? stack(made[i], 0) : zeros(type.shape, type.dtype));
  }
  return outputs;
}

Values run_while(std::span<const Value> in, const Attrs& attrs) {
  const size_t states = static_cast<size_t>(attr<int64_t>(attrs, while_attr::kStates));
  Values taken(in.begin(), in.end());
  while (current_executor().is_true(taken[0])) {
    const Values given = call_nested(attr<AttrGraph>(attrs, while_attr::kBody), taken);
    std::copy_n(given.begin(), states, taken.begin());
  }
  Values outputs;
  for (size_t i = 0; i < states; ++i) outputs.push_back(own(taken[i], in));
  return outputs;
}

// The matrices of all turns, one below the other.
Value all_rows(const Value& x) { return reshape(x, {x.shape()[0] * x.shape()[1], x.shape()[2]}); }

// Backwards through the turns: states are the gradients of those states that have one, and sums over turns of those of
// what every turn reads; rows are the gradients of what is stacked, what was saved, and the rows of the loop itself.
// Stacked are the gradients of rows, and the factors of gradients that are a sum of products of matrices.
Values grad_scan(const GradContext& c) {
  const AttrGraph& backward = attr<AttrGraph>(c.attrs, scan_attr::kBackward);
  if (backward.outputs.empty()) return {};  // of decompose
  const LoopOf loop = scan_of(c.attrs);
  const size_t states = static_cast<size_t>(loop.states), rows = static_cast<size_t>(loop.rows);
  const size_t saved = c.outputs.size() - static_cast<size_t>(attr<int64_t>(c.attrs, scan_attr::kSaved));
  const auto grad_of = [&](size_t output) {
    const Value& grad = c.grad_outputs[output];
    return grad.defined() ? grad : zeros(c.outputs[output].shape(), c.outputs[output].dtype());
  };
  for (size_t i = saved; i < c.outputs.size(); ++i) {
    if (!c.grad_outputs[i].defined()) continue;
    if (attr<bool>(c.attrs, scan_attr::kPlain)) return {};
    fail(ErrorKind::kUnsupported,
         "gradients of its gradients are not in a plan; loop in Python, so that the graph has each turn");
  }
  Values inputs, given;
  std::vector<size_t> found, of_rows;  // the inputs whose gradients are states, and rows, of the loop backwards
  for (const int64_t wanted : attr<Ints>(c.attrs, scan_attr::kWants)) {
    const size_t i = static_cast<size_t>(wanted);
    if (i >= states && i < states + rows) {
      of_rows.push_back(i);
      continue;
    }
    found.push_back(i);
    inputs.push_back(i < states ? grad_of(i) : zeros(c.inputs[i].shape(), c.inputs[i].dtype()));
  }
  const size_t first = inputs.size();
  for (const int64_t seed : attr<Ints>(c.attrs, scan_attr::kSeeds))
    inputs.push_back(grad_of(static_cast<size_t>(seed)));
  inputs.insert(inputs.end(), c.outputs.begin() + static_cast<int64_t>(saved), c.outputs.end());
  const auto constants = c.inputs.begin() + static_cast<int64_t>(states + rows);
  inputs.insert(inputs.end(), c.inputs.begin() + static_cast<int64_t>(states), constants);
  const int64_t taken_apart = static_cast<int64_t>(inputs.size() - first);
  inputs.insert(inputs.end(), constants, c.inputs.end());
  given = call(
      scan_op(), inputs,
      {backward, static_cast<int64_t>(first), taken_apart, loop.length, !attr<bool>(c.attrs, scan_attr::kReverse)});
  found.insert(found.end(), of_rows.begin(), of_rows.end());
  Values grads(c.inputs.size());
  for (size_t k = 0; k < found.size(); ++k) grads[found[k]] = given[k];
  const Ints& products = attr<Ints>(c.attrs, scan_attr::kProducts);
  for (size_t k = 0; k + 2 < products.size(); k += 3) {
    const auto factor = [&](size_t i) { return all_rows(given.at(first + static_cast<size_t>(products[k + i]))); };
    grads.at(static_cast<size_t>(products[k])) = matmul(factor(1), factor(2), true);
  }
  return grads;
}

AttrCall call_of(const char* op, std::vector<int> operands, TensorType type, NamedAttrs attrs = {}) {
  return {op, std::move(attrs), std::move(operands), {TensorSpec::contiguous(type)}};
}

const TensorType kThree{DType::kFloat64, {3}}, kFlag{DType::kBool, {}}, kWhole{DType::kInt64, {}};

// Doubles, since a body says its types: tests draw other types in place of floats.
SampleInput three(int64_t rows = -1) {
  return {.shape = rows < 0 ? Shape{3} : Shape{rows, 3}, .dtype = DType::kFloat64};
}
const SampleInput kTwoByTwo{.shape = {2, 2}, .dtype = DType::kFloat64};

// (s, x, w) -> s' = tanh(s * w + x), and s' * x.
AttrGraph recurrence() {
  return {3,
          {call_of("mul", {0, 2}, kThree), call_of("add", {3, 1}, kThree), call_of("tanh", {4}, kThree),
           call_of("mul", {5, 1}, kThree)},
          {5, 6}};
}
// Two states that change places.
AttrGraph changing_places() { return {2, {}, {1, 0}}; }
// (go on, n, x, limit) -> n + n, x * x, as long as that n is less than the limit.
AttrGraph squares() {
  return {4, {call_of("add", {1, 1}, kWhole), call_of("mul", {2, 2}, kThree), call_of("lt", {4, 3}, kFlag)}, {6, 4, 5}};
}
const std::vector<SampleInput> kSquared = {{.shape = {}, .dtype = DType::kBool, .low = 0, .high = 2},
                                           {.shape = {}, .dtype = DType::kInt64, .low = 1, .high = 3},
                                           three(),
                                           {.shape = {}, .dtype = DType::kInt64, .low = 20, .high = 40}};

const OpDef scan_def{
    .name = "scan",
    .doc =
        "A loop of `length` turns, each of which is the graph `body`: jax.lax.scan. Inputs are states, then `rows` "
        "tensors of which a turn takes a row, then what every turn reads; the body gives the next states and rows of "
        "the other outputs. `backward` is the body of the loop of gradients, which reads what the last `saved` outputs "
        "hold; it takes gradients of `seeds` (outputs), and gives those of `wants` (inputs). `products` are triples: "
        "an "
        "input, whose gradient is a product, and the two of what that loop stacks whose rows are the factors. `plain`: "
        "unrolled, it is differentiated in the same way.",
    .inputs = {"xs*"},
    .params = {{.name = "body", .default_value = AttrGraph(), .required = true},
               {.name = "states", .default_value = int64_t{0}, .required = true},
               {.name = "rows", .default_value = int64_t{0}, .required = true},
               {.name = "length", .default_value = int64_t{0}, .required = true},
               {.name = "reverse", .default_value = false},
               {.name = "saved", .default_value = int64_t{0}},
               {.name = "backward", .default_value = AttrGraph()},
               {.name = "seeds", .default_value = Ints{}},
               {.name = "wants", .default_value = Ints{}},
               {.name = "products", .default_value = Ints{}},
               {.name = "plain", .default_value = false}},
    .num_outputs = -1,
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      std::vector<TensorType> types = infer_loop(scan_of(attrs), in);
      const auto count = static_cast<int64_t>(types.size());
      const auto in_range = [](const Ints& list, int64_t end) {
        return std::all_of(list.begin(), list.end(), [&](int64_t i) { return i >= 0 && i < end; });
      };
      const int64_t saved = attr<int64_t>(attrs, scan_attr::kSaved);
      SLUICE_CHECK(saved >= 0 && saved <= count - attr<int64_t>(attrs, scan_attr::kStates),
                   "saved: {} of {} outputs; must be some of the stacked ones", saved, count);
      SLUICE_CHECK(in_range(attr<Ints>(attrs, scan_attr::kSeeds), count) &&
                       in_range(attr<Ints>(attrs, scan_attr::kWants), static_cast<int64_t>(in.size())) &&
                       attr<Ints>(attrs, scan_attr::kProducts).size() % 3 == 0,
                   "seeds, wants, products: must be numbers of outputs, of which there are {}, and of the {} inputs, "
                   "and triples",
                   count, in.size());
      return types;
    },
    .grad = grad_scan,
    .decompose = unrolled,
    .sbp = [](Types in, const Attrs& attrs) { return sbp_loop(scan_of(attrs), in); },
    .cost = [](Types in, Types, const Attrs& attrs) { return cost_loop(scan_of(attrs), in); },
    .samples = {{{three(), three(4), three()}, {recurrence(), int64_t{1}, int64_t{1}, int64_t{4}}},
                {{three(), three(5), three()}, {recurrence(), int64_t{1}, int64_t{1}, int64_t{5}, true}},
                {{three(), three(0), three()}, {recurrence(), int64_t{1}, int64_t{1}, int64_t{0}}},
                {{kTwoByTwo, kTwoByTwo}, {changing_places(), int64_t{2}, int64_t{0}, int64_t{3}}}}};

const OpDef while_loop_def{
    .name = "while_loop",
    .doc =
        "A loop as long as its first state, a bool scalar, is true; each turn is the graph `body`. Inputs are states, "
        "then what every turn reads; the body gives the next states. jax.lax.while_loop, torch.while_loop.",
    .inputs = {"xs*"},
    .params = {{.name = "body", .default_value = AttrGraph(), .required = true},
               {.name = "states", .default_value = int64_t{0}, .required = true}},
    .num_outputs = -1,
    .infer = [](Types in, Present, const Attrs& attrs) { return infer_loop(while_of(attrs), in); },
    .decompose = run_while,
    .sbp = [](Types in, const Attrs& attrs) { return sbp_loop(while_of(attrs), in); },
    .cost = [](Types in, Types, const Attrs& attrs) { return cost_loop(while_of(attrs), in); },
    .samples = {{kSquared, {squares(), int64_t{3}}}}};

const OpDef loop_def{
    .name = "loop",
    .doc =
        "What compiling makes of scan and while_loop (length -1): `program` is their body as kernels, with windows on "
        "values in place of views.",
    .inputs = {"xs*"},
    .params = {{.name = "program", .default_value = AttrGraph(), .required = true},
               {.name = "states", .default_value = int64_t{0}, .required = true},
               {.name = "rows", .default_value = int64_t{0}, .required = true},
               {.name = "length", .default_value = int64_t{0}, .required = true},
               {.name = "reverse", .default_value = false}},
    .num_outputs = -1,
    .infer = [](Types in, Present, const Attrs& attrs) { return infer_loop(loop_of(attrs), in); },
    .sbp = [](Types in, const Attrs& attrs) { return sbp_loop(loop_of(attrs), in); },
    .cost = [](Types in, Types, const Attrs& attrs) { return cost_loop(loop_of(attrs), in); },
    .samples = {{{three(), three(4), three()}, {recurrence(), int64_t{1}, int64_t{1}, int64_t{4}}},
                {{three(), three(0), three()}, {recurrence(), int64_t{1}, int64_t{1}, int64_t{0}, true}},
                {{kTwoByTwo, kTwoByTwo}, {changing_places(), int64_t{2}, int64_t{0}, int64_t{3}}},
                {kSquared, {squares(), int64_t{3}, int64_t{0}, kAsLongAsTrue}}}};

}  // namespace

const OpDef& scan_op() { return scan_def; }
const OpDef& while_loop_op() { return while_loop_def; }
const OpDef& loop_op() { return loop_def; }
std::span<const OpDef* const> loops_ops() {
  static const OpDef* const ops[] = {&scan_def, &while_loop_def, &loop_def};
  return ops;
}

}  // namespace sluice::ops
