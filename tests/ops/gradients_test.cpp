// Gradients and gradients of gradients against central finite differences, in float64.
#include <cmath>

#include "graph/ops/elementwise.h"
#include "graph/ops/reduction.h"
#include "graph/tape.h"
#include "ops/op_cases.h"

namespace sluice::test {
namespace {

class GradientTest : public OpTest {};

constexpr double kStep = 1e-5;

// A scalar function of some of a sample's inputs, and of extra arguments.
struct Problem {
  Drawn drawn;
  std::vector<size_t> wanted;   // floating inputs
  std::vector<size_t> outputs;  // floating outputs
  std::vector<Value> seeds;     // cotangents of those

  std::vector<Value> with(const std::vector<Value>& arguments) const {
    std::vector<Value> inputs = drawn.inputs;
    for (size_t i = 0; i < wanted.size(); ++i) inputs[wanted[i]] = arguments[i];
    return inputs;
  }
  std::vector<Value> results(const std::vector<Value>& arguments) const {
    const std::vector<Value> all = drawn.run(with(arguments));
    std::vector<Value> chosen;
    for (size_t o : outputs) chosen.push_back(all[o]);
    return chosen;
  }
};

// Gradients that by definition are not the derivative: rows of padding get none.
bool is_derivative(const Drawn& drawn) {
  const int padding = drawn.op->find_param("padding_idx");
  return padding < 0 || attr<int64_t>(drawn.attrs, padding) < 0;
}

// Operands whose derivative is not known; asking for it is an error.
bool is_differentiable_in(const OpDef& op, size_t input) {
  const std::string_view name = op.name;
  return input > 0 || (name != "igamma" && name != "igammac" && name != "zeta");
}

bool is_wide(DType dtype) { return dtype == DType::kFloat64 || dtype == DType::kComplex128; }

std::optional<Problem> problem_of(const OpDef& op, size_t index) {
  Problem p{draw(op, index, {DType::kFloat64, {}, false}), {}, {}, {}};
  if (!is_derivative(p.drawn)) return std::nullopt;
  for (size_t i = 0; i < p.drawn.inputs.size(); ++i)
    if (p.drawn.inputs[i].defined() && is_wide(p.drawn.inputs[i].dtype()) && is_differentiable_in(op, i))
      p.wanted.push_back(i);
  const GradMode off(false);
  const std::vector<Value> outputs = p.drawn.run();
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!is_wide(outputs[o].dtype())) continue;
    p.outputs.push_back(o);
    p.seeds.push_back(from_doubles(outputs[o].type(), noise(doubles_of(outputs[o].type()), 77 + o)));
  }
  if (p.wanted.empty() || p.outputs.empty()) return std::nullopt;
  return p;
}

std::vector<Value> leaves_of(const std::vector<Value>& values) {
  std::vector<Value> leaves;
  for (const Value& v : values) {
    Tensor leaf = Tensor(v).clone().detach();
    leaf.set_requires_grad(true);
    leaves.push_back(leaf);
  }
  return leaves;
}

std::vector<Value> arguments_of(const Problem& p) {
  std::vector<Value> arguments;
  for (size_t i : p.wanted) arguments.push_back(p.drawn.inputs[i]);
  return arguments;
}

double weighted(const std::vector<Value>& values, const std::vector<std::vector<double>>& weights) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].defined()) sum += dot(to_doubles(values[i]), weights[i]);
  return sum;
}

// <gradient, direction> against the slope of `f` along `direction`, one argument at a time.
template <class F>
void check_slopes(const std::vector<Value>& arguments, const std::vector<Value>& gradients, F f, double tolerance,
                  const std::string& what) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    for (uint64_t trial = 0; trial < 2; ++trial) {
      const std::vector<double> at = to_doubles(arguments[i]);
      const std::vector<double> direction = noise(static_cast<int64_t>(at.size()), 31 * (i + 1) + trial);
      const auto value_at = [&](double step) {
        std::vector<double> moved = at;
        for (size_t k = 0; k < at.size(); ++k) moved[k] += step * direction[k];
        std::vector<Value> others = arguments;
        others[i] = from_doubles(arguments[i].type(), moved);
        return f(others);
      };
      const double above = value_at(kStep), below = value_at(-kStep);
      const double expected = (above - below) / (2 * kStep);
      const double got = gradients[i].defined() ? dot(to_doubles(gradients[i]), direction) : 0;
      ASSERT_NEAR(got, expected, tolerance * (1 + std::abs(expected) + std::abs(above)))
          << what << ", argument " << i << (gradients[i].defined() ? "" : " (no gradient)");
    }
  }
}

TEST_P(GradientTest, MatchesFiniteDifferences) {
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const auto p = problem_of(op(), s);
    if (!p) continue;
    std::vector<std::vector<double>> weights;
    for (const Value& seed : p->seeds) weights.push_back(to_doubles(seed));
    const std::vector<Value> leaves = leaves_of(arguments_of(*p));
    const std::vector<Value> outputs = p->results(leaves);
    std::vector<Value> gradients(leaves.size()), recorded, seeds;
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (!outputs[o].requires_grad()) continue;
      recorded.push_back(outputs[o]);
      seeds.push_back(p->seeds[o]);
    }
    if (!recorded.empty()) gradients = grad(recorded, leaves, seeds, {false, {}, true});
    const GradMode off(false);
    check_slopes(
        arguments_of(*p), gradients, [&](const std::vector<Value>& at) { return weighted(p->results(at), weights); },
        2e-7, p->drawn.label);
  }
}

TEST_P(GradientTest, OfGradientMatchesFiniteDifferences) {
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const auto p = problem_of(op(), s);
    if (!p) continue;
    // Arguments: the inputs, then the cotangents. Function: <gradients, weights>.
    std::vector<Value> arguments = arguments_of(*p);
    const size_t n = arguments.size();
    std::vector<std::vector<double>> weights;
    for (size_t i = 0; i < n; ++i) weights.push_back(noise(doubles_of(arguments[i].type()), 500 + i));
    arguments.insert(arguments.end(), p->seeds.begin(), p->seeds.end());
    const auto gradients_at = [&](const std::vector<Value>& leaves, bool create_graph) {
      const std::vector<Value> inputs(leaves.begin(), leaves.begin() + static_cast<long>(n));
      const std::vector<Value> outputs = p->results(inputs);
      std::vector<Value> recorded, seeds;
      for (size_t o = 0; o < outputs.size(); ++o) {
        if (!outputs[o].requires_grad()) continue;
        recorded.push_back(outputs[o]);
        seeds.push_back(leaves[n + o]);
      }
      if (recorded.empty()) return std::vector<Value>(n);
      return grad(recorded, inputs, seeds, {create_graph, {}, true});
    };
    const std::vector<Value> leaves = leaves_of(arguments);
    const std::vector<Value> first = gradients_at(leaves, true);
    std::vector<Value> recorded, seeds, second(leaves.size());
    for (size_t i = 0; i < n; ++i) {
      if (!first[i].requires_grad()) continue;
      recorded.push_back(first[i]);
      seeds.push_back(from_doubles(first[i].type(), weights[i]));
    }
    if (!recorded.empty()) second = grad(recorded, leaves, seeds, {false, {}, true});
    check_slopes(
        arguments, second,
        [&](const std::vector<Value>& at) { return weighted(gradients_at(leaves_of(at), false), weights); }, 1e-6,
        p->drawn.label);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GradientTest, testing::ValuesIn(differentiable_ops()), op_name);

}  // namespace
}  // namespace sluice::test
