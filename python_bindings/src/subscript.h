#pragma once
// x[...] and x[...] = y with ints, slices, None, Ellipsis and tensors of integers or bool.
#include "bindings.h"

namespace sluice::python {

// A view of the whole of x: another tensor on the same memory.
Value view_of_all(const Value& x);
Value get_item(const Value& x, nb::handle index);
void set_item(const Value& x, nb::handle index, nb::handle value);

}  // namespace sluice::python
