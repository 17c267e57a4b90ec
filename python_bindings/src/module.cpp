// The module sluice._C.
#include "bindings.h"
#include "sluice/version.h"
#include "small_machines.h"
#include "tensor/eager.h"

NB_MODULE(_C, m) {
  using namespace sluice::python;
  // Objects that live until the interpreter ends are normal here (dtypes, the default engine).
  nb::set_leak_warnings(false);
  m.attr("__version__") = SLUICE_VERSION;
  sluice::check_plans_from_files();
  bind_errors(m);
  bind_types(m);
  bind_interrupts(m);
  bind_engine(m);
  nb::class_<sluice::Tensor> tensor = bind_tensor(m);
  nb::module_ fn = m.def_submodule("fn", "Functions on tensors, with torch's semantics.");
  bind_forms(m, fn, tensor);
  bind_creation(fn, tensor);
  bind_updates(fn);
  bind_random(m);
  bind_watch(m);
  bind_autocast(m);
  bind_op_table(m);
  bind_autograd(m);
  bind_graph(m);
  bind_runtime(m);
  bind_debugger(m);
  bind_time_leases(m);
  bind_small_machines(m);
  bind_diagnostics(m);
  bind_distributed(m);
  bind_flow(m);
#ifdef SLUICE_HAS_ONNX
  bind_onnx(m);
#endif
}
