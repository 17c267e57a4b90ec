// Creation, and Python's subscript.
#include "graph/ops/creation.h"

#include "bindings.h"
#include "graph/ops/comparison.h"
#include "subscript.h"

namespace sluice::python {
namespace {

void bind_functions(nb::module_& fn) {
  fn.def("full", &ops::full, Release(), nb::arg("size"), nb::arg("value"), nb::arg("dtype"));
  fn.def("arange", &ops::arange, Release(), nb::arg("start"), nb::arg("end"), nb::arg("step"), nb::arg("dtype"));
  fn.def("linspace", &ops::linspace, Release(), nb::arg("start"), nb::arg("end"), nb::arg("steps"), nb::arg("dtype"));
  fn.def("eye", &ops::eye, Release(), nb::arg("n"), nb::arg("m"), nb::arg("dtype"));
  fn.def(
      "empty",
      [](const Shape& s, DType d) -> Value {
        return Tensor::empty({d, s});
      },
      Release(), nb::arg("size"), nb::arg("dtype"));
  fn.def(
      "number",
      [](const ops::Operand& value, DType dtype) {
        SLUICE_CHECK_KIND(kType, value.is_number(), "number: got a tensor; must be a number");
        value.check_fits(dtype, "full");
        return value.to(dtype);
      },
      Release(), nb::arg("value"), nb::arg("dtype"), "A number as a tensor without axes; integers are exact.");
}

}  // namespace

void bind_creation(nb::module_& fn, nb::class_<Tensor>& tensor) {
  bind_functions(fn);
  tensor.def("_cast", &ops::cast, Release(), nb::arg("dtype"));
  tensor.def("__getitem__", &get_item, nb::arg("index").none());
  tensor.def("__setitem__", &set_item, nb::arg("index").none(), nb::arg("value"));
}

}  // namespace sluice::python
