#include "tensor_object.h"

#include <typeinfo>
#include <utility>

#include "form_args.h"
#include "tensor/trace_executor.h"

namespace sluice::python {
namespace {

PyTypeObject* tensor_class = nullptr;
destructor end_instance = nullptr;

// The rest of a tensor's object while the tensor has none.
struct Kept {
  nb::object type, attributes;
};

// Null for the symbols with which rules are tried out, which are no tensors.
TensorImpl* tensor_behind(ValueImpl* impl) {
  const std::type_info& type = typeid(*impl);
  return type == typeid(EagerImpl) || type == typeid(TracedImpl) ? static_cast<TensorImpl*>(impl) : nullptr;
}

PyObject* new_object(PyTypeObject* type, Value value) {
  nb::object made = nb::inst_alloc(reinterpret_cast<PyObject*>(type));
  new (nb::inst_ptr<Tensor>(made)) Tensor(std::move(value));
  nb::inst_mark_ready(made);
  return made.release().ptr();
}

// The tensor that `object` is the object of, or null.
TensorImpl* tensor_of_object(PyObject* object) {
  if (!nb::inst_ready(object)) return nullptr;
  const Tensor& tensor = *nb::inst_ptr<Tensor>(object);
  TensorImpl* impl = tensor.defined() ? tensor_behind(tensor.impl()) : nullptr;
  return impl != nullptr && impl->front_end.object == object ? impl : nullptr;
}

// A tensor that C++ has may come back to Python: a gradient, say. Makes no Python object, for `object` is ending.
void keep(PyObject* object, TensorImpl& impl) {
  PyObject** const attributes = _PyObject_GetDictPtr(object);
  const bool some = attributes != nullptr && *attributes != nullptr && PyDict_GET_SIZE(*attributes) > 0;
  if (!some && Py_TYPE(object) == tensor_class) return;
  Kept kept{nb::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object))), {}};
  if (some) kept.attributes = nb::steal(std::exchange(*attributes, nullptr));
  impl.front_end.kept = shared_with_gil(std::move(kept));
}

void end_object(PyObject* object) {
  if (nb::inst_ready(object)) [[likely]] {
    const Value& tensor = *nb::inst_ptr<Tensor>(object);
    TensorImpl* const impl = tensor.defined() ? tensor_behind(tensor.impl()) : nullptr;
    if (impl != nullptr && impl->front_end.object == object) {
      impl->front_end.object = nullptr;
      if (tensor.ptr().use_count() > 1) [[unlikely]]
        keep(object, *impl);
    }
  }
  end_instance(object);
}

PyObject* object_again(TensorImpl& impl, Value value) {
  const std::shared_ptr<void> held = std::exchange(impl.front_end.kept, nullptr);
  Kept& kept = *static_cast<Kept*>(held.get());
  PyObject* const object = new_object(reinterpret_cast<PyTypeObject*>(kept.type.ptr()), std::move(value));
  if (kept.attributes.is_valid()) Py_XSETREF(*_PyObject_GetDictPtr(object), kept.attributes.release().ptr());
  return object;
}

}  // namespace

void own_tensor_objects(PyTypeObject* tensor_type) {
  tensor_class = tensor_type;
  end_instance = std::exchange(tensor_type->tp_dealloc, end_object);
}

void claim_tensor(PyObject* object) {
  if (TensorImpl* impl = tensor_behind(nb::inst_ptr<Tensor>(object)->impl())) impl->front_end.object = object;
}

void become_tensor(PyObject* object, Value value) {
  if (TensorImpl* impl = tensor_of_object(object)) impl->front_end.object = nullptr;
  *nb::inst_ptr<Tensor>(object) = Tensor(std::move(value));
  claim_tensor(object);
}

PyObject* tensor_object(Value value) {
  if (!value.defined()) return nb::none().release().ptr();
  TensorImpl* const impl = tensor_behind(value.impl());
  if (impl == nullptr) return new_object(tensor_class, std::move(value));
  auto* object = static_cast<PyObject*>(impl->front_end.object);
  if (object != nullptr && Py_REFCNT(object) > 0) return Py_NewRef(object);  // else it is ending
  object = impl->front_end.kept ? object_again(*impl, std::move(value)) : new_object(tensor_class, std::move(value));
  impl->front_end.object = object;
  return object;
}

}  // namespace sluice::python
