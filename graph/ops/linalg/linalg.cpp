// Factorizations that solve systems of equations, as ops: Cholesky, LU, triangular matrices.
#include "graph/ops/linalg.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/indexing.h"
#include "graph/ops/linalg/linalg_common.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

const Param kCaller{"caller", std::string("")};

// dL = L half_diagonal(L^-1 dA L^-H), its adjoint step by step.
Values grad_cholesky(const GradContext& c) {
  const Value l = conjugate(c.outputs[0]);
  const Value inner = half_diagonal(matmul(l, c.grad_outputs[0], true));
  const Value right = solve_triangular_system(l, adjoint(inner), false, true);
  const Value x = solve_triangular_system(l, adjoint(right), false, true);
  return {mul(add(x, adjoint(x)), 0.5)};
}

const OpDef cholesky_def{
    .name = "linalg_cholesky",
    .doc =
        "L (..., n, n) with L L^H = a, of the Hermitian matrices a (..., n, n), and the order (int32) of the first "
        "leading minor that is not positive. part: the triangle of a that is read, \"both\": their mean. The "
        "gradient is that of a Hermitian a.",
    .inputs = {"a"},
    .params = {{"part", std::string("both")}, kCaller},
    .num_outputs = 2,
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      check_square_type(in[0]);
      check_part(attr<std::string>(attrs, 0));
      return {in[0], {DType::kInt32, batch_of_type(in[0])}};
    },
    .grad = grad_cholesky,
    .sbp = [](Types in, const Attrs&) { return batch_sbp(in, 2); },
    .cost = cubic_cost<1, 3>,
    .samples = {{{{.shape = {1, 1}, .low = 1, .high = 2}}},
                {{{.shape = {2, 3, 1, 1}, .low = 1, .high = 2}}},
                {{{.shape = {0, 0}}}}}};

// With a = P L U and m rows, n columns; the parts beyond the square (L2 where m > n, U2 where m < n) have gradients of
// their own, and change those of the square.
Values grad_lu(const GradContext& c) {
  const Value &factors = c.outputs[0], &g = c.grad_outputs[0];
  if (!g.defined()) return {Value()};
  const int r = factors.rank();
  const int64_t m = factors.shape()[r - 2], n = factors.shape()[r - 1], k = std::min(m, n);
  const Value square = slice_axis(slice_axis(factors, -2, 0, k), -1, 0, k);
  const Value g_square = slice_axis(slice_axis(g, -2, 0, k), -1, 0, k);
  const Value l = add(tril(square, -1), eye(k, -1, square.dtype())), u = triu(square);
  Value of_l = matmul(l, tril(g_square, -1), true), of_u = matmul(triu(g_square), u, false, true);
  Value beyond;
  if (m > n) {
    const Value l2 = slice_axis(factors, -2, k, m), g2 = slice_axis(g, -2, k, m);
    of_u = sub(of_u, matmul(l2, g2, true));
    beyond = transposed(solve_triangular_system(square, transposed(g2), true));
  } else if (m < n) {
    const Value u2 = slice_axis(factors, -1, k, n), g2 = slice_axis(g, -1, k, n);
    of_l = sub(of_l, matmul(g2, u2, false, true));
    beyond = solve_triangular_system(square, g2, false, true, true);
  }
  Value x = add(tril(of_l, -1), triu(of_u));
  x = transposed(solve_triangular_system(square, transposed(x), true));
  x = solve_triangular_system(square, x, false, true, true);
  if (beyond.defined()) x = concat(Values{x, beyond}, m > n ? -2 : -1);
  const Value order = expand(unsqueeze(permutation_of(c.outputs[1], m), -1), x.shape());
  return {scatter(zeros_like(x), order, x, -2)};
}

const OpDef lu_def{
    .name = "linalg_lu",
    .doc =
        "The factors of a = P L U (..., m, n) in one matrix, L without its unit diagonal; the row (int32, from 1) "
        "that each of the first min(m, n) was exchanged with; and the first column (int32) without a pivot.",
    .inputs = {"a"},
    .params = {kCaller},
    .num_outputs = 3,
    .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> {
      check_matrix_type(in[0]);
      const int r = in[0].shape.rank();
      Shape pivots = batch_of_type(in[0]);
      pivots.push_back(std::min(in[0].shape[r - 2], in[0].shape[r - 1]));
      return {in[0], {DType::kInt32, pivots}, {DType::kInt32, batch_of_type(in[0])}};
    },
    .grad = holomorphic(grad_lu),
    .sbp = [](Types in, const Attrs&) { return batch_sbp(in, 3); },
    .cost = cubic_cost<2, 3>,
    .samples = {{{{.shape = {3, 3}}}}, {{{.shape = {2, 4, 3}}}}, {{{.shape = {2, 3, 5}}}}, {{{.shape = {2, 0, 3}}}}}};

const OpDef permutation_def{
    .name = "linalg_permutation",
    .doc =
        "The order (..., n), int64, that exchanging row i with row pivots[i] (from 1), one after the other, brings n "
        "rows into.",
    .inputs = {"pivots"},
    .params = {{.name = "n", .default_value = int64_t{0}, .required = true}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      const int64_t n = attr<int64_t>(attrs, 0);
      SLUICE_CHECK_KIND(kType, in[0].dtype == DType::kInt32, "pivots: dtype is {}; must be int32",
                        dtype_name(in[0].dtype));
      SLUICE_CHECK(in[0].shape.rank() >= 1 && in[0].shape.back() <= n,
                   "pivots: shape is {}; must have a dim, of at most n = {}", in[0].shape.str(), n);
      Shape shape = in[0].shape;
      shape[shape.rank() - 1] = n;
      return {{DType::kInt64, shape}};
    },
    .sbp = [](Types in, const Attrs&) { return untouched_sbp(in, leading_axes(in[0], 1), false); },
    .samples = {{{{.shape = {2, 1}, .dtype = DType::kInt32, .low = 1, .high = 4}}, {int64_t{3}}},
                {{{.shape = {2}, .dtype = DType::kInt32, .low = 1, .high = 3}}, {int64_t{4}}}}};

std::vector<TensorType> infer_system(Types in, bool info) {
  check_square_type(in[0]);
  check_same_dtype(in, "operands");
  const Shape &a = in[0].shape, &b = in[1].shape;
  SLUICE_CHECK(
      b.rank() == a.rank() && batch_of_type(in[0]) == batch_of_type(in[1]) && a[a.rank() - 1] == b[b.rank() - 2],
      "operands: a is {}, b is {}; b must have a's batch and rows", a.str(), b.str());
  std::vector<TensorType> out = {in[1]};
  if (info) out.push_back({DType::kInt32, batch_of_type(in[0])});
  return out;
}

const OpDef solve_def{
    .name = "linalg_solve",
    .doc = "x (..., n, k) with a x = b, of a (..., n, n) and b, and the first column (int32) of a without a pivot.",
    .inputs = {"a", "b"},
    .params = {kCaller},
    .num_outputs = 2,
    .infer = [](Types in, Present, const Attrs&) { return infer_system(in, true); },
    .grad = holomorphic([](const GradContext& c) -> Values {
      const Value gb = solve_system(transposed(c.inputs[0]), c.grad_outputs[0], attr<std::string>(c.attrs, 0)).first;
      return {c.needs[0] ? neg(matmul(gb, c.outputs[0], false, true)) : Value(), c.needs[1] ? gb : Value()};
    }),
    .sbp = [](Types in, const Attrs&) { return batch_sbp(in, 2); },
    .cost = cubic_cost<2, 3>,
    .samples = {{{{.shape = {3, 3}}, {.shape = {3, 2}}}},
                {{{.shape = {2, 2, 2}}, {.shape = {2, 2, 1}}}},
                {{{.shape = {0, 0}}, {.shape = {0, 2}}}},
                {{{.shape = {2, 3, 3}}, {.shape = {2, 3, 0}}}}}};

// With op(a) x = b: db = op(a)^-T dx, and da = -db x^T, or its transpose, in the triangle that was read.
Values grad_triangular(const GradContext& c) {
  const bool upper = attr<bool>(c.attrs, 0), transpose = attr<bool>(c.attrs, 1), unit = attr<bool>(c.attrs, 2);
  const Value &x = c.outputs[0], gb = solve_triangular_system(c.inputs[0], c.grad_outputs[0], upper, !transpose, unit);
  Value ga;
  if (c.needs[0]) {
    ga = neg(transpose ? matmul(x, gb, false, true) : matmul(gb, x, false, true));
    ga = upper ? triu(ga, unit ? 1 : 0) : tril(ga, unit ? -1 : 0);
  }
  return {ga, c.needs[1] ? gb : Value()};
}

const OpDef solve_triangular_def{
    .name = "linalg_solve_triangular",
    .doc =
        "x (..., n, k) with a x = b, or a^T x = b (transpose), of the upper or lower triangle of a (..., n, n), with "
        "ones for its diagonal where unitriangular.",
    .inputs = {"a", "b"},
    .params = {{"upper", true}, {"transpose", false}, {"unitriangular", false}},
    .infer = [](Types in, Present, const Attrs&) { return infer_system(in, false); },
    .grad = holomorphic(grad_triangular),
    .sbp = [](Types in, const Attrs&) { return batch_sbp(in, 1); },
    .cost = cubic_cost<1, 1>,
    .samples = {{{{.shape = {3, 3}, .low = 0.5, .high = 2}, {.shape = {3, 2}}}},
                {{{.shape = {2, 3, 3}, .low = 0.5, .high = 2}, {.shape = {2, 3, 1}}}, {false, true, false}},
                {{{.shape = {3, 3}}, {.shape = {3, 2}}}, {true, true, true}},
                {{{.shape = {2, 3, 3}, .low = 0.5, .high = 2}, {.shape = {2, 3, 2}}}, {false, false, false}},
                {{{.shape = {0, 0}}, {.shape = {0, 2}}}}}};

}  // namespace

std::pair<Value, Value> cholesky_factor(const Value& a, const std::string& part, const std::string& caller) {
  const Values y = call(cholesky_def, Values{a}, {part, caller});
  return {y[0], y[1]};
}

std::vector<Value> lu_factors(const Value& a, const std::string& caller) { return call(lu_def, Values{a}, {caller}); }

Value permutation_of(const Value& pivots, int64_t n) { return call1(permutation_def, {pivots}, {n}); }

std::pair<Value, Value> solve_system(const Value& a, const Value& b, const std::string& caller) {
  const Values y = call(solve_def, Values{a, b}, {caller});
  return {y[0], y[1]};
}

Value solve_triangular_system(const Value& a, const Value& b, bool upper, bool transpose, bool unit) {
  return call1(solve_triangular_def, {a, b}, {upper, transpose, unit});
}

std::span<const OpDef* const> linalg_ops() {
  static const OpDef* const defs[] = {&cholesky_def, &lu_def, &permutation_def, &solve_def, &solve_triangular_def};
  return defs;
}

}  // namespace sluice::ops
