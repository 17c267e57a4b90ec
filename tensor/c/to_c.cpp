#include "tools/sluice_compile/to_c.h"

#include <utility>

#include "kernels/c/target.h"
#include "tensor/session/graph_session.h"

namespace sluice {

c::PlanSource to_c(EagerExecutor& eager, CapturedGraph captured, const ToCOptions& wanted) {
  const std::string name = wanted.name.empty() ? c::c_name(captured.graph.name) : wanted.name;
  captured.graph.freeze_variables();
  const c::Target target;
  GraphSessionOptions options;
  options.dry_run = true;
  options.target = &target;
  options.compile.name = captured.graph.name;
  options.compile.device = c::device();
  options.compile.cores = 1;
  options.compile.outputs_buffer_size = 1;
  options.compile.fast_quotas = false;
  options.compile.pack_weights = false;
  options.compile.packing = "every";
  options.compile.memory_budget = wanted.memory_budget;
  options.compile.disabled_passes = wanted.disabled_passes;
  const GraphSession session(eager, std::move(captured), std::move(options));
  const CompileResult& result = session.compiled();
  return c::plan_source(result.plan, name, [&](const std::string& variable) -> const void* {
    const auto made = result.constants.find(variable);
    if (made != result.constants.end()) return made->second.data();
    const auto found = session.captured().variables.find(variable);
    return found == session.captured().variables.end() ? nullptr : found->second.read();
  });
}

}  // namespace sluice
