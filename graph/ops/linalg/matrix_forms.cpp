// Torch's spelling of what is made of factorizations and products: pseudo-inverses, least squares, powers, chains.
#include <limits>
#include <numeric>

#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/forms.h"
#include "graph/ops/linalg.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/ops/strided_view.h"
#include "graph/tape.h"

namespace sluice::ops {
namespace {

using Tolerance = std::optional<Operand>;

// A singular value must exceed this to count: the larger of atol and rtol times the largest. Without rtol it is epsilon
// times the larger side, or nothing where atol is given and not 0.
Value threshold(const Value& largest, const Value& a, const Tolerance& atol, const Tolerance& rtol) {
  const DType dtype = to_real(a.dtype());
  const double epsilon = dtype == DType::kFloat64 ? std::numeric_limits<double>::epsilon()
                                                  : static_cast<double>(std::numeric_limits<float>::epsilon());
  const double usual = epsilon * static_cast<double>(std::max(a.shape()[a.rank() - 2], a.shape().back()));
  const Value absolute = (atol ? *atol : Operand(0.0)).to(dtype);
  const Value relative = rtol ? rtol->to(dtype) : where(gt(absolute, 0), 0.0, full({}, usual, dtype));
  return maximum(absolute, mul(relative, largest));
}

// Singular values, or the absolute eigenvalues of a symmetric matrix: (..., k), in any order.
Value magnitudes(const Value& a, bool hermitian) {
  return hermitian ? abs(eigen_symmetric(a, "lower").first) : singular_values(a, false)[1];
}
Value largest_of(const Value& s) { return s.shape().back() == 0 ? sum(s, Ints{-1}) : amax(s, Ints{-1}); }

Value rank_of(const Value& a, const Tolerance& atol, const Tolerance& rtol, bool hermitian) {
  check_matrix(a, "torch.linalg.matrix_rank", "input");
  check_wide(a, "torch.linalg.matrix_rank");
  if (hermitian) check_square(a, "torch.linalg.matrix_rank");
  const GradMode no_grad(false);
  const Value s = magnitudes(a, hermitian);
  return sum(gt(s, unsqueeze(threshold(largest_of(s), a, atol, rtol), -1)), Ints{-1});
}
Value rank_within(const Value& a, const Operand& tol, bool hermitian) { return rank_of(a, tol, 0.0, hermitian); }

Value pseudo_inverse_of(const Value& a, const Tolerance& atol, const Tolerance& rtol, bool hermitian) {
  Value u, s, vh, size;
  if (hermitian) {
    std::tie(s, u) = eigen_symmetric(a, "lower");
    vh = adjoint(u);
  } else {
    const Values usv = singular_values(a, false);
    u = usv[0], s = usv[1], vh = usv[2];
  }
  size = abs(s);
  const Value counts = gt(size, unsqueeze(threshold(largest_of(size), a, atol, rtol), -1));
  const Value inverses = where(counts, reciprocal(where(counts, s, 1.0)), 0.0);
  return matmul(mul(adjoint(vh), unsqueeze(inverses, -2)), conjugate(u), false, true);
}

// Golub and Pereyra (1973): the adjoint of the derivative of the pseudo-inverse where the rank does not change.
Value pseudo_inverse(const Value& a, const Tolerance& atol, const Tolerance& rtol, bool hermitian) {
  const char* where = "linalg.pinv";
  check_matrix(a, where);
  check_wide(a, where);
  if (hermitian) check_square(a, where);
  if (numel(a.shape()) == 0) return copy(adjoint(a));
  Value y;
  {
    const GradMode no_grad(false);
    y = pseudo_inverse_of(a, atol, rtol, hermitian);
  }
  record_function("pinv", {&a, 1}, {&y, 1},
                  [=, saved = SavedValue(a), edge = gradient_edge(a)](std::span<const Value> grads) {
                    const Value x = saved.get("pinv", edge), p = pseudo_inverse(x, atol, rtol, hermitian);
                    const Value pt = adjoint(p), gt = adjoint(grads[0]);
                    const Value inner = neg(matmul(matmul(pt, grads[0]), pt));
                    const Value left = matmul(matmul(gt, p), pt), right = matmul(matmul(pt, p), gt);
                    const Value of_left = sub(left, matmul(x, matmul(p, left)));
                    const Value of_right = sub(right, matmul(matmul(right, p), x));
                    return Values{add(inner, add(of_left, of_right))};
                  });
  return y;
}
Value pinv(const Value& a, const Tolerance& atol, const Tolerance& rtol, bool hermitian) {
  return pseudo_inverse(a, atol, rtol, hermitian);
}
Value pinv_within(const Value& a, const Operand& rcond, bool hermitian) {
  return pseudo_inverse(a, 0.0, rcond, hermitian);
}
Value pinverse(const Value& a, double rcond) { return pseudo_inverse(a, 0.0, rcond, false); }

Values lstsq(const Value& a, const Value& b, const std::optional<double>& rcond,
             const std::optional<std::string>& given) {
  const char* where = "torch.linalg.lstsq";
  const std::string driver = given.value_or("gelsy");
  SLUICE_CHECK_KIND(kRuntime, driver == "gels" || driver == "gelsy" || driver == "gelsd" || driver == "gelss",
                    "{}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss): got '{}'", where, driver);
  check_matrix(a, where, "input");
  check_wide(a, where);
  SLUICE_CHECK_KIND(kRuntime, b.rank() >= 1, "{}: other must have at least 1 dimension: got {}", where,
                    b.shape().str());
  SLUICE_CHECK_KIND(kRuntime, a.dtype() == b.dtype(), "{}: input.dtype ({}) and other.dtype ({}) are not the same",
                    where, dtype_name(a.dtype()), dtype_name(b.dtype()));
  Shape vectors = a.shape();
  vectors.erase(vectors.rank() - 1);
  const bool vector = b.rank() == a.rank() - 1 && b.shape() == vectors;
  const Value rhs = vector ? unsqueeze(b, -1) : b;
  const int64_t m = a.shape()[a.rank() - 2], n = a.shape().back();
  SLUICE_CHECK_KIND(kRuntime, rhs.rank() >= 2 && rhs.shape()[rhs.rank() - 2] == m,
                    "{}: input.size(-2) should match other.size({}): input is {}, other is {}", where,
                    vector ? "-1" : "-2", a.shape().str(), b.shape().str());
  const Value nothing = zeros({0}, to_real(a.dtype()));
  const Value x = matmul(pseudo_inverse(a, 0.0, rcond ? Tolerance(*rcond) : Tolerance(), false), rhs);
  Values out = {vector ? squeeze(x, Ints{-1}) : x, narrow(flatten(abs(x)), 0, 0, 0), zeros({0}, DType::kInt64),
                nothing};
  if (m > n && driver != "gelsy") {
    const Value residual = sub(rhs, matmul(a, x));
    out[1] = sum(square(abs(residual)), Ints{-2});
  }
  if (driver != "gels") out[2] = rank_of(a, 0.0, rcond ? Tolerance(*rcond) : Tolerance(), false);
  if (driver == "gelsd" || driver == "gelss") out[3] = singular_values(a, false)[1];
  return out;
}

Value matrix_power(const Value& a, int64_t n) {
  check_matrix(a, "linalg.matrix_power");
  check_square(a, "linalg.matrix_power");
  if (n == 0) return where(full(a.shape(), 1, DType::kBool), identity_like(a, a.shape().back()), a);  // gradient: 0
  Value power = n < 0 ? inverse(a) : a, y;
  for (auto left = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);; power = matmul(power, power)) {
    if (left & 1) y = y.defined() ? matmul(y, power) : power;
    if ((left >>= 1) == 0) break;
  }
  return y.ptr() == a.ptr() ? copy(y) : y;
}

// The cheapest order of a chain of products, by the usual recursion over its parts (Godbole, 1973).
Value chain(const Values& matrices) {
  const size_t count = matrices.size();
  std::vector<double> sizes = {static_cast<double>(matrices[0].shape()[0])};
  for (const Value& m : matrices) sizes.push_back(static_cast<double>(m.shape()[1]));
  std::vector<std::vector<double>> cost(count, std::vector<double>(count, 0));
  std::vector<std::vector<size_t>> cut(count, std::vector<size_t>(count, 0));
  for (size_t length = 1; length < count; ++length) {
    for (size_t i = 0; i + length < count; ++i) {
      const size_t j = i + length;
      cost[i][j] = std::numeric_limits<double>::infinity();
      for (size_t k = i; k < j; ++k) {
        const double all = cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1];
        if (all < cost[i][j]) cost[i][j] = all, cut[i][j] = k;
      }
    }
  }
  const std::function<Value(size_t, size_t)> product = [&](size_t i, size_t j) {
    return i == j ? matrices[i] : matmul(product(i, cut[i][j]), product(cut[i][j] + 1, j));
  };
  return product(0, count - 1);
}

Value multi_dot(const Values& given) {
  SLUICE_CHECK_KIND(kRuntime, given.size() >= 2, "multi_dot(): expected at least 2 tensors but got {}", given.size());
  Values matrices = given;
  const bool row = given.front().rank() == 1, column = given.back().rank() == 1;
  if (row) matrices.front() = unsqueeze(given.front(), 0);
  if (column) matrices.back() = unsqueeze(given.back(), 1);
  for (size_t i = 0; i < given.size(); ++i) {
    const char* what = i == 0 || i + 1 == given.size() ? "1D or 2D" : "2D";
    SLUICE_CHECK_KIND(kRuntime, matrices[i].rank() == 2, "multi_dot(): tensor {} must be {} but got {}D", i, what,
                      given[i].rank());
    SLUICE_CHECK_KIND(kRuntime, given[i].dtype() == given[0].dtype(),
                      "multi_dot(): all tensors must have be the same dtype: tensor 0 is {}, tensor {} is {}",
                      dtype_name(given[0].dtype()), i, dtype_name(given[i].dtype()));
    SLUICE_CHECK_KIND(kRuntime, i == 0 || matrices[i - 1].shape()[1] == matrices[i].shape()[0],
                      "multi_dot(): tensors {} and {} with shapes {} and {} cannot be multiplied", i - 1, i,
                      given[i == 0 ? 0 : i - 1].shape().str(), given[i].shape().str());
  }
  Value y = chain(matrices);
  if (row) y = squeeze(y, Ints{0});
  return column ? squeeze(y, Ints{-1}) : y;
}

Value vecdot(const Value& x, const Value& y, int64_t dim) {
  SLUICE_CHECK_KIND(kRuntime, x.dtype() == y.dtype(),
                    "linalg.vecdot: Expected x and y to have the same dtype, but found x of type {} and y of type {} "
                    "instead",
                    dtype_name(x.dtype()), dtype_name(y.dtype()));
  return cast(sum(mul(conjugate(x), y), Ints{dim}), x.dtype());
}

Value vander(const Value& x, const std::optional<int64_t>& columns) {
  if (x.rank() == 0) return vander(reshape(x, {1}), columns.value_or(1));
  const int64_t n = columns.value_or(x.shape().back());
  SLUICE_CHECK_KIND(kRuntime, n > 1, "linalg.vander: N must be greater than 1: got {}", n);
  const Value base = is_floating(x.dtype()) || is_complex(x.dtype()) ? x : cast(x, DType::kInt64);
  const Value one = ones_like(unsqueeze(base, -1));
  Values powers = {one};
  for (int64_t i = 1; i < n; ++i) powers.push_back(mul(powers.back(), unsqueeze(base, -1)));
  return concat(powers, -1);
}

int64_t product_of(const Ints& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

Value tensorinv(const Value& a, int64_t ind) {
  SLUICE_CHECK_KIND(kRuntime, ind > 0, "linalg.tensorinv: Expected a strictly positive integer for 'ind': got {}", ind);
  SLUICE_CHECK_KIND(kRuntime, ind <= a.rank(), "linalg.tensorinv: ind is {}; must be at most the number of dims, {}",
                    ind, a.rank());
  const Ints shape = a.shape().vec();
  const Ints first(shape.begin(), shape.begin() + ind), last(shape.begin() + ind, shape.end());
  SLUICE_CHECK_KIND(kRuntime, product_of(first) == product_of(last),
                    "linalg.tensorinv: Expected self to satisfy the requirement prod(self.shape[ind:]) == "
                    "prod(self.shape[:ind]), but got {} != {}",
                    product_of(last), product_of(first));
  Ints turned = last;
  turned.insert(turned.end(), first.begin(), first.end());
  return reshape(inverse(reshape(a, {product_of(first), product_of(last)}), "linalg.inv"), turned);
}

Value tensorsolve(const Value& a, const Value& b, const std::optional<Ints>& dims) {
  Value lhs = a;
  if (dims) {
    Ints order, moved;
    for (int64_t d : *dims) moved.push_back(normalize_axis(d, a.rank(), "linalg.tensorsolve"));
    for (int i = 0; i < a.rank(); ++i)
      if (std::find(moved.begin(), moved.end(), i) == moved.end()) order.push_back(i);
    order.insert(order.end(), moved.begin(), moved.end());
    lhs = permute(a, order);
  }
  const Ints shape = lhs.shape().vec();
  const int64_t rank = std::min<int64_t>(b.rank(), static_cast<int64_t>(shape.size()));
  const Ints first(shape.begin(), shape.begin() + rank), last(shape.begin() + rank, shape.end());
  SLUICE_CHECK_KIND(kRuntime, product_of(first) == product_of(last) && product_of(first) == numel(b.shape()),
                    "linalg.tensorsolve: Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
                    "prod(self.shape[:other.ndim]), but got {} != {}",
                    product_of(last), product_of(first));
  return reshape(solve(reshape(lhs, {product_of(first), product_of(last)}), reshape(b, {-1})), last);
}

// Q = H_1 ... H_k with H_i = I - tau_i v_i v_i^H; v_i is column i from its diagonal down, with 1 there.
Value householder_product(const Value& a, const Value& tau) {
  const char* where = "torch.linalg.householder_product";
  check_matrix(a, where, "input");
  check_wide(a, where);
  const int64_t m = a.shape()[a.rank() - 2], n = a.shape().back();
  SLUICE_CHECK_KIND(kRuntime, m >= n, "{}: input.shape[-2] must be greater than or equal to input.shape[-1]: got {}",
                    where, a.shape().str());
  SLUICE_CHECK_KIND(
      kRuntime, tau.rank() == a.rank() - 1 && tau.shape().back() <= n && tau.dtype() == a.dtype(),
      "{}: input.shape[-1] must be greater than or equal to tau.shape[-1], of one dtype and batch: input is "
      "{}, tau is {}",
      where, a.type().str(), tau.type().str());
  const Value v = add(tril(a, -1), eye(m, n, a.dtype()));
  Value q = with_batch(eye(m, n, a.dtype()), batch_shape(a));
  for (int64_t i = tau.shape().back(); i-- > 0;) {
    const Value column = narrow(v, -1, i, 1), t = unsqueeze(narrow(tau, -1, i, 1), -1);
    q = sub(q, matmul(mul(column, t), matmul(conjugate(column), q, true)));
  }
  if (tau.shape().back() > 0) return q;
  // The product of no reflections is a function of both all the same: it has a history.
  return add(q, matmul(mul(narrow(v, -1, 0, 0), unsqueeze(tau, -2)), narrow(v, -2, 0, 0)));
}

Form of(std::vector<Overload> overloads, const char* doc) {
  return {.doc = doc, .overloads = std::move(overloads), .out = true};
}

}  // namespace

std::vector<Form> matrix_forms() {
  return {
      of({overload(
              "linalg.pinv(Tensor input, *, Operand? atol=None, Operand? rtol=None, bool hermitian=False) -> Tensor",
              &pinv),
          overload("linalg.pinv(Tensor input, Operand rcond, bool hermitian=False) -> Tensor", &pinv_within)},
         "Moore and Penrose's pseudo-inverse of matrices (..., m, n). torch.linalg.pinv."),
      {.doc = "Pseudo-inverse of matrices (..., m, n). torch.pinverse.",
       .overloads = {overload("pinverse(Tensor input, float rcond=1e-15) -> Tensor", &pinverse)}},
      of({overload(
              "linalg.matrix_rank(Tensor input, *, Operand? atol=None, Operand? rtol=None, bool hermitian=False) -> "
              "Tensor",
              &rank_of),
          overload("linalg.matrix_rank(Tensor input, Operand tol, bool hermitian=False) -> Tensor", &rank_within)},
         "How many singular values exceed max(atol, rtol * the largest), int64. torch.linalg.matrix_rank."),
      of({overload(
             "linalg.lstsq(Tensor input, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor solution, Tensor "
             "residuals, Tensor rank, Tensor singular_values)",
             &lstsq)},
         "X of the least norm that minimizes |A X - B|. torch.linalg.lstsq."),
      of({overload("linalg.matrix_power(Tensor input, int n) -> Tensor", &matrix_power)},
         "The product of n matrices A, of their inverses where n < 0. torch.linalg.matrix_power."),
      of({overload("matrix_power(Tensor input, int n) -> Tensor", &matrix_power)},
         "The product of n matrices. torch.matrix_power."),
      of({overload("linalg.multi_dot(Tensor[] tensors) -> Tensor", &multi_dot)},
         "Product of two or more matrices in the cheapest order; the outer ones may be vectors. "
         "torch.linalg.multi_dot."),
      of({overload(
             "linalg.matmul(Tensor input, Tensor other) -> Tensor",
             +[](const Value& a, const Value& b) { return matmul(a, b); })},
         "Matrix product; batch dims broadcast. torch.linalg.matmul."),
      of({overload("linalg.vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor", &vecdot)},
         "Sums of the products along `dim`, broadcast. torch.linalg.vecdot."),
      of({overload("linalg.cross(Tensor input, Tensor other, *, int dim=-1) -> Tensor", &cross_product)},
         "Cross products of the vectors of 3 along `dim`, broadcast. torch.linalg.cross."),
      {.doc = "The powers 0 to N - 1 of each element, along a new last dim. torch.linalg.vander.",
       .overloads = {overload("linalg.vander(Tensor x, *, int? N=None) -> Tensor", &vander)}},
      {.doc = "A diagonal of the matrices in two dims, as the last dim. torch.linalg.diagonal.",
       .overloads = {overload("linalg.diagonal(Tensor A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor",
                              &diagonal)},
       .sharing = Sharing::kView},
      of({overload("linalg.tensorinv(Tensor input, int ind=2) -> Tensor", &tensorinv)},
         "Inverse of A as a matrix of its first `ind` dims by the others. torch.linalg.tensorinv."),
      of({overload("linalg.tensorsolve(Tensor input, Tensor other, int[]? dims=None) -> Tensor", &tensorsolve)},
         "X with tensordot(A, X) = B. torch.linalg.tensorsolve."),
      of({overload("linalg.householder_product(Tensor input, Tensor tau) -> Tensor", &householder_product)},
         "The first n columns of the product of Householder reflections. torch.linalg.householder_product."),
      of({overload("orgqr(Tensor input, Tensor input2) -> Tensor", &householder_product)},
         "As linalg.householder_product(). torch.orgqr."),
  };
}

}  // namespace sluice::ops
