#pragma once
// Declarations that the graph binding files share.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "compiler/compiler.h"
#include "kernels/kernel.h"
#include "plan/plan.h"
#include "plan/time/machine.h"
#include "tensor/trace.h"

namespace sluice {
class GraphSession;
class PlanCache;
class SharedArenas;
struct CompileResult;
struct GraphSessionOptions;
struct PortInfo;
}  // namespace sluice

namespace sluice::python {

struct PyCaptured {
  CapturedGraph graph;
  std::vector<std::pair<int, std::vector<std::string>>> stacks;  // user frames by first node
};

// The device on which this thread makes tensors that are not told where: that of the innermost scope, or the default;
// none: the cpu.
std::optional<DeviceId> placement_device();

plan::Space space_named(const std::string& name);  // "host", "pinned:cuda:0", "sim:0"

// Memory for sessions that take turns (runtime/session/shared_arenas.h).
struct PyArenas {
  std::shared_ptr<SharedArenas> arenas;
};

// The options that Python's graphs set, by the names of the tables, and what their host functions do.
GraphSessionOptions graph_options_of(const nb::dict& options, const nb::dict& functions);
std::chrono::nanoseconds nanoseconds_of(double seconds);  // a negative or very large number has no end
plan::Machine machine_of(const std::string& path);        // a file that is not there yet knows nothing

// The cache of this process, as SLUICE_CACHE says; null: plans are compiled each time.
std::shared_ptr<PlanCache> process_plans();

// The reports of a compiled graph about itself (graph_reports.cpp).
nb::dict stats_of(GraphSession& session);
nb::list memory_of(GraphSession& session);
nb::dict ledger_of(const plan::Plan& plan);
nb::dict offload_of(const CompileResult& result);
nb::list ports_of(const std::vector<PortInfo>& ports);
nb::list inputs_of(GraphSession& session);
nb::list passes_of(const CompileResult& result);
nb::list layouts_of(const GraphSession& session);
nb::list conversions_of(const GraphSession& session);
nb::tuple layout_search_of(const GraphSession& session);
nb::list sources_of(const GraphSession& session);

void bind_bound_call(nb::module_& m);
void bind_captured(nb::module_& m);
void bind_family(nb::module_& m);
void bind_graph_options(nb::module_& m);
void bind_graph_session(nb::module_& m);
void bind_host_functions(nb::module_& m);
void bind_plan_cache(nb::module_& m);
void bind_quantization(nb::module_& m);
// (name, before, after), the last two Captured.
Pattern pattern_of(nb::handle pattern);
// `callable(*arrays) -> arrays` as a kernel body; `name` is for its errors.
HostFunction host_function_of(const std::string& name, nb::object callable);

}  // namespace sluice::python
