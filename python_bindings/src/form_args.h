#pragma once
// Arguments of public functions, from Python to a form's (graph/forms/form.h), by tables that are made once.
#include <string>
#include <vector>

#include "bindings.h"
#include "graph/forms/form.h"

namespace sluice::python {

struct BoundParam {
  const SignatureParam* param;
  ArgKind kind;                        // param->kind, or more: the first operand of y + x may be a number
  PyObject* name;                      // interned
  std::vector<PyObject*> other_names;  // what NumPy calls it: axis for dim
  bool as_operand;
  FormArg default_value;
};

struct BoundOverload {
  const Overload* overload;
  std::vector<BoundParam> params;
  size_t num_positional;
  int varargs;             // the parameter whose entries may be given one by one, as in view(2, 3); -1: none
  nb::handle result_type;  // of named results
};

// The arguments that a call gives besides the parameters.
struct CallExtras {
  PyObject* out = nullptr;
};

// The Python arguments of a call, as vectorcall hands them over.
struct PythonCall {
  PyObject* const* args;
  size_t nargs;
  PyObject* kwnames;    // may be null
  bool arrays = false;  // NumPy's arrays stand for tensors

  size_t num_keywords() const { return kwnames == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(kwnames)); }
};

void set_tensor_type(nb::handle type);
const Tensor* tensor_of(PyObject* object);  // null when it is none
bool is_array(PyObject* object);            // a numpy.ndarray
bool has_arrays(const PythonCall& call);    // among its arguments, or in lists of them

// Reads the arguments of a call; false when they do not fit the overload.
bool read_arguments(const BoundOverload& overload, const PythonCall& call, bool takes_out, FormArgs* args,
                    CallExtras* extras);
// Throws kType, in torch's words, for arguments that fit none of the overloads.
[[noreturn]] void raise_mismatch(const std::string& name, const std::vector<BoundOverload>& overloads,
                                 const PythonCall& call, bool method, bool takes_out);

}  // namespace sluice::python
