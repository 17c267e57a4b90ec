#pragma once
#include <nanobind/nanobind.h>

namespace sluice::python {

void bind_small_machines(nanobind::module_& m);

}  // namespace sluice::python
