#pragma once
// C++ errors as Python's.

namespace sluice::python {

// Sets Python's error from the C++ exception in flight. REQUIRES: called inside a catch block, with the GIL.
void set_python_error();

}  // namespace sluice::python
