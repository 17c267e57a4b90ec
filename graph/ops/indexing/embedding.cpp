#include "graph/ops/embedding.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"

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

std::vector<TensorType> infer_embedding_bag(Types in, Present present, const Attrs& a) {
  SLUICE_CHECK(in[0].shape.rank() == 2, "embedding_bag: weight is not a matrix: {}; it must be (entries, features)",
               in[0].shape.str());
  check_floating(in[0], "embedding_bag");
  for (const size_t i : {size_t{1}, size_t{2}}) check_index(in[i], "embedding_bag");
  SLUICE_CHECK(in[1].shape.rank() == 1 && in[2].shape == in[1].shape && (!present[3] || in[3].shape == in[1].shape),
               "embedding_bag: index, bag and scales do not fit: {}, {} and {}; they must be vectors of one length",
               in[1].shape.str(), in[2].shape.str(), present[3] ? in[3].shape.str() : "none");
  SLUICE_CHECK(!present[3] || in[3].dtype == in[0].dtype, "embedding_bag: scales are {}; they must be {}, as weight",
               dtype_name(in[3].dtype), dtype_name(in[0].dtype));
  return {{in[0].dtype, {attr<int64_t>(a, 0), in[0].shape[1]}}};
}

// Rows of the table as they are added up: scaled, and 0 at the padding.
std::vector<Value> decompose_embedding_bag(std::span<const Value> in, const Attrs& a) {
  const int64_t n = in[1].shape()[0];
  Value rows = masked(embedding(in[0], in[1], attr<int64_t>(a, 1)), in[1], attr<int64_t>(a, 1));
  if (in[3].defined()) rows = mul(rows, reshape(in[3], {n, 1}));
  return {index_add(zeros({attr<int64_t>(a, 0), in[0].shape()[1]}, in[0].dtype()), in[2], rows, 0)};
}

std::vector<Value> embedding_bag_gradients(const GradContext& c) {
  const Value &weight = c.inputs[0], &index = c.inputs[1], &scales = c.inputs[3];
  const int64_t padding = attr<int64_t>(c.attrs, 1);
  const Value grad = index_select(c.grad_outputs[0], c.inputs[2], 0);  // of each row
  std::vector<Value> grads(4);
  if (c.needs[0]) {
    const Value scaled = scales.defined() ? mul(grad, reshape(scales, {index.shape()[0], 1})) : grad;
    grads[0] = call1(embedding_backward_def, {scaled, index}, {weight.shape()[0], padding});
  }
  if (scales.defined() && c.needs[3])
    grads[3] = sum(mul(masked(embedding(weight, index, padding), index, padding), grad), Ints{1});
  return grads;
}

const SampleInput kBag{.shape = {6}, .dtype = DType::kInt64, .low = 0, .high = 3};
const SampleInput kEntries{.shape = {6}, .dtype = DType::kInt64, .low = 0, .high = 5};

const OpDef embedding_bag_def{
    .name = "embedding_bag",
    .doc =
        "Adds up rows of weight (V, D): row index[i], times scales[i], to bag[i] of `bags`; rows at padding_idx are "
        "left out. torch.nn.functional.embedding_bag.",
    .inputs = {"weight", "index", "bag", "scales?"},
    .params = {{.name = "bags", .default_value = int64_t{0}, .required = true}, kPadding},
    .infer = infer_embedding_bag,
    .grad = embedding_bag_gradients,
    .decompose = decompose_embedding_bag,
    .sbp = [](Types, const Attrs&) -> std::vector<SbpRow> {
      const auto B = Sbp::broadcast(), P = Sbp::partial_sum(), S = Sbp::split(0);
      return {
          {{B, B, B, B}, {B}}, {{Sbp::split(1), B, B, B}, {Sbp::split(1)}}, {{P, B, B, B}, {P}}, {{B, S, S, S}, {P}}};
    },
    .cost = lookup_cost,
    .samples = {{{{{5, 4}}, kEntries, kBag, kAbsent}, {int64_t{3}, int64_t{-1}}},
                {{{{5, 4}}, kEntries, kBag, {{6}}}, {int64_t{4}, int64_t{2}}},
                {{{{5, 70}}, kEntries, kBag, {{6}}}, {int64_t{3}, int64_t{-1}}}}};

}  // namespace

Value embedding_bag(const Value& weight, const Value& index, const Value& bag, int64_t bags, int64_t padding_idx,
                    const Value& scales) {
  return call1(embedding_bag_def, {weight, index, bag, scales}, {bags, padding_idx});
}

Value embedding(const Value& weight, const Value& index, int64_t padding_idx) {
  return call1(embedding_def, {weight, index}, {padding_idx});
}

std::span<const OpDef* const> embedding_ops() {
  static const OpDef* const defs[] = {&embedding_def, &embedding_backward_def, &embedding_bag_def};
  return defs;
}

}  // namespace sluice::ops
