// Elementwise functions, comparisons, reductions and products: one line each.
#include "both.h"
#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/matmul.h"
#include "graph/ops/reduction.h"
#include "graph/ops/softmax.h"

namespace sluice::python {
namespace {

using ops::Dims;
using ops::Operand;
using OptionalDType = std::optional<DType>;

Value cast_if(const Value& x, OptionalDType dtype) { return dtype ? ops::cast(x, *dtype) : x; }

// Every elementwise op that has no binding of its own, by the name of its definition; adds those names to `names`.
void bind_elementwise(const Both& both, nb::list names) {
  for (const auto& functions : {ops::unary_functions(), ops::binary_functions(), ops::comparison_functions()}) {
    for (const ops::TensorFunction& f : functions) {
      const char* name = f.op->name;
      if (nb::hasattr(both.fn, name) || nb::hasattr(both.fn, (std::string("_") + name).c_str())) continue;
      names.append(name);
      if (f.unary != nullptr)
        both(name, f.unary, f.op->doc);
      else
        both(name, f.binary, nb::arg("other"), f.op->doc);
    }
  }
}

void bind_unary(const Both& both) {
  both("square", &ops::square)("sigmoid", &ops::sigmoid)("relu", &ops::relu);
  both("isfinite", &ops::isfinite)("bitwise_not", &ops::bitwise_not);
}

void bind_binary(const Both& both) {
  const auto other = nb::arg("other");
  both("pow", &ops::pow, nb::arg("exponent"));
  both("heaviside", &ops::heaviside, nb::arg("values"));
  both("_add", &ops::add, other)("_sub", &ops::sub, other)("_div", &ops::div,
                                                           other);  // torch adds alpha, rounding_mode
  // The order comes first in the function, the tensor in the method.
  both.fn.def("polygamma", &ops::polygamma, Release(), nb::arg("n"), nb::arg("input"));
  both.tensor.def(
      "polygamma", [](const Value& x, int64_t n) { return ops::polygamma(n, x); }, Release(), nb::arg("n"));
}

// Operators: Python's int and float on either side.
void bind_operators(nb::class_<Tensor>& t) {
  const auto op = nb::is_operator();
  const auto forward = [&](const char* name, Value (*f)(const Operand&, const Operand&)) {
    t.def(name, f, Release(), op);
  };
  const auto reflected = [&](const char* name, auto f) { t.def(name, f, Release(), op); };
  forward("__add__", &ops::add);
  forward("__radd__", &ops::add);
  forward("__sub__", &ops::sub);
  forward("__mul__", &ops::mul);
  forward("__rmul__", &ops::mul);
  forward("__truediv__", &ops::div);
  forward("__floordiv__", &ops::floor_divide);
  forward("__mod__", &ops::remainder);
  forward("__pow__", &ops::pow);
  forward("__eq__", &ops::eq);
  forward("__ne__", &ops::ne);
  forward("__lt__", &ops::lt);
  forward("__le__", &ops::le);
  forward("__gt__", &ops::gt);
  forward("__ge__", &ops::ge);
  forward("__and__", &ops::bitwise_and);
  forward("__rand__", &ops::bitwise_and);
  forward("__or__", &ops::bitwise_or);
  forward("__ror__", &ops::bitwise_or);
  forward("__xor__", &ops::bitwise_xor);
  forward("__rxor__", &ops::bitwise_xor);
  reflected("__rsub__", [](const Operand& a, const Operand& b) { return ops::sub(b, a); });
  reflected("__rtruediv__", [](const Operand& a, const Operand& b) { return ops::div(b, a); });
  reflected("__rfloordiv__", [](const Operand& a, const Operand& b) { return ops::floor_divide(b, a); });
  reflected("__rmod__", [](const Operand& a, const Operand& b) { return ops::remainder(b, a); });
  reflected("__rpow__", [](const Operand& a, const Operand& b) { return ops::pow(b, a); });
  t.def(
      "__matmul__", [](const Value& a, const Value& b) { return ops::matmul(a, b); }, Release(), op);
  t.def("__neg__", &ops::neg, Release());
  t.def("__pos__", [](const Value& a) {
    SLUICE_CHECK_KIND(kRuntime, a.dtype() != DType::kBool,
                      "__pos__: The `+` operator, on a bool tensor is not supported; it must be of numbers");
    return a;
  });
  t.def("__abs__", &ops::abs, Release());
  t.def("__invert__", &ops::bitwise_not, Release());
}

void bind_reductions(const Both& both) {
  const auto dim = nb::arg("dim") = nb::none();
  const auto keepdim = nb::arg("keepdim") = false;
  const auto dtype = nb::arg("dtype") = nb::none();
  using Reduce = Value (*)(const Value&, const Dims&, bool);
  const auto with_dtype = [](Reduce f) {
    return [f](const Value& x, const Dims& d, bool keep, OptionalDType type) {
      return cast_if(f(cast_if(x, type), d, keep), type);
    };
  };
  both("sum", with_dtype(&ops::sum), dim, keepdim, dtype)("mean", with_dtype(&ops::mean), dim, keepdim, dtype);
  both("prod", with_dtype(&ops::prod), dim, keepdim, dtype);
  both("amax", &ops::amax, dim, keepdim)("amin", &ops::amin, dim, keepdim)("any", &ops::any, dim, keepdim);
  both("all", &ops::all, dim, keepdim)("logsumexp", &ops::logsumexp, dim, keepdim);
  both("argmax", &ops::argmax, dim, keepdim)("argmin", &ops::argmin, dim, keepdim);
  both(
      "cumsum",
      [](const Value& x, int64_t d, OptionalDType type) { return cast_if(ops::cumsum(cast_if(x, type), d), type); },
      nb::arg("dim"), dtype);
  both("_var", &ops::var, dim, nb::arg("correction") = 1.0, keepdim)("_std", &ops::std, dim,
                                                                     nb::arg("correction") = 1.0, keepdim);
  both("norm", &ops::norm, nb::arg("p") = 2.0, dim, keepdim);
}

void bind_others(const Both& both) {
  both(
      "where", [](const Value& c, const Operand& a, const Operand& b) { return ops::where(c, a, b); }, nb::arg("x"),
      nb::arg("y"));
  both("masked_fill", &ops::masked_fill, nb::arg("mask"), nb::arg("value"));
  both(
      "_clamp",
      [](const Value& x, std::optional<Operand> low, std::optional<Operand> high) { return ops::clamp(x, low, high); },
      nb::arg("min") = nb::none(), nb::arg("max") = nb::none());
  both("lerp", &ops::lerp, nb::arg("end"), nb::arg("weight"));
  both("_cast", &ops::cast, nb::arg("dtype"));
  both(
      "matmul", [](const Value& a, const Value& b) { return ops::matmul(a, b); }, nb::arg("other"));
  both(
      "softmax", [](const Value& x, int64_t d, OptionalDType t) { return ops::softmax(cast_if(x, t), d); },
      nb::arg("dim"), nb::arg("dtype") = nb::none());
  both(
      "log_softmax", [](const Value& x, int64_t d, OptionalDType t) { return ops::log_softmax(cast_if(x, t), d); },
      nb::arg("dim"), nb::arg("dtype") = nb::none());
}

}  // namespace

void bind_math(nb::module_& fn, nb::class_<Tensor>& tensor) {
  const Both both{fn, tensor};
  bind_unary(both);
  bind_binary(both);
  bind_operators(tensor);
  bind_reductions(both);
  bind_others(both);
  nb::list names;
  bind_elementwise(both, names);
  fn.attr("_elementwise") = names;
}

}  // namespace sluice::python
