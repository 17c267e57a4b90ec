#include "graph/ops/embedding.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"

namespace sluice::ops {
namespace {

extern const OpDef embedding_backward_def;

std::vector<TensorType> infer_embedding(Types in, Present, const Attrs& a) {
  SLUICE_CHECK(in[0].shape.rank() == 2, "embedding: weight is not a matrix: {}; it must be (entries, features)",
               in[0].shape.str());
  check_index(in[1], "embedding");
  const int64_t padding = attr<int64_t>(a, 0);
  SLUICE_CHECK(padding >= -1 && padding < in[0].shape[0],
               "embedding: padding_idx is out of range: {} for {} entries; it must be a row, or -1 for none", padding,
               in[0].shape[0]);
  Shape out = in[1].shape;
  out.push_back(in[0].shape[1]);
  return {{in[0].dtype, out}};
}

// params num_embeddings, padding_idx.
std::vector<TensorType> infer_embedding_backward(Types in, Present, const Attrs& a) {
  check_floating(in[0], "embedding_backward");
  check_index(in[1], "embedding_backward");
  const Shape &g = in[0].shape, &i = in[1].shape;
  SLUICE_CHECK(
      g.rank() == i.rank() + 1 && std::equal(i.begin(), i.end(), g.begin()),
      "embedding_backward: operands do not fit: grad is {}, index is {}; grad must be shaped as index with features",
      g.str(), i.str());
  return {{in[0].dtype, {attr<int64_t>(a, 0), g.back()}}};
}

std::vector<Value> decompose_embedding(std::span<const Value> in, const Attrs&) {
  Ints out = in[1].shape().vec();
  const Value flat = reshape(in[1], {numel(in[1].shape())});
  out.push_back(in[0].shape()[1]);
  return {reshape(index_select(in[0], flat, 0), out)};
}
// Gradients of padding entries are zeroed before they are added up.
Value masked(const Value& grad, const Value& index, int64_t padding) {
  if (padding < 0) return grad;
  Ints shape = index.shape().vec();
  shape.push_back(1);
  return where(reshape(ne(index, padding), shape), grad, 0.0);
}
std::vector<Value> decompose_embedding_backward(std::span<const Value> in, const Attrs& a) {
  const int64_t rows = attr<int64_t>(a, 0), features = in[0].shape().back(), n = numel(in[1].shape());
  const Value grad = reshape(masked(in[0], in[1], attr<int64_t>(a, 1)), {n, features});
  return {index_add(zeros({rows, features}, grad.dtype()), reshape(in[1], {n}), grad, 0)};
}

const Param kPadding{.name = "padding_idx", .default_value = int64_t{-1}};
const SampleInput kIndex{.shape = {2, 3}, .dtype = DType::kInt64, .low = 0, .high = 5};

const OpDef embedding_def{
    .name = "embedding",
    .doc = "Rows of weight (V, D) at integer indices of any shape (torch.nn.functional.embedding).",
    .inputs = {"weight", "index"},
    .params = {kPadding},
    .infer = infer_embedding,
    .grad = [](const GradContext& c) -> std::vector<Value> {
      return {call1(embedding_backward_def, {c.grad_outputs[0], c.inputs[1]}, {c.inputs[0].shape()[0], c.attrs[0]}),
              Value()};
    },
    .decompose = decompose_embedding,
    .sbp = [](Types in, const Attrs&) -> std::vector<SbpRow> {
      const auto B = Sbp::broadcast(), P = Sbp::partial_sum();
      const int rank = in[1].shape.rank();
      std::vector<SbpRow> rows = {{{B, B}, {B}}, {{Sbp::split(1), B}, {Sbp::split(rank)}}, {{P, B}, {P}}};
      for (int i = 0; i < rank; ++i) rows.push_back({{B, Sbp::split(i)}, {Sbp::split(i)}});
      return rows;
    },
    .cost = lookup_cost,
    .samples = {{{{{5, 4}}, kIndex}},
                {{{{5, 4}}, {.shape = {2, 3}, .dtype = DType::kInt64, .low = 0, .high = 4}}, {int64_t{4}}}}};

const OpDef embedding_backward_def{
    .name = "embedding_backward",
    .doc = "Adds gradients of embedding's rows up to a table of num_embeddings rows; rows at padding_idx get none.",
    .inputs = {"grad", "index"},
    .params = {{.name = "num_embeddings", .default_value = int64_t{0}, .required = true}, kPadding},
    .infer = infer_embedding_backward,
    .grad = [](const GradContext& c) -> std::vector<Value> {
      const Value rows = call1(embedding_def, {c.grad_outputs[0], c.inputs[1]}, {c.attrs[1]});
      return {masked(rows, c.inputs[1], attr<int64_t>(c.attrs, 1)), Value()};
    },
    .decompose = decompose_embedding_backward,
    .sbp = [](Types in, const Attrs&) -> std::vector<SbpRow> {
      const auto B = Sbp::broadcast(), P = Sbp::partial_sum();
      const int rank = in[1].shape.rank();
      std::vector<SbpRow> rows = {{{B, B}, {B}}, {{Sbp::split(rank), B}, {Sbp::split(1)}}, {{P, B}, {P}}};
      for (int i = 0; i < rank; ++i) rows.push_back({{Sbp::split(i), Sbp::split(i)}, {P}});
      return rows;
    },
    .samples = {{{{{2, 3, 4}}, kIndex}, {int64_t{5}, int64_t{-1}}}, {{{{2, 3, 4}}, kIndex}, {int64_t{5}, int64_t{2}}}}};

}  // namespace

Value embedding(const Value& weight, const Value& index, int64_t padding_idx) {
  return call1(embedding_def, {weight, index}, {padding_idx});
}

std::span<const OpDef* const> embedding_ops() {
  static const OpDef* const defs[] = {&embedding_def, &embedding_backward_def};
  return defs;
}

}  // namespace sluice::ops
