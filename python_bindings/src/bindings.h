#pragma once
// Helpers that the binding files share: conversions of Sluice's small types, and how Python objects are held.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <memory>
#include <optional>

#include "base/attr.h"
#include "base/device.h"
#include "base/dtype.h"
#include "base/shape.h"
#include "gil.h"
#include "graph/operand.h"
#include "tensor/tensor.h"

namespace nb = nanobind;

namespace sluice {
class EagerExecutor;
class Engine;
enum class Spin : uint8_t;
struct SessionStats;
}  // namespace sluice

namespace sluice::python {

// Releases the GIL while a bound function runs: an op may wait for a graph's step, and that step for a Python function.
using Release = nb::call_guard<GilRelease>;

// An optional tensor argument: None is the undefined Value.
struct OptionalValue {
  Value value;
  operator const Value&() const { return value; }  // NOLINT: stands for the Value
};

PyObject* tensor_object(Value value);                   // the one of that tensor; None for an undefined one
nb::object dtype_object(DType dtype);                   // the one sluice.dtype object
bool dtype_from(nb::handle object, DType* dtype);       // a sluice.dtype, or Python's bool, int, float
std::string text_from(nb::handle str);                  // throws kValue for one that UTF-8 cannot say
bool device_from(nb::handle object, DeviceId* device);  // "cpu", "sim:0", sluice.device
bool ints_from(nb::handle object, Ints* ints);          // an int or a sequence of ints
// An int of more than 64 bits: as a float it would make floats of whole numbers.
bool is_long_int(PyObject* number);
[[noreturn]] void fail_long_int(PyObject* number);
// An Operand from a tensor or a number; false otherwise.
bool operand_from(nb::handle object, std::optional<ops::Operand>* operand);

// Python objects, or what holds some, that C++ may share and let go of on any thread.
template <class T>
std::shared_ptr<T> shared_with_gil(T objects) {
  return {new T(std::move(objects)), [](T* held) {
            if (!Py_IsInitialized()) return;  // the interpreter took them along
            GilAcquire gil;
            delete held;
          }};
}

class SharedObject {
 public:
  explicit SharedObject(nb::object object) : object_(shared_with_gil(std::move(object))) {}
  nb::handle get() const { return *object_; }

 private:
  std::shared_ptr<nb::object> object_;
};

// Makes every wait of the main thread (base/interrupt.h) answer signals: Ctrl-C raises KeyboardInterrupt in it.
void bind_interrupts(nb::module_& m);

// Waits until nothing in flight writes these tensors; Ctrl-C interrupts.
void wait_tensors(const std::vector<Tensor>& tensors);

// The process's engine and eager executor, made on first use.
EagerExecutor& default_eager();
Spin spin_of(const std::string& name);  // "auto", "never", "always"

// Bytes as the engine's own allocator of a space ("host", "sim:0") counts them.
nb::dict counters_of(const SessionStats& stats);
nb::dict allocator_stats(Engine& engine, const std::string& space);
nb::dict kernel_stats(Engine& engine);

void bind_errors(nb::module_& m);
void bind_types(nb::module_& m);
void bind_engine(nb::module_& m);
void bind_runtime(nb::module_& m);
void bind_debugger(nb::module_& m);
void bind_time_leases(nb::module_& m);
void bind_diagnostics(nb::module_& m);
nb::class_<Tensor> bind_tensor(nb::module_& m);
void bind_copies(nb::module_& m);
void bind_op_table(nb::module_& m);
void bind_creation(nb::module_& fn, nb::class_<Tensor>& tensor);
void bind_updates(nb::module_& fn);
void bind_random(nb::module_& m);
void bind_watch(nb::module_& m);
void bind_autocast(nb::module_& m);
void bind_forms(nb::module_& m, nb::module_& fn, nb::class_<Tensor>& tensor);
void bind_autograd(nb::module_& m);
void bind_graph(nb::module_& m);
void bind_distributed(nb::module_& m);
void bind_onnx(nb::module_& m);
void bind_flow(nb::module_& m);

}  // namespace sluice::python

namespace nanobind::detail {

template <>
struct type_caster<sluice::Value> {
  NB_TYPE_CASTER(sluice::Value, const_name("Tensor"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    if (!nb::isinstance<sluice::Tensor>(src) || !nb::inst_ready(src)) return false;
    value = *nb::inst_ptr<sluice::Tensor>(src);
    return value.defined();
  }
  static handle from_cpp(const sluice::Value& v, rv_policy, cleanup_list*) noexcept {
    return sluice::python::tensor_object(v);
  }
};

template <>
struct type_caster<sluice::python::OptionalValue> {
  NB_TYPE_CASTER(sluice::python::OptionalValue, const_name("Tensor | None"))
  bool from_python(handle src, uint32_t flags, cleanup_list* cleanup) noexcept {
    if (src.is_none()) return true;
    make_caster<sluice::Value> inner;
    if (!inner.from_python(src, flags, cleanup)) return false;
    value.value = std::move(inner.value);
    return true;
  }
  static handle from_cpp(const sluice::python::OptionalValue& v, rv_policy p, cleanup_list* c) noexcept {
    return make_caster<sluice::Value>::from_cpp(v.value, p, c);
  }
};

template <>
struct type_caster<sluice::DType> {
  NB_TYPE_CASTER(sluice::DType, const_name("dtype"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept { return sluice::python::dtype_from(src, &value); }
  static handle from_cpp(sluice::DType v, rv_policy, cleanup_list*) noexcept {
    return sluice::python::dtype_object(v).release();
  }
};

template <>
struct type_caster<sluice::DeviceId> {
  NB_TYPE_CASTER(sluice::DeviceId, const_name("device"))
  bool from_python(handle src, uint32_t, cleanup_list*) { return sluice::python::device_from(src, &value); }
  static handle from_cpp(const sluice::DeviceId& v, rv_policy, cleanup_list*) noexcept {
    return nb::cast(v.str()).release();
  }
};

// Not nanobind's for optionals, through whose noexcept what parse_device() throws would end the process.
template <>
struct type_caster<std::optional<sluice::DeviceId>> {
  NB_TYPE_CASTER(std::optional<sluice::DeviceId>, const_name("device | None"))
  bool from_python(handle src, uint32_t, cleanup_list*) {
    value.reset();
    return src.is_none() || sluice::python::device_from(src, &value.emplace());
  }
  static handle from_cpp(const std::optional<sluice::DeviceId>& v, rv_policy p, cleanup_list* c) noexcept {
    return v ? make_caster<sluice::DeviceId>::from_cpp(*v, p, c) : none().release();
  }
};

template <>
struct type_caster<sluice::Shape> {
  NB_TYPE_CASTER(sluice::Shape, const_name("tuple[int, ...]"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    sluice::Ints ints;
    if (!sluice::python::ints_from(src, &ints) || ints.size() > size_t{sluice::kMaxRank}) return false;
    value = sluice::Shape(ints);
    return true;
  }
  static handle from_cpp(const sluice::Shape& v, rv_policy, cleanup_list*) noexcept {
    PyObject* tuple = PyTuple_New(v.rank());
    for (int i = 0; i < v.rank(); ++i) PyTuple_SET_ITEM(tuple, i, PyLong_FromLongLong(v[i]));
    return tuple;
  }
};

// Dims and sizes: an int stands for a list of one.
template <>
struct type_caster<sluice::Ints> {
  NB_TYPE_CASTER(sluice::Ints, const_name("int | Sequence[int]"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept { return sluice::python::ints_from(src, &value); }
  static handle from_cpp(const sluice::Ints& v, rv_policy, cleanup_list*) noexcept {
    PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(v.size()));
    for (size_t i = 0; i < v.size(); ++i) PyTuple_SET_ITEM(tuple, i, PyLong_FromLongLong(v[i]));
    return tuple;
  }
};

// Has no default: held as an optional and handed out by value.
template <>
struct type_caster<sluice::ops::Operand> {
  static constexpr auto Name = const_name("Tensor | float");
  template <typename T>
  using Cast = sluice::ops::Operand;
  template <typename T>
  static constexpr bool can_cast() {
    return true;
  }
  std::optional<sluice::ops::Operand> value;
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept { return sluice::python::operand_from(src, &value); }
  operator sluice::ops::Operand() { return *value; }
  static handle from_cpp(const sluice::ops::Operand&, rv_policy, cleanup_list*) noexcept { return none().release(); }
};

}  // namespace nanobind::detail
