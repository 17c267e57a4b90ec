// Recurrent layers.
#include <array>

#include "base/error.h"
#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"
#include "onnx/table.h"
#include "tensor/loops.h"
#include "tensor/trace.h"

namespace sluice::onnx {
namespace {

using Values = std::vector<Value>;
using Function = std::function<Value(const Value&)>;

Function activation(const std::string& given, double alpha, double beta) {
  std::string name = given;
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const std::map<std::string, Function> all = {
      {"tanh", [](const Value& x) { return ops::tanh(x); }},
      {"sigmoid", [](const Value& x) { return ops::sigmoid(x); }},
      {"relu", [](const Value& x) { return ops::relu(x); }},
      {"affine", [=](const Value& x) { return ops::add(ops::mul(x, alpha), beta); }},
      {"leakyrelu", [=](const Value& x) { return ops::leaky_relu(x, alpha); }},
      {"thresholdedrelu", [=](const Value& x) { return ops::where(ops::ge(x, alpha), x, ops::zeros_like(x)); }},
      {"scaledtanh", [=](const Value& x) { return ops::mul(ops::tanh(ops::mul(x, beta)), alpha); }},
      {"hardsigmoid",
       [=](const Value& x) {
         return ops::clamp(ops::add(ops::mul(x, alpha), beta), ops::Operand(0.0), ops::Operand(1.0));
       }},
      {"elu", [=](const Value& x) { return ops::elu(x, alpha); }},
      {"softsign", [](const Value& x) { return ops::div(x, ops::add(ops::abs(x), 1)); }},
      {"softplus", [](const Value& x) { return ops::softplus(x); }},
  };
  const auto found = all.find(name);
  SLUICE_CHECK(found != all.end(), "activation '{}'; must be one of ONNX", given);
  return found->second;
}

// One direction of a layer: weights without the dim of directions.
struct Cell {
  Value w, r, bias_w, bias_r;  // of input and state; biases (gates * hidden)
  Value peepholes;
  std::vector<Function> f;
  double clip = 0;
  bool linear_before_reset = false, couple = false;
  int64_t hidden = 0;
};

Value within_clip(const Cell& cell, const Value& x) {
  return cell.clip > 0 ? ops::clamp(x, ops::Operand(-cell.clip), ops::Operand(cell.clip)) : x;
}
Value by_weight(const Value& x, const Value& weight) { return ops::matmul(x, weight, false, true); }

// The next states of `x`, the part of the gates that the input makes, for the states of before: {h} or {h, c}.
using Step = Values (*)(const Cell& cell, const Value& x, const Values& states);

Values rnn_step(const Cell& cell, const Value& x, const Values& states) {
  return {cell.f[0](within_clip(cell, ops::add(ops::add(x, by_weight(states[0], cell.r)), cell.bias_r)))};
}

Values gru_step(const Cell& cell, const Value& x, const Values& states) {
  const int64_t n = cell.hidden;
  const auto gate = [n](const Value& v, int64_t dim, int64_t i, int64_t count = 1) {
    return ops::narrow(v, dim, i * n, count * n);
  };
  const Value& h = states[0];
  const Value both =
      ops::add(ops::add(gate(x, 1, 0, 2), by_weight(h, gate(cell.r, 0, 0, 2))), gate(cell.bias_r, 0, 0, 2));
  const Value z = cell.f[0](within_clip(cell, gate(both, 1, 0))),
              reset = cell.f[0](within_clip(cell, gate(both, 1, 1)));
  const Value r_h = gate(cell.r, 0, 2), bias = gate(cell.bias_r, 0, 2);
  const Value inner = cell.linear_before_reset ? ops::mul(reset, ops::add(by_weight(h, r_h), bias))
                                               : ops::add(by_weight(ops::mul(reset, h), r_h), bias);
  const Value fresh = cell.f[1](within_clip(cell, ops::add(gate(x, 1, 2), inner)));
  return {ops::add(ops::mul(ops::sub(1, z), fresh), ops::mul(z, h))};
}

Values lstm_step(const Cell& cell, const Value& x, const Values& states) {
  const int64_t n = cell.hidden;
  const Value all = ops::add(ops::add(x, by_weight(states[0], cell.r)), cell.bias_r);
  const auto gate = [&](int64_t i) { return ops::narrow(all, 1, i * n, n); };  // i, o, f, c
  const auto peep = [&](const Value& v, int64_t i, const Value& state) {
    return cell.peepholes.defined() ? ops::add(v, ops::mul(ops::narrow(cell.peepholes, 0, i * n, n), state)) : v;
  };
  const Value& c = states[1];
  const Value i = cell.f[0](within_clip(cell, peep(gate(0), 0, c)));
  const Value f = cell.couple ? ops::sub(1, i) : cell.f[0](within_clip(cell, peep(gate(2), 2, c)));
  const Value next = ops::add(ops::mul(f, c), ops::mul(i, cell.f[1](within_clip(cell, gate(3)))));
  const Value o = cell.f[0](within_clip(cell, peep(gate(1), 1, next)));
  return {ops::mul(o, cell.f[2](next)), next};
}

// Runs a direction over x (time, batch, gates * hidden): {all h, last states...}. In a graph it is one loop.
Values run_direction(const Cell& cell, Step step, const Value& x, Values states, const Value& lengths, bool reverse) {
  const int64_t steps = x.shape()[0];
  const auto turn = [&](const Value& input, const Value& time, const Values& before) {
    Values after = step(cell, input, before);
    Value shown = after[0];
    if (lengths.defined()) {  // beyond its length a sequence's states stay, and it gives zeros
      const Value there = ops::unsqueeze(ops::lt(time, lengths), 1);
      for (size_t s = 0; s < after.size(); ++s) after[s] = ops::where(there, after[s], before[s]);
      shown = ops::where(there, shown, ops::zeros_like(shown));
    }
    return std::pair(std::move(after), shown);
  };
  if (current_trace() && steps > 1) {
    const Values rows{x, ops::iota(0, 1, steps)};
    Values made = trace_scan(states, rows, {.length = steps, .reverse = reverse}, [&](std::span<const Value> taken) {
      const Values before(taken.begin(), taken.begin() + static_cast<int64_t>(states.size()));
      auto [after, shown] = turn(taken[states.size()], taken[states.size() + 1], before);
      after.push_back(shown);
      return after;
    });
    std::rotate(made.begin(), made.end() - 1, made.end());
    return made;
  }
  Values shown(static_cast<size_t>(steps));
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = reverse ? steps - 1 - i : i;
    auto [after, y] = turn(ops::select(x, 0, t), ops::full({}, static_cast<double>(t), DType::kInt64), states);
    states = std::move(after);
    shown[static_cast<size_t>(t)] = y;
  }
  Values made{ops::stack(shown, 0)};
  made.insert(made.end(), states.begin(), states.end());
  return made;
}

struct Kind {
  int gates, states;
  Step step;
  std::vector<std::string> activations;
};

std::vector<Function> activations_of(const Call& c, const Kind& kind, size_t direction) {
  const std::vector<std::string> names = c.ss("activations");
  const std::vector<double> alpha = c.fs("activation_alpha"), beta = c.fs("activation_beta");
  const std::map<std::string, std::array<double, 2>> defaults = {
      {"LeakyRelu", {0.01, 0}}, {"ThresholdedRelu", {1, 0}}, {"HardSigmoid", {0.2, 0.5}},
      {"Elu", {1, 0}},          {"Affine", {1, 0}},          {"ScaledTanh", {1, 1}}};
  std::vector<Function> all;
  for (size_t i = 0; i < kind.activations.size(); ++i) {
    const size_t at = direction * kind.activations.size() + i;
    const std::string name = names.empty()       ? kind.activations[i]
                             : at < names.size() ? names[at]
                                                 : names[i % names.size()];
    const auto found = defaults.find(name);
    const std::array<double, 2> otherwise = found == defaults.end() ? std::array<double, 2>{0, 0} : found->second;
    all.push_back(
        activation(name, at < alpha.size() ? alpha[at] : otherwise[0], at < beta.size() ? beta[at] : otherwise[1]));
  }
  return all;
}

Items recurrent(const Call& c, const Kind& kind) {
  const bool batch_first = c.i("layout") != 0;
  const Value x = batch_first ? ops::transpose(c.in(0), 0, 1) : c.in(0);
  const Value &w = c.in(1), &r = c.in(2);
  const std::string direction = c.s("direction", "forward");
  const auto directions = static_cast<size_t>(direction == "bidirectional" ? 2 : 1);
  SLUICE_CHECK(x.rank() == 3 && w.rank() == 3 && r.rank() == 3 && w.shape()[0] == static_cast<int64_t>(directions) &&
                   r.shape()[0] == w.shape()[0] && r.shape()[1] == w.shape()[1],
               "an input of {}, weights of {} and {}; must be (time, batch, size) and (directions, gates, size)",
               x.shape().str(), w.shape().str(), r.shape().str());
  const int64_t hidden = r.shape()[2], gates = kind.gates * hidden, batch = x.shape()[1];
  const Value lengths = c.has(4) ? ops::cast(c.in(4), DType::kInt64) : Value();
  std::vector<Values> made;
  for (size_t d = 0; d < directions; ++d) {
    const auto of = [&](const Value& v) { return ops::select(v, 0, static_cast<int64_t>(d)); };
    Cell cell{of(w),
              of(r),
              {},
              {},
              c.has(7) ? of(c.in(7)) : Value(),
              activations_of(c, kind, d),
              c.f("clip"),
              c.i("linear_before_reset") != 0,
              c.i("input_forget") != 0,
              hidden};
    const Value bias = c.has(3) ? of(c.in(3)) : ops::zeros(Shape({2 * gates}), x.dtype());
    cell.bias_w = ops::narrow(bias, 0, 0, gates);
    cell.bias_r = ops::narrow(bias, 0, gates, gates);
    Values states;
    for (int s = 0; s < kind.states; ++s) {
      const auto input = static_cast<size_t>(5 + s);
      Value start = c.has(input) ? (batch_first ? ops::transpose(c.in(input), 0, 1) : c.in(input)) : Value();
      states.push_back(start.defined() ? of(start) : ops::zeros(Shape({batch, hidden}), x.dtype()));
    }
    const Value inputs = ops::add(ops::matmul(x, cell.w, false, true), cell.bias_w);
    const bool reverse = direction == "reverse" || d == 1;
    made.push_back(run_direction(cell, kind.step, inputs, std::move(states), lengths, reverse));
  }
  Items outputs;
  for (int s = 0; s <= kind.states; ++s) {
    Values parts;
    for (const Values& one : made) parts.push_back(one[static_cast<size_t>(s)]);
    Value joined =
        ops::stack(parts, s == 0 ? 1 : 0);  // (time, directions, batch, hidden) or (directions, batch, hidden)
    if (batch_first) joined = s == 0 ? ops::permute(joined, {2, 0, 1, 3}) : ops::transpose(joined, 0, 1);
    outputs.push_back(joined);
  }
  return outputs;
}

}  // namespace

Entries recurrent_entries() {
  const auto layer = [](Kind kind) { return [kind = std::move(kind)](const Call& c) { return recurrent(c, kind); }; };
  return {
      {"GRU", layer({3, 1, gru_step, {"Sigmoid", "Tanh"}})},
      {"LSTM", layer({4, 2, lstm_step, {"Sigmoid", "Tanh", "Tanh"}})},
      {"RNN", layer({1, 1, rnn_step, {"Tanh"}})},
  };
}

}  // namespace sluice::onnx
