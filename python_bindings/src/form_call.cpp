// A call of a form reads its arguments, runs its function, and hands its result over.
#include "autocast.h"
#include "call_place.h"
#include "graph/operand.h"
#include "graph/ops/movement.h"
#include "graph/tape.h"
#include "tensor_object.h"

namespace sluice::python {
namespace {

using ops::Operand;

const Value* tensor_in(const FormArg& arg) {
  if (const Value* value = std::get_if<Value>(&arg)) return value;
  const Operand* operand = std::get_if<Operand>(&arg);
  return operand != nullptr && !operand->is_number() ? &operand->value() : nullptr;
}

// The device of the first argument that is not on the cpu; null: all are.
const DeviceId* device_of(FormArgs& args) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (const DeviceId* device = CallPlace::of(tensor_in(args[i]))) return device;
    const auto* list = std::get_if<std::vector<Value>>(&args[i]);
    for (size_t k = 0; list != nullptr && k < list->size(); ++k)
      if (const DeviceId* device = CallPlace::of(&(*list)[k])) return device;
  }
  return nullptr;
}

// Releases the GIL while a form's function runs and its arguments are dropped: both may wait for a graph's step.
class Running {
 public:
  explicit Running(FormArgs& args) : place_(place_of(args)), args_(args) {}
  ~Running() { args_.clear(); }

 private:
  static std::optional<CallPlace> place_of(FormArgs& args) {
    const DeviceId* device = device_of(args);
    if (device == nullptr && creation_device().kind == DeviceKind::kCpu) return std::nullopt;
    return std::optional<CallPlace>(std::in_place, device);
  }

  const std::optional<CallPlace> place_;  // looks at the program's line
  GilRelease release_;
  FormArgs& args_;
};

template <class F>
bool any_argument(FormArgs& args, F holds) {
  for (size_t i = 0; i < args.size(); ++i) {
    const Value* value = tensor_in(args[i]);
    if (value != nullptr && value->defined() && holds(*value)) return true;
    const auto* list = std::get_if<std::vector<Value>>(&args[i]);
    for (size_t k = 0; list != nullptr && k < list->size(); ++k)
      if ((*list)[k].defined() && holds((*list)[k])) return true;
  }
  return false;
}

bool any_requires_grad(FormArgs& args) {
  return any_argument(args, [](const Value& value) { return value.requires_grad(); });
}

PyObject* tuple_of(std::vector<Value>& values) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  for (size_t i = 0; i < values.size(); ++i)
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), tensor_object(std::move(values[i])));
  return tuple.release().ptr();
}

PyObject* named_tuple_of(std::vector<Value>& values, nb::handle type) {
  nb::object tuple = nb::steal(PyStructSequence_New(reinterpret_cast<PyTypeObject*>(type.ptr())));
  for (size_t i = 0; i < values.size(); ++i)
    PyStructSequence_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), tensor_object(std::move(values[i])));
  return tuple.release().ptr();
}

PyObject* python_result(FormResult& result, const BoundOverload& overload) {
  if (Value* value = std::get_if<Value>(&result)) return tensor_object(std::move(*value));
  if (auto* values = std::get_if<std::vector<Value>>(&result))
    return overload.result_type.is_valid() ? named_tuple_of(*values, overload.result_type) : tuple_of(*values);
  return std::visit(
      [](const auto& v) -> PyObject* {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::vector<Value>>)
          return nullptr;
        else
          return nb::cast(v).release().ptr();
      },
      result);
}

// As torch: a result is written into a dtype of its kind or a wider one, never from floating to integers or from
// numbers to bool.
void check_castable(const std::string& name, DType from, DType to) {
  const auto kind = [](DType d) { return d == DType::kBool ? 0 : is_integral(d) ? 1 : is_complex(d) ? 3 : 2; };
  if (kind(from) > kind(to))
    fail(ErrorKind::kRuntime, "{}: result type {} can't be cast to the desired output type {}", name, dtype_name(from),
         dtype_name(to));
}

// Writes a result into `out`, which gets its shape where it has another.
void write_out(const BoundForm& form, PyObject* out, const Value& result) {
  const Tensor* target = tensor_of(out);
  if (target == nullptr)
    fail(ErrorKind::kType, "{}(): argument 'out' must be Tensor, not {}", form.name, Py_TYPE(out)->tp_name);
  check_castable(form.name, result.dtype(), target->dtype());
  if (target->shape() == result.shape()) {
    const Value kept = *target;
    GilRelease release;
    write_in_place(kept, result);
    return;
  }
  if (target->size() != 0 &&
      PyErr_WarnFormat(PyExc_UserWarning, 1,
                       "%s: out of shape %s was resized to %s, since it had another than the result; resize it first",
                       form.name.c_str(), target->shape().str().c_str(), result.shape().str().c_str()) != 0)
    nb::raise_python_error();
  become_tensor(out, Tensor(result).to(target->dtype()).contiguous());
}

PyObject* write_outs(const BoundForm& form, PyObject* out, FormResult& result) {
  if (const Value* value = std::get_if<Value>(&result)) {
    write_out(form, out, *value);
  } else {
    const auto& values = std::get<std::vector<Value>>(result);
    if (!PyTuple_Check(out) || PyTuple_GET_SIZE(out) != static_cast<Py_ssize_t>(values.size()))
      fail(ErrorKind::kType, "{}(): argument 'out' is {}; must be a tuple of {} Tensors", form.name,
           Py_TYPE(out)->tp_name, values.size());
    for (size_t i = 0; i < values.size(); ++i)
      write_out(form, PyTuple_GET_ITEM(out, static_cast<Py_ssize_t>(i)), values[i]);
  }
  return nb::borrow(out).release().ptr();
}

PyObject* call_with_out(const BoundForm& form, const BoundOverload& overload, FormArgs& args, PyObject* out) {
  const Tensor* target = tensor_of(out);
  if (grad_enabled() && (any_requires_grad(args) || (target != nullptr && target->requires_grad())))
    fail(ErrorKind::kRuntime,
         "{}: out: functions with out= do not support automatic differentiation, but one of the arguments requires "
         "grad; call it without out=, or under no_grad()",
         form.name);
  FormResult result;
  {
    const Running running(args);
    const auto compute = [&] { result = overload.overload->function(args); };
    if (target == nullptr) {
      compute();
    } else {
      std::vector<Value> read;
      any_argument(args, [&](const Value& value) { return read.push_back(value), false; });
      compute_for(*target, read, compute);
    }
  }
  return write_outs(form, out, result);
}

// x.t_(): what the object becomes.
Value view_in_place(const BoundForm& form, const BoundOverload& overload, FormArgs& args, const Tensor& old) {
  const bool leaf = old.requires_grad() && old.is_leaf();
  SLUICE_CHECK_KIND(kRuntime, !leaf || !grad_enabled(),
                    "{}: a leaf Variable that requires grad is being used in an in-place operation; do it under "
                    "no_grad()",
                    form.name);
  Value view = std::get<Value>(overload.overload->function(args));
  if (leaf && view.impl() != old.impl()) Tensor(view).set_requires_grad(true);
  return view;
}

PyObject* call_in_place(const BoundForm& form, const BoundOverload& overload, FormArgs& args, PyObject* self) {
  if (form.sharing == Sharing::kView) {
    Value view;
    {
      const Running running(args);
      view = view_in_place(form, overload, args, *nb::inst_ptr<Tensor>(self));
    }
    become_tensor(self, std::move(view));
  } else {
    const Running running(args);
    const Value target = *tensor_in(args[0]);
    const InPlaceOptions options{.recorded = grad_enabled() && any_requires_grad(args), .at_once = form.reads_once};
    const auto compute = [&](const Value& old) {
      if (overload.params[0].as_operand)
        args[0] = Operand(old);
      else
        args[0] = old;
      Value result = std::get<Value>(overload.overload->function(args));
      check_castable(form.name, result.dtype(), old.dtype());
      return result;
    };
    update_in_place(target, compute, options);
  }
  return nb::borrow(self).release().ptr();
}

// The tensor whose memory it is: itself, or what it is a view of.
const ValueImpl* owner(const ValueImpl* impl) {
  const ValueImpl* base = static_cast<const TensorImpl*>(impl)->base().get();
  return base != nullptr ? base : impl;
}

// A function that had nothing to do gives one of its arguments, or a view of it. A caller gets another tensor: a view
// where that is what the function gives, or else a copy.
void separate(Sharing sharing, FormArgs& args, Value& result) {
  if (sharing == Sharing::kItself || !result.defined()) return;
  const ValueImpl* made = result.impl();
  const bool shares = any_argument(args, [&](const Value& argument) {
    return argument.impl() == made || (sharing == Sharing::kNothing && owner(argument.impl()) == owner(made));
  });
  if (!shares) return;
  result = sharing == Sharing::kView
               ? ops::slice(result, Ints(result.rank(), 0), result.shape().vec(), Ints(result.rank(), 1))
               : Value(Tensor(result).clone());
}

PyObject* call_plainly(const BoundForm& form, const BoundOverload& overload, FormArgs& args, const PythonCall& call) {
  FormResult result;
  {
    const Running running(args);
    autocast_arguments(form, args);
    result = overload.overload->function(args);
    if (Value* value = std::get_if<Value>(&result)) {
      separate(form.sharing, args, *value);
    } else if (auto* values = std::get_if<std::vector<Value>>(&result)) {
      for (Value& one : *values) separate(form.sharing, args, one);
    }
  }
  if (form.sharing == Sharing::kItself && call.nargs > 0 && std::holds_alternative<Value>(result)) {
    const Tensor* self = tensor_of(call.args[0]);
    if (self != nullptr && self->impl() == std::get<Value>(result).impl())
      return nb::borrow(call.args[0]).release().ptr();
  }
  return python_result(result, overload);
}

bool writes_first(const BoundForm& form) {
  return form.use == FormUse::kInPlace || form.use == FormUse::kInPlaceOperator;
}

// Whether an array may stand for a tensor, in a call that has no tensor there: not for `self`, not where an operator
// gives way to the array's own.
bool takes_arrays(const BoundForm& form, const PythonCall& call) {
  if (form.use == FormUse::kReflected || !has_arrays(call)) return false;
  return (!form.method && !writes_first(form)) || (call.nargs > 0 && tensor_of(call.args[0]) != nullptr);
}

}  // namespace

PyObject* call_form(const BoundForm& form, const PythonCall& call) {
  FormArgs args;
  CallExtras extras;
  const BoundOverload* overload = nullptr;
  PyObject* exchanged[2];
  PythonCall given = call;
  if (form.use == FormUse::kReflected && call.nargs == 2) {
    exchanged[0] = call.args[1], exchanged[1] = call.args[0];
    given.args = exchanged;
  }
  const auto choose = [&] {
    for (const BoundOverload& candidate : form.overloads) {
      args.clear();
      if (read_arguments(candidate, given, form.takes_out, &args, &extras)) return &candidate;
    }
    return static_cast<const BoundOverload*>(nullptr);
  };
  overload = choose();
  if (overload == nullptr && takes_arrays(form, call)) {
    given.arrays = true;
    overload = choose();
  }
  if (overload == nullptr) {
    const bool is_operator = form.use == FormUse::kOperator || form.use == FormUse::kReflected;
    if (is_operator && call.nargs == 2) return nb::borrow(Py_NotImplemented).release().ptr();
    if (nb::object result = call_stand_in(form, call); result.is_valid()) return result.release().ptr();
    if (form.method && call.nargs == 0)
      fail(ErrorKind::kType, "{}(): unbound method of Tensor needs an argument", form.name);
    if (form.method && tensor_of(call.args[0]) == nullptr)
      fail(ErrorKind::kType, "{}(): descriptor for 'Tensor' objects doesn't apply to a '{}' object", form.name,
           Py_TYPE(call.args[0])->tp_name);
    if (form.otherwise.is_valid()) {
      nb::object result = nb::steal(PyObject_Vectorcall(form.otherwise.ptr(), call.args, call.nargs, call.kwnames));
      if (!result.is_valid()) nb::raise_python_error();
      if (result.ptr() != Py_NotImplemented) return result.release().ptr();
    }
    raise_mismatch(form.name, form.overloads, call, form.method, form.takes_out);
  }
  if (extras.out != nullptr && extras.out != Py_None) return call_with_out(form, *overload, args, extras.out);
  const bool in_place =
      writes_first(form) || (overload->overload->signature.has_inplace() && std::get<bool>(args[args.size() - 1]));
  if (in_place && tensor_of(call.args[0]) == nullptr)
    fail(ErrorKind::kType,
         "{}(): argument 'input' (position 1) must be Tensor, not {}; arrays are not written in place", form.name,
         Py_TYPE(call.args[0])->tp_name);
  if (in_place) return call_in_place(form, *overload, args, call.args[0]);
  return call_plainly(form, *overload, args, call);
}

}  // namespace sluice::python
