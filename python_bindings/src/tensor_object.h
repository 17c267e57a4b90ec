#pragma once
// The Python object of a tensor: there is one as long as anybody has it, whichever way the tensor comes to Python.
//
// The attributes and the class of an object stay with the tensor when nobody has the object any more, and the next
// object has them.
#include "bindings.h"

namespace sluice::python {

// Takes over how objects of the class Tensor, and of classes derived from it later, end.
void own_tensor_objects(PyTypeObject* tensor_type);
// An object that has just been made of a tensor is the one of that.
void claim_tensor(PyObject* object);
// From now on `object` stands for another tensor.
void become_tensor(PyObject* object, Value value);

}  // namespace sluice::python
