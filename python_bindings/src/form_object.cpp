// The types of callables that forms are: a function, and a descriptor that binds as a method.
#include "form_object.h"

#include <structmember.h>

#include "errors.h"

namespace sluice::python {
namespace {

struct FormObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  const BoundForm* form;
};

const BoundForm& form_of(PyObject* self) { return *reinterpret_cast<FormObject*>(self)->form; }

PyObject* call_object(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  try {
    return call_form(form_of(self), {args, static_cast<size_t>(PyVectorcall_NARGS(nargsf)), kwnames});
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* text(const std::string& s) {
  return PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()));
}

// "(self, other: Tensor | float, *, alpha: float = ...) -> Tensor" with types; "($self, other, *, alpha=1)" without.
std::string python_signature(const BoundForm& form, const BoundOverload& overload, bool typed, bool spread) {
  const Signature& signature = overload.overload->signature;
  std::string text = "(";
  const auto add = [&](const std::string& part) { text += (text.size() > 1 ? ", " : "") + part; };
  bool keyword_only = spread;
  for (size_t i = 0; i < signature.params.size(); ++i) {
    const SignatureParam& param = signature.params[i];
    if (param.keyword_only && !std::exchange(keyword_only, true)) add("*");
    if (i == 0 && form.method)
      add(typed ? "self" : "$self");
    else if (spread && static_cast<int>(i) == overload.varargs)
      add("*" + param.name + (!typed ? "" : param.kind == ArgKind::kTensors ? ": Tensor" : ": int"));
    else if (typed)
      add(param.name + ": " + python_type(param) + (param.required ? "" : " = ..."));
    else
      add(param.name + (param.required ? "" : "=" + python_default(param)));
  }
  if (form.takes_out) {
    const bool several = signature.result == ResultKind::kTuple;
    if (!keyword_only) add("*");
    add(typed ? std::string("out: ") + (several ? "Sequence[Tensor]" : "Tensor") + " | None = ..." : "out=None");
  }
  if (!typed) return text + ")";
  static const char* const kResults[] = {"Tensor", "tuple[Tensor, ...]", "", "bool", "int", "float", "tuple[int, ...]"};
  std::string result = kResults[static_cast<size_t>(signature.result)];
  if (signature.result == ResultKind::kTuple) {
    result = "tuple[";
    for (size_t i = 0; i < signature.fields.size(); ++i) result += i ? ", Tensor" : "Tensor";
    result += "]";
    if (overload.result_type.is_valid()) result = "sluice._C.return_types." + result_name(signature);
  }
  return text + ") -> " + result;
}

PyObject* get_name(PyObject* self, void*) { return text(form_of(self).name); }
PyObject* get_qualname(PyObject* self, void*) { return text(form_of(self).qualified); }
PyObject* get_module(PyObject* self, void*) { return text(form_of(self).module); }

PyObject* get_doc(PyObject* self, void*) {
  const BoundForm& form = form_of(self);
  std::string doc;
  for (const BoundOverload& overload : form.overloads) doc += overload.overload->signature.text + "\n";
  return text(doc + "\n" + form.doc);
}

// The text that inspect.signature() reads; several overloads have no common one.
PyObject* get_text_signature(PyObject* self, void*) {
  const BoundForm& form = form_of(self);
  if (form.overloads.size() != 1) return nb::none().release().ptr();
  return text(python_signature(form, form.overloads[0], false, false));
}

// Per overload (and per way to give ints) a line as type stubs have it, in a tuple, as nanobind's functions have them.
PyObject* get_stub(PyObject* self, void*) {
  const BoundForm& form = form_of(self);
  nb::list lines;
  const auto add = [&](const BoundOverload& overload, bool spread) {
    lines.append(nb::make_tuple("def " + form.name + python_signature(form, overload, true, spread)));
  };
  for (const BoundOverload& overload : form.overloads) {
    add(overload, false);
    if (overload.varargs >= 0) add(overload, true);
  }
  return nb::tuple(lines).release().ptr();
}

// The overloads in torch's notation.
PyObject* get_signatures(PyObject* self, void*) {
  nb::list lines;
  for (const BoundOverload& overload : form_of(self).overloads) lines.append(overload.overload->signature.text);
  return nb::tuple(lines).release().ptr();
}

PyObject* get_otherwise(PyObject* self, void*) {
  const nb::handle otherwise = form_of(self).otherwise;
  return nb::borrow(otherwise.is_valid() ? otherwise : nb::handle(Py_None)).release().ptr();
}

// Forms live as long as the process.
int set_otherwise(PyObject* self, PyObject* function, void*) {
  form_of(self).otherwise = nb::borrow(function).release();
  return 0;
}

PyObject* reduce(PyObject* self, PyObject*) { return text(form_of(self).qualified); }

PyObject* repr(PyObject* self) {
  const BoundForm& form = form_of(self);
  return text("<" + std::string(form.method ? "method " : "function ") + form.module + "." + form.qualified + ">");
}

// A function is a descriptor too, of nothing but itself: by that inspect.signature() knows it as a builtin.
PyObject* bind(PyObject* self, PyObject* instance, PyObject*) {
  if (instance == nullptr || !form_of(self).method) return nb::borrow(self).release().ptr();
  return PyMethod_New(self, instance);
}

PyGetSetDef getters[] = {{"__name__", get_name, nullptr, nullptr, nullptr},
                         {"__qualname__", get_qualname, nullptr, nullptr, nullptr},
                         {"__module__", get_module, nullptr, nullptr, nullptr},
                         {"__doc__", get_doc, nullptr, nullptr, nullptr},
                         {"__text_signature__", get_text_signature, nullptr, nullptr, nullptr},
                         {"__nb_signature__", get_stub, nullptr, nullptr, nullptr},
                         {"signatures", get_signatures, nullptr, nullptr, nullptr},
                         {"otherwise", get_otherwise, set_otherwise, nullptr, nullptr},
                         {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(FormObject, vectorcall), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};

nb::object make_type(const char* name, bool method) {
  PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                         {Py_tp_getset, getters},
                         {Py_tp_methods, methods},
                         {Py_tp_members, members},
                         {Py_tp_repr, reinterpret_cast<void*>(repr)},
                         {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
                         {0, nullptr}};
  unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  if (method) flags |= Py_TPFLAGS_METHOD_DESCRIPTOR;
  PyType_Spec spec{name, sizeof(FormObject), 0, flags, slots};
  nb::object type = nb::steal(PyType_FromSpec(&spec));
  if (!type.is_valid()) nb::raise_python_error();
  return type;
}

struct StandIn {
  nb::handle type, function;
};

// As long as the interpreter: modules register theirs when they are imported, with the GIL held.
std::vector<StandIn>& stand_ins() {
  static std::vector<StandIn> all;
  return all;
}

// Lists may hold lists; one that holds itself ends at this depth.
nb::handle stand_in_function(PyObject* object, int depth = 16) {
  for (const StandIn& one : stand_ins())
    if (PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(one.type.ptr()))) return one.function;
  if (depth == 0 || (!PyTuple_Check(object) && !PyList_Check(object))) return {};
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
    if (const nb::handle found = stand_in_function(PySequence_Fast_GET_ITEM(object, i), depth - 1); found.is_valid())
      return found;
  return {};
}

}  // namespace

void register_stand_in(nb::type_object type, nb::object function) {
  stand_ins().push_back({type.release(), function.release()});
}

nb::object call_stand_in(const BoundForm& form, const PythonCall& call) {
  nb::handle function;
  const size_t count = call.nargs + call.num_keywords();
  for (size_t i = 0; i < count && !function.is_valid(); ++i) function = stand_in_function(call.args[i]);
  if (!function.is_valid()) return {};
  nb::list args;
  for (size_t i = 0; i < call.nargs; ++i) args.append(nb::handle(call.args[i]));
  nb::dict keywords;
  for (size_t i = call.nargs; i < count; ++i)
    keywords[nb::handle(PyTuple_GET_ITEM(call.kwnames, static_cast<Py_ssize_t>(i - call.nargs)))] =
        nb::handle(call.args[i]);
  nb::object result = function(form.object, nb::tuple(args), keywords);
  return result.ptr() == Py_NotImplemented ? nb::object() : result;
}

std::string result_name(const Signature& signature) {
  return signature.module == "linalg" ? "linalg_" + signature.name : signature.name;
}

nb::object form_object(const BoundForm* form) {
  static const nb::handle types[] = {make_type("sluice._C.Function", false).release(),
                                     make_type("sluice._C.Method", true).release()};
  auto* type = reinterpret_cast<PyTypeObject*>(types[form->method].ptr());
  nb::object made = nb::steal(type->tp_alloc(type, 0));
  if (!made.is_valid()) nb::raise_python_error();
  auto* object = reinterpret_cast<FormObject*>(made.ptr());
  object->vectorcall = call_object;
  object->form = form;
  form->object = made;
  return made;
}

}  // namespace sluice::python
