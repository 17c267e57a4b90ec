// Torch's spelling of systems, inverses and factorizations.
#include <limits>

#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/forms.h"
#include "graph/ops/indexing.h"
#include "graph/ops/linalg.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"
#include "graph/tape.h"

namespace sluice::ops {
namespace {

const char* checked(bool check, const char* caller) { return check ? caller : ""; }

// --- systems and inverses ---

Value inv(const Value& a) { return inverse(a); }
std::pair<Value, Value> inv_ex(const Value& a, bool check_errors) {
  check_square(a, "linalg.inv");
  return solve_system(a, identity_like(a, a.shape().back()), checked(check_errors, "linalg.inv"));
}

Value linalg_solve(const Value& a, const Value& b, bool left) { return solve(a, b, left); }
std::pair<Value, Value> solve_ex(const Value& a, const Value& b, bool left, bool check_errors) {
  const Value x = solve(a, b, left, checked(check_errors, "torch.linalg.solve"));
  const GradMode no_grad(false);
  return {x, lu_factors(a, "")[2]};
}

Value solve_triangular(const Value& a, const Value& b, bool upper, bool left, bool unitriangular) {
  const char* where = "linalg.solve_triangular";
  check_square(a, where);
  check_matrix(b, where, "B");
  SLUICE_CHECK_KIND(kRuntime, a.dtype() == b.dtype(),
                    "{}: Expected A and B to have the same dtype, but found A of type {} and B of type {} instead",
                    where, dtype_name(a.dtype()), dtype_name(b.dtype()));
  const int64_t n = a.shape().back(), rows = b.shape()[b.rank() - 2], cols = b.shape().back();
  SLUICE_CHECK_KIND(kRuntime, n == (left ? rows : cols),
                    "{}: Incompatible shapes of A and B for the equation {} ({}x{} and {}x{})", where,
                    left ? "AX = B" : "XA = B", n, n, rows, cols);
  const Shape batch = broadcast_shapes(batch_shape(a), batch_shape(b), where);
  const Value lhs = with_batch(a, batch), rhs = with_batch(b, batch);
  if (left) return solve_triangular_system(lhs, rhs, upper, false, unitriangular);
  return transposed(solve_triangular_system(lhs, transposed(rhs), upper, true, unitriangular));
}

std::pair<Value, Value> triangular_solve(const Value& b, const Value& a, bool upper, bool transpose,
                                         bool unitriangular) {
  check_square(a, "triangular_solve");
  check_matrix(b, "triangular_solve", "b");
  const Shape batch = broadcast_shapes(batch_shape(a), batch_shape(b), "triangular_solve");
  const Value lhs = with_batch(a, batch);
  return {solve_triangular_system(lhs, with_batch(b, batch), upper, transpose, unitriangular), copy(lhs)};
}

// --- Cholesky ---

std::pair<Value, Value> cholesky_with(const Value& a, bool upper, const char* where, bool check) {
  check_square(a, where);
  const auto [l, info] = cholesky_factor(a, upper ? "upper" : "lower", checked(check, where));
  return {upper ? adjoint(l) : l, info};
}
Value linalg_cholesky(const Value& a, bool upper) { return cholesky_with(a, upper, "linalg.cholesky", true).first; }
Value cholesky(const Value& a, bool upper) { return cholesky_with(a, upper, "cholesky", true).first; }
std::pair<Value, Value> cholesky_ex(const Value& a, bool upper, bool check_errors) {
  return cholesky_with(a, upper, "linalg.cholesky_ex", check_errors);
}

Value cholesky_solve(const Value& b, const Value& l, bool upper) {
  const char* where = "cholesky_solve";
  SLUICE_CHECK_KIND(kRuntime, b.rank() >= 2, "{}: b should have at least 2 dimensions, but has {} dimensions instead",
                    where, b.rank());
  check_square(l, where, "u");
  SLUICE_CHECK_KIND(kRuntime, b.shape()[b.rank() - 2] == l.shape().back() && b.dtype() == l.dtype(),
                    "{}: Incompatible matrix sizes or dtypes: b is {}, the factor is {}; rows and dtypes must be equal",
                    where, b.type().str(), l.type().str());
  const Shape batch = broadcast_shapes(batch_shape(b), batch_shape(l), where);
  const Value factor = with_batch(l, batch), adjoint_of = conjugate(factor);
  const Value y = solve_triangular_system(upper ? adjoint_of : factor, with_batch(b, batch), upper, upper);
  return solve_triangular_system(upper ? factor : adjoint_of, y, upper, !upper);
}
Value cholesky_inverse(const Value& l, bool upper) {
  check_square(l, "cholesky_inverse");
  return cholesky_solve(identity_like(l, l.shape().back()), l, upper);
}

// --- LU ---

Values lu_unpacked(const Value& lu, const Value& pivots, bool data, bool permutation) {
  const int64_t m = lu.shape()[lu.rank() - 2], n = lu.shape().back(), k = std::min(m, n);
  Value p = zeros({0}, lu.dtype()), l = p, u = p;
  if (data) {
    l = add(tril(slice_axis(lu, -1, 0, k), -1), eye(m, k, lu.dtype()));
    u = triu(slice_axis(lu, -2, 0, k));
  }
  if (permutation) p = cast(transposed(one_hot(permutation_of(pivots, m), m)), lu.dtype());
  return {p, l, u};
}
Values lu_unpack(const Value& lu, const Value& pivots, bool data, bool permutation) {
  SLUICE_CHECK_KIND(kRuntime, pivots.dtype() == DType::kInt32,
                    "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype: got {}",
                    dtype_name(pivots.dtype()));
  check_matrix(lu, "torch.lu_unpack", "LU_data");
  return lu_unpacked(lu, pivots, data, permutation);
}

void check_pivoting(bool pivot) {
  SLUICE_CHECK_KIND(
      kRuntime, pivot,
      "linalg.lu_factor: LU without pivoting is not implemented on the CPU: pivot is False; it must be True");
}
Values factored(const char* where, const Value& a, bool pivot, bool check) {
  check_pivoting(pivot);
  check_matrix(a, where);
  check_wide(a, where);
  return lu_factors(a, checked(check, where));
}
std::pair<Value, Value> lu_factor(const Value& a, bool pivot) {
  const Values lu = factored("torch.linalg.lu_factor", a, pivot, true);
  return {lu[0], lu[1]};
}
Values lu_factor_ex(const Value& a, bool pivot, bool check_errors) {
  return factored("torch.linalg.lu_factor_ex", a, pivot, check_errors);
}
Values linalg_lu(const Value& a, bool pivot) {
  const Values lu = factored("linalg.lu", a, pivot, false);
  return lu_unpacked(lu[0], lu[1], true, true);
}

Value lu_solve_with(const char* where, const Value& lu, const Value& pivots, const Value& b, bool left, bool adjoint) {
  check_square(lu, where, "LU");
  check_matrix(b, where, "B");
  SLUICE_CHECK_KIND(kRuntime, pivots.dtype() == DType::kInt32,
                    "{}: pivots should be a Tensor of scalar type torch.int32: got {}", where,
                    dtype_name(pivots.dtype()));
  SLUICE_CHECK_KIND(kRuntime, lu.dtype() == b.dtype(),
                    "{}: Expected LU and B to have the same dtype, but found LU of type {} and B of type {} instead",
                    where, dtype_name(lu.dtype()), dtype_name(b.dtype()));
  if (!left) return ops::adjoint(lu_solve_with(where, lu, pivots, ops::adjoint(b), true, !adjoint));
  const int64_t n = lu.shape().back();
  SLUICE_CHECK_KIND(kRuntime, b.shape()[b.rank() - 2] == n,
                    "{}: Incompatible shapes of A and B for the equation AX = B ({}x{} and {}x{})", where, n, n,
                    b.shape()[b.rank() - 2], b.shape().back());
  const Shape batch = broadcast_shapes(batch_shape(lu), batch_shape(b), where);
  const Value factors = with_batch(lu, batch), rhs = with_batch(b, batch);
  Shape rows = batch;
  rows.push_back(n);
  const Value order = expand(unsqueeze(expand(permutation_of(pivots, n), rows), -1), rhs.shape());
  if (!adjoint) {
    const Value y = solve_triangular_system(factors, gather(rhs, order, -2), false, false, true);
    return solve_triangular_system(factors, y, true);
  }
  const Value conjugates = conjugate(factors), y = solve_triangular_system(conjugates, rhs, true, true);
  const Value x = solve_triangular_system(conjugates, y, false, true, true);
  return scatter(zeros_like(x), order, x, -2);
}
Value linalg_lu_solve(const Value& lu, const Value& pivots, const Value& b, bool left, bool adjoint) {
  return lu_solve_with("linalg.lu_solve", lu, pivots, b, left, adjoint);
}
Value lu_solve(const Value& b, const Value& lu, const Value& pivots) {
  return lu_solve_with("torch.lu_solve", lu, pivots, b, true, false);
}

Values ldl_factored(const char* where, const Value& a, bool hermitian, bool check) {
  check_square(a, where);
  check_wide(a, where);
  return ldl_factors(a, hermitian, checked(check, where));
}
std::pair<Value, Value> ldl_factor(const Value& a, bool hermitian) {
  const Values ldl = ldl_factored("torch.linalg.ldl_factor", a, hermitian, true);
  return {ldl[0], ldl[1]};
}
Values ldl_factor_ex(const Value& a, bool hermitian, bool check_errors) {
  return ldl_factored("torch.linalg.ldl_factor_ex", a, hermitian, check_errors);
}
Value linalg_ldl_solve(const Value& factors, const Value& pivots, const Value& b, bool hermitian) {
  const char* where = "torch.linalg.ldl_solve";
  check_square(factors, where, "LD");
  check_matrix(b, where, "B");
  const int64_t n = factors.shape().back();
  SLUICE_CHECK_KIND(kRuntime, b.shape()[b.rank() - 2] == n,
                    "{}: Incompatible matrix sizes: each A matrix is {} by {} but each b matrix is {} by {}", where, n,
                    n, b.shape()[b.rank() - 2], b.shape().back());
  SLUICE_CHECK_KIND(kRuntime, factors.dtype() == b.dtype(),
                    "{}: Expected b and A to have the same dtype, but found b of type {} and A of type {} instead",
                    where, dtype_name(b.dtype()), dtype_name(factors.dtype()));
  Shape rows = batch_shape(factors);
  rows.push_back(n);
  SLUICE_CHECK_KIND(kRuntime, pivots.shape() == rows,
                    "{}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape {} instead",
                    where, pivots.shape().str());
  SLUICE_CHECK_KIND(kRuntime, is_integral(pivots.dtype()), "{}: Expected pivots to be integers. Got {}; cast them",
                    where, dtype_name(pivots.dtype()));
  const Shape batch = broadcast_shapes(batch_shape(factors), batch_shape(b), where);
  rows = batch;
  rows.push_back(n);
  return ldl_solve(with_batch(factors, batch), expand(cast(pivots, DType::kInt32), rows), with_batch(b, batch),
                   hermitian);
}

// --- determinants ---

Value det(const Value& a) { return determinant(a); }
std::pair<Value, Value> slogdet(const Value& a) { return sign_and_logdet(a); }
Value logdet(const Value& a) {
  const auto [sign, log_of_det] = sign_and_logdet(a, "logdet");
  if (is_complex(a.dtype())) return add(log(sign), log_of_det);
  return where(eq(sign, -1), std::numeric_limits<double>::quiet_NaN(), log_of_det);
}

// --- QR, eigenvalues, singular values ---

std::pair<Value, Value> linalg_qr(const Value& a, const std::string& mode) {
  SLUICE_CHECK_KIND(kRuntime, mode == "reduced" || mode == "complete" || mode == "r",
                    "linalg.qr: qr received unrecognized mode '{}' but expected one of 'reduced' (default), 'r', or "
                    "'complete'",
                    mode);
  check_matrix(a, "linalg.qr");
  check_wide(a, "linalg.qr");
  if (mode != "r") return qr_factors(a, mode == "complete");
  SLUICE_CHECK_KIND(kRuntime, !(a.requires_grad() && grad_enabled()),
                    "linalg.qr: The derivative of linalg.qr depends on Q, which is not computed when mode='r'; use "
                    "mode='reduced', or no_grad()");
  return {zeros({0}, a.dtype()), qr_factors(a).second};
}
std::pair<Value, Value> qr(const Value& a, bool some) { return linalg_qr(a, some ? "reduced" : "complete"); }

std::pair<Value, Value> eigh_with(const char* where, const Value& a, const std::string& triangle) {
  SLUICE_CHECK_KIND(kRuntime, triangle == "L" || triangle == "U" || triangle == "l" || triangle == "u",
                    "{}: Expected UPLO argument to be 'L' or 'U', but got {}", where, triangle);
  check_square(a, where);
  return eigen_symmetric(a, triangle == "L" || triangle == "l" ? "lower" : "upper");
}
std::pair<Value, Value> eigh(const Value& a, const std::string& uplo) { return eigh_with("linalg.eigh", a, uplo); }
Value eigvalsh(const Value& a, const std::string& uplo) { return eigh_with("linalg.eigvalsh", a, uplo).first; }

using Driver = std::optional<std::string>;
Values svd_with(const Value& a, bool full, const Driver& driver) {
  SLUICE_CHECK_KIND(kRuntime, !driver,
                    "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER "
                    "backend: got '{}'; leave it out",
                    *driver);
  check_matrix(a, "linalg.svd");
  check_wide(a, "linalg.svd");
  return singular_values(a, full);
}
Values linalg_svd(const Value& a, bool full, const Driver& driver) { return svd_with(a, full, driver); }
Value svdvals(const Value& a, const Driver& driver) { return svd_with(a, false, driver)[1]; }
Values svd(const Value& a, bool some, bool compute_uv) {
  Values y = svd_with(a, !some, std::nullopt);
  y[2] = adjoint(y[2]);
  if (!compute_uv) y[0] = zeros_like(y[0]), y[2] = zeros_like(y[2]);
  return y;
}

std::pair<Value, Value> eig_with(const char* where, const Value& a) {
  check_square(a, where);
  return eigen_general(a);
}
std::pair<Value, Value> eig(const Value& a) { return eig_with("linalg.eig", a); }
Value eigvals(const Value& a) { return eig_with("linalg.eigvals", a).first; }

Value matrix_exponential(const Value& a) {
  check_square(a, "linalg.matrix_exp");
  return matrix_exp(a);
}

// --- lists ---

Form of(Overload made, const char* doc) { return {.doc = doc, .overloads = {std::move(made)}, .out = true}; }
Form without_out(Overload made, const char* doc) { return {.doc = doc, .overloads = {std::move(made)}}; }

std::vector<Form> system_forms() {
  return {
      of(overload("linalg.inv(Tensor A) -> Tensor", &inv),
         "Inverse of the matrices A (..., n, n); LinAlgError where one is singular. torch.linalg.inv."),
      {.doc = "Inverse of matrices (..., n, n). torch.inverse.",
       .overloads = {overload("inverse(Tensor input) -> Tensor", &inv)},
       .out = true},
      of(overload("linalg.inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)", &inv_ex),
         "Inverse, and per matrix the first column without a pivot, 0 where there is none. torch.linalg.inv_ex."),
      of(overload("linalg.solve(Tensor A, Tensor B, *, bool left=True) -> Tensor", &linalg_solve),
         "X with A X = B, or X A = B where not left; B may be a vector. torch.linalg.solve."),
      of(overload("linalg.solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, "
                  "Tensor info)",
                  &solve_ex),
         "As solve(), with a number per matrix, not 0 where it is singular. torch.linalg.solve_ex."),
      of(overload(
             "linalg.solve_triangular(Tensor input, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) "
             "-> Tensor",
             &solve_triangular),
         "X with A X = B of a triangle of A, or X A = B where not left. torch.linalg.solve_triangular."),
      of(overload("triangular_solve(Tensor input, Tensor A, bool upper=True, bool transpose=False, bool "
                  "unitriangular=False) -> (Tensor solution, Tensor cloned_coefficient)",
                  &triangular_solve),
         "X with A X = input of a triangle of A, and a copy of A. torch.triangular_solve."),
      of(overload("linalg.cholesky(Tensor input, *, bool upper=False) -> Tensor", &linalg_cholesky),
         "L with L L^H = A, or its adjoint, of Hermitian positive-definite A; LinAlgError otherwise. "
         "torch.linalg.cholesky."),
      of(overload("cholesky(Tensor input, bool upper=False) -> Tensor", &cholesky),
         "As linalg.cholesky(). torch.cholesky."),
      of(overload("linalg.cholesky_ex(Tensor input, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor "
                  "info)",
                  &cholesky_ex),
         "As cholesky(), with the order of the first leading minor that is not positive. torch.linalg.cholesky_ex."),
      of(overload("cholesky_solve(Tensor input, Tensor input2, bool upper=False) -> Tensor", &cholesky_solve),
         "X with A X = input, of A's Cholesky factor. torch.cholesky_solve."),
      of(overload("cholesky_inverse(Tensor input, bool upper=False) -> Tensor", &cholesky_inverse),
         "The inverse of A, of its Cholesky factor. torch.cholesky_inverse."),
      of(overload("linalg.lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)", &linalg_lu),
         "A = P L U. torch.linalg.lu."),
      of(overload("linalg.lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)", &lu_factor),
         "L and U of A = P L U in one matrix, and the exchanges of rows, from 1. torch.linalg.lu_factor."),
      of(overload("linalg.lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor "
                  "pivots, Tensor info)",
                  &lu_factor_ex),
         "As lu_factor(), with the first column without a pivot. torch.linalg.lu_factor_ex."),
      of(overload(
             "linalg.lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor",
             &linalg_lu_solve),
         "X with A X = B, X A = B or A^H X = B, of lu_factor(A). torch.linalg.lu_solve."),
      of(overload("lu_solve(Tensor input, Tensor LU_data, Tensor LU_pivots) -> Tensor", &lu_solve),
         "X with A X = input, of lu_factor(A). torch.lu_solve."),
      of(overload("linalg.ldl_factor(Tensor input, *, bool hermitian=False) -> (Tensor LD, Tensor pivots)",
                  &ldl_factor),
         "L and D of A = P L D L^T P^T in one matrix, of symmetric or Hermitian A, and the exchanges of rows, from 1; "
         "minus them of blocks of two. torch.linalg.ldl_factor."),
      of(overload("linalg.ldl_factor_ex(Tensor input, *, bool hermitian=False, bool check_errors=False) -> (Tensor LD, "
                  "Tensor pivots, Tensor info)",
                  &ldl_factor_ex),
         "As ldl_factor(), with the first block of D that is zero. torch.linalg.ldl_factor_ex."),
      of(overload("linalg.ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor",
                  &linalg_ldl_solve),
         "X with A X = B, of ldl_factor(A). torch.linalg.ldl_solve."),
      {.doc = "P, L and U of lu_factor(A). torch.lu_unpack.",
       .overloads = {overload("lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool "
                              "unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)",
                              &lu_unpack)},
       .method = false,
       .out = true},
  };
}

std::vector<Form> factorization_forms() {
  return {
      of(overload("linalg.det(Tensor A) -> Tensor", &det), "Determinants of matrices (..., n, n). torch.linalg.det."),
      without_out(overload("det(Tensor input) -> Tensor", &det), "Determinants of matrices (..., n, n). torch.det."),
      of(overload("linalg.slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)", &slogdet),
         "Sign and logarithm of the absolute value of determinants. torch.linalg.slogdet."),
      of(overload("slogdet(Tensor input) -> (Tensor sign, Tensor logabsdet)", &slogdet),
         "Sign and logarithm of the absolute value of determinants. torch.slogdet."),
      without_out(overload("logdet(Tensor input) -> Tensor", &logdet),
                  "Logarithm of determinants; NaN of negative ones. torch.logdet."),
      of(overload("linalg.qr(Tensor A, str mode=\"reduced\") -> (Tensor Q, Tensor R)", &linalg_qr),
         "Q R = A with orthonormal columns of Q and upper triangular R; 'reduced', 'complete' or 'r'. "
         "torch.linalg.qr."),
      of(overload("qr(Tensor input, bool some=True) -> (Tensor Q, Tensor R)", &qr), "As linalg.qr(). torch.qr."),
      of(overload("linalg.eigh(Tensor input, str UPLO=\"L\") -> (Tensor eigenvalues, Tensor eigenvectors)", &eigh),
         "Eigenvalues, ascending, and eigenvectors of symmetric or Hermitian matrices, of one triangle. "
         "torch.linalg.eigh."),
      of(overload("linalg.eigvalsh(Tensor input, str UPLO=\"L\") -> Tensor", &eigvalsh),
         "Eigenvalues of symmetric matrices, ascending. torch.linalg.eigvalsh."),
      of(overload("linalg.eig(Tensor input) -> (Tensor eigenvalues, Tensor eigenvectors)", &eig),
         "Complex eigenvalues, in no order, and eigenvectors of length 1. torch.linalg.eig."),
      of(overload("linalg.eigvals(Tensor input) -> Tensor", &eigvals),
         "Complex eigenvalues, in no order. torch.linalg.eigvals."),
      of(overload(
             "linalg.svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)",
             &linalg_svd),
         "U diag(S) Vh = A with singular values S, descending. torch.linalg.svd."),
      of(overload("svd(Tensor input, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)", &svd),
         "U diag(S) V^H = input. torch.svd."),
      of(overload("linalg.svdvals(Tensor A, *, str? driver=None) -> Tensor", &svdvals),
         "Singular values, descending. torch.linalg.svdvals."),
      {.doc = "The exponential series of matrices (..., n, n). torch.linalg.matrix_exp.",
       .overloads = {overload("matrix_exp(Tensor input) -> Tensor", &matrix_exponential)},
       .aliases = {"linalg.matrix_exp"}},
  };
}

}  // namespace

std::vector<Form> linalg_forms() {
  std::vector<Form> forms = system_forms();
  for (auto list : {factorization_forms(), matrix_forms()}) forms.insert(forms.end(), list.begin(), list.end());
  return forms;
}

}  // namespace sluice::ops
