// Functions of networks that write tensors they are given, or look at their values: torch.nn.functional's spelling.
#include <numbers>

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/embedding.h"
#include "graph/ops/indexing.h"
#include "graph/ops/losses.h"
#include "graph/ops/movement.h"
#include "graph/ops/normalization.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/tape.h"
#include "tensor/forms/forms.h"
#include "tensor/tensor.h"

namespace sluice {
namespace {

using ops::Operand;

Value detached(const Value& x) { return current_executor().detach(x); }

// Per channel of (1, C, 1...), the rank being x's.
Value along_channels(const Value& v, const Value& x) {
  Ints shape(x.rank(), 1);
  shape[1] = x.shape()[1];
  return ops::reshape(v, shape);
}

Value batch_norm(const Value& x, const Value& mean, const Value& var, const Value& weight, const Value& bias,
                 bool training, double momentum, double eps) {
  SLUICE_CHECK(training || (mean.defined() && var.defined()),
               "batch_norm: running_mean and running_var are needed when training is False; give both");
  SLUICE_CHECK(mean.defined() == var.defined(),
               "batch_norm: running_mean and running_var must either both be None or neither be None");
  if (training && x.rank() >= 2 && numel(x.shape()) == 0) {  // without statistics, which stay as they are
    const Value y = weight.defined() ? ops::mul(x, along_channels(weight, x)) : Value(Tensor(x).clone());
    return bias.defined() ? ops::add(y, along_channels(bias, x)) : y;
  }
  const ops::BatchNormResult r = ops::batch_norm(x, {weight, bias, mean, var, training, momentum, eps});
  if (training && mean.defined()) {
    const GradMode no_grad(false);
    write_in_place(mean, r.running_mean);
    write_in_place(var, r.running_var);
  }
  return r.y;
}

// Batch normalisation of one row per sample and channel; running statistics are means over the samples.
Value instance_norm(const Value& x, const Value& mean, const Value& var, const Value& weight, const Value& bias,
                    bool use_input_stats, double momentum, double eps) {
  SLUICE_CHECK_KIND(kRuntime, use_input_stats || (mean.defined() && var.defined()),
                    "instance_norm: Expected running_mean and running_var to be defined when use_input_stats is false");
  SLUICE_CHECK_KIND(kRuntime, x.rank() >= 2, "instance_norm: input must be (N, C, spatial...): got shape {}",
                    x.shape().str());
  if (!use_input_stats) return batch_norm(x, mean, var, weight, bias, false, momentum, eps);
  const int64_t n = x.shape()[0], channels = x.shape()[1];
  int64_t positions = 1;
  for (int d = 2; d < x.rank(); ++d) positions *= x.shape()[d];
  SLUICE_CHECK(positions != 1, "instance_norm: Expected more than 1 spatial element when training, got input size {}",
               x.shape().str());
  if (numel(x.shape()) == 0) return ops::mul(x, 1);
  const auto repeated = [&](const Value& v) { return v.defined() ? ops::tile(v, {n}) : v; };
  const ops::BatchNormResult r =
      ops::batch_norm(ops::reshape(x, {1, n * channels, positions}),
                      {Value(), Value(), repeated(mean), repeated(var), true, momentum, eps});
  if (mean.defined()) {
    const GradMode no_grad(false);
    const auto of_channels = [&](const Value& v) { return ops::mean(ops::reshape(v, {n, channels}), Ints{0}); };
    write_in_place(mean, of_channels(r.running_mean));
    write_in_place(var, of_channels(r.running_var));
  }
  Value y = ops::reshape(r.y, x.shape().vec());
  if (weight.defined()) y = ops::mul(y, along_channels(weight, x));
  if (bias.defined()) y = ops::add(y, along_channels(bias, x));
  return y;
}

void refuse_sparse(bool sparse, const char* where) {
  SLUICE_CHECK_KIND(kUnsupported, !sparse,
                    "{}: sparse=True is not supported; use sparse=False, whose gradient is a dense tensor", where);
}

// Rows that the index names, scaled in place to a norm of at most max_norm.
void renormalise(const Value& weight, const Value& index, double max_norm, double norm_type) {
  const GradMode no_grad(false);
  const Value table = detached(weight);
  const int64_t rows = weight.shape()[0];
  const Value flat = ops::flatten(index);
  const Value uses =
      ops::index_add(ops::zeros({rows}, weight.dtype()), flat, ops::ones(flat.shape(), weight.dtype()), 0);
  const Value length = ops::norm(table, norm_type, Ints{1}, true);
  const Value beyond = ops::logical_and(ops::gt(ops::reshape(uses, {rows, 1}), 0), ops::gt(length, max_norm));
  const Value scaled = ops::mul(table, ops::mul(ops::reciprocal(ops::add(length, 1e-7)), max_norm));
  write_in_place(weight, ops::where(beyond, scaled, table));
}

// The same rows; each one's gradient is divided by how often its index occurs.
Value by_frequency(const Value& rows, const Value& index, int64_t count) {
  if (!is_floating(rows.dtype())) return rows;
  const Value flat = ops::flatten(index);
  const Value uses = ops::index_add(ops::zeros({count}, rows.dtype()), flat, ops::ones(flat.shape(), rows.dtype()), 0);
  Ints shape = index.shape().vec();
  shape.push_back(1);
  const Value share = ops::div(rows, ops::reshape(ops::index_select(uses, flat, 0), shape));
  const Value scaled = ops::add(detached(rows), ops::sub(share, detached(share)));
  return ops::where(ops::isfinite(rows), scaled, rows);  // infinities have no difference
}

// padding_idx as a row, -1 for none.
int64_t padding_row(const std::optional<int64_t>& padding_idx, int64_t rows, const char* where) {
  if (!padding_idx) return -1;
  SLUICE_CHECK(*padding_idx >= -rows && *padding_idx < rows,
               "{}: padding_idx must be within the number of embeddings: got {} of {}", where, *padding_idx, rows);
  return *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
}

Value embedding(const Value& index, const Value& weight, const std::optional<int64_t>& padding_idx,
                const std::optional<double>& max_norm, double norm_type, bool by_freq, bool sparse) {
  SLUICE_CHECK_KIND(kRuntime, weight.rank() == 2, "embedding: 'weight' must be 2-D: got shape {}",
                    weight.shape().str());
  refuse_sparse(sparse, "embedding");
  const int64_t rows = weight.shape()[0], padding = padding_row(padding_idx, rows, "embedding");
  if (max_norm) renormalise(weight, index, *max_norm, norm_type);
  const Value y = ops::embedding(weight, index, padding);
  return by_freq ? by_frequency(y, index, rows) : y;
}

// Entry i is in the last bag that starts at i or before.
Value bag_of_each(const Value& starts, int64_t entries) {
  const Value begun =
      ops::index_add(ops::zeros({entries + 1}, DType::kInt64), starts, ops::ones(starts.shape(), DType::kInt64), 0);
  return ops::sub(ops::narrow(ops::cumsum(begun, 0), 0, 0, entries), 1);
}

// The largest row of each bag, feature by feature; of equal ones the first, to which the gradient goes. 0 for a bag
// without counted rows.
Value largest_of_bags(const Value& rows, const Value& bag, const Value& counted, const Value& sizes) {
  const int64_t entries = rows.shape()[0], features = rows.shape()[1], bags = sizes.shape()[0];
  if (entries == 0) return ops::index_add(ops::zeros({bags, features}, rows.dtype()), bag, rows, 0);
  const double lowest = -std::numeric_limits<double>::infinity();
  const Value shown = ops::where(ops::reshape(counted, {entries, 1}), detached(rows), lowest);
  const Value places = ops::expand(ops::reshape(bag, {entries, 1}), {entries, features});
  const auto reduced = [&](const Value& of, double begin, const char* how) {
    return ops::scatter_reduce(ops::full({bags, features}, begin, of.dtype()), places, of, 0, how);
  };
  const Value best = ops::gather(reduced(shown, lowest, "amax"), places, 0);
  const Value mine = ops::logical_or(ops::eq(shown, best), ops::isnan(shown));
  const Value position = ops::reshape(ops::iota(0, 1, entries), {entries, 1});
  const Value first = reduced(ops::where(mine, position, entries), static_cast<double>(entries), "amin");
  const Value taken = ops::gather(rows, ops::clamp_max(first, entries - 1), 0);
  return ops::where(ops::gt(sizes, 0), taken, 0.0);
}

Value embedding_bag(const Value& input, const Value& weight, const Value& offsets,
                    const std::optional<double>& max_norm, double norm_type, bool by_freq, const std::string& mode,
                    bool sparse, const Value& per_sample_weights, bool include_last_offset,
                    const std::optional<int64_t>& padding_idx) {
  const char* const where = "embedding_bag";
  refuse_sparse(sparse, where);
  SLUICE_CHECK(weight.rank() == 2, "{}: weight has to be a 2D Tensor, but got Tensor of dimension {}", where,
               weight.rank());
  SLUICE_CHECK(mode == "sum" || mode == "mean" || mode == "max", "{}: mode has to be one of sum, mean or max: got '{}'",
               where, mode);
  SLUICE_CHECK(input.rank() == 1 || input.rank() == 2,
               "{}: input has to be 1D or 2D Tensor, but got Tensor of dimension {}", where, input.rank());
  SLUICE_CHECK(input.rank() == 1 || !offsets.defined(),
               "{}: if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
               "sequences",
               where);
  SLUICE_CHECK(input.rank() == 2 || (offsets.defined() && offsets.rank() == 1),
               "{}: offsets has to be a 1D Tensor but got {}", where,
               offsets.defined() ? offsets.shape().str() : "None");
  SLUICE_CHECK(mode != "max" || !by_freq, "{}: max mode does not support scaling the gradient by the frequency", where);
  SLUICE_CHECK_KIND(kUnsupported, mode == "sum" || !per_sample_weights.defined(),
                    "{}: per_sample_weights is only supported for mode='sum' (got mode='{}')", where, mode);
  SLUICE_CHECK(!per_sample_weights.defined() || per_sample_weights.shape() == input.shape(),
               "{}: If per_sample_weights is not None, then it must have the same shape as the input: {} and {}", where,
               per_sample_weights.defined() ? per_sample_weights.shape().str() : "", input.shape().str());
  const int64_t entries = numel(input.shape()), table = weight.shape()[0];
  const int64_t padding = padding_row(padding_idx, table, where);
  if (max_norm) renormalise(weight, input, *max_norm, norm_type);
  const Value index = ops::flatten(input);
  int64_t bags = input.shape()[0];
  Value bag;  // of each entry
  if (input.rank() == 2) {
    const Value each = ops::reshape(ops::iota(0, 1, bags), {bags, 1});
    bag = ops::flatten(ops::expand(each, {bags, input.shape()[1]}));
  } else {
    bags = offsets.shape()[0] - include_last_offset;
    SLUICE_CHECK_KIND(kRuntime, bags >= 0, "{}: include_last_offset: number of offset should be at least 1", where);
    bag = bag_of_each(ops::narrow(offsets, 0, 0, bags), entries);
  }
  const Value counted = padding < 0 ? ops::full({entries}, 1, DType::kBool) : ops::ne(index, padding);
  Value sizes;
  if (mode != "sum") {
    const Value uses = ops::cast(counted, weight.dtype());
    sizes = ops::reshape(ops::index_add(ops::zeros({bags}, weight.dtype()), bag, uses, 0), {bags, 1});
  }
  if (mode == "max") return largest_of_bags(ops::embedding(weight, index, padding), bag, counted, sizes);
  Value total;
  if (by_freq) {
    Value rows = by_frequency(ops::embedding(weight, index, padding), index, table);
    if (per_sample_weights.defined()) rows = ops::mul(rows, ops::reshape(per_sample_weights, {entries, 1}));
    const Value kept = ops::where(ops::reshape(counted, {entries, 1}), rows, 0.0);
    total = ops::index_add(ops::zeros({bags, weight.shape()[1]}, weight.dtype()), bag, kept, 0);
  } else {
    const Value scales = per_sample_weights.defined() ? ops::flatten(per_sample_weights) : Value();
    total = ops::embedding_bag(weight, index, bag, bags, padding, scales);
  }
  return mode == "sum" ? total : ops::div(total, ops::clamp(sizes, Operand(1), std::nullopt));
}

Value gaussian_nll(const Value& x, const Value& target, const Operand& given, const Operand& full, double eps,
                   const std::string& reduction) {
  Value var = given.is_number() ? ops::full_like(x, given.number()) : given.value();
  if (!var.impl()->traced())
    SLUICE_CHECK(!std::get<bool>(Tensor(ops::any(ops::lt(detached(var), 0))).item()),
                 "gaussian_nll_loss: var has negative entry/entries; all must be at least 0");
  if (var.shape() != x.shape()) {
    Shape shorter = x.shape();
    if (!shorter.empty()) shorter.erase(shorter.rank() - 1);
    int64_t differing = 0;  // as torch adds them up: one dim of size 1, beside any without elements
    for (int d = 0; d < std::min(x.rank(), var.rank()); ++d)
      if (var.shape()[d] != x.shape()[d]) differing += var.shape()[d];
    if (x.rank() > 0 && var.shape() == shorter)
      var = ops::unsqueeze(var, -1);
    else
      SLUICE_CHECK(var.rank() == x.rank() && differing == 1,
                   "gaussian_nll_loss: var is of incorrect size: {} for input {}; must be equal, or have 1 in one dim",
                   var.shape().str(), x.shape().str());
  }
  SLUICE_CHECK_KIND(kRuntime, is_floating(var.dtype()),
                    "gaussian_nll_loss: var has dtype {}; must be floating, since eps, a fraction, bounds it",
                    dtype_name(var.dtype()));
  // eps bounds the values of var, while gradients are those of var.
  const Value low = detached(var);
  const Value missing = ops::sub(ops::clamp(low, Operand(eps), std::nullopt), low);
  var = ops::add(var, missing);
  const Value d = ops::sub(x, target);
  Value loss = ops::mul(ops::add(ops::log(var), ops::div(ops::mul(d, d), var)), 0.5);
  if (full.complex_number() != 0.0) loss = ops::add(loss, 0.5 * std::log(2 * std::numbers::pi));
  return ops::reduce_loss(loss, reduction, "gaussian_nll_loss");
}

}  // namespace

std::vector<Form> network_tensor_forms() {
  std::vector<Form> forms;
  forms.push_back(
      {.doc = "Normalised over the batch while training, which updates the running statistics, else by them. "
              "F.batch_norm.",
       .overloads = {overload("nn.functional.batch_norm(Tensor input, Tensor? running_mean, Tensor? running_var, "
                              "Tensor? weight=None, Tensor? bias=None, bool training=False, float momentum=0.1, "
                              "float eps=1e-05) -> Tensor",
                              &batch_norm)}});
  forms.push_back(
      {.doc = "Normalised over the positions of each sample and channel, or by running statistics. F.instance_norm.",
       .overloads = {overload("nn.functional.instance_norm(Tensor input, Tensor? running_mean=None, Tensor? "
                              "running_var=None, Tensor? weight=None, Tensor? bias=None, bool use_input_stats=True, "
                              "float momentum=0.1, float eps=1e-05) -> Tensor",
                              &instance_norm)}});
  forms.push_back(
      {.doc =
           "Rows of weight (V, D) by index: index.shape + (D,); row padding_idx gets no gradient, and rows are first "
           "scaled in place to norms of at most max_norm. F.embedding.",
       .overloads = {overload("nn.functional.embedding(Tensor input, Tensor weight, int? padding_idx=None, float? "
                              "max_norm=None, float norm_type=2.0, bool scale_grad_by_freq=False, bool sparse=False) "
                              "-> Tensor",
                              &embedding)}});
  forms.push_back(
      {.doc =
           "Sum, mean or maximum of the rows of each bag: the rows of input (B, S), or what begins at offsets (B,) of "
           "input (L,). F.embedding_bag.",
       .overloads = {
           overload("nn.functional.embedding_bag(Tensor input, Tensor weight, Tensor? offsets=None, float? "
                    "max_norm=None, float norm_type=2.0, bool scale_grad_by_freq=False, str mode=\"mean\", "
                    "bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int? "
                    "padding_idx=None) -> Tensor",
                    &embedding_bag)}});
  forms.push_back(
      {.doc = "Negative log-likelihood under normal distributions of means input and variances var. "
              "F.gaussian_nll_loss.",
       .overloads = {overload("nn.functional.gaussian_nll_loss(Tensor input, Tensor target, Operand var, Scalar "
                              "full=0, float eps=1e-06, str reduction=\"mean\") -> Tensor",
                              &gaussian_nll)}});
  return forms;
}

}  // namespace sluice
