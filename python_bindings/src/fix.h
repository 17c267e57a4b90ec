#pragma once
// Fixes as Python dicts, as `error.fix` has them and nn.Graph.apply_fix takes them.
#include "base/fix.h"
#include "bindings.h"

namespace sluice::python {

nb::dict fix_dict(const Fix& fix);
Fix fix_from(const nb::dict& dict);  // throws kValue for a value that no fix has

}  // namespace sluice::python
