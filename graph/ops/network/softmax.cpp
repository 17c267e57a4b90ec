#include "graph/ops/softmax.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/reduction.h"

namespace sluice::ops {
namespace {

extern const OpDef softmax_backward_def, log_softmax_backward_def;

std::vector<TensorType> infer_softmax(Types in, Present, const Attrs& a) {
  check_floating(in[0], "softmax");
  normalize_axis(attr<int64_t>(a, 0), in[0].shape.rank(), "softmax");
  return {in[0]};
}
std::vector<TensorType> infer_softmax_backward(Types in, Present, const Attrs& a) {
  check_floating(in[0], "softmax_backward");
  SLUICE_CHECK(in[0] == in[1],
               "softmax_backward: operands differ: grad is {}, result is {}; they must be equal in dtype and shape",
               in[0].str(), in[1].str());
  normalize_axis(attr<int64_t>(a, 0), in[0].shape.rank(), "softmax_backward");
  return {in[0]};
}

// Every axis but `dim` may be split.
std::vector<SbpRow> sbp_rows(Types in, const Attrs& a) {
  const int rank = in[0].shape.rank(), dim = normalize_axis(attr<int64_t>(a, 0), rank, "softmax");
  std::vector<SbpRow> rows = {{std::vector<Sbp>(in.size()), {Sbp::broadcast()}}};
  for (int i = 0; i < rank; ++i) {
    if (i != dim) rows.push_back({std::vector<Sbp>(in.size(), Sbp::split(i)), {Sbp::split(i)}});
  }
  return rows;
}
Cost softmax_cost(Types in, Types out, const Attrs&) {
  return {8 * static_cast<double>(numel(out[0].shape)), operand_bytes(in, out)};
}

// The largest element is subtracted as a constant: it cancels, gradient included.
Value shifted(const Value& x, int64_t dim) { return numel(x.shape()) == 0 ? x : sub(x, amax(x, Ints{dim}, true)); }

std::vector<Value> decompose_softmax(std::span<const Value> in, const Attrs& a) {
  const Ints dim = {attr<int64_t>(a, 0)};
  const Value e = exp(shifted(in[0], dim[0]));
  return {div(e, sum(e, dim, true))};
}
std::vector<Value> decompose_log_softmax(std::span<const Value> in, const Attrs& a) {
  const Ints dim = {attr<int64_t>(a, 0)};
  const Value s = shifted(in[0], dim[0]);
  return {sub(s, log(sum(exp(s), dim, true)))};
}
std::vector<Value> decompose_softmax_backward(std::span<const Value> in, const Attrs& a) {
  return {mul(in[1], sub(in[0], sum(mul(in[0], in[1]), Ints{attr<int64_t>(a, 0)}, true)))};
}
std::vector<Value> decompose_log_softmax_backward(std::span<const Value> in, const Attrs& a) {
  return {sub(in[0], mul(exp(in[1]), sum(in[0], Ints{attr<int64_t>(a, 0)}, true)))};
}

const Param kDim{.name = "dim", .default_value = int64_t{-1}};

std::vector<Sample> forward_samples() {
  return {{{{{4, 7}}}},  {{{{3, 5, 4}}}, {int64_t{1}}},
          {{{{2, 33}}}}, {{{.shape = {3, 4}, .low = -80, .high = 80}}},
          {{{{0, 3}}}},  {{{{3, 0}}}}};
}
std::vector<Sample> backward_samples() { return {{{{{4, 7}}, {{4, 7}}}}, {{{{3, 5, 4}}, {{3, 5, 4}}}, {int64_t{1}}}}; }

const OpDef softmax_def{.name = "softmax",
                        .doc = "exp(x) / sum(exp(x)) along `dim` (torch.softmax).",
                        .inputs = {"x"},
                        .params = {kDim},
                        .infer = infer_softmax,
                        .grad = [](const GradContext& c) -> std::vector<Value> {
                          return {call1(softmax_backward_def, {c.grad_outputs[0], c.outputs[0]}, c.attrs)};
                        },
                        .decompose = decompose_softmax,
                        .sbp = sbp_rows,
                        .cost = softmax_cost,
                        .samples = forward_samples()};

const OpDef log_softmax_def{.name = "log_softmax",
                            .doc = "x - log(sum(exp(x))) along `dim` (torch.log_softmax).",
                            .inputs = {"x"},
                            .params = {kDim},
                            .infer = infer_softmax,
                            .grad = [](const GradContext& c) -> std::vector<Value> {
                              return {call1(log_softmax_backward_def, {c.grad_outputs[0], c.outputs[0]}, c.attrs)};
                            },
                            .decompose = decompose_log_softmax,
                            .sbp = sbp_rows,
                            .cost = softmax_cost,
                            .samples = forward_samples()};

const OpDef softmax_backward_def{.name = "softmax_backward",
                                 .doc = "result * (grad - sum(grad * result)): the gradient of softmax.",
                                 .inputs = {"grad", "result"},
                                 .params = {kDim},
                                 .infer = infer_softmax_backward,
                                 .decompose = decompose_softmax_backward,
                                 .sbp = sbp_rows,
                                 .cost = softmax_cost,
                                 .samples = backward_samples()};

const OpDef log_softmax_backward_def{.name = "log_softmax_backward",
                                     .doc = "grad - exp(result) * sum(grad): the gradient of log_softmax.",
                                     .inputs = {"grad", "result"},
                                     .params = {kDim},
                                     .infer = infer_softmax_backward,
                                     .decompose = decompose_log_softmax_backward,
                                     .sbp = sbp_rows,
                                     .cost = softmax_cost,
                                     .samples = backward_samples()};

}  // namespace

Value softmax(const Value& x, int64_t dim) { return call1(softmax_def, {x}, {dim}); }
Value log_softmax(const Value& x, int64_t dim) { return call1(log_softmax_def, {x}, {dim}); }

std::span<const OpDef* const> softmax_ops() {
  static const OpDef* const defs[] = {&softmax_def, &log_softmax_def, &softmax_backward_def, &log_softmax_backward_def};
  return defs;
}

}  // namespace sluice::ops
