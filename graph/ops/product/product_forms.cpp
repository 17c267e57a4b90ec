// Torch's spelling of products of several tensors: einsum, batches of matrices, outer products.
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/einsum.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/linalg.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

void check_dims(const char* name, const char* what, const Value& x, int rank) {
  SLUICE_CHECK_KIND(kRuntime, x.rank() == rank, "{}: {} must be a {}D tensor: got shape {}", name, what, rank,
                    x.shape().str());
}

void check_same(const char* name, const Value& a, const Value& b) {
  SLUICE_CHECK_KIND(kRuntime, a.dtype() == b.dtype(),
                    "{}: expected both vectors to have same dtype, but found {} and {}", name, dtype_name(a.dtype()),
                    dtype_name(b.dtype()));
}

Value batch_product(const char* name, const Value& a, const Value& b) {
  check_dims(name, "batch1", a, 3);
  check_dims(name, "batch2", b, 3);
  SLUICE_CHECK_KIND(kRuntime, a.shape()[0] == b.shape()[0] && a.shape()[2] == b.shape()[1],
                    "{}: Expected size for first two dimensions of batch2 tensor to be: [{}, {}] but got: [{}, {}].",
                    name, a.shape()[0], a.shape()[2], b.shape()[0], b.shape()[1]);
  return matmul(a, b);
}

using Scaled = Value (*)(const Value&, const Value&, const Value&, const Operand&, const Operand&);

Value baddbmm(const Value& x, const Value& a, const Value& b, const Operand& beta, const Operand& alpha) {
  return add_product("baddbmm", x, a, b, batch_product("baddbmm", a, b), beta, alpha);
}
Value addbmm(const Value& x, const Value& a, const Value& b, const Operand& beta, const Operand& alpha) {
  const Value products = batch_product("addbmm", a, b);
  return add_product("addbmm", x, a, b, cast(sum(products, Ints{0}), products.dtype()), beta, alpha);
}
Value addmv(const Value& x, const Value& a, const Value& b, const Operand& beta, const Operand& alpha) {
  check_dims("addmv", "mat", a, 2);
  check_dims("addmv", "vec", b, 1);
  SLUICE_CHECK_KIND(kRuntime, a.shape()[1] == b.shape()[0], "addmv: size mismatch, got mat {} and vec {}",
                    a.shape().str(), b.shape().str());
  // As torch, which looks at alpha only where there is something to multiply.
  return add_scaled("addmv", x, matmul(a, b), beta, numel(a.shape()) == 0 ? Operand(1) : alpha);
}
Value addr(const Value& x, const Value& a, const Value& b, const Operand& beta, const Operand& alpha) {
  check_dims("addr", "vec1", a, 1);
  check_dims("addr", "vec2", b, 1);
  return add_scaled("addr", x, mul(unsqueeze(a, 1), b), beta, alpha);
}

Value inner(const Value& a, const Value& b) {
  check_same("inner", a, b);
  if (a.rank() == 0 || b.rank() == 0) return mul(a, b);
  SLUICE_CHECK_KIND(kRuntime, a.shape().back() == b.shape().back(),
                    "inner: the last dimension must match on both input tensors but got shapes {} and {}",
                    a.shape().str(), b.shape().str());
  const int64_t n = a.shape().back();
  Ints shape = a.shape().vec(), columns = b.shape().vec();
  shape.pop_back(), columns.pop_back();
  const int64_t rows = numel(Shape(shape));
  shape.insert(shape.end(), columns.begin(), columns.end());
  const Value products = matmul(reshape(a, {rows, n}), transpose(reshape(b, {numel(Shape(columns)), n}), 0, 1));
  return reshape(products, shape);
}

Value vdot(const Value& first, const Value& b) {
  const Value a = conjugate(first);
  check_dims("vdot", "both", a, 1);
  check_dims("vdot", "both", b, 1);
  check_same("vdot", a, b);
  SLUICE_CHECK_KIND(kRuntime, a.shape() == b.shape(),
                    "vdot: inconsistent tensor size, expected equal lengths: {} and {}", a.shape()[0], b.shape()[0]);
  return cast(sum(mul(a, b)), a.dtype());
}

Value ger(const Value& a, const Value& b) {
  check_dims("ger", "input", a, 1);
  check_dims("ger", "vec2", b, 1);
  return mul(unsqueeze(a, 1), b);
}

// Every element of a times all of b.
Value kron(const Value& a, const Value& b) {
  const int rank = std::max(a.rank(), b.rank());
  Ints of_a, of_b, shape;
  for (int i = 0; i < rank; ++i) {
    const int at_a = i - (rank - a.rank()), at_b = i - (rank - b.rank());
    const int64_t m = at_a < 0 ? 1 : a.shape()[at_a], n = at_b < 0 ? 1 : b.shape()[at_b];
    of_a.insert(of_a.end(), {m, 1});
    of_b.insert(of_b.end(), {1, n});
    shape.push_back(m * n);
  }
  return reshape(mul(reshape(a, of_a), reshape(b, of_b)), shape);
}

Value chain_matmul(const std::vector<Value>& matrices) {
  SLUICE_CHECK_KIND(kRuntime, !matrices.empty(), "chain_matmul: expecting at least 1 matrix: got none");
  Value product = matrices[0];
  for (const Value& m : matrices) check_dims("chain_matmul", "every tensor", m, 2);
  // From the end where the result is narrow.
  const bool from_end = matrices.back().shape()[1] < matrices[0].shape()[0];
  if (from_end) {
    product = matrices.back();
    for (size_t i = matrices.size() - 1; i-- > 0;) product = matmul(matrices[i], product);
  } else {
    for (size_t i = 1; i < matrices.size(); ++i) product = matmul(product, matrices[i]);
  }
  return product;
}

// Without a dim along the input's first one of size 3.
Value cross(const Value& a, const Value& b, const std::optional<int64_t>& dim) {
  int axis = 0;
  while (!dim && axis < a.rank() && a.shape()[axis] != 3) ++axis;
  SLUICE_CHECK_KIND(kRuntime, dim || axis < a.rank(),
                    "cross: no dimension of size 3 in input: shape {}; there must be one", a.shape().str());
  return cross_product(a, b, dim.value_or(axis));
}

Form scaled_form(const char* name, const char* first, const char* second, const char* doc, Scaled f) {
  const std::string signature = std::string(name) + "(Tensor input, Tensor " + first + ", Tensor " + second +
                                ", *, Scalar beta=1, Scalar alpha=1) -> Tensor";
  return {.doc = doc, .overloads = {overload(signature, f)}, .in_place = true, .out = true};
}

Form of_two(const char* name, const char* second, const char* doc, Value (*f)(const Value&, const Value&)) {
  const std::string signature = std::string(name) + "(Tensor input, Tensor " + second + ") -> Tensor";
  return {.doc = doc, .overloads = {overload(signature, f)}, .out = true};
}

}  // namespace

std::vector<Form> product_forms() {
  return {
      scaled_form("baddbmm", "batch1", "batch2", "beta * input + alpha * batch1 @ batch2. torch.baddbmm.", &baddbmm),
      scaled_form("addbmm", "batch1", "batch2",
                  "beta * input + alpha * the sum of batch1 @ batch2 over the batch. torch.addbmm.", &addbmm),
      scaled_form("addmv", "mat", "vec", "beta * input + alpha * mat @ vec. torch.addmv.", &addmv),
      scaled_form("addr", "vec1", "vec2", "beta * input + alpha * all products of two vectors. torch.addr.", &addr),
      of_two("inner", "other", "Sums of products over the last dims of both. torch.inner.", &inner),
      of_two("vdot", "other",
             "Sum of the products of two vectors; of complex ones, of the conjugate of the first. torch.vdot.", &vdot),
      of_two("ger", "vec2", "Products of all pairs of two vectors. torch.ger.", &ger),
      of_two("kron", "other", "Kronecker product: all of other, times each element of input. torch.kron.", &kron),
      {.doc = "Product of a chain of matrices. torch.chain_matmul.",
       .overloads = {overload("chain_matmul(Tensor... matrices) -> Tensor", &chain_matmul)},
       .method = false,
       .out = true},
      {.doc = "Cross product along a dim of size 3; none: the first such one. torch.cross.",
       .overloads = {overload("cross(Tensor input, Tensor other, int? dim=None) -> Tensor", &cross)},
       .out = true},
      {.doc = "Sum of products by an equation such as 'ij,jk->ik': diagonals of repeated labels, '...' for further "
              "dims. torch.einsum.",
       .overloads = {overload("einsum(str equation, Tensor... operands) -> Tensor", &einsum)},
       .method = false,
       .sharing = Sharing::kView},
  };
}

}  // namespace sluice::ops
