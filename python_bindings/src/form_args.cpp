#include "form_args.h"

#include <cstring>

namespace sluice::python {
namespace {

PyTypeObject* tensor_type = nullptr;

bool is_numpy_bool(PyObject* o) {
  const char* name = Py_TYPE(o)->tp_name;
  return std::strcmp(name, "numpy.bool") == 0 || std::strcmp(name, "numpy.bool_") == 0;
}

// Python's, and NumPy's scalars.
bool is_complex_number(PyObject* o) {
  return PyComplex_Check(o) || std::strncmp(Py_TYPE(o)->tp_name, "numpy.complex", 13) == 0;
}

bool read_bool(PyObject* o, bool* value) {
  if (o == Py_True || o == Py_False) {
    *value = o == Py_True;
    return true;
  }
  if (!is_numpy_bool(o)) return false;
  *value = PyObject_IsTrue(o) == 1;
  return true;
}

// As torch: bools are no ints where one int is wanted; tensors of one integer are.
bool read_int(PyObject* o, int64_t* value) {
  if (PyBool_Check(o) || PyFloat_Check(o)) return false;
  const bool exact = PyLong_CheckExact(o);
  if (!exact && !PyIndex_Check(o)) return false;
  PyObject* index = exact ? nb::handle(o).inc_ref().ptr() : PyNumber_Index(o);
  if (index != nullptr) *value = PyLong_AsLongLong(index);
  Py_XDECREF(index);
  if (index != nullptr && (*value != -1 || PyErr_Occurred() == nullptr)) return true;
  PyErr_Clear();
  return false;
}

// A number that is not a sequence: Python's, NumPy's scalars and arrays without dims, tensors without dims.
bool read_float(PyObject* o, double* value) {
  if (PyFloat_Check(o)) {
    *value = PyFloat_AS_DOUBLE(o);
    return true;
  }
  const Tensor* tensor = tensor_of(o);
  const PyNumberMethods* number = Py_TYPE(o)->tp_as_number;
  if (number == nullptr || (number->nb_float == nullptr && number->nb_index == nullptr)) return false;
  if (tensor != nullptr ? tensor->rank() != 0 : PySequence_Check(o) && !PyIndex_Check(o)) return false;
  *value = PyFloat_AsDouble(o);
  if (*value != -1 || PyErr_Occurred() == nullptr) return true;
  PyErr_Clear();
  return false;
}

// A number as an operand, whose kind (bool, int, float) decides dtypes.
bool read_number(PyObject* o, FormArgs* args) {
  bool truth;
  int64_t integer;
  double number;
  const Tensor* tensor = tensor_of(o);
  const bool floating = tensor != nullptr && is_floating(tensor->dtype());
  if (is_complex_number(o) || (tensor != nullptr && is_complex(tensor->dtype()))) {
    const Py_complex number = PyComplex_AsCComplex(o);
    if (number.real == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return false;
    }
    args->emplace<ops::Operand>(std::complex<double>(number.real, number.imag));
    return true;
  }
  if (PyFloat_CheckExact(o))
    args->emplace<ops::Operand>(PyFloat_AS_DOUBLE(o));
  else if (read_bool(o, &truth))
    args->emplace<ops::Operand>(truth);
  else if (!floating && read_int(o, &integer))
    args->emplace<ops::Operand>(integer);
  else if (is_long_int(o))
    fail_long_int(o);
  else if (read_float(o, &number))
    args->emplace<ops::Operand>(number);
  else
    return false;
  return true;
}

// An array of NumPy's, as a tensor that shares its memory where tensors can lie like that. Throws what reading it
// raises, unless that says that it is none of numbers.
bool value_of_array(PyObject* o, Value* value) {
  const nb::object as_tensor = nb::module_::import_("sluice").attr("as_tensor");
  const nb::handle array(o);
  try {
    try {
      *value = nb::cast<Value>(as_tensor(array));
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_ValueError)) throw;
      *value = nb::cast<Value>(as_tensor(array.attr("copy")()));
    }
    return true;
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    return false;
  }
}

bool read_array(PyObject* o, FormArgs* args) {
  Value value;
  if (!nb::hasattr(nb::handle(o), "__array_interface__") || !value_of_array(o, &value)) return false;
  args->emplace<ops::Operand>(std::move(value));
  return true;
}

// An entry of a list of tensors, or an argument that is one.
bool read_tensor(PyObject* o, bool arrays, Value* value) {
  if (const Tensor* tensor = tensor_of(o)) {
    *value = *tensor;
    return true;
  }
  return arrays && is_array(o) && value_of_array(o, value);
}

bool read_tensors(PyObject* o, bool arrays, std::vector<Value>* values) {
  if (!PyList_Check(o) && !PyTuple_Check(o)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {
    const nb::object entry = nb::borrow(PySequence_Fast_GET_ITEM(o, i));  // reading an array may change the list
    if (!read_tensor(entry.ptr(), arrays, &values->emplace_back())) return false;
  }
  return true;
}

bool read_ints(PyObject* o, const SignatureParam& param, FormArgs* args) {
  int64_t one = -1;
  const auto read_entry = [&](PyObject* entry) {
    one = -1;
    return (param.holes && entry == Py_None) || read_int(entry, &one);
  };
  if (!PyList_Check(o) && !PyTuple_Check(o)) {
    if (!param.single || !read_entry(o)) return false;
    args->emplace<Ints>(1, one);
    return true;
  }
  Ints ints;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {
    const nb::object entry = nb::borrow(PySequence_Fast_GET_ITEM(o, i));  // its __index__ may change the list
    if (!read_entry(entry.ptr())) return false;
    ints.push_back(one);
  }
  args->emplace<Ints>(std::move(ints));
  return true;
}

bool read_floats(PyObject* o, const SignatureParam& param, FormArgs* args) {
  double one = 0;
  if (!PyList_Check(o) && !PyTuple_Check(o)) {
    if (!param.single || !read_float(o, &one)) return false;
    args->emplace<std::vector<double>>(1, one);
    return true;
  }
  std::vector<double> floats;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {
    const nb::object entry = nb::borrow(PySequence_Fast_GET_ITEM(o, i));  // its __float__ may change the list
    if (!read_float(entry.ptr(), &one)) return false;
    floats.push_back(one);
  }
  args->emplace<std::vector<double>>(std::move(floats));
  return true;
}

template <class T>
bool append(bool good, FormArgs* args, T&& value) {
  if (good) args->emplace<std::decay_t<T>>(std::forward<T>(value));
  return good;
}

bool read_argument(PyObject* o, const BoundParam& bound, bool arrays, FormArgs* args) {
  const SignatureParam& param = *bound.param;
  if (o == Py_None && param.nullable) {
    if (param.kind == ArgKind::kTensor)
      args->emplace<Value>();
    else
      args->emplace<NoAttr>();
    return true;
  }
  bool truth = false;
  int64_t integer = 0;
  double number = 0;
  DType dtype = DType::kBool;
  Value value;
  std::vector<Value> values;
  switch (bound.kind) {
    case ArgKind::kTensor:
    case ArgKind::kOperand:
      if (!read_tensor(o, arrays, &value))
        return bound.kind == ArgKind::kOperand && (read_number(o, args) || read_array(o, args));
      if (bound.as_operand)
        args->emplace<ops::Operand>(std::move(value));
      else
        args->emplace<Value>(std::move(value));
      return true;
    case ArgKind::kScalar: return read_number(o, args);
    case ArgKind::kInt: return append(read_int(o, &integer), args, integer);
    case ArgKind::kFloat: return append(read_float(o, &number), args, number);
    case ArgKind::kBool: return append(read_bool(o, &truth), args, truth);
    case ArgKind::kStr: return append(PyUnicode_Check(o), args, PyUnicode_Check(o) ? text_from(o) : std::string());
    case ArgKind::kDType: return append(dtype_from(o, &dtype), args, dtype);
    case ArgKind::kInts: return read_ints(o, param, args);
    case ArgKind::kFloats: return read_floats(o, param, args);
    case ArgKind::kTensors: return append(read_tensors(o, arrays, &values), args, std::move(values));
  }
  return false;
}

// x.view(2, 3), meshgrid(x, y): the arguments from `first` on as one list.
bool read_varargs(const PythonCall& call, size_t first, ArgKind kind, FormArgs* args) {
  Ints ints;
  std::vector<Value> values;
  for (size_t i = first; i < call.nargs; ++i) {
    if (kind == ArgKind::kTensors ? !read_tensor(call.args[i], call.arrays, &values.emplace_back())
                                  : !read_int(call.args[i], &ints.emplace_back()))
      return false;
  }
  if (kind == ArgKind::kTensors)
    args->emplace<std::vector<Value>>(std::move(values));
  else
    args->emplace<Ints>(std::move(ints));
  return true;
}

bool same_name(PyObject* given, PyObject* name) {
  return given == name ||
         (PyUnicode_GET_LENGTH(given) == PyUnicode_GET_LENGTH(name) && PyUnicode_Compare(given, name) == 0);
}

bool names(PyObject* given, const BoundParam& param) {
  if (same_name(given, param.name)) return true;
  for (PyObject* other : param.other_names)
    if (same_name(given, other)) return true;
  return false;
}

PyObject* keyword(const PythonCall& call, const BoundParam& param) {
  for (size_t i = 0; i < call.num_keywords(); ++i)
    if (names(PyTuple_GET_ITEM(call.kwnames, i), param)) return call.args[call.nargs + i];
  return nullptr;
}

bool is_out(PyObject* name) { return PyUnicode_CompareWithASCIIString(name, "out") == 0; }

// Whether entries of a list are given one by one.
bool spread(const BoundOverload& overload, const PythonCall& call) {
  const size_t first = static_cast<size_t>(overload.varargs);
  if (overload.varargs < 0) return false;
  if (call.nargs <= first) {  // no entries at all
    const BoundParam& bound = overload.params[first];
    return bound.param->variadic && call.nargs == first && keyword(call, bound) == nullptr;
  }
  PyObject* o = call.args[first];
  return call.nargs > first + 1 || (!PyList_Check(o) && !PyTuple_Check(o) && o != Py_None);
}

std::string type_name(PyObject* o) {
  if (tensor_of(o) != nullptr) return "Tensor";
  return nb::cast<std::string>(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(o))).attr("__name__"));
}

std::string text_of(PyObject* name) { return text_from(name); }

// Which of the entries given one by one is wrong.
std::string wrong_entry(const PythonCall& call, size_t first, const BoundParam& bound, size_t hidden) {
  size_t i = first;
  for (FormArgs args; i + 1 < call.nargs; ++i) {
    const PythonCall upto{call.args, i + 1, nullptr, call.arrays};
    args.clear();
    if (!read_varargs(upto, i, bound.kind, &args)) break;
  }
  return fmt::format("argument '{}' (position {}) must be {}, not {}", bound.param->name, i + 1 - hidden,
                     expected(*bound.param), type_name(call.args[i]));
}

// Why the arguments do not fit one overload.
std::string reason(const BoundOverload& overload, const PythonCall& call, bool method, bool takes_out) {
  const size_t count = overload.params.size(), hidden = method;
  if (call.nargs > overload.num_positional && !spread(overload, call))
    return fmt::format("takes {} positional argument{} but {} were given", overload.num_positional - hidden,
                       overload.num_positional - hidden == 1 ? "" : "s", call.nargs - hidden);
  for (size_t k = 0; k < call.num_keywords(); ++k) {
    PyObject* given = PyTuple_GET_ITEM(call.kwnames, k);
    size_t i = hidden;
    while (i < count && !names(given, overload.params[i])) ++i;
    if (i == count && !(takes_out && is_out(given)))
      return fmt::format("got an unexpected keyword argument '{}'", text_of(given));
    if (i < std::min(call.nargs, overload.num_positional))
      return fmt::format("got multiple values for argument '{}'", text_of(given));
  }
  FormArgs args;
  for (size_t i = 0; i < count; ++i) {
    const BoundParam& bound = overload.params[i];
    const bool one_by_one = static_cast<int>(i) == overload.varargs && spread(overload, call);
    PyObject* given = i < call.nargs && !bound.param->keyword_only ? call.args[i] : keyword(call, bound);
    if (given == nullptr && bound.param->required && !one_by_one)
      return fmt::format("missing a required argument: '{}' (position {})", bound.param->name, i + 1 - hidden);
    args.clear();
    if (given == nullptr || (one_by_one && read_varargs(call, i, bound.kind, &args))) continue;
    if (!one_by_one && read_argument(given, bound, call.arrays, &args)) continue;
    if (one_by_one) return wrong_entry(call, i, bound, hidden);
    return fmt::format("argument '{}' (position {}) must be {}, not {}", bound.param->name, i + 1 - hidden,
                       expected(*bound.param), type_name(given));
  }
  return "arguments do not fit";
}

std::string given_types(const PythonCall& call, bool method) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  for (size_t i = method; i < call.nargs; ++i) add(type_name(call.args[i]));
  for (size_t i = 0; i < call.num_keywords(); ++i)
    add(text_of(PyTuple_GET_ITEM(call.kwnames, i)) + "=" + type_name(call.args[call.nargs + i]));
  return text;
}

}  // namespace

void set_tensor_type(nb::handle type) { tensor_type = reinterpret_cast<PyTypeObject*>(type.ptr()); }

bool is_array(PyObject* object) {
  static PyTypeObject* array_type = nullptr;  // as long as the interpreter
  if (array_type == nullptr) {
    const nb::object numpy = nb::steal(PyImport_GetModule(nb::str("numpy").ptr()));
    if (!numpy.is_valid()) PyErr_Clear();
    if (!numpy.is_valid() || !nb::hasattr(numpy, "ndarray")) return false;
    array_type = reinterpret_cast<PyTypeObject*>(nb::object(numpy.attr("ndarray")).release().ptr());
  }
  return PyObject_TypeCheck(object, array_type);
}

bool has_arrays(const PythonCall& call) {
  for (size_t i = 0; i < call.nargs + call.num_keywords(); ++i) {
    PyObject* const o = call.args[i];
    if (is_array(o)) return true;
    if (!PyList_Check(o) && !PyTuple_Check(o)) continue;
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
      if (is_array(PySequence_Fast_GET_ITEM(o, k))) return true;
  }
  return false;
}

const Tensor* tensor_of(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type != tensor_type && !PyType_IsSubtype(type, tensor_type)) return nullptr;
  if (!nb::inst_ready(object)) return nullptr;
  const Tensor* tensor = nb::inst_ptr<Tensor>(object);
  return tensor->defined() ? tensor : nullptr;
}

bool read_arguments(const BoundOverload& overload, const PythonCall& call, bool takes_out, FormArgs* args,
                    CallExtras* extras) {
  const size_t keywords = call.num_keywords();
  const bool one_by_one = spread(overload, call);
  if (call.nargs > overload.num_positional && !one_by_one) return false;
  size_t used = 0;  // keywords
  for (size_t i = 0; i < overload.params.size(); ++i) {
    const BoundParam& bound = overload.params[i];
    if (one_by_one && static_cast<int>(i) == overload.varargs) {
      if (!read_varargs(call, i, bound.kind, args)) return false;
    } else if (i < call.nargs && !bound.param->keyword_only) {
      if (!read_argument(call.args[i], bound, call.arrays, args)) return false;
    } else if (PyObject* given = keywords == used ? nullptr : keyword(call, bound)) {
      if (!read_argument(given, bound, call.arrays, args)) return false;
      ++used;
    } else if (bound.param->required) {
      return false;
    } else {
      args->push(bound.default_value);
    }
  }
  for (size_t i = 0; takes_out && used < keywords && i < keywords; ++i) {
    if (!is_out(PyTuple_GET_ITEM(call.kwnames, i))) continue;
    extras->out = call.args[call.nargs + i];
    ++used;
  }
  return used == keywords;
}

void raise_mismatch(const std::string& name, const std::vector<BoundOverload>& overloads, const PythonCall& call,
                    bool method, bool takes_out) {
  if (overloads.size() == 1) fail(ErrorKind::kType, "{}(): {}", name, reason(overloads[0], call, method, takes_out));
  std::string candidates;
  for (const BoundOverload& overload : overloads) candidates += "\n * " + overload.overload->signature.text;
  fail(ErrorKind::kType, "{}(): received an invalid combination of arguments - got ({}); must be one of:{}", name,
       given_types(call, method), candidates);
}

}  // namespace sluice::python
