// Losses.
#include "graph/ops/losses.h"

#include "base/error.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/ops/softmax.h"
#include "onnx/table.h"

namespace sluice::onnx {
namespace {

Value likelihood_loss(const Call& c, const Value& log_probs) {
  const Value target = ops::cast(c.in(1), DType::kInt64);
  SLUICE_CHECK(log_probs.rank() >= 2, "an input of shape {}; must be (N, C, ...)", log_probs.shape().str());
  const int64_t classes = log_probs.shape()[1];
  const bool ignores = c.has_attr("ignore_index");
  const Value counts = ignores ? ops::ne(target, c.i("ignore_index")) : Value();
  const Value index = ignores ? ops::where(counts, target, 0) : target;
  Value loss = ops::neg(ops::squeeze(ops::gather(log_probs, ops::unsqueeze(index, 1), 1), Ints{1}));
  Value weight;
  if (c.has(2)) weight = ops::reshape(ops::index_select(c.in(2), ops::reshape(index, {-1}), 0), index.shape().vec());
  if (ignores) {
    const Value one = weight.defined() ? weight : ops::ones_like(loss);
    weight = ops::where(counts, one, ops::zeros_like(one));
  }
  SLUICE_CHECK(classes > 0, "no classes in {}; must be some", log_probs.shape().str());
  if (weight.defined()) loss = ops::mul(loss, weight);
  const std::string reduction = c.s("reduction", "mean");
  if (reduction == "mean" && weight.defined()) return ops::div(ops::sum(loss), ops::sum(weight));
  return ops::reduce_loss(loss, reduction, "reduction");
}

}  // namespace

Entries loss_entries() {
  return {
      {"NegativeLogLikelihoodLoss", [](const Call& c) { return likelihood_loss(c, c.in(0)); }},
      {"SoftmaxCrossEntropyLoss",
       [](const Call& c) -> Items {
         const Value log_probs = ops::log_softmax(c.in(0), 1);
         return {likelihood_loss(c, log_probs), log_probs};
       }},
  };
}

}  // namespace sluice::onnx
