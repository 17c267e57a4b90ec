// Helpers that functions of linear algebra share: checks as torch's, batches, systems, determinants.
#include <numeric>

#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/indexing.h"
#include "graph/ops/linalg.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/tape.h"

namespace sluice::ops {
namespace {

// 1 for an even number of exchanges of rows, else -1, in the dtype of `like`.
Value parity(const Value& pivots, const Value& like) {
  const Value exchanged = ne(pivots, iota(1, 1, pivots.shape().back(), DType::kInt32));
  const Value odd = remainder(sum(exchanged, Ints{-1}), 2);
  return cast(sub(1, mul(odd, 2)), like.dtype());
}

// The transposed adjugate det(A) A^-T. A pivot of 0 is taken to be tiny, which only a matrix of rank n - 2 or less
// could tell.
Value cofactors(const Value& a) {
  const std::vector<Value> lu = lu_factors(a, "");
  const int64_t n = a.shape().back();
  const double tiny = to_real(a.dtype()) == DType::kFloat64 ? 2.2e-16 : 1.2e-7;
  const Value zero = logical_and(eye(n, -1, DType::kBool), eq(lu[0], 0));
  const Value factors = where(zero, tiny, lu[0]);
  const Value det = mul(parity(lu[1], a), prod(diagonal_of(factors), Ints{-1}));
  // A = P L U: A^-T = P L^-T U^-T, whose rows P moves.
  Value x = solve_triangular_system(factors, with_batch(eye(n, -1, a.dtype()), batch_shape(a)), true, true);
  x = solve_triangular_system(factors, x, false, true, true);
  const Value order = expand(unsqueeze(permutation_of(lu[1], n), -1), x.shape());
  return mul(scatter(zeros_like(x), order, x, -2), unsqueeze(unsqueeze(det, -1), -1));
}

}  // namespace

void check_matrix(const Value& a, const char* where, const char* name) {
  SLUICE_CHECK_KIND(kRuntime, a.rank() >= 2, "{}: The input tensor {} must have at least 2 dimensions: got shape {}",
                    where, name, a.shape().str());
  SLUICE_CHECK_KIND(kRuntime, is_differentiable(a.dtype()),
                    "{}: Expected a floating point or complex tensor as input. Got {}; cast it to float32 or float64",
                    where, dtype_name(a.dtype()));
}

void check_wide(const Value& a, const char* where) {
  SLUICE_CHECK_KIND(kUnsupported, dtype_size(a.dtype()) >= 4,
                    "{}: Low precision dtypes not supported. Got {}, for which it is not implemented; cast it to "
                    "float32",
                    where, dtype_name(a.dtype()));
}

void check_square(const Value& a, const char* where, const char* name) {
  check_matrix(a, where, name);
  const int64_t m = a.shape()[a.rank() - 2], n = a.shape().back();
  SLUICE_CHECK_KIND(kRuntime, m == n, "{}: {} must be batches of square matrices, but they are {} by {} matrices",
                    where, name, m, n);
  check_wide(a, where);
}

Value transposed(const Value& a) { return transpose(a, -2, -1); }
Value adjoint(const Value& a) { return conjugate(transposed(a)); }
Value half_diagonal(const Value& a) { return mul(add(tril(a), tril(a, -1)), 0.5); }

Shape batch_shape(const Value& a) {
  Shape batch;
  for (int i = 0; i + 2 < a.rank(); ++i) batch.push_back(a.shape()[i]);
  return batch;
}

Value with_batch(const Value& a, const Shape& batch) {
  Shape shape = batch;
  shape.push_back(a.shape()[a.rank() - 2]);
  shape.push_back(a.shape().back());
  return a.shape() == shape ? a : expand(a, shape);
}

Value identity_like(const Value& a, int64_t n) { return with_batch(eye(n, -1, a.dtype()), batch_shape(a)); }

Value diagonal_of(const Value& a, int64_t offset, int64_t dim1, int64_t dim2) {
  const int first = normalize_axis(dim1, a.rank(), "diagonal"), second = normalize_axis(dim2, a.rank(), "diagonal");
  SLUICE_CHECK_KIND(kRuntime, first != second, "diagonal: diagonal dimensions cannot be identical {}, {}", dim1, dim2);
  Ints order;
  for (int i = 0; i < a.rank(); ++i)
    if (i != first && i != second) order.push_back(i);
  order.push_back(first);
  order.push_back(second);
  const int64_t m = a.shape()[first], n = a.shape()[second];
  Ints flat = batch_shape(permute(a, order)).vec();
  flat.push_back(m * n);
  const int64_t length = std::max<int64_t>(offset >= 0 ? std::min(m, n - offset) : std::min(m + offset, n), 0);
  const int64_t start = length == 0 ? 0 : offset >= 0 ? offset : -offset * n;
  const int64_t stop = length == 0 ? 0 : start + (length - 1) * (n + 1) + 1;
  return slice_axis(reshape(permute(a, order), flat), -1, start, stop, n + 1);
}

Value solve(const Value& a, const Value& b, bool left, const std::string& caller) {
  const char* where = "linalg.solve";
  check_square(a, where);
  SLUICE_CHECK_KIND(kRuntime, a.dtype() == b.dtype(),
                    "{}: Expected A and B to have the same dtype, but found A of type {} and B of type {} instead",
                    where, dtype_name(a.dtype()), dtype_name(b.dtype()));
  Shape vectors = a.shape();
  vectors.erase(vectors.rank() - 1);
  const bool vector = b.rank() == 1 || (b.rank() == a.rank() - 1 && b.shape() == vectors);
  SLUICE_CHECK_KIND(kRuntime, vector || b.rank() >= 2, "{}: B has no dims; it must have 1 or more", where);
  SLUICE_CHECK_KIND(kRuntime, left || !vector,
                    "{}: Vector broadcasting of the left hand side is not supported for left=False", where);
  Value rhs = vector ? unsqueeze(b, -1) : b;
  if (!left) rhs = transposed(rhs);
  const int64_t n = a.shape().back();
  SLUICE_CHECK_KIND(kRuntime, rhs.shape()[rhs.rank() - 2] == n,
                    "{}: Incompatible shapes of A and B for the equation {} ({}x{} and {}x{})", where,
                    left ? "AX = B" : "XA = B", n, n, b.shape()[vector ? b.rank() - 1 : b.rank() - 2],
                    vector ? 1 : b.shape().back());
  const Shape batch = broadcast_shapes(batch_shape(a), batch_shape(rhs), where);
  const Value lhs = left ? a : transposed(a);
  const Value x = solve_system(with_batch(lhs, batch), with_batch(rhs, batch), caller).first;
  if (vector) return squeeze(x, Ints{-1});
  return left ? x : transposed(x);
}

Value inverse(const Value& a, const std::string& caller) {
  check_square(a, "linalg.inv");
  return solve_system(a, identity_like(a, a.shape().back()), caller).first;
}

Value determinant(const Value& a, const char* where) {
  check_square(a, where);
  Value y;
  {
    const GradMode no_grad(false);
    const std::vector<Value> lu = lu_factors(a, "");
    y = mul(parity(lu[1], a), prod(diagonal_of(lu[0]), Ints{-1}));
  }
  record_function("det", {&a, 1}, {&y, 1},
                  [saved = SavedValue(a), edge = gradient_edge(a)](std::span<const Value> grads) {
                    const Value g = unsqueeze(unsqueeze(grads[0], -1), -1);
                    return std::vector<Value>{mul(conjugate(cofactors(saved.get("det", edge))), g)};
                  });
  return y;
}

std::pair<Value, Value> sign_and_logdet(const Value& a, const char* where) {
  check_square(a, where);
  const std::vector<Value> lu = lu_factors(a, "");
  const Value pivots = diagonal_of(lu[0]);
  Value signs;
  {
    const GradMode mode(grad_enabled() && is_complex(a.dtype()));  // that of a real one is constant
    signs = mul(parity(lu[1], a), prod(is_complex(a.dtype()) ? sgn(pivots) : sign(pivots), Ints{-1}));
  }
  return {signs, sum(log(abs(pivots)), Ints{-1})};
}

Value cross_product(const Value& a, const Value& b, int64_t dim) {
  SLUICE_CHECK_KIND(kRuntime, a.rank() == b.rank(),
                    "linalg.cross: inputs must have the same number of dimensions: got {} and {}", a.shape().str(),
                    b.shape().str());
  SLUICE_CHECK_KIND(kRuntime, a.rank() > 0, "linalg.cross: inputs dimension {} must have length 3: got no dims", dim);
  const int axis = normalize_axis(dim, a.rank(), "linalg.cross");
  SLUICE_CHECK_KIND(kRuntime, a.shape()[axis] == 3 && b.shape()[axis] == 3,
                    "linalg.cross: inputs dimension {} must have length 3. Got {} and {}", dim, a.shape()[axis],
                    b.shape()[axis]);
  SLUICE_CHECK_KIND(kUnsupported, a.dtype() != DType::kBool && b.dtype() != DType::kBool,
                    "linalg.cross: not implemented for bool; cast to numbers");
  const auto ahead = [&](const Value& x, int64_t by) { return roll(x, {-by}, {axis}); };
  return sub(mul(ahead(a, 1), ahead(b, 2)), mul(ahead(a, 2), ahead(b, 1)));
}

}  // namespace sluice::ops
