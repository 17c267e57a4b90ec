#pragma once
// Classes whose objects hold Python objects that may hold them: the garbage collector has to know of these.
#include "bindings.h"

namespace sluice::python {

// For nb::type_slots(). T has visit(visitproc, void*), which calls Py_VISIT on each object that it holds, and clear(),
// which lets go of them.
template <class T>
const PyType_Slot* collected_slots() {
  static const PyType_Slot slots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(+[](PyObject* self, visitproc visit, void* arg) -> int {
         Py_VISIT(Py_TYPE(self));
         return nb::inst_ready(self) ? nb::inst_ptr<T>(self)->visit(visit, arg) : 0;
       })},
      {Py_tp_clear, reinterpret_cast<void*>(+[](PyObject* self) -> int {
         if (nb::inst_ready(self)) nb::inst_ptr<T>(self)->clear();
         return 0;
       })},
      {0, nullptr}};
  return slots;
}

}  // namespace sluice::python
