// Torch's spelling of matrix products.
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

void check_ranks(const char* name, const Value& a, int rank_a, const Value& b, int rank_b) {
  SLUICE_CHECK_KIND(kRuntime, a.rank() == rank_a && b.rank() == rank_b,
                    "{}: operands must have {} and {} dims: got shapes {} and {}", name, rank_a, rank_b,
                    a.shape().str(), b.shape().str());
}

Value mm(const Value& a, const Value& b) {
  check_ranks("mm", a, 2, b, 2);
  return matmul(a, b);
}

Value bmm(const Value& a, const Value& b) {
  check_ranks("bmm", a, 3, b, 3);
  return matmul(a, b);
}

Value mv(const Value& a, const Value& b) {
  check_ranks("mv", a, 2, b, 1);
  return matmul(a, b);
}

Value dot(const Value& a, const Value& b) {
  check_ranks("dot", a, 1, b, 1);
  SLUICE_CHECK_KIND(kRuntime, a.shape() == b.shape(),
                    "dot: inconsistent tensor size, expected tensors of the same number of elements, but got {} and {}",
                    a.shape()[0], b.shape()[0]);
  const Value products = mul(a, b);
  return cast(sum(products), products.dtype());
}

Value outer(const Value& a, const Value& b) {
  check_ranks("outer", a, 1, b, 1);
  return mul(unsqueeze(a, 1), unsqueeze(b, 0));
}

Value addmm(const Value& input, const Value& a, const Value& b, const Operand& beta, const Operand& alpha) {
  return add_product("addmm", input, a, b, mm(a, b), beta, alpha);
}

Value linear_of(const Value& x, const Value& weight, const Value& bias) { return linear(x, weight, bias); }

Form of_two(const char* name, const char* second, const char* doc, Value (*f)(const Value&, const Value&)) {
  const std::string signature = std::string(name) + "(Tensor input, Tensor " + second + ") -> Tensor";
  return {.doc = doc, .overloads = {overload(signature, f)}, .out = true};
}

}  // namespace

std::vector<Form> matmul_forms() {
  std::vector<Form> forms = {
      of_two(
          "matmul", "other", "Matrix product; batch dims broadcast. torch.matmul.",
          +[](const Value& a, const Value& b) { return matmul(a, b); }),
      of_two("mm", "mat2", "Product of two matrices. torch.mm.", &mm),
      of_two("bmm", "mat2", "Products of matrices in two batches of equal size. torch.bmm.", &bmm),
      of_two("mv", "vec", "Product of a matrix and a vector. torch.mv.", &mv),
      {.doc = "Sum of the products of two vectors. torch.dot.",
       .overloads = {overload("dot(Tensor input, Tensor tensor) -> Tensor", &dot)},
       .out = true},
      of_two("outer", "vec2", "Products of all pairs of two vectors. torch.outer.", &outer),
      {.doc = "beta * input + alpha * mat1 @ mat2. torch.addmm.",
       .overloads = {overload(
           "addmm(Tensor input, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", &addmm)},
       .in_place = true,
       .out = true},
      {.doc = "input (..., in) times the transpose of weight (out, in), plus bias (out,). F.linear.",
       .overloads = {overload("nn.functional.linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
                              &linear_of)}},
  };
  forms[0].python_operator = "matmul";
  return forms;
}

}  // namespace sluice::ops
