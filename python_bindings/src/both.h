#pragma once
// Binds a function on tensors twice: as fn.name(input, ...) and as method Tensor.name(...). The GIL is released
// while it runs: an op may wait for a graph's step, and that step for a Python function.
#include "bindings.h"

namespace sluice::python {

using Release = nb::call_guard<GilRelease>;

struct Both {
  nb::module_& fn;
  nb::class_<Tensor>& tensor;

  template <class F, class... Args>
  const Both& operator()(const char* name, F f, const Args&... args) const {
    fn.def(name, f, Release(), nb::arg("input"), args...);
    tensor.def(name, f, Release(), args...);
    return *this;
  }
};

// Trailing ints given one by one or as one sequence: x.permute(1, 0), x.permute((1, 0)).
inline Ints ints_of(const nb::args& args, const char* where) {
  Ints ints;
  const bool sequence = args.size() == 1;
  if (!ints_from(sequence ? nb::object(args[0]) : nb::object(args), &ints))
    fail(ErrorKind::kType, "{}: sizes are {}; must be ints or one sequence of ints", where, nb::repr(args).c_str());
  return ints;
}

}  // namespace sluice::python
