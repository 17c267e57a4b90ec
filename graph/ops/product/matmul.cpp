#include "graph/ops/matmul.h"

#include "graph/executor.h"
#include "graph/ops/activation.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/grad_parts.h"
#include "graph/ops/losses.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

int64_t rows_of(const Shape& s, bool transposed) { return s[s.rank() - (transposed ? 1 : 2)]; }
int64_t cols_of(const Shape& s, bool transposed) { return s[s.rank() - (transposed ? 2 : 1)]; }
Shape batch_of(const Shape& s) { return Shape(std::span<const int64_t>(s.begin(), s.end() - 2)); }

std::vector<TensorType> infer_matmul(Types in, Present, const Attrs& attrs) {
  const bool ta = attr<bool>(attrs, 0), tb = attr<bool>(attrs, 1);
  const Shape &a = in[0].shape, &b = in[1].shape;
  SLUICE_CHECK(a.rank() >= 2 && b.rank() >= 2,
               "matmul: operands are not matrices: a is {}, b is {}; both must have 2 or more dims", a.str(), b.str());
  check_same_dtype(in, "matmul");
  SLUICE_CHECK(in[0].dtype != DType::kBool,
               "matmul: dtype is not a number: got bool; cast to an integer or float dtype");
  SLUICE_CHECK(cols_of(a, ta) == rows_of(b, tb),
               "matmul: inner dimensions differ: a is {}{}, b is {}{}; {} must equal {}", a.str(),
               ta ? " transposed" : "", b.str(), tb ? " transposed" : "", ta ? "a.shape[-2]" : "a.shape[-1]",
               tb ? "b.shape[-1]" : "b.shape[-2]");
  Shape out = broadcast_shapes(batch_of(a), batch_of(b), "matmul");
  out.push_back(rows_of(a, ta));
  out.push_back(cols_of(b, tb));
  return {{in[0].dtype, out}};
}

Value as_matrix(const Value& x) {
  if (x.rank() == 2) return x;
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.shape()[i];
  return reshape(x, {rows, x.shape().back()});
}

Value transpose(const Value& matrix) { return permute(matrix, {1, 0}); }

// With y = A B: dA = dy B^T and dB = A^T dy, each transposed back where the operand was given transposed.
std::vector<Value> grad_matmul(const GradContext& c) {
  const bool ta = attr<bool>(c.attrs, 0), tb = attr<bool>(c.attrs, 1);
  const Value &a = c.inputs[0], &b = c.inputs[1], &dy = c.grad_outputs[0];
  std::vector<Value> grads(2);
  if (c.needs[0]) grads[0] = sum_to(ta ? matmul(b, dy, tb, true) : matmul(dy, b, false, !tb), a.shape());
  if (c.needs[1]) grads[1] = sum_to(tb ? matmul(dy, a, true, ta) : matmul(a, dy, !ta, false), b.shape());
  return grads;
}

// The gradient of an operand that is one matrix, by which any number of rows are multiplied.
std::optional<GradFactors> factors_of_matmul(const GradContext& c, size_t i) {
  const bool ta = attr<bool>(c.attrs, 0), tb = attr<bool>(c.attrs, 1);
  const Value &a = c.inputs[0], &b = c.inputs[1], &dy = c.grad_outputs[0];
  if (i == 1 && b.rank() == 2 && (a.rank() == 2 || !ta)) {
    const Value rows = ta ? transpose(a) : as_matrix(a), d = as_matrix(dy);
    return tb ? GradFactors{d, rows} : GradFactors{rows, d};
  }
  if (i == 0 && a.rank() == 2 && b.rank() == 2) {
    const Value columns = tb ? b : transpose(b), d = transpose(dy);
    return ta ? GradFactors{columns, d} : GradFactors{d, columns};
  }
  return std::nullopt;
}

std::vector<SbpRow> sbp_matmul(Types in, const Attrs& attrs) {
  const bool ta = attr<bool>(attrs, 0), tb = attr<bool>(attrs, 1);
  const int ra = in[0].shape.rank(), rb = in[1].shape.rank(), ry = std::max(ra, rb);
  const auto B = Sbp::broadcast(), P = Sbp::partial_sum();
  std::vector<SbpRow> rows = {
      {{Sbp::split(ra - (ta ? 1 : 2)), B}, {Sbp::split(ry - 2)}},
      {{B, Sbp::split(rb - (tb ? 2 : 1))}, {Sbp::split(ry - 1)}},
      {{Sbp::split(ra - (ta ? 2 : 1)), Sbp::split(rb - (tb ? 1 : 2))}, {P}},
      {{P, B}, {P}},
      {{B, P}, {P}},
      {{B, B}, {B}},
  };
  for (int i = 0; i < ry - 2; ++i) {  // batch dims, numbered as in the output
    const int ia = i - (ry - ra), ib = i - (ry - rb);
    const int64_t da = ia < 0 ? 1 : in[0].shape[ia], db = ib < 0 ? 1 : in[1].shape[ib];
    rows.push_back(
        {{da == 1 && db != 1 ? B : Sbp::split(ia), db == 1 && da != 1 ? B : Sbp::split(ib)}, {Sbp::split(i)}});
    if (da == 1 && db == 1) rows.pop_back();
  }
  return rows;
}

Cost cost_matmul(Types in, Types out, const Attrs& attrs) {
  const double m = static_cast<double>(numel(out[0].shape)),
               k = static_cast<double>(cols_of(in[0].shape, attr<bool>(attrs, 0)));
  return {2 * m * k, operand_bytes(in, out)};
}

const OpDef matmul_def{
    .name = "matmul",
    .doc = "Product of matrices in the last two dims; batch dims broadcast (torch.matmul for ranks >= 2).",
    .inputs = {"a", "b"},
    .params = {{"transpose_a", false}, {"transpose_b", false}},
    .infer = infer_matmul,
    .grad = holomorphic(grad_matmul),
    .sbp = sbp_matmul,
    .cost = cost_matmul,
    .precision = OpDef::Precision::kMatmul,
    .samples = {
        {{{{4, 3}}, {{3, 5}}}},
        {{{{3, 4}}, {{3, 5}}}, {true, false}},
        {{{{4, 3}}, {{5, 3}}}, {false, true}},
        {{{{3, 4}}, {{5, 3}}}, {true, true}},
        {{{{2, 4, 3}}, {{2, 3, 5}}}},
        {{{{2, 1, 4, 3}}, {{3, 5, 3}}}, {false, true}},
        {{{{2, 3, 4}}, {{3, 5}}}, {true, false}},
        {{{{0, 3}}, {{3, 5}}}},
        {{{{4, 0}}, {{0, 5}}}},
        {{{.shape = {4, 3}, .dtype = DType::kInt64, .low = -5, .high = 5},
          {.shape = {3, 2}, .dtype = DType::kInt64, .low = -5, .high = 5}}},
    }};

constexpr const char* kActivations = "none, relu, gelu, gelu_tanh, tanh, sigmoid, silu";

Value activate(const Value& z, const std::string& name) {
  if (name == "none") return z;
  if (name == "relu") return relu(z);
  if (name == "gelu") return gelu(z);
  if (name == "gelu_tanh") return gelu(z, "tanh");
  if (name == "tanh") return tanh(z);
  if (name == "sigmoid") return sigmoid(z);
  if (name == "silu") return silu(z);
  fail(ErrorKind::kValue, "linear: unknown activation: \"{}\"; it must be one of {}", name, kActivations);
}

std::vector<TensorType> infer_linear(Types in, Present present, const Attrs& attrs) {
  const Shape &x = in[0].shape, &w = in[1].shape;
  SLUICE_CHECK_KIND(kRuntime, w.rank() == 2,
                    "linear: weight is not a matrix: {}; it must be (out_features, in_features)", w.str());
  SLUICE_CHECK_KIND(kRuntime, x.rank() >= 1 && x.back() == w[1],
                    "linear: feature counts differ: x is {}, weight is {}; x.shape[-1] must equal weight.shape[1]",
                    x.str(), w.str());
  check_same_dtype(in.first(2), "linear");
  check_floating(in[0], "linear");
  if (in.size() > 2 && present[2]) {
    SLUICE_CHECK_KIND(kRuntime, in[2].shape == Shape({w[0]}) && in[2].dtype == in[0].dtype,
                      "linear: bias does not fit: {}; weight {} asks for {}", in[2].str(), w.str(),
                      TensorType{in[0].dtype, {w[0]}}.str());
  }
  const auto& name = attr<std::string>(attrs, 0);
  SLUICE_CHECK_KIND(kRuntime,
                    name == "none" || name == "relu" || name == "gelu" || name == "gelu_tanh" || name == "tanh" ||
                        name == "sigmoid" || name == "silu",
                    "linear: unknown activation: \"{}\"; it must be one of {}", name, kActivations);
  Shape out = x;
  out[out.rank() - 1] = w[0];
  return {{in[0].dtype, out}};
}

// Two products; the activation's gradient comes from y where it can, else from the recomputed z.
std::vector<Value> grad_linear(const GradContext& c) {
  const Value &x = c.inputs[0], &w = c.inputs[1], &y = c.outputs[0];
  const Value bias = c.inputs.size() > 2 ? c.inputs[2] : Value();
  const auto& name = attr<std::string>(c.attrs, 0);
  Value dz = c.grad_outputs[0];
  if (name == "relu")
    dz = relu_backward(dz, y);
  else if (name == "tanh")
    dz = tanh_backward(dz, y);
  else if (name == "sigmoid")
    dz = sigmoid_backward(dz, y);
  else if (name == "gelu")
    dz = gelu_backward(dz, linear(x, w, bias), "none");
  else if (name == "gelu_tanh")
    dz = gelu_backward(dz, linear(x, w, bias), "tanh");
  else if (name == "silu")
    dz = silu_backward(dz, linear(x, w, bias));
  const Value dz2 = as_matrix(dz);
  std::vector<Value> grads(c.inputs.size());
  if (c.needs[0]) grads[0] = reshape(matmul(dz2, w), x.shape().vec());
  if (c.needs[1]) grads[1] = matmul(dz2, as_matrix(x), true, false);
  if (bias.defined() && c.needs[2]) grads[2] = sum(dz2, Ints{0});
  return grads;
}

// The factors of the weight's gradient, where no activation has to be differentiated first.
std::optional<GradFactors> factors_of_linear(const GradContext& c, size_t i) {
  if (i != 1 || attr<std::string>(c.attrs, 0) != "none") return std::nullopt;
  return GradFactors{as_matrix(c.grad_outputs[0]), as_matrix(c.inputs[0])};
}

std::vector<Value> decompose_linear(std::span<const Value> in, const Attrs& attrs) {
  Value y = matmul(in[0], in[1], false, true);
  if (in.size() > 2 && in[2].defined()) y = add(y, in[2]);
  return {activate(y, attr<std::string>(attrs, 0))};
}

std::vector<SbpRow> sbp_linear(Types in, const Attrs& attrs) {
  const auto B = Sbp::broadcast(), P = Sbp::partial_sum();
  const bool bias = in.size() > 2 && in[2].shape.rank() == 1, plain = attr<std::string>(attrs, 0) == "none";
  const int last = in[0].shape.rank() - 1;
  auto row = [&](Sbp x, Sbp w, Sbp b, Sbp y) {
    SbpRow r{{x, w}, {y}};
    if (in.size() > 2) r.inputs.push_back(bias ? b : B);
    return r;
  };
  std::vector<SbpRow> rows;
  for (int i = 0; i < last; ++i) rows.push_back(row(Sbp::split(i), B, B, Sbp::split(i)));
  rows.push_back(row(B, Sbp::split(0), Sbp::split(0), Sbp::split(last)));
  if (plain) rows.push_back(row(Sbp::split(last), Sbp::split(1), P, P));
  rows.push_back(row(B, B, B, B));
  return rows;
}

Cost cost_linear(Types in, Types out, const Attrs&) {
  const double m = static_cast<double>(numel(out[0].shape)), k = static_cast<double>(in[1].shape[1]);
  return {2 * m * k + m, operand_bytes(in, out)};
}

const OpDef linear_def{.name = "linear",
                       .doc = "act(x weight^T + bias), as torch.nn.functional.linear followed by an activation.",
                       .inputs = {"x", "weight", "bias?"},
                       .params = {{"activation", std::string("none")}},
                       .infer = infer_linear,
                       .grad = grad_linear,
                       .decompose = decompose_linear,
                       .sbp = sbp_linear,
                       .cost = cost_linear,
                       .precision = OpDef::Precision::kMatmul,
                       .samples = {
                           {{{{4, 3}}, {{5, 3}}, {{5}}}},
                           {{{{4, 3}}, {{5, 3}}, {.shape = {}, .absent = true}}},
                           {{{{2, 4, 3}}, {{5, 3}}, {{5}}}, {std::string("tanh")}},
                           {{{{4, 3}}, {{5, 3}}, {{5}}}, {std::string("relu")}},
                           {{{{4, 3}}, {{5, 3}}, {{5}}}, {std::string("gelu")}},
                           {{{{4, 3}}, {{5, 3}}, {{5}}}, {std::string("gelu_tanh")}},
                           {{{{4, 3}}, {{5, 3}}, {{5}}}, {std::string("sigmoid")}},
                           {{{{3}}, {{5, 3}}, {{5}}}, {std::string("silu")}},
                           {{{{0, 3}}, {{5, 3}}, {{5}}}},
                       }};

}  // namespace

Value matmul(const Value& a, const Value& b, bool transpose_a, bool transpose_b) {
  if (a.dtype() != b.dtype()) {
    const DType dtype = promote(a.dtype(), b.dtype());
    return matmul(cast(a, dtype), cast(b, dtype), transpose_a, transpose_b);
  }
  SLUICE_CHECK(a.rank() >= 1 && b.rank() >= 1,
               "matmul: an operand has no dims: a is {}, b is {}; both must have 1 or more", a.shape().str(),
               b.shape().str());
  if (a.rank() == 1) {
    const Value y = matmul(reshape(a, {1, a.shape()[0]}), b, false, transpose_b);
    return squeeze(y, Ints{b.rank() == 1 ? 0 : -2});
  }
  if (b.rank() == 1) return squeeze(matmul(a, reshape(b, {b.shape()[0], 1}), transpose_a, false), Ints{-1});
  const Attrs attrs = {transpose_a, transpose_b};
  if (a.rank() > 2 && b.rank() == 2 && !transpose_a) {  // one large product instead of many
    const Value y = call1(matmul_def, {as_matrix(a), b}, attrs);
    Ints shape = a.shape().vec();
    shape.back() = y.shape()[1];
    return reshape(y, shape);
  }
  return call1(matmul_def, {a, b}, attrs);
}

Value linear(const Value& x, const Value& weight, const Value& bias, const std::string& activation) {
  const bool vector = weight.rank() == 1, complex = is_complex(x.dtype()) && activation == "none";
  SLUICE_CHECK_KIND(kRuntime, !vector || !bias.defined() || (x.rank() != 2 && bias.rank() != 1),
                    "linear: the weight must be a matrix, got a vector {} with a bias {}", weight.shape().str(),
                    bias.defined() ? bias.shape().str() : "");
  const bool of_rows = !bias.defined() || (weight.rank() == 2 && bias.shape() == Shape({weight.shape()[0]}));
  if (vector || (weight.rank() == 2 && (complex || !of_rows))) {
    const Value y = matmul(x, weight, false, !vector);
    return activate(bias.defined() ? add_scaled("linear", bias, y) : y, activation);
  }
  return call1(linear_def, {x, weight, bias}, {activation});
}

std::optional<GradFactors> grad_factors(const OpDef& op, const GradContext& context, size_t i) {
  if ((&op != &matmul_def && &op != &linear_def) || !is_floating(context.grad_outputs[0].dtype())) return std::nullopt;
  if (&op == &matmul_def) return factors_of_matmul(context, i);
  return factors_of_linear(context, i);
}

Value scaled_by(const Value& x, const Operand& factor) {
  if (is_integral(x.dtype()) || factor.is_complex_number()) factor.check_fits(x.dtype(), "alpha and beta");
  if (factor.own_dtype() != DType::kBool && factor.complex_number() == 1.0) return x;
  if (!is_integral(x.dtype()) || !is_floating(factor.own_dtype())) return cast(mul(x, factor), x.dtype());
  return mul(x, static_cast<int64_t>(factor.number()));
}

Value add_scaled(const char* name, const Value& input, const Value& product, const Operand& beta,
                 const Operand& alpha) {
  SLUICE_CHECK_KIND(kRuntime, broadcast_shapes(input.shape(), product.shape(), name) == product.shape(),
                    "{}: the expanded size of the tensor must match: input of shape {} does not broadcast to {}", name,
                    input.shape().str(), product.shape().str());
  const Value y = scaled_by(product, alpha);
  return beta.complex_number() == 0.0 ? y : add(scaled_by(input, beta), y);
}

Value add_product(const char* name, const Value& input, const Value& a, const Value& b, const Value& product,
                  const Operand& beta, const Operand& alpha) {
  if (numel(a.shape()) != 0 && numel(b.shape()) != 0) return add_scaled(name, input, product, beta, alpha);
  if (numel(product.shape()) == 0) return add_scaled(name, input, product);
  if (beta.complex_number() == 0.0) return add_scaled(name, input, product, beta);
  return add_scaled(name, written_as(input, mul(input, beta), name), product);
}

const OpDef& matmul_op() { return matmul_def; }
std::span<const OpDef* const> matmul_ops() {
  static const OpDef* const defs[] = {&matmul_def, &linear_def};
  return defs;
}

}  // namespace sluice::ops
