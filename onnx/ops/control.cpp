// Branches and loops. What the program around a graph knows already decides while it is traced; the rest becomes
// branches and loops of the graph.
#include <algorithm>

#include "base/error.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"
#include "onnx/table.h"
#include "tensor/branches.h"
#include "tensor/loops.h"
#include "tensor/tensor.h"
#include "tensor/trace_executor.h"

namespace sluice::onnx {
namespace {

bool of_step(const Value& value) {
  TraceExecutor* trace = current_trace();
  return trace && trace->touches_graph(value);
}
bool is_true(const Call& c, const Value& value) {
  check_known(value, c.where(), "a condition");
  SLUICE_CHECK(numel(value.shape()) == 1, "a condition of shape {}; must be one element", value.shape().str());
  return std::get<bool>(Tensor(value).detach().to(DType::kBool).item());
}
Value scalar_of(const Value& value) { return value.rank() == 0 ? value : ops::reshape(value, {}); }

Items branch(const Call& c) {
  const Value& condition = c.in(0);
  if (!of_step(condition)) {
    const std::vector<Item> made = c.run_items(is_true(c, condition) ? "then_branch" : "else_branch", {});
    return Items(made.begin(), made.end());
  }
  Branches branches(scalar_of(condition), 2);
  std::vector<std::vector<Value>> results;
  results.push_back(branches.run(0, [&] { return c.run("else_branch", {}); }));
  results.push_back(branches.run(1, [&] { return c.run("then_branch", {}); }));
  for (size_t i = 0; i < results[0].size() && i < results[1].size(); ++i)
    if (results[0][i].type() != results[1][i].type())
      c.refuse("its branches give {} and {}; in a graph both must give one type", results[1][i].type().str(),
               results[0][i].type().str());
  return branches.join(results);
}

Value turn_number(int64_t i) { return ops::full({}, static_cast<double>(i), DType::kInt64); }

// A loop that ends where a value says so that a step computes.
Items loop_of_step(const Call& c, int64_t most, const Value& condition, const std::vector<Value>& start) {
  const size_t states = start.size();
  if (c.outputs() > states) c.refuse("what it stacks is as long as a step computes; in a graph its end must be known");
  std::vector<Value> first{condition, turn_number(0)};
  first.insert(first.end(), start.begin(), start.end());
  const std::vector<Value> last = trace_while(first, [&](std::span<const Value> taken) {
    std::vector<Item> inputs{Item(taken[1]), Item(ops::full({}, 1, DType::kBool))};
    for (size_t i = 2; i < taken.size(); ++i) inputs.push_back(Item(taken[i]));
    const std::vector<Value> made = c.run("body", std::move(inputs));
    const Value next = ops::add(taken[1], 1);
    std::vector<Value> states_next{ops::logical_and(scalar_of(made[0]), ops::lt(next, most)), next};
    states_next.insert(states_next.end(), made.begin() + 1, made.begin() + 1 + static_cast<int64_t>(taken.size() - 2));
    return states_next;
  });
  return std::vector<Value>(last.begin() + 2, last.end());
}

Items loop(const Call& c) {
  const int64_t most = c.has(0) ? c.integer(0) : INT64_MAX;
  std::vector<Item> states;
  for (size_t i = 2; i < c.size(); ++i) states.push_back(c.item(i));
  if (c.has(1) && of_step(c.in(1))) return loop_of_step(c, most, scalar_of(c.in(1)), c.tensors(2));
  bool goes_on = !c.has(1) || is_true(c, c.in(1));
  std::vector<std::vector<Value>> stacked;
  for (int64_t turn = 0; goes_on && turn < most; ++turn) {
    std::vector<Item> inputs{Item(turn_number(turn)), Item(ops::full({}, 1, DType::kBool))};
    inputs.insert(inputs.end(), states.begin(), states.end());
    const std::vector<Item> made = c.run_items("body", std::move(inputs));
    SLUICE_CHECK(made.size() > states.size(), "its graph gives {} values; must give a condition and {} states",
                 made.size(), states.size());
    if (of_step(made[0].tensor)) {  // from here on a step decides; the turn just made is thrown away
      if (turn > 0 || c.size() - 2 != made.size() - 1)
        c.refuse("its end depends on what a step computes, and it stacks values");
      return loop_of_step(c, most, ops::full({}, 1, DType::kBool), c.tensors(2));
    }
    goes_on = is_true(c, made[0].tensor);
    std::copy_n(made.begin() + 1, states.size(), states.begin());
    stacked.resize(made.size() - 1 - states.size());
    for (size_t k = 0; k < stacked.size(); ++k) stacked[k].push_back(made[1 + states.size() + k].tensor);
  }
  Items outputs(states.begin(), states.end());
  for (const auto& values : stacked) outputs.push_back(ops::stack(values, 0));
  if (outputs.size() < c.outputs()) c.refuse("no turn is made, so that the shape of what it stacks is not known");
  return outputs;
}

int64_t entry(const Ints& all, size_t i) { return i < all.size() ? all[i] : 0; }

Items scan(const Call& c) {
  if (c.version() < 9) c.refuse("opset {}; its form since opset 9 is supported", c.version());
  const auto rows = static_cast<size_t>(c.i("num_scan_inputs"));
  SLUICE_CHECK(rows > 0 && rows <= c.size(), "{} inputs are scanned, of {}; must be some of them", rows, c.size());
  const size_t states = c.size() - rows;
  const Ints in_axes = c.is("scan_input_axes"), in_ways = c.is("scan_input_directions");
  const Ints out_axes = c.is("scan_output_axes"), out_ways = c.is("scan_output_directions");
  std::vector<Value> apart;
  for (size_t k = 0; k < rows; ++k) {
    const Value& x = c.in(states + k);
    Value moved = ops::movedim(x, normalize_axis(entry(in_axes, k), x.rank(), "scan_input_axes"), 0);
    apart.push_back(entry(in_ways, k) != 0 ? ops::flip(moved, {0}) : moved);
    SLUICE_CHECK(apart.back().shape()[0] == apart.front().shape()[0], "{} and {} turns; all inputs must have as many",
                 apart.front().shape()[0], apart.back().shape()[0]);
  }
  const int64_t turns = apart.front().shape()[0];
  std::vector<Value> state = c.tensors();
  state.resize(states);
  std::vector<Value> made;  // states, then what is stacked
  if (current_trace() && turns > 1) {
    made = trace_scan(state, apart, {.length = turns}, [&](std::span<const Value> taken) {
      return c.run("body", std::vector<Item>(taken.begin(), taken.end()));
    });
  } else {
    std::vector<std::vector<Value>> stacked;
    for (int64_t turn = 0; turn < turns; ++turn) {
      std::vector<Item> inputs(state.begin(), state.end());
      for (const Value& x : apart) inputs.push_back(Item(ops::select(x, 0, turn)));
      const std::vector<Value> given = c.run("body", std::move(inputs));
      SLUICE_CHECK(given.size() >= states, "its graph gives {} values; must give {} states", given.size(), states);
      std::copy_n(given.begin(), states, state.begin());
      stacked.resize(given.size() - states);
      for (size_t k = 0; k < stacked.size(); ++k) stacked[k].push_back(given[states + k]);
    }
    made = state;
    for (const auto& values : stacked) made.push_back(ops::stack(values, 0));
  }
  for (size_t k = states; k < made.size(); ++k) {
    if (entry(out_ways, k - states) != 0) made[k] = ops::flip(made[k], {0});
    made[k] = ops::movedim(made[k], 0, normalize_axis(entry(out_axes, k - states), made[k].rank(), "scan_output_axes"));
  }
  if (made.size() < c.outputs()) c.refuse("no turn is made, so that the shape of what it stacks is not known");
  return made;
}

}  // namespace

Entries control_entries() { return {{"If", branch}, {"Loop", loop, 3}, {"Scan", scan}}; }

}  // namespace sluice::onnx
