#include "attributes.h"

#include <iterator>
#include <optional>

namespace sluice::python {
namespace {

struct FromPython {
  const Param& param;
  const OpDef& op;
  int depth;  // graphs around it

  [[noreturn]] void wrong(nb::handle found, const std::string& wanted) const {
    fail(ErrorKind::kType, "{}: argument '{}': {}; must be {}", op.name, param.name, Py_TYPE(found.ptr())->tp_name,
         wanted);
  }
  nb::sequence sequence(nb::handle object, const char* wanted, std::optional<size_t> size = std::nullopt) const {
    const bool is_text = PyUnicode_Check(object.ptr()) || PyBytes_Check(object.ptr());
    if (is_text || !PySequence_Check(object.ptr())) wrong(object, wanted);
    const nb::sequence items = nb::borrow<nb::sequence>(object);
    if (size && nb::len(items) != *size) wrong(object, wanted);
    return items;
  }

  void read(nb::handle object, bool& v) const {
    if (!PyBool_Check(object.ptr())) wrong(object, "bool");
    v = object.ptr() == Py_True;
  }
  void read(nb::handle object, double& v) const {
    if (!PyFloat_Check(object.ptr()) && !PyLong_Check(object.ptr())) wrong(object, "float");
    v = PyFloat_AsDouble(object.ptr());
    if (PyErr_Occurred()) throw nb::python_error();
  }
  void read(nb::handle object, std::string& v) const {
    if (!PyUnicode_Check(object.ptr())) wrong(object, "str");
    v = text_from(object);
  }
  void read(nb::handle object, DType& v) const {
    if (!dtype_from(object, &v)) wrong(object, "dtype");
  }
  void read(nb::handle object, int& v) const {
    if (!PyLong_Check(object.ptr())) wrong(object, "int");
    const long number = PyLong_AsLong(object.ptr());
    if (PyErr_Occurred()) PyErr_Clear();  // a larger one: -1, which is no number of a value
    v = number == static_cast<int>(number) ? static_cast<int>(number) : -1;
  }
  void read(nb::handle object, TensorType& v) const {
    const nb::sequence pair = sequence(object, "(dtype, shape)", 2);
    const nb::object shape = pair[1];
    Ints dims;
    read(nb::object(pair[0]), v.dtype);
    if (!ints_from(shape, &dims) || dims.size() > size_t{kMaxRank})
      wrong(shape, fmt::format("a shape of at most {} ints", kMaxRank));
    v.shape = Shape(dims);
  }
  template <class T>
  void read(nb::handle object, std::vector<T>& v) const {
    for (nb::handle item : sequence(object, "a sequence")) {
      T one{};
      read(item, one);
      v.push_back(std::move(one));
    }
  }
  void read(nb::handle object, AttrCall& v) const {
    const nb::sequence parts = sequence(object, "(op, attributes, operands)", 3);
    read(nb::object(parts[0]), v.op);
    const nb::object attrs = parts[1];
    if (!PyDict_Check(attrs.ptr())) wrong(attrs, "the attributes of a call, a dict");
    const OpDef& called = builtin_ops().get(v.op);
    for (auto [key, value] : nb::borrow<nb::dict>(attrs)) {
      std::string name;
      read(key, name);
      const int i = called.find_param(name);
      SLUICE_CHECK_KIND(kType, i >= 0, "{}: argument '{}': {} has no parameter '{}'", op.name, param.name, v.op, name);
      v.attrs.emplace_back(name, attr_from(value, called.params[static_cast<size_t>(i)], called, depth + 1));
    }
    read(nb::object(parts[2]), v.operands);
  }
  void read(nb::handle object, AttrGraph& v) const {
    SLUICE_CHECK(depth <= kMostNested, "{}: argument '{}': graph within {} others; that is too deep", op.name,
                 param.name, depth);
    constexpr const char* kForm = "a graph, {'inputs': int, 'calls': [(op, attributes, operands)], 'outputs': [int]}";
    if (!PyDict_Check(object.ptr())) wrong(object, kForm);
    const nb::dict parts = nb::borrow<nb::dict>(object);
    if (parts.size() != 3 || !parts.contains("inputs") || !parts.contains("calls") || !parts.contains("outputs"))
      wrong(object, kForm);
    read(nb::object(parts["inputs"]), v.inputs);
    read(nb::object(parts["calls"]), v.calls);
    read(nb::object(parts["outputs"]), v.outputs);
  }

  template <class T>
  Attr as(nb::handle object) const {
    T value{};
    read(object, value);
    return value;
  }
};

}  // namespace

std::string attr_type(const Param& param) {
  static const char* const kNames[] = {"None",
                                       "bool",
                                       "int",
                                       "float",
                                       "str",
                                       "Sequence[int]",
                                       "dtype",
                                       "Sequence[bool]",
                                       "Sequence[float]",
                                       "Sequence[str]",
                                       "Sequence[dtype]",
                                       "tuple[dtype, Sequence[int]]",
                                       "Sequence[tuple[dtype, Sequence[int]]]",
                                       "dict"};
  static_assert(std::size(kNames) == std::variant_size_v<Attr>);
  const std::string text = kNames[param.default_value.index()];
  return param.nullable && text != "None" ? text + " | None" : text;
}

Attr attr_from(nb::handle object, const Param& param, const OpDef& op, int depth) {
  PyObject* o = object.ptr();
  if (object.is_none()) return {};
  const FromPython from{param, op, depth};
  const Attr& wanted = param.default_value;
  if (std::holds_alternative<Bools>(wanted)) return from.as<Bools>(object);
  if (std::holds_alternative<Doubles>(wanted)) return from.as<Doubles>(object);
  if (std::holds_alternative<Strings>(wanted)) return from.as<Strings>(object);
  if (std::holds_alternative<DTypes>(wanted)) return from.as<DTypes>(object);
  if (std::holds_alternative<TensorType>(wanted)) return from.as<TensorType>(object);
  if (std::holds_alternative<TensorTypes>(wanted)) return from.as<TensorTypes>(object);
  if (std::holds_alternative<AttrGraph>(wanted)) return from.as<AttrGraph>(object);
  Ints ints;
  DType dtype;
  if (PyBool_Check(o)) return o == Py_True;
  if (PyFloat_Check(o)) return PyFloat_AS_DOUBLE(o);
  if (PyUnicode_Check(o)) return text_from(object);
  if (dtype_from(object, &dtype)) return dtype;
  if (ints_from(object, &ints)) {
    if (PyLong_Check(o) && !std::holds_alternative<Ints>(wanted)) return ints[0];
    return ints;
  }
  fail(ErrorKind::kType, "{}: argument '{}' is {}; must be {}", op.name, param.name, Py_TYPE(o)->tp_name,
       attr_type(param));
}

}  // namespace sluice::python
