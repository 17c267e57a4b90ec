#pragma once
// Mixed precision: which dtype the arguments of a function are brought to before it runs (sluice/amp).
#include <string>

#include "base/dtype.h"
#include "form_object.h"

namespace sluice::python {

// kLower: floats become the dtype of the region. kFloat32: narrower floats become float32. kWidest: all floats become
// the widest among them. Never float64.

// The state of this thread's innermost region.
struct AutocastState {
  bool enabled = false;
  DType dtype = DType::kBFloat16;
  bool cache = true;  // casts of weights are kept
  bool operator==(const AutocastState&) const = default;
};
AutocastState autocast_now();

// Under a form's name, whatever it is called by.
void register_autocast(const std::string& name, BoundForm* form);
// Changes the arguments to those that the form is to be called with here, on this thread. The GIL need not be held.
void autocast_arguments(const BoundForm& form, FormArgs& args);

}  // namespace sluice::python
