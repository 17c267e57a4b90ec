// dtype and device as Python sees them, and the conversions of small types.
#include <pthread.h>

#include <array>
#include <chrono>
#include <thread>

#include "base/interrupt.h"
#include "bindings.h"

namespace sluice::python {
namespace {

struct PyDType {
  DType dtype;
};

std::array<nb::object, kNumDTypes>& dtype_objects() {
  static auto* objects = new std::array<nb::object, kNumDTypes>();  // as long as the interpreter
  return *objects;
}

bool integer_from(PyObject* object, int64_t* value) {
  if (PyFloat_Check(object) || nb::isinstance<Tensor>(nb::handle(object))) return false;
  PyObject* index = PyNumber_Index(object);
  if (index == nullptr) {
    PyErr_Clear();
    return false;
  }
  *value = PyLong_AsLongLong(index);
  Py_DECREF(index);
  if (*value == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  return true;
}

}  // namespace

nb::object dtype_object(DType dtype) { return dtype_objects()[static_cast<size_t>(dtype)]; }

bool dtype_from(nb::handle object, DType* dtype) {
  if (nb::isinstance<PyDType>(object))
    *dtype = nb::inst_ptr<PyDType>(object)->dtype;
  else if (object.ptr() == reinterpret_cast<PyObject*>(&PyBool_Type))
    *dtype = DType::kBool;
  else if (object.ptr() == reinterpret_cast<PyObject*>(&PyLong_Type))
    *dtype = DType::kInt64;
  else if (object.ptr() == reinterpret_cast<PyObject*>(&PyFloat_Type))
    *dtype = DType::kFloat64;
  else if (object.ptr() == reinterpret_cast<PyObject*>(&PyComplex_Type))
    *dtype = DType::kComplex128;
  else
    return false;
  return true;
}

std::string text_from(nb::handle str) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_Check(str.ptr()) ? PyUnicode_AsUTF8AndSize(str.ptr(), &size) : nullptr;
  if (text != nullptr) return {text, static_cast<size_t>(size)};
  PyErr_Clear();
  fail(ErrorKind::kValue, "text: {} cannot be written in UTF-8; it must be a str without lone surrogates",
       nb::repr(str).c_str());
}

bool device_from(nb::handle object, DeviceId* device) {
  if (PyUnicode_Check(object.ptr())) {
    *device = parse_device(text_from(object));
    return true;
  }
  if (!nb::hasattr(object, "_sluice_device")) return false;
  nb::object name = object.attr("_sluice_device");
  *device = parse_device(text_from(name));
  return true;
}

bool ints_from(nb::handle object, Ints* ints) {
  int64_t one = 0;
  ints->clear();
  if (integer_from(object.ptr(), &one)) {
    ints->push_back(one);
    return true;
  }
  if (!PyList_Check(object.ptr()) && !PyTuple_Check(object.ptr())) return false;
  bool ok = true;
  for (Py_ssize_t i = 0; ok && i < PySequence_Fast_GET_SIZE(object.ptr()); ++i) {
    const nb::object item = nb::borrow(PySequence_Fast_GET_ITEM(object.ptr(), i));  // its __index__ may change the list
    ok = integer_from(item.ptr(), &one);
    ints->push_back(one);
  }
  return ok;
}

bool is_long_int(PyObject* number) {
  int overflow = 0;
  if (PyLong_Check(number)) PyLong_AsLongLongAndOverflow(number, &overflow);
  return overflow != 0;
}

void fail_long_int(PyObject* number) {
  fail(ErrorKind::kValue, "number: an int of {} bits was given; must fit into 64 with its sign, or be a float",
       nb::cast<int64_t>(nb::handle(number).attr("bit_length")()));
}

bool operand_from(nb::handle object, std::optional<ops::Operand>* operand) {
  PyObject* o = object.ptr();
  nb::detail::make_caster<Value> tensor;
  if (tensor.from_python(object, 0, nullptr)) {
    operand->emplace(tensor.value);
  } else if (PyBool_Check(o)) {
    operand->emplace(o == Py_True);
  } else if (PyFloat_Check(o)) {
    operand->emplace(PyFloat_AS_DOUBLE(o));
  } else if (PyComplex_Check(o)) {
    operand->emplace(std::complex<double>(PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o)));
  } else if (int64_t integer = 0; integer_from(o, &integer)) {
    operand->emplace(integer);
  } else if (PyNumber_Check(o) && Py_TYPE(o)->tp_as_number->nb_float != nullptr && !PySequence_Check(o) &&
             !is_long_int(o)) {  // numpy scalars
    const double number = PyFloat_AsDouble(o);
    if (number == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      return false;
    }
    operand->emplace(number);
  } else if (nb::hasattr(object, "__array_interface__")) {  // numpy's arrays
    try {
      operand->emplace(nb::cast<Value>(nb::module_::import_("sluice").attr("as_tensor")(object)));
    } catch (const std::exception&) {  // not of a dtype that tensors have
      return false;
    }
  } else {
    return false;
  }
  return true;
}

void bind_interrupts(nb::module_&) {
  static const pthread_t main_thread = pthread_self();  // Python's, which alone handles signals
  set_interrupt_check([] {
    if (!Py_IsInitialized()) return;
    if (PyGILState_Check() != 0) {  // what is waited for may need it
      GilRelease meanwhile;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (pthread_equal(pthread_self(), main_thread) == 0) return;
    GilAcquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
}

void bind_types(nb::module_& m) {
  auto cls = nb::class_<PyDType>(m, "dtype", "Type of a tensor's elements.")
                 .def_prop_ro("name", [](const PyDType& d) { return dtype_name(d.dtype); })
                 .def_prop_ro("itemsize", [](const PyDType& d) { return dtype_size(d.dtype); })
                 .def_prop_ro("is_floating_point", [](const PyDType& d) { return is_floating(d.dtype); })
                 .def_prop_ro("is_complex", [](const PyDType& d) { return is_complex(d.dtype); })
                 .def("to_complex", [](const PyDType& d) { return to_complex(d.dtype); })
                 .def("to_real", [](const PyDType& d) { return to_real(d.dtype); })
                 .def_prop_ro("is_signed",
                              [](const PyDType& d) { return d.dtype != DType::kBool && d.dtype != DType::kUInt8; })
                 .def("__repr__", [](const PyDType& d) { return std::string("sluice.") + dtype_name(d.dtype); })
                 .def("__reduce__", [](const PyDType& d) { return std::string(dtype_name(d.dtype)); })
                 .def("__deepcopy__", [](nb::handle self, nb::handle) { return nb::borrow(self); });
  (void)cls;
  nb::list all;
  for (int i = 0; i < kNumDTypes; ++i) {
    dtype_objects()[i] = nb::cast(PyDType{static_cast<DType>(i)});
    m.attr(dtype_name(static_cast<DType>(i))) = dtype_objects()[i];
    all.append(dtype_objects()[i]);
  }
  m.attr("dtypes") = nb::tuple(all);
  m.def("parse_device", [](const nb::str& text) { return parse_device(text_from(text)).str(); });
  m.def("promote_types", &promote);
  m.def("get_default_dtype", &ops::default_dtype);
  m.def("set_default_dtype", &ops::set_default_dtype, nb::arg("dtype"));
  m.def("result_type", &ops::result_dtype, nb::arg("a"), nb::arg("b"));
}

}  // namespace sluice::python
