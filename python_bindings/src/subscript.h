#pragma once
// x[...] and x[...] = y with ints, slices, None, Ellipsis and tensors of integers or bool.
#include "bindings.h"

namespace sluice::python {

Value get_item(const Value& x, nb::handle index);
void set_item(const Value& x, nb::handle index, nb::handle value);

}  // namespace sluice::python
