// Attention and what goes with it.
#include "graph/ops/attention.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/ops/softmax.h"
#include "onnx/table.h"

namespace sluice::onnx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// (B, T, H * D) as (B, H, T, D).
Value heads_apart(const Value& x, int64_t heads) {
  SLUICE_CHECK(x.rank() == 3 && heads > 0 && x.shape()[2] % heads == 0,
               "{} heads in {}; must be (batch, length, heads * size)", heads, x.shape().str());
  return ops::permute(ops::reshape(x, {x.shape()[0], x.shape()[1], heads, x.shape()[2] / heads}), {0, 2, 1, 3});
}
Value heads_joined(const Value& x) {
  const Shape& s = x.shape();
  return ops::reshape(ops::permute(x, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}
// Each head as often as there are more of the other.
Value repeated(const Value& x, int64_t times) {
  if (times == 1) return x;
  const Shape& s = x.shape();
  return ops::reshape(ops::expand(ops::unsqueeze(x, 2), Shape({s[0], s[1], times, s[2], s[3]})),
                      {s[0], s[1] * times, s[2], s[3]});
}

class Attention {
 public:
  explicit Attention(const Call& c) : c_(c), q_(c.in(0)), k_(c.in(1)), v_(c.in(2)) {
    flat_ = q_.rank() == 3;
    if (flat_) {
      q_ = heads_apart(q_, c.i("q_num_heads"));
      k_ = heads_apart(k_, c.i("kv_num_heads"));
      v_ = heads_apart(v_, c.i("kv_num_heads"));
    }
    SLUICE_CHECK(q_.rank() == 4 && k_.rank() == 4 && v_.rank() == 4 && c.has(4) == c.has(5),
                 "query, key and value of {}, {} and {}; must have 3 or 4 dims, and past key and value go together",
                 c.in(0).shape().str(), c.in(1).shape().str(), c.in(2).shape().str());
    SLUICE_CHECK(!c.has(6) || !c.has(4), "lengths of keys and a past; must not be both there");
    if (c.has(4)) {
      k_ = ops::concat(std::vector<Value>{c.in(4), k_}, 2);
      v_ = ops::concat(std::vector<Value>{c.in(5), v_}, 2);
    }
    rows_ = q_.shape()[2];
    columns_ = k_.shape()[2];
    SLUICE_CHECK(k_.shape()[1] > 0 && q_.shape()[1] % k_.shape()[1] == 0,
                 "{} heads of queries, {} of keys; must be a multiple", q_.shape()[1], k_.shape()[1]);
  }

  Items run() {
    const int64_t mode = c_.i("qk_matmul_output_mode");
    const double scale =
        std::sqrt(c_.has_attr("scale") ? c_.f("scale") : 1 / std::sqrt(static_cast<double>(q_.shape()[3])));
    const DType dtype = q_.dtype();
    const int64_t group = q_.shape()[1] / k_.shape()[1];
    find_mask();
    if (plain()) {
      ops::AttentionOptions options{.mask = mask_, .scale = scale * scale};
      return {shown(ops::scaled_dot_product_attention(q_, repeated(k_, group), repeated(v_, group), options)), k_, v_};
    }
    Value scores = ops::matmul(ops::mul(q_, round_to(dtype, scale)),
                               ops::mul(repeated(k_, group), round_to(dtype, scale)), false, true);
    Value seen = scores;
    if (const double cap = c_.f("softcap"); cap > 0) scores = ops::mul(ops::tanh(ops::div(scores, cap)), cap);
    if (mode == 1) seen = scores;
    Value there;
    if (mask_.defined()) {
      scores = mask_.dtype() == DType::kBool ? ops::where(mask_, scores, -kInfinity) : ops::add(scores, mask_);
      const Value open = mask_.dtype() == DType::kBool ? mask_ : ops::gt(mask_, -kInfinity);
      there = ops::any(open, Ints{-1}, true);
    }
    if (mode == 2) seen = scores;
    const Value wide = ops::cast(scores, c_.dtype("softmax_precision", dtype));
    Value weights = ops::softmax(wide, -1);
    if (there.defined()) weights = ops::where(there, weights, ops::zeros_like(weights));
    if (mode == 3) seen = weights;
    const Value y = ops::matmul(ops::cast(weights, dtype), repeated(v_, group));
    return {shown(y), k_, v_, ops::cast(seen, dtype)};
  }

 private:
  Value shown(const Value& y) const { return flat_ ? heads_joined(y) : y; }
  bool plain() const {
    return !c_.wants(3) && c_.f("softcap") <= 0 && !c_.has_attr("softmax_precision") && q_.dtype() == DType::kFloat32;
  }

  // What a query may see, as a bool, or as what is added to the scores.
  void find_mask() {
    Value allowed;  // bool
    const auto also = [&](const Value& open) { allowed = allowed.defined() ? ops::logical_and(allowed, open) : open; };
    Value offset;  // of the first query among the keys
    if (c_.has(6))
      offset = ops::sub(ops::reshape(ops::cast(c_.in(6), DType::kInt64), {-1, 1, 1, 1}), rows_);
    else
      offset = ops::full({}, c_.has(4) ? static_cast<double>(columns_ - c_.in(1).shape()[c_.in(1).rank() - 2]) : 0,
                         DType::kInt64);
    const Value row = ops::reshape(ops::iota(0, 1, rows_), {rows_, 1}), column = ops::iota(0, 1, columns_);
    const Value behind = ops::sub(ops::add(row, offset), column);
    const int64_t left = c_.i("left_window_size", -1), right = c_.i("right_window_size", -1);
    if (c_.i("is_causal") != 0) also(ops::ge(behind, 0));
    if (left >= 0) also(ops::le(behind, left));
    if (right >= 0) also(ops::ge(behind, -right));
    if (c_.has(6)) also(ops::lt(column, ops::reshape(ops::cast(c_.in(6), DType::kInt64), {-1, 1, 1, 1})));
    if (!c_.has(3)) {
      mask_ = allowed;
      return;
    }
    Value given = c_.in(3);
    const bool logical = given.dtype() == DType::kBool;
    if (const int64_t more = columns_ - given.shape()[given.rank() - 1];
        more > 0) {  // what it says nothing of is hidden
      Ints low(static_cast<size_t>(given.rank()), 0), high = low;
      high.back() = more;
      given = ops::pad(given, low, high, logical ? 0 : -kInfinity);
    }
    if (logical) {
      also(given);
      mask_ = allowed;
    } else {
      mask_ = allowed.defined() ? ops::where(allowed, given, -kInfinity) : given;
    }
  }

  const Call& c_;
  Value q_, k_, v_, mask_;
  bool flat_ = false;
  int64_t rows_ = 0, columns_ = 0;
};

Value rotated(const Call& c) {
  Value x = c.in(0);
  const bool flat = x.rank() == 3;
  if (flat) {
    const int64_t heads = c.i("num_heads");
    SLUICE_CHECK(heads > 0 && x.shape()[2] % heads == 0, "{} heads in {}; must divide its last dim", heads,
                 x.shape().str());
    x = ops::reshape(x, {x.shape()[0], x.shape()[1], heads, x.shape()[2] / heads});
  } else {
    SLUICE_CHECK(x.rank() == 4, "an input of shape {}; must have 3 or 4 dims", x.shape().str());
    x = ops::permute(x, {0, 2, 1, 3});
  }
  const int64_t size = x.shape()[3], turned = c.i("rotary_embedding_dim") == 0 ? size : c.i("rotary_embedding_dim");
  SLUICE_CHECK(turned > 0 && turned <= size && turned % 2 == 0, "{} of {} elements are turned; must be even", turned,
               size);
  const auto of_positions = [&](size_t i) {
    Value table = c.in(i);
    if (c.has(3)) {
      const Ints at = c.in(3).shape().vec();
      table =
          ops::reshape(ops::index_select(table, ops::reshape(c.in(3), {-1}), 0), {at[0], at.back(), table.shape()[1]});
    }
    return ops::unsqueeze(table, 2);
  };
  const Value cos = of_positions(1), sin = of_positions(2), part = ops::narrow(x, 3, 0, turned);
  const bool interleaved = c.i("interleaved") != 0;
  const Value a = interleaved ? ops::slice_axis(part, 3, 0, turned, 2) : ops::narrow(part, 3, 0, turned / 2);
  const Value b = interleaved ? ops::slice_axis(part, 3, 1, turned, 2) : ops::narrow(part, 3, turned / 2, turned / 2);
  const Value real = ops::sub(ops::mul(cos, a), ops::mul(sin, b));
  const Value imaginary = ops::add(ops::mul(sin, a), ops::mul(cos, b));
  Value y = interleaved ? ops::reshape(ops::stack(std::vector<Value>{real, imaginary}, -1), part.shape().vec())
                        : ops::concat(std::vector<Value>{real, imaginary}, 3);
  if (turned < size) y = ops::concat(std::vector<Value>{y, ops::narrow(x, 3, turned, size - turned)}, 3);
  return flat ? ops::reshape(y, c.in(0).shape().vec()) : ops::permute(y, {0, 2, 1, 3});
}

// A state of outer products of keys and values, which queries read step by step.
Items linear_attention(const Call& c) {
  const int64_t q_heads = c.i("q_num_heads"), heads = c.i("kv_num_heads");
  const std::string rule = c.s("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
  SLUICE_CHECK((gated || delta || rule == "linear") && gated == c.has(4) && delta == c.has(5),
               "update rule '{}' with{} decay and with{} beta; gated rules have a decay, delta rules a beta", rule,
               c.has(4) ? "" : "out", c.has(5) ? "" : "out");
  const auto wide = [](const Value& x) { return ops::cast(x, DType::kFloat32); };
  const Value q = wide(heads_apart(c.in(0), q_heads)), k = wide(heads_apart(c.in(1), heads)),
              v = wide(heads_apart(c.in(2), heads));
  const int64_t batch = q.shape()[0], steps = q.shape()[2], size = q.shape()[3], width = v.shape()[3];
  SLUICE_CHECK(q_heads % heads == 0, "{} heads of queries, {} of keys; must be a multiple", q_heads, heads);
  const double scale = c.f("scale") == 0 ? 1 / std::sqrt(static_cast<double>(size)) : c.f("scale");
  Value decay, beta;
  if (gated)
    decay = ops::exp(wide(c.in(4).shape()[2] == heads ? ops::unsqueeze(ops::transpose(c.in(4), 1, 2), -1)
                                                      : heads_apart(c.in(4), heads)));
  if (delta) beta = ops::unsqueeze(wide(ops::transpose(c.in(5), 1, 2)), -1);
  Value state = c.has(3) ? wide(c.in(3)) : ops::zeros(Shape({batch, heads, size, width}));
  std::vector<Value> read;
  for (int64_t t = 0; t < steps; ++t) {
    const auto at = [&](const Value& x) { return ops::unsqueeze(ops::select(x, 2, t), 2); };  // (B, H, 1, D)
    if (gated) state = ops::mul(state, ops::transpose(at(decay), 2, 3));
    Value value = at(v);
    if (delta) value = ops::mul(at(beta), ops::sub(value, ops::matmul(at(k), state)));
    state = ops::add(state, ops::mul(ops::transpose(at(k), 2, 3), value));
    read.push_back(ops::matmul(at(q), repeated(state, q_heads / heads)));
  }
  const Value y = ops::mul(ops::concat(read, 2), scale);
  return {ops::cast(heads_joined(y), c.in(0).dtype()), ops::cast(state, c.has(3) ? c.in(3).dtype() : c.in(0).dtype())};
}

}  // namespace

Entries attention_entries() {
  return {
      {"Attention", [](const Call& c) { return Attention(c).run(); }},
      {"LinearAttention", linear_attention},
      {"RotaryEmbedding", rotated},
  };
}

}  // namespace sluice::onnx
