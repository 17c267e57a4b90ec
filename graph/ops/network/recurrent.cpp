#include "graph/ops/recurrent.h"

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/common.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

extern const OpDef lstm_cell_backward_def;

void check_states(const TensorType& gates, const TensorType& c, const char* where) {
  check_floating(gates, where);
  SLUICE_CHECK_KIND(kRuntime,
                    gates.shape.rank() == 2 && c.shape.rank() == 2 && c.dtype == gates.dtype &&
                        c.shape[0] == gates.shape[0] && gates.shape[1] == 4 * c.shape[1],
                    "{}: gates and states do not fit: {} and {}; they must be (batch, 4 * size) and (batch, size)",
                    where, gates.str(), c.str());
}

void check_equal(const TensorType& a, const TensorType& b, const char* where) {
  SLUICE_CHECK_KIND(kRuntime, a == b, "{}: operands differ: {} and {}; they must be of one type", where, a.str(),
                    b.str());
}

std::vector<TensorType> infer_cell(Types in, Present, const Attrs&) {
  check_equal(in[0], in[1], "lstm_cell");
  check_states(in[0], in[2], "lstm_cell");
  return {in[2], in[2], in[0]};
}

std::vector<Value> decompose_cell(std::span<const Value> in, const Attrs&) {
  const std::vector<Value> parts = chunk(add(in[0], in[1]), 4, 1);
  const Value i = sigmoid(parts[0]), f = sigmoid(parts[1]), g = tanh(parts[2]), o = sigmoid(parts[3]);
  const Value c = add(mul(f, in[2]), mul(i, g));
  const Value gates[] = {i, f, g, o};
  return {mul(o, tanh(c)), c, concat(gates, 1)};
}

// With respect to what the gates are of.
Value before_activation(const Value& gates, const Value& d) {
  const std::vector<Value> a = chunk(gates, 4, 1), g = chunk(d, 4, 1);
  const Value parts[] = {sigmoid_backward(g[0], a[0]), sigmoid_backward(g[1], a[1]), tanh_backward(g[2], a[2]),
                         sigmoid_backward(g[3], a[3])};
  return concat(parts, 1);
}

std::vector<Value> grad_cell(const GradContext& c) {
  const Value &dh = c.grad_outputs[0], &dc = c.grad_outputs[1], &da = c.grad_outputs[2];
  Value gates, state;
  if (dh.defined() || dc.defined()) {
    const Value inputs[] = {c.outputs[2], c.inputs[2], c.outputs[1], dh, dc};
    const std::vector<Value> d = call(lstm_cell_backward_def, inputs);
    gates = d[0], state = d[1];
  }
  if (da.defined()) {
    const Value more = before_activation(c.outputs[2], da);
    gates = gates.defined() ? add(gates, more) : more;
  }
  return {gates, gates, state};
}

std::vector<TensorType> infer_recurrent_backward(Types in, Present present, const Attrs&) {
  check_states(in[0], in[1], "lstm_cell_backward");
  check_equal(in[1], in[2], "lstm_cell_backward");
  for (size_t i = 3; i < in.size(); ++i)
    if (present[i]) check_equal(in[1], in[i], "lstm_cell_backward");
  return {in[0], in[1]};
}

std::vector<Value> decompose_recurrent_backward(std::span<const Value> in, const Attrs&) {
  const std::vector<Value> a = chunk(in[0], 4, 1);
  const Value &dh = in.size() > 3 ? in[3] : Value(), &dc_new = in.size() > 4 ? in[4] : Value();
  const Value t = tanh(in[2]);
  const Value none = mul(t, 0.0);
  Value dc = dc_new.defined() ? dc_new : none;
  if (dh.defined()) dc = add(dc, tanh_backward(mul(dh, a[3]), t));
  const Value parts[] = {mul(dc, a[2]), mul(dc, in[1]), mul(dc, a[0]), dh.defined() ? mul(dh, t) : none};
  return {before_activation(in[0], concat(parts, 1)), mul(dc, a[1])};
}

// The rows may be split.
std::vector<SbpRow> sbp_cell(Types in, const Attrs&) {
  const size_t outputs = in.size() == 3 ? 3 : 2;
  std::vector<SbpRow> rows;
  for (const Sbp sbp : {Sbp::split(0), Sbp::broadcast()}) {
    SbpRow row{std::vector<Sbp>(in.size(), sbp), std::vector<Sbp>(outputs, sbp)};
    for (size_t i = 3; i < in.size(); ++i)
      if (in[i].shape.rank() == 0) row.inputs[i] = Sbp::broadcast();  // absent
    rows.push_back(row);
  }
  return rows;
}

Cost cost_cell(Types in, Types out, const Attrs&) {
  return {40 * static_cast<double>(numel(out.back().shape)), operand_bytes(in, out)};
}

const OpDef lstm_cell_def{
    .name = "lstm_cell",
    .doc =
        "What a step of an LSTM computes of its gates (batch, 4 * size; i, f, g, o), the sums of `input` and "
        "`hidden`, and its state c (batch, size): the next h and c, and the gates after their activations. "
        "torch.nn.LSTMCell.",
    .inputs = {"input", "hidden", "c"},
    .num_outputs = 3,
    .infer = infer_cell,
    .grad = grad_cell,
    .decompose = decompose_cell,
    .sbp = sbp_cell,
    .cost = cost_cell,
    .samples = {
        {{{{3, 8}}, {{3, 8}}, {{3, 2}}}}, {{{{2, 68}}, {{2, 68}}, {{2, 17}}}}, {{{{0, 4}}, {{0, 4}}, {{0, 1}}}}}};

const OpDef lstm_cell_backward_def{
    .name = "lstm_cell_backward",
    .doc = "Gradients of lstm_cell by the sum of its gates and by c, of those of h and of the next c.",
    .inputs = {"gates", "c", "next_c", "dh?", "dc?"},
    .num_outputs = 2,
    .infer = infer_recurrent_backward,
    .decompose = decompose_recurrent_backward,
    .sbp = sbp_cell,
    .cost = cost_cell,
    .samples = {{{{{3, 8}}, {{3, 2}}, {{3, 2}}, {{3, 2}}, {{3, 2}}}},
                {{{{2, 68}}, {{2, 17}}, {{2, 17}}, {{2, 17}}, {.shape = {}, .absent = true}}},
                {{{{2, 12}}, {{2, 3}}, {{2, 3}}, {.shape = {}, .absent = true}, {{2, 3}}}}}};

}  // namespace

std::vector<Value> lstm_cell(const Value& input, const Value& hidden, const Value& c) {
  const Value inputs[] = {input, hidden, c};
  return call(lstm_cell_def, inputs);
}

std::span<const OpDef* const> recurrent_ops() {
  static const OpDef* const ops[] = {&lstm_cell_def, &lstm_cell_backward_def};
  return ops;
}

}  // namespace sluice::ops
