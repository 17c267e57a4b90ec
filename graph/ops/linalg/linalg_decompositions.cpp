// QR, eigenvalues of symmetric matrices, singular values and the exponential, as ops.
#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/linalg.h"
#include "graph/ops/linalg/linalg_common.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

Value sum_of(const Value& a, const Value& b) {
  if (!a.defined()) return b;
  return b.defined() ? add(a, b) : a;
}

// The gradient for a square R: (dQ + Q S) R^-H, where S is the Hermitian matrix with the lower triangle of R dR^H -
// dQ^H Q.
Value square_qr_grad(const Value& q, const Value& r, const Value& gq, const Value& gr) {
  Value m = gr.defined() ? matmul(r, conjugate(gr), false, true) : Value();
  if (gq.defined()) m = sum_of(m, neg(matmul(conjugate(gq), q, true)));
  const Value half = half_diagonal(m), x = sum_of(gq, matmul(q, add(half, adjoint(half))));
  return adjoint(solve_triangular_system(r, adjoint(x), true));
}

Values grad_qr(const GradContext& c) {
  const Value &a = c.inputs[0], &q = c.outputs[0], &r = c.outputs[1];
  Value gq = c.grad_outputs[0];
  const Value& gr = c.grad_outputs[1];
  const int64_t m = a.shape()[a.rank() - 2], n = a.shape().back();
  SLUICE_CHECK_KIND(kRuntime, !attr<bool>(c.attrs, 0) || m <= n,
                    "linalg.qr: The QR decomposition is not differentiable when mode='complete' and nrows > ncols: got "
                    "{} and {}; use mode='reduced'",
                    m, n);
  if (m >= n) return {square_qr_grad(q, r, gq, gr)};
  // a = [X Y]: X = Q R1, and R2 = Q^H Y.
  const Value r1 = slice_axis(r, -1, 0, m), y = slice_axis(a, -1, m, n);
  Value g1, gy = zeros_like(y);
  if (gr.defined()) {
    const Value g2 = slice_axis(gr, -1, m, n);
    g1 = slice_axis(gr, -1, 0, m);
    gq = sum_of(gq, matmul(y, conjugate(g2), false, true));
    gy = matmul(q, g2);
  }
  return {concat(Values{square_qr_grad(q, r1, gq, g1), gy}, -1)};
}

const OpDef qr_def{
    .name = "linalg_qr",
    .doc =
        "Q (..., m, k) with orthonormal columns and the upper triangle R (..., k, n) with Q R = a (..., m, n); k is "
        "min(m, n), or m where complete. torch.linalg.qr.",
    .inputs = {"a"},
    .params = {{"complete", false}},
    .num_outputs = 2,
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      check_matrix_type(in[0]);
      const int r = in[0].shape.rank();
      Shape q = in[0].shape, upper = in[0].shape;
      const int64_t k = attr<bool>(attrs, 0) ? q[r - 2] : std::min(q[r - 2], q[r - 1]);
      q[r - 1] = upper[r - 2] = k;
      return {{in[0].dtype, q}, {in[0].dtype, upper}};
    },
    .grad = grad_qr,
    .sbp = [](Types in, const Attrs&) { return batch_sbp(in, 2); },
    .cost = cubic_cost<2, 1>,
    .samples = {{{{.shape = {3, 3}}}},
                {{{.shape = {2, 4, 3}}}},
                {{{.shape = {2, 3, 4}}}},
                {{{.shape = {2, 3, 4}}}, {true}},
                {{{.shape = {0, 3}}}}}};

// 1 / (v[j] - v[i]), 0 on the diagonal.
Value inverse_gaps(const Value& v) {
  const Value gaps = sub(unsqueeze(v, -2), unsqueeze(v, -1)), diagonal = eye(v.shape().back(), -1, DType::kBool);
  return where(diagonal, 0.0, reciprocal(where(diagonal, 1.0, gaps)));
}

// V (diag(dL) + (V^H dV) / (l[j] - l[i])) V^H, made Hermitian.
Values grad_eigh(const GradContext& c) {
  const Value &values = c.outputs[0], &v = c.outputs[1], vc = conjugate(v);
  Value inner;
  if (c.grad_outputs[0].defined()) inner = mul(eye(v.shape().back(), -1, v.dtype()), unsqueeze(c.grad_outputs[0], -1));
  if (c.grad_outputs[1].defined())
    inner = sum_of(inner, mul(matmul(vc, c.grad_outputs[1], true), inverse_gaps(values)));
  if (!inner.defined()) return {Value()};
  const Value x = matmul(matmul(v, inner), vc, false, true);
  return {mul(add(x, adjoint(x)), 0.5)};
}

const OpDef eigh_def{
    .name = "linalg_eigh",
    .doc =
        "Eigenvalues (..., n), ascending, and eigenvectors (..., n, n), the columns, of the Hermitian matrices a "
        "(..., n, n). part: the triangle of a that is read, \"both\": their mean. Gradients are those of a Hermitian "
        "a; those of eigenvectors are infinite where eigenvalues are equal. torch.linalg.eigh.",
    .inputs = {"a"},
    .params = {{"part", std::string("both")}},
    .num_outputs = 2,
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      check_square_type(in[0]);
      check_part(attr<std::string>(attrs, 0));
      Shape values = batch_of_type(in[0]);
      values.push_back(in[0].shape.back());
      return {{to_real(in[0].dtype), values}, in[0]};
    },
    .grad = grad_eigh,
    .sbp = [](Types in, const Attrs&) { return batch_sbp(in, 2); },
    .cost = cubic_cost<9, 1>,
    .samples = {{{{.shape = {3, 3}}}}, {{{.shape = {2, 4, 4}}}}, {{{.shape = {2, 0, 0}}}}}};

// V^-H (diag(dL) + (V^H dV - V^H V Re(diag(V^H dV))) / conj(l[j] - l[i])) V^H: the columns of V have length 1, and any
// argument.
Values grad_eig(const GradContext& c) {
  const Value &a = c.inputs[0], &values = c.outputs[0], &v = c.outputs[1];
  const Value of_v = conjugate(v), diagonal = eye(v.shape().back(), -1, DType::kBool);
  Value inner;
  if (c.grad_outputs[1].defined()) {
    const Value change = matmul(of_v, c.grad_outputs[1], true);
    const Value longer = sum(where(diagonal, real_part(change), 0.0), Ints{-2}, true);
    inner = mul(sub(change, mul(matmul(of_v, v, true), longer)), conjugate(inverse_gaps(values)));
  }
  if (c.grad_outputs[0].defined()) inner = sum_of(inner, where(diagonal, unsqueeze(c.grad_outputs[0], -1), 0.0));
  if (!inner.defined()) return {Value()};
  const Value x = solve_system(adjoint(v), matmul(inner, of_v, false, true), "linalg.eig").first;
  return {is_complex(a.dtype()) ? x : real_part(x)};
}

const OpDef eig_def{
    .name = "linalg_eig",
    .doc =
        "Eigenvalues (..., n), in no order, and eigenvectors (..., n, n), the columns, of the matrices a (..., n, n): "
        "complex, of length 1 with their largest entry real and positive. Gradients of eigenvectors are those of "
        "functions that their argument does not change, and infinite where eigenvalues are equal. torch.linalg.eig.",
    .inputs = {"a"},
    .num_outputs = 2,
    .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> {
      check_square_type(in[0]);
      const DType dtype = to_complex(in[0].dtype);
      Shape values = batch_of_type(in[0]);
      values.push_back(in[0].shape.back());
      return {{dtype, values}, {dtype, in[0].shape}};
    },
    .grad = grad_eig,
    .sbp = [](Types in, const Attrs&) { return batch_sbp(in, 2); },
    .cost = cubic_cost<25, 1>,
    .samples = {{{{.shape = {1, 1}}}}, {{{.shape = {2, 1, 1}}}}, {{{.shape = {2, 0, 0}}}}}};

// Giles (2008), Townsend (2016). Vectors beyond the first min(m, n) have no gradient, as they are not determined.
Values grad_svd(const GradContext& c) {
  const Value& a = c.inputs[0];
  const int64_t m = a.shape()[a.rank() - 2], n = a.shape().back(), k = std::min(m, n);
  const auto first = [k](const Value& v, int64_t dim) {
    if (!v.defined()) return Value();
    return v.shape()[v.rank() + dim] == k ? v : slice_axis(v, dim, 0, k);
  };
  const Value u = first(c.outputs[0], -1), s = c.outputs[1], vh = first(c.outputs[2], -2);
  const Value gu = first(c.grad_outputs[0], -1), &gs = c.grad_outputs[1], gvh = first(c.grad_outputs[2], -2);
  const auto row = [](const Value& v) { return unsqueeze(v, -2); };
  const auto column = [](const Value& v) { return unsqueeze(v, -1); };
  const auto skew = [](const Value& x) { return sub(x, adjoint(x)); };
  Value inner, outer;
  if (gs.defined()) inner = mul(eye(k, -1, a.dtype()), column(gs));
  if (gu.defined() || gvh.defined()) {
    // 1 / (s[j]^2 - s[i]^2), of factors that do not cancel.
    const Value gaps = mul(inverse_gaps(s), reciprocal(add(row(s), column(s))));
    const Value inner_gaps = where(eye(k, -1, DType::kBool), 0.0, gaps);
    if (gu.defined()) {
      const Value of_u = matmul(conjugate(u), gu, true), turned = skew(of_u);
      inner = sum_of(inner, mul(mul(inner_gaps, turned), row(s)));
      // Vectors of complex matrices turn together, by which the product does not change: half of it is U's.
      if (is_complex(a.dtype()) && gvh.defined())
        inner = add(inner, mul(eye(k, -1, a.dtype()), div(turned, mul(column(s), 2))));
      if (m > k) outer = matmul(div(sub(gu, matmul(u, of_u)), row(s)), vh);
    }
    if (gvh.defined()) {
      const Value of_v = matmul(vh, conjugate(gvh), false, true);
      inner = sum_of(inner, mul(column(s), mul(inner_gaps, skew(of_v))));
      if (n > k) {
        const Value rest = sub(gvh, matmul(matmul(gvh, conjugate(vh), false, true), vh));
        outer = sum_of(outer, matmul(u, div(rest, column(s))));
      }
    }
  }
  if (!inner.defined()) return {Value()};
  return {sum_of(matmul(matmul(u, inner), vh), outer)};
}

const OpDef svd_def{
    .name = "linalg_svd",
    .doc =
        "U (..., m, k), the singular values S (..., k), descending, and Vh (..., k, n) with U diag(S) Vh = a (..., m, "
        "n), where k = min(m, n); full_matrices: U is (..., m, m) and Vh (..., n, n), of which the first k have "
        "gradients. torch.linalg.svd.",
    .inputs = {"a"},
    .params = {{"full_matrices", true}},
    .num_outputs = 3,
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      check_matrix_type(in[0]);
      const int r = in[0].shape.rank();
      Shape u = in[0].shape, values = batch_of_type(in[0]), vh = in[0].shape;
      const int64_t m = u[r - 2], n = u[r - 1], k = std::min(m, n);
      const bool full = attr<bool>(attrs, 0);
      u[r - 1] = full ? m : k;
      vh[r - 2] = full ? n : k;
      values.push_back(k);
      return {{in[0].dtype, u}, {to_real(in[0].dtype), values}, {in[0].dtype, vh}};
    },
    .grad = grad_svd,
    .sbp = [](Types in, const Attrs&) { return batch_sbp(in, 3); },
    .cost = cubic_cost<20, 1>,
    .samples = {{{{.shape = {3, 3}}}, {false}},
                {{{.shape = {2, 4, 3}}}, {false}},
                {{{.shape = {2, 3, 4}}}, {false}},
                {{{.shape = {2, 2}}}, {true}},
                {{{.shape = {0, 3}}}, {true}}}};

// The gradient is the derivative at a^T in the direction dy: the upper right block of exp([[a^T, dy], [0, a^T]]).
Values grad_exp(const GradContext& c) {
  const Value at = transposed(c.inputs[0]), &g = c.grad_outputs[0];
  const int64_t n = at.shape().back();
  const Value upper = concat(Values{at, g}, -1), lower = concat(Values{zeros_like(at), at}, -1);
  const Value y = matrix_exp(concat(Values{upper, lower}, -2));
  return {slice_axis(slice_axis(y, -2, 0, n), -1, n, 2 * n)};
}

const OpDef matrix_exp_def{.name = "linalg_matrix_exp",
                           .doc = "The exponential series of the matrices a (..., n, n). torch.linalg.matrix_exp.",
                           .inputs = {"a"},
                           .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> {
                             check_square_type(in[0]);
                             return {in[0]};
                           },
                           .grad = holomorphic(grad_exp),
                           .sbp = [](Types in, const Attrs&) { return batch_sbp(in, 1); },
                           .cost = cubic_cost<20, 1>,
                           .samples = {{{{.shape = {3, 3}}}}, {{{.shape = {2, 2, 2}}}}, {{{.shape = {0, 0}}}}}};

}  // namespace

std::pair<Value, Value> qr_factors(const Value& a, bool complete) {
  const Values y = call(qr_def, Values{a}, {complete});
  return {y[0], y[1]};
}

std::pair<Value, Value> eigen_symmetric(const Value& a, const std::string& part) {
  const Values y = call(eigh_def, Values{a}, {part});
  return {y[0], y[1]};
}

std::vector<Value> singular_values(const Value& a, bool full_matrices) {
  return call(svd_def, Values{a}, {full_matrices});
}

std::pair<Value, Value> eigen_general(const Value& a) {
  const Values y = call(eig_def, Values{a});
  return {y[0], y[1]};
}

Value matrix_exp(const Value& a) { return call1(matrix_exp_def, {a}); }

std::span<const OpDef* const> decomposition_ops() {
  static const OpDef* const defs[] = {&qr_def, &eigh_def, &eig_def, &svd_def, &matrix_exp_def};
  return defs;
}

}  // namespace sluice::ops
