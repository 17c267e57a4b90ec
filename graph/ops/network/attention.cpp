#include "graph/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/norm_common.h"
#include "graph/ops/random.h"
#include "graph/ops/reduction.h"

namespace sluice::ops {
namespace {

extern const OpDef attention_backward_def;

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

// Params of both ops.
bool is_causal(const Attrs& a) { return attr<bool>(a, 0); }
double scale_of(const Attrs& a) { return attr<double>(a, 1); }
double dropout_of(const Attrs& a) { return attr<double>(a, 2); }
int64_t salt_of(const Attrs& a) { return attr<int64_t>(a, 3); }

// Throws unless the operands fit each other; mask and state are inputs `mask` and `mask + 1`.
void check_operands(const TensorType& q, const TensorType& k, const TensorType& v, Types in, Present present, int mask,
                    const Attrs& a, const char* where) {
  check_floating(q, where);
  SLUICE_CHECK_KIND(kRuntime, q.dtype == k.dtype && q.dtype == v.dtype,
                    "{}: Expected query, key, and value to have the same dtype: {}, {}, {}; cast them to one", where,
                    dtype_name(q.dtype), dtype_name(k.dtype), dtype_name(v.dtype));
  SLUICE_CHECK_KIND(kRuntime, q.shape.rank() == 4 && k.shape.rank() == 4 && v.shape.rank() == 4,
                    "{}: query, key, value have other dims: {}, {}, {}; they must be (batch, heads, length, width)",
                    where, q.shape.str(), k.shape.str(), v.shape.str());
  const int64_t heads = q.shape[1], own = k.shape[1];
  SLUICE_CHECK_KIND(kRuntime,
                    q.shape[0] == k.shape[0] && q.shape[0] == v.shape[0] && own == v.shape[1] &&
                        (own == 0 ? heads == 0 : heads % own == 0),
                    "{}: batch or heads do not fit: query {}, key {}, value {}; batches must be equal, and the number "
                    "of heads in key and value must divide the number of heads in query",
                    where, q.shape.str(), k.shape.str(), v.shape.str());
  SLUICE_CHECK_KIND(kRuntime, q.shape[3] == k.shape[3] && k.shape[2] == v.shape[2],
                    "{}: sizes do not fit: query {}, key {}, value {}; query and key must be equally wide, key and "
                    "value equally long",
                    where, q.shape.str(), k.shape.str(), v.shape.str());
  if (present[mask]) {
    const TensorType& m = in[mask];
    SLUICE_CHECK_KIND(kRuntime, m.dtype == DType::kBool || m.dtype == q.dtype || m.dtype == stat_dtype(q.dtype),
                      "{}: Expected attn_mask dtype to be bool or float or to match query dtype: got {} for {}", where,
                      dtype_name(m.dtype), dtype_name(q.dtype));
    const Shape scores = {q.shape[0], heads, q.shape[2], k.shape[2]};
    bool fits = m.shape.rank() == 4;
    for (int i = 0; fits && i < 4; ++i) fits = m.shape[i] == 1 || m.shape[i] == scores[i];
    SLUICE_CHECK_KIND(kRuntime, fits, "{}: attn_mask does not fit: {}; it must be broadcastable to {}", where,
                      m.shape.str(), scores.str());
  }
  const double p = dropout_of(a);
  SLUICE_CHECK_KIND(kRuntime, p >= 0 && p <= 1, "{}: dropout probability has to be between 0 and 1, but got {}", where,
                    p);
  const bool state = present[mask + 1];
  SLUICE_CHECK(p == 0 || state, "{}: dropout_p is {} without a state; it must be given", where, p);
  SLUICE_CHECK(!state || in[mask + 1] == (TensorType{DType::kInt64, {2}}),
               "{}: state: is {}; must be int64(2,): seed and step", where, in[mask + 1].str());
}
TensorType sums_type(const TensorType& q) { return {stat_dtype(q.dtype), {q.shape[0], q.shape[1], q.shape[2]}}; }

// Inputs query, key, value, mask?, state?.
std::vector<TensorType> infer_attention(Types in, Present present, const Attrs& a) {
  check_operands(in[0], in[1], in[2], in, present, 3, a, "attention");
  Shape out = in[0].shape;
  out[3] = in[2].shape[3];
  return {{in[0].dtype, out}, sums_type(in[0])};
}
// Inputs grad, query, key, value, result, lse, mask?, state?, grad_lse?.
std::vector<TensorType> infer_attention_backward(Types in, Present present, const Attrs& a) {
  check_operands(in[1], in[2], in[3], in, present, 6, a, "attention_backward");
  Shape out = in[1].shape;
  out[3] = in[3].shape[3];
  const TensorType result{in[1].dtype, out}, sums = sums_type(in[1]);
  SLUICE_CHECK_KIND(kRuntime, in[0] == result && in[4] == result && in[5] == sums && (!present[8] || in[8] == sums),
                    "attention_backward: operands differ: grad {}, result {}, lse {}; they must be {}, {} and {}",
                    in[0].str(), in[4].str(), in[5].str(), result.str(), result.str(), sums.str());
  return {in[1], in[2], in[3]};
}

// A call's operands; its scores and weights, as devices without the kernel make them.
struct Attention {
  Value q, k, v, mask, state;
  const Attrs& attrs;

  // Heads of `x` repeated for the heads of q that they serve.
  Value repeated(const Value& x) const {
    const int64_t heads = q.shape()[1], own = x.shape()[1];
    if (own == heads) return x;
    const int64_t n = x.shape()[0], rows = x.shape()[2], width = x.shape()[3];
    return reshape(expand(reshape(x, {n, own, 1, rows, width}), {n, own, heads / own, rows, width}),
                   {n, heads, rows, width});
  }
  // The gradient of repeated().
  Value gathered(const Value& g, const Value& x) const {
    if (g.shape() == x.shape()) return g;
    const Shape& s = x.shape();
    return sum(reshape(g, {s[0], s[1], g.shape()[1] / s[1], s[2], s[3]}), Ints{2});
  }
  Value scores() const {
    Value s = cast(matmul(mul(q, scale_of(attrs)), repeated(k), false, true), stat_dtype(q.dtype()));
    const int64_t rows = q.shape()[2], cols = k.shape()[2];
    if (is_causal(attrs))
      s = where(ge(reshape(iota(0, 1, rows), {rows, 1}), reshape(iota(0, 1, cols), {1, cols})), s, kMinusInf);
    if (!mask.defined()) return s;
    return mask.dtype() == DType::kBool ? where(mask, s, kMinusInf) : add(s, cast(mask, s.dtype()));
  }
  // Gives log(sum(exp)) of each row of the scores; 0 where nothing is left, so that all numbers stay finite.
  static Value lse_of(const Value& scores) {
    const Shape& s = scores.shape();
    if (s[3] == 0) return zeros({s[0], s[1], s[2]}, scores.dtype());
    Value top = amax(scores, Ints{3}, true);
    top = where(eq(top, kMinusInf), 0.0, top);
    const Value total = sum(exp(sub(scores, top)), Ints{3}, true), none = eq(total, 0);
    return reshape(where(none, 0.0, add(top, log(where(none, 1.0, total)))), {s[0], s[1], s[2]});
  }
  Value per_row(const Value& sums) const {
    const Shape& s = sums.shape();
    return reshape(sums, {s[0], s[1], s[2], 1});
  }
  Value weights(const Value& scores, const Value& lse) const { return exp(sub(scores, per_row(lse))); }
  Value dropped(const Value& weights) const {
    return dropout_of(attrs) == 0 ? weights : dropout(state, weights, dropout_of(attrs), salt_of(attrs));
  }
  // The gradient of the scores, from those of the result and of lse (none: undefined).
  Value d_scores(const Value& weights, const Value& grad, const Value& result, const Value& d_lse) const {
    const DType dtype = weights.dtype();
    Value d = dropped(cast(matmul(grad, repeated(v), false, true), dtype));
    d = sub(d, sum(mul(cast(grad, dtype), cast(result, dtype)), Ints{3}, true));
    if (d_lse.defined()) d = add(d, per_row(d_lse));
    return mul(weights, d);
  }
};

std::vector<Value> decompose_attention(std::span<const Value> in, const Attrs& attrs) {
  const Attention a{in[0], in[1], in[2], input_or_none(in, 3), input_or_none(in, 4), attrs};
  const Value scores = a.scores(), lse = Attention::lse_of(scores);
  return {matmul(cast(a.dropped(a.weights(scores, lse)), a.q.dtype()), a.repeated(a.v)), lse};
}
std::vector<Value> decompose_attention_backward(std::span<const Value> in, const Attrs& attrs) {
  const Attention a{in[1], in[2], in[3], input_or_none(in, 6), input_or_none(in, 7), attrs};
  const DType dtype = a.q.dtype();
  const Value weights = a.weights(a.scores(), in[5]);
  const Value ds = cast(a.d_scores(weights, in[0], in[4], input_or_none(in, 8)), dtype);
  const double scale = scale_of(attrs);
  return {mul(matmul(ds, a.repeated(a.k)), scale), a.gathered(matmul(ds, mul(a.q, scale), true), a.k),
          a.gathered(matmul(cast(a.dropped(weights), dtype), in[0], true), a.v)};
}

// A mask that is learned gets what the scores get, which takes their memory; nothing else does.
std::vector<Value> grad_attention(const GradContext& c) {
  const Value mask = input_or_none(c.inputs, 3), state = input_or_none(c.inputs, 4);
  const Value &q = c.inputs[0], &k = c.inputs[1], &v = c.inputs[2], &result = c.outputs[0], &lse = c.outputs[1];
  const Value &d_lse = c.grad_outputs[1], grad = c.grad_outputs[0].defined() ? c.grad_outputs[0] : zeros_like(result);
  std::vector<Value> grads(c.inputs.size());
  if (c.needs[0] || c.needs[1] || c.needs[2]) {
    const Value inputs[] = {grad, q, k, v, result, lse, mask, state, d_lse};
    const auto d = call(attention_backward_def, inputs, c.attrs);
    for (int i = 0; i < 3; ++i)
      if (c.needs[i]) grads[i] = d[i];
  }
  if (mask.defined() && c.needs[3]) {
    const Attention a{q, k, v, mask, state, c.attrs};
    const Value ds = a.d_scores(a.weights(a.scores(), lse), grad, result, d_lse);
    grads[3] = cast(sum_to(ds, mask.shape()), mask.dtype());
  }
  return grads;
}

// Batch and heads may be split, heads where none serves several; rows of the query where their places do not count.
std::vector<SbpRow> rows_of(Types in, const Attrs& attrs, bool backward) {
  const size_t first = backward ? 1 : 0, mask = backward ? 6 : 3;
  const TensorType &q = in[first], &k = in[first + 1];
  const auto B = Sbp::broadcast(), P = Sbp::partial_sum();
  const size_t outputs = backward ? 3 : 2;
  std::vector<SbpRow> rows = {{std::vector<Sbp>(in.size(), B), std::vector<Sbp>(outputs, B)}};
  if (dropout_of(attrs) > 0) return rows;  // which weights are dropped depends on their places in the whole
  for (int axis = 0; axis < 3; ++axis) {
    if ((axis == 1 && q.shape[1] != k.shape[1]) || (axis == 2 && is_causal(attrs))) continue;
    SbpRow row{std::vector<Sbp>(in.size(), Sbp::split(axis)), std::vector<Sbp>(outputs, Sbp::split(axis))};
    if (axis == 2) {
      row.inputs[first + 1] = row.inputs[first + 2] = B;
      if (backward) row.outputs[1] = row.outputs[2] = P;
    }
    if (in.size() > mask && (in[mask].shape.rank() != 4 || in[mask].shape[axis] == 1)) row.inputs[mask] = B;
    if (in.size() > mask + 1) row.inputs[mask + 1] = B;
    rows.push_back(row);
  }
  return rows;
}

// Products of two matrices per score forward, of five backward.
template <int kProducts>
Cost cost(Types in, Types out, const Attrs& attrs) {
  const Shape &q = in[kProducts == 2 ? 0 : 1].shape, &v = in[kProducts == 2 ? 2 : 3].shape;
  const double scores =
      static_cast<double>(q[0] * q[1]) * static_cast<double>(q[2] * v[2]) * (is_causal(attrs) ? 0.5 : 1);
  return {scores * (kProducts * static_cast<double>(q[3] + v[3]) + 12), operand_bytes(in, out)};
}

std::vector<Param> params() {
  return {{.name = "is_causal", .default_value = false},
          {.name = "scale", .default_value = 1.0},
          {.name = "dropout_p", .default_value = 0.0},
          {.name = "salt", .default_value = int64_t{0}}};
}
constexpr SampleInput kNone{.shape = {}, .absent = true};
const SampleInput kState{.shape = {2}, .dtype = DType::kInt64, .low = 0, .high = 1000};
SampleInput bools(Shape shape) { return {.shape = shape, .dtype = DType::kBool}; }
SampleInput floats(Shape shape) { return {.shape = shape}; }

std::vector<Sample> forward_samples() {
  const Attrs plain = {false, 0.5, 0.0, int64_t{0}}, causal = {true, 0.5, 0.0, int64_t{0}};
  const auto qkv = [](Shape q, Shape k, int64_t ev) {
    Shape v = k;
    v[3] = ev;
    return std::vector<SampleInput>{floats(q), floats(k), floats(v)};
  };
  const auto with = [](std::vector<SampleInput> inputs, std::vector<SampleInput> more) {
    inputs.insert(inputs.end(), more.begin(), more.end());
    return inputs;
  };
  return {{qkv({2, 4, 5, 3}, {2, 4, 5, 3}, 3), plain},
          {qkv({2, 2, 4, 3}, {2, 2, 6, 3}, 5), causal},
          {qkv({4, 4, 3, 2}, {4, 2, 5, 2}, 2), plain},
          {with(qkv({2, 2, 4, 3}, {2, 2, 5, 3}, 2), {bools({2, 1, 1, 5})}), plain},
          {with(qkv({2, 2, 4, 3}, {2, 2, 5, 3}, 2), {floats({1, 2, 4, 5})}), causal},
          {with(qkv({2, 2, 4, 3}, {2, 2, 5, 3}, 2), {kNone, kState}), {false, 0.5, 0.25, int64_t{7}}},
          {qkv({1, 1, 70, 3}, {1, 1, 101, 3}, 2), causal},
          {qkv({2, 2, 3, 4}, {2, 2, 0, 4}, 2), plain}};
}
std::vector<Sample> backward_samples() {
  const auto sample = [](Shape q, Shape k, int64_t ev, std::vector<SampleInput> more, Attrs attrs) {
    Shape out = q, v = k;
    out[3] = v[3] = ev;
    const Shape sums = {q[0], q[1], q[2]};
    Sample s{{floats(out), floats(q), floats(k), floats(v), floats(out), floats(sums)}, std::move(attrs)};
    s.inputs.insert(s.inputs.end(), more.begin(), more.end());
    return s;
  };
  const Attrs plain = {false, 0.5, 0.0, int64_t{0}}, causal = {true, 0.5, 0.0, int64_t{0}};
  return {sample({2, 4, 5, 3}, {2, 4, 6, 3}, 2, {}, plain), sample({2, 4, 4, 2}, {2, 2, 4, 2}, 3, {}, causal),
          sample({2, 2, 4, 3}, {2, 2, 5, 3}, 2, {bools({2, 1, 4, 5}), kNone, floats({2, 2, 4})}, plain),
          sample({2, 2, 4, 3}, {2, 2, 5, 3}, 2, {floats({2, 2, 1, 5}), kState}, {false, 0.5, 0.25, int64_t{7}}),
          sample({1, 1, 70, 3}, {1, 1, 101, 3}, 2, {}, plain)};
}

const OpDef attention_def{
    .name = "attention",
    .doc =
        "softmax(query key^T scale + mask) value, and the log-sum-exp of each row of scores (0 where nothing is "
        "left). query (N, H, L, E), key (N, Hk, S, E), value (N, Hk, S, Ev), Hk dividing H; mask bool or added, "
        "broadcastable to (N, H, L, S). torch.nn.functional.scaled_dot_product_attention.",
    .inputs = {"query", "key", "value", "mask?", "state?"},
    .params = params(),
    .num_outputs = 2,
    .infer = infer_attention,
    .grad = grad_attention,
    .decompose = decompose_attention,
    .sbp = [](Types in, const Attrs& a) { return rows_of(in, a, false); },
    .cost = cost<2>,
    .precision = OpDef::Precision::kMatmul,
    .samples = forward_samples()};

const OpDef attention_backward_def{
    .name = "attention_backward",
    .doc = "Gradients of attention with respect to query, key and value.",
    .inputs = {"grad", "query", "key", "value", "result", "lse", "mask?", "state?", "grad_lse?"},
    .params = params(),
    .num_outputs = 3,
    .infer = infer_attention_backward,
    .decompose = decompose_attention_backward,
    .sbp = [](Types in, const Attrs& a) { return rows_of(in, a, true); },
    .cost = cost<5>,
    .precision = OpDef::Precision::kMatmul,
    .samples = backward_samples()};

Shape lead_of(const Value& x) { return Shape(std::span<const int64_t>(x.shape().begin(), x.shape().end() - 2)); }
Shape with_heads(Shape lead, int64_t heads) {
  lead[lead.rank() - 1] = heads;
  return lead;
}
// `x` with `lead` in the place of its leading dims, to which they broadcast; all of them but the last are one then.
Value in_four(const Value& x, Shape lead) {
  Shape whole = lead;
  for (int i = -2; i < 0; ++i) whole.push_back(x.shape()[x.rank() + i]);
  const Value y = whole == x.shape() ? x : expand(x, whole);
  if (lead.rank() == 2) return y;
  const int64_t heads = lead.rank() == 0 ? 1 : lead.back();
  int64_t batch = 1;
  for (int i = 0; i + 1 < lead.rank(); ++i) batch *= lead[i];
  return reshape(y, {batch, heads, whole[whole.rank() - 2], whole.back()});
}
// The leading dims of a mask: those of the scores, or ones where it has one for all.
Shape mask_lead(const Value& mask, const Shape& lead) {
  const Shape own = lead_of(mask);
  Shape out = Shape::filled(lead.rank(), 1);
  const int from = lead.rank() - own.rank();
  bool batch = false;
  for (int i = 0; i + 1 < own.rank(); ++i) batch = batch || own[i] != 1;
  for (int i = 0; batch && i + 1 < lead.rank(); ++i) out[i] = lead[i];
  if (own.rank() > 0 && from >= 0) out[lead.rank() - 1] = own.back();
  return out;
}

}  // namespace

Value scaled_dot_product_attention(const Value& query, const Value& key, const Value& value,
                                   const AttentionOptions& options) {
  constexpr const char* kWhere = "scaled_dot_product_attention";
  SLUICE_CHECK_KIND(kRuntime, query.rank() >= 2 && key.rank() >= 2 && value.rank() >= 2,
                    "{}: operands are not matrices: q {}, k {}, v {}; each must have 2 or more dims", kWhere,
                    query.shape().str(), key.shape().str(), value.shape().str());
  Value mask = options.mask.defined() && numel(options.mask.shape()) > 0 ? options.mask : Value();
  if (mask.defined()) {
    if (mask.rank() < 2) mask = reshape(mask, mask.rank() == 0 ? Ints{1, 1} : Ints{1, mask.shape()[0]});
    if (query.dtype() == DType::kFloat64 && mask.dtype() == DType::kFloat32) mask = cast(mask, query.dtype());
  }
  Shape lead = lead_of(query);
  Value k = key, v = value;
  const auto joined = [&](const Shape& other) {
    for (int i = 1; i <= std::min(lead.rank(), other.rank()); ++i) {
      const int64_t a = lead[lead.rank() - i], b = other[other.rank() - i];
      SLUICE_CHECK_KIND(kRuntime, a == b || a == 1 || b == 1,
                        "{}: leading dims do not broadcast: {} and {}; sizes must be equal or 1", kWhere, lead.str(),
                        other.str());
    }
    lead = broadcast_shapes(lead, other, kWhere);
  };
  Shape k_lead, v_lead;
  if (options.enable_gqa) {
    const auto own = [&](const Value& x) { return x.rank() < 3 ? 0 : x.shape()[x.rank() - 3]; };
    const int64_t heads = own(query);
    for (const Value* x : {&key, &value}) {
      SLUICE_CHECK_KIND(kRuntime, own(*x) > 0 && heads % own(*x) == 0,
                        "{}: enable_gqa: number of heads in key and value must divide the number of heads in query: "
                        "got {} and {}",
                        kWhere, own(*x), heads);
    }
    joined(with_heads(lead_of(k), heads)), joined(with_heads(lead_of(v), heads));
    if (mask.defined()) joined(lead_of(mask));
    k_lead = with_heads(lead, own(k)), v_lead = with_heads(lead, own(v));
  } else {
    joined(lead_of(k)), joined(lead_of(v));
    if (mask.defined()) joined(lead_of(mask));
    k_lead = v_lead = lead;
  }
  const Value q = in_four(query, lead);
  k = in_four(k, k_lead), v = in_four(v, v_lead);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.shape()[3])));
  const Attrs attrs = {options.is_causal, scale, options.dropout_p, options.dropout_salt};
  if (k.shape()[1] != v.shape()[1]) {  // each serves other heads
    const Attention a{q, k, v, {}, {}, attrs};
    k = a.repeated(k), v = a.repeated(v);
  }
  if (mask.defined()) mask = in_four(mask, mask_lead(mask, lead));
  const Value state = options.dropout_p > 0 ? options.dropout_state : Value();
  const Value inputs[] = {q, k, v, mask, state};
  const Value out = call(attention_def, inputs, attrs)[0];
  if (lead.rank() == 2) return out;
  lead.push_back(out.shape()[2]);
  lead.push_back(out.shape()[3]);
  return reshape(out, lead.vec());
}

std::span<const OpDef* const> attention_ops() {
  static const OpDef* const defs[] = {&attention_def, &attention_backward_def};
  return defs;
}
bool is_attention(const OpDef& op) { return &op == &attention_def || &op == &attention_backward_def; }

}  // namespace sluice::ops
