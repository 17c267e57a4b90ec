// Steps of optimizers, of the domain ai.onnx.preview.training.
#include <cmath>

#include "base/error.h"
#include "graph/ops/elementwise.h"
#include "onnx/table.h"

namespace sluice::onnx {
namespace {

// Inputs are the rate, the number of the step, then of all parameters one after the other: themselves, gradients, and
// `state` values of state. `step` gives a parameter's new value and state, and outputs are ordered like inputs.
using Kept = std::vector<Value>;
auto for_all(size_t state, Kept (*step)(const Call& c, double rate, int64_t number, const Kept& of)) {
  return [=](const Call& c) {
    const size_t kinds = state + 2, n = c.size() < 2 ? 0 : (c.size() - 2) / kinds;
    SLUICE_CHECK(n > 0 && c.size() == 2 + n * kinds, "{} inputs; must be 2 and {} for each parameter", c.size(), kinds);
    Items outputs(n * (state + 1));
    for (size_t i = 0; i < n; ++i) {
      Kept of;
      for (size_t k = 0; k < kinds; ++k) of.push_back(c.in(2 + k * n + i));
      const Kept made = step(c, c.number(0), c.integer(1), of);
      for (size_t k = 0; k < made.size(); ++k) outputs[k * n + i] = made[k];
    }
    return outputs;
  };
}

Value plus(const Value& a, double factor, const Value& b) { return ops::add(a, ops::mul(b, factor)); }
Value regularized(const Call& c, const Kept& of) { return plus(of[1], c.f("norm_coefficient"), of[0]); }

Kept adagrad(const Call& c, double rate, int64_t number, const Kept& of) {
  const Value g = regularized(c, of), h = ops::add(of[2], ops::mul(g, g));
  const double r = rate / (1 + static_cast<double>(number) * c.f("decay_factor"));
  const Value scaled = ops::div(g, ops::add(ops::sqrt(h), c.f("epsilon", 1e-6)));
  return {plus(of[0], -r, scaled), h};
}

Kept adam(const Call& c, double rate, int64_t number, const Kept& of) {
  const double alpha = c.f("alpha", 0.9), beta = c.f("beta", 0.999), t = static_cast<double>(number);
  const Value g = regularized(c, of);
  const Value v = plus(ops::mul(of[2], alpha), 1 - alpha, g), h = plus(ops::mul(of[3], beta), 1 - beta, ops::mul(g, g));
  const double r = number > 0 ? rate * std::sqrt(1 - std::pow(beta, t)) / (1 - std::pow(alpha, t)) : rate;
  const Value x = plus(of[0], -r, ops::div(v, ops::add(ops::sqrt(h), c.f("epsilon", 1e-6))));
  return {ops::mul(x, 1 - c.f("norm_coefficient_post")), v, h};
}

Kept momentum(const Call& c, double rate, int64_t number, const Kept& of) {
  const double alpha = c.f("alpha"), beta = number > 0 ? c.f("beta") : 1;
  const Value g = regularized(c, of), v = plus(ops::mul(of[2], alpha), beta, g);
  const Value move = c.s("mode") == "nesterov" ? plus(g, alpha, v) : v;
  return {plus(of[0], -rate, move), v};
}

}  // namespace

Entries training_entries() {
  return {
      {"ai.onnx.preview.training:Adagrad", for_all(1, adagrad), 3},
      {"ai.onnx.preview.training:Adam", for_all(2, adam), 3},
      {"ai.onnx.preview.training:Momentum", for_all(1, momentum), 3},
  };
}

}  // namespace sluice::onnx
