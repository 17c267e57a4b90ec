// Norms of vectors and matrices, and what follows from them: condition numbers, ranks.
#include <cmath>
#include <limits>
#include <variant>

#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/forms.h"
#include "graph/ops/linalg.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

using OptionalDType = std::optional<DType>;
using Order = std::variant<double, std::string>;

std::string text(const Order& ord) {
  if (const auto* name = std::get_if<std::string>(&ord)) return *name;
  return fmt::format("{}", std::get<double>(ord));
}

// The input of a norm in the dtype that it is computed in.
Value operand_of(const char* where, const Value& x, const OptionalDType& dtype) {
  SLUICE_CHECK_KIND(kRuntime, is_differentiable(x.dtype()),
                    "{}: Expected a floating point or complex tensor as input. Got {}; cast it to a floating dtype",
                    where, dtype_name(x.dtype()));
  if (!dtype) return x;
  SLUICE_CHECK_KIND(kRuntime, is_complex(*dtype) == is_complex(x.dtype()) && is_differentiable(*dtype),
                    "{}: dtype should be floating point or complex, but got {}", where, dtype_name(*dtype));
  SLUICE_CHECK_KIND(
      kRuntime, promote(x.dtype(), *dtype) == *dtype,
      "{}: the dtype of the input ({}) should be convertible without narrowing to the specified dtype ({})", where,
      dtype_name(x.dtype()), dtype_name(*dtype));
  return cast(x, *dtype);
}

Value vector_norm(const Value& input, double ord, const Dims& dim, bool keepdim, const OptionalDType& dtype) {
  const char* where = "linalg.vector_norm";
  const Value x = operand_of(where, input, dtype);
  if (ord < 0 || std::isinf(ord)) {
    int64_t n = 1;
    for (int i = 0; i < x.rank(); ++i) {
      bool reduced = !dim || dim->empty();
      for (int64_t d : dim.value_or(Ints{})) reduced |= normalize_axis(d, x.rank(), where) == i;
      if (reduced) n *= x.shape()[i];
    }
    SLUICE_CHECK_KIND(
        kRuntime, n > 0,
        "{} cannot compute the {} norm on an empty tensor because the operation does not have an identity: "
        "got shape {}",
        where, ord, x.shape().str());
  }
  return norm(x, ord, dim, keepdim);
}

// x with the two dims last.
Value dims_last(const Value& x, int first, int second) {
  Ints order;
  for (int i = 0; i < x.rank(); ++i)
    if (i != first && i != second) order.push_back(i);
  order.push_back(first);
  order.push_back(second);
  return permute(x, order);
}

Value extreme(const Value& x, double ord, int64_t dim) {
  // The greatest element of nothing counts as 0.
  if (ord > 0 && x.shape()[x.rank() + dim] == 0) return sum(x, Ints{dim});
  return ord > 0 ? amax(x, Ints{dim}) : amin(x, Ints{dim});
}

Value matrix_norm(const Value& input, const Order& ord, const Ints& dim, bool keepdim, const OptionalDType& dtype) {
  const char* where = "linalg.matrix_norm";
  check_matrix(input, where);
  const Value x = operand_of(where, input, dtype);
  SLUICE_CHECK_KIND(kRuntime, dim.size() == 2, "{}: dim must be a 2-tuple. Got {}", where, attr_str(dim));
  const int first = normalize_axis(dim[0], x.rank(), where), second = normalize_axis(dim[1], x.rank(), where);
  SLUICE_CHECK_KIND(kRuntime, first != second, "{}: dims must be different. Got ({}, {})", where, dim[0], dim[1]);
  const std::string name = text(ord);
  const double number = std::holds_alternative<double>(ord) ? std::get<double>(ord) : 0, size = std::abs(number);
  SLUICE_CHECK_KIND(kRuntime, name == "fro" || name == "nuc" || size == 1 || size == 2 || std::isinf(size),
                    "{}: Order {} not supported; must be 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2", where, name);
  Value y;
  if (name == "fro") {
    y = norm(x, 2, dim, false);
  } else if (name == "nuc" || size == 2) {
    check_wide(x, where);
    const Value s = singular_values(dims_last(x, first, second), false)[1];
    y = name == "nuc" ? sum(s, Ints{-1}) : extreme(s, number, -1);
  } else {
    const Value columns = dims_last(abs(x), first, second);
    y = extreme(sum(columns, Ints{size == 1 ? -2 : -1}), number, -1);
  }
  return keepdim ? unsqueeze(unsqueeze(y, std::min(first, second)), std::max(first, second)) : y;
}

Value linalg_norm(const Value& x, const std::optional<Order>& ord, const Dims& dim, bool keepdim,
                  const OptionalDType& dtype) {
  const char* where = "linalg.norm";
  if (dim)
    SLUICE_CHECK_KIND(kRuntime,
                      !ord || dim->size() == 1 || dim->size() == 2 || std::holds_alternative<std::string>(*ord),
                      "{}: If dim is specified, it must be of length 1 or 2. Got {}", where, attr_str(*dim));
  if (dim && !ord)
    SLUICE_CHECK_KIND(kRuntime, dim->size() == 1 || dim->size() == 2,
                      "{}: If dim is specified, it must be of length 1 or 2. Got {}", where, attr_str(*dim));
  if (!ord) return vector_norm(x, 2, dim, keepdim, dtype);
  SLUICE_CHECK_KIND(kRuntime, dim || x.rank() == 1 || x.rank() == 2,
                    "{}: If dim is not specified but ord is, the input must be 1D or 2D. Got {}D.", where, x.rank());
  const bool vector = dim ? dim->size() == 1 : x.rank() == 1;
  if (vector && std::holds_alternative<double>(*ord))
    return vector_norm(x, std::get<double>(*ord), dim, keepdim, dtype);
  return matrix_norm(x, *ord, dim.value_or(Ints{-2, -1}), keepdim, dtype);
}

// torch.norm: of numbers always a vector's.
Value norm_of(const Value& x, const std::optional<double>& p, const Dims& dim, bool keepdim,
              const OptionalDType& dtype) {
  return vector_norm(x, p.value_or(2), dim, keepdim, dtype);
}
Value norm_named(const Value& x, const std::string& p, const Dims& dim, bool keepdim, const OptionalDType& dtype) {
  if (p == "fro") return vector_norm(x, 2, dim, keepdim, dtype);
  Ints dims = dim.value_or(Ints{});
  for (int i = 0; i < x.rank() && !dim; ++i) dims.push_back(i);
  return matrix_norm(x, p, dims, keepdim, dtype);
}
Value frobenius_norm(const Value& x, const Ints& dim, bool keepdim) { return norm(x, 2, dim, keepdim); }
Value nuclear_norm(const Value& x, bool keepdim) { return matrix_norm(x, "nuc", {-2, -1}, keepdim, std::nullopt); }
Value nuclear_norm_of(const Value& x, const Ints& dim, bool keepdim) {
  return matrix_norm(x, "nuc", dim, keepdim, std::nullopt);
}

Value condition(const Value& a, const std::optional<Order>& p) {
  const Order ord = p.value_or(2.0);
  const std::string name = text(ord);
  check_matrix(a, "linalg.cond", "A");
  if (name == "2" || name == "-2") {
    const Value s = singular_values(a, false)[1];
    if (s.shape().back() == 0) return sum(s, Ints{-1});
    const Value largest = select(s, -1, 0), smallest = select(s, -1, -1);
    return name == "2" ? div(largest, smallest) : div(smallest, largest);
  }
  const auto* number = std::get_if<double>(&ord);
  SLUICE_CHECK_KIND(
      kRuntime, name == "fro" || name == "nuc" || (number && (std::abs(*number) == 1 || std::isinf(*number))),
      "linalg.cond got an invalid norm type: {}; must be None, 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2", name);
  check_square(a, fmt::format("linalg.cond(ord={})", name).c_str());
  const auto [x, info] = solve_system(a, identity_like(a, a.shape().back()), "");
  const Ints last = {-2, -1};
  if (a.shape().back() == 0) return matrix_norm(a, Order("fro"), last, false, {});  // 0
  const Value singular = ne(info, 0);
  const Value safe = where(unsqueeze(unsqueeze(singular, -1), -1), 1.0, x);
  const Value product = mul(matrix_norm(a, ord, last, false, {}), matrix_norm(safe, ord, last, false, {}));
  return where(singular, std::numeric_limits<double>::infinity(), product);
}

Form norm_form(std::vector<Overload> overloads, const char* doc) {
  return {.doc = doc, .overloads = std::move(overloads), .out = true};
}

const char* const kOptions = "bool keepdim=False, *, ScalarType? dtype=None) -> Tensor";

}  // namespace

std::vector<Form> norm_forms() {
  const auto numbered = [](const Value& x, double ord, const Ints& dim, bool keepdim, const OptionalDType& dtype) {
    return matrix_norm(x, ord, dim, keepdim, dtype);
  };
  const auto named = [](const Value& x, const std::string& ord, const Ints& dim, bool keepdim,
                        const OptionalDType& dtype) { return matrix_norm(x, ord, dim, keepdim, dtype); };
  const auto either = [](const Value& x, const std::optional<double>& ord, const Dims& dim, bool keepdim,
                         const OptionalDType& dtype) {
    return linalg_norm(x, ord ? std::optional<Order>(*ord) : std::nullopt, dim, keepdim, dtype);
  };
  const auto either_named = [](const Value& x, const std::string& ord, const Dims& dim, bool keepdim,
                               const OptionalDType& dtype) { return linalg_norm(x, Order(ord), dim, keepdim, dtype); };
  const std::string options = kOptions;
  std::vector<Form> forms = {
      norm_form({overload("linalg.vector_norm(Tensor input, Scalar ord=2, int[1]? dim=None, " + options, &vector_norm)},
                "(sum |x|^ord)^(1/ord) over the axes `dim` (none: all); inf, -inf and 0 as limits. "
                "torch.linalg.vector_norm."),
      norm_form({overload("linalg.matrix_norm(Tensor input, Scalar ord, int[] dim=[-2, -1], " + options, numbered),
                 overload("linalg.matrix_norm(Tensor input, str ord=\"fro\", int[] dim=[-2, -1], " + options, named)},
                "Norm of the matrices in two dims: 'fro', 'nuc', inf, -inf, 1, -1, 2, -2. torch.linalg.matrix_norm."),
      norm_form({overload("linalg.norm(Tensor input, Scalar? ord=None, int[1]? dim=None, " + options, either),
                 overload("linalg.norm(Tensor input, str ord, int[1]? dim=None, " + options, either_named)},
                "Norm of vectors (one dim) or matrices (two); without `ord` the 2-norm of all. torch.linalg.norm."),
      norm_form({overload("linalg.cond(Tensor input, Scalar? p=None) -> Tensor",
                          [](const Value& a, const std::optional<double>& p) {
                            return condition(a, p ? std::optional<Order>(*p) : std::nullopt);
                          }),
                 overload("linalg.cond(Tensor input, str p) -> Tensor",
                          [](const Value& a, const std::string& p) { return condition(a, Order(p)); })},
                "Condition number in the matrix norm `p`, inf of a singular matrix. torch.linalg.cond."),
      {.doc = "Frobenius norm over the axes `dim`. torch.frobenius_norm.",
       .overloads = {overload("frobenius_norm(Tensor input, int[1] dim, bool keepdim=False) -> Tensor",
                              &frobenius_norm)},
       .method = false,
       .out = true},
      {.doc = "Sum of the singular values of the matrices in the axes `dim`. torch.nuclear_norm.",
       .overloads = {overload("nuclear_norm(Tensor input, bool keepdim=False) -> Tensor", &nuclear_norm),
                     overload("nuclear_norm(Tensor input, int[] dim, bool keepdim=False) -> Tensor", &nuclear_norm_of)},
       .method = false,
       .out = true},
  };
  for (const bool method : {false, true}) {  // as torch, the function has `out` where the method has `dtype`
    const std::string rest = std::string("int[1]? dim=None, bool keepdim=False, ") + (method ? "" : "*, ");
    const std::string type = "ScalarType? dtype=None) -> Tensor";
    forms.push_back({.doc = "p-norm over the axes `dim` (none: all), or the matrix norm 'fro' or 'nuc'. torch.norm.",
                     .overloads = {overload("norm(Tensor input, Scalar? p=2, " + rest + type, &norm_of),
                                   overload("norm(Tensor input, str p, " + rest + type, &norm_named)},
                     .function = !method,
                     .method = method,
                     .out = !method});
  }
  return forms;
}

}  // namespace sluice::ops
