// Tracing scopes and placement, as Python's nn.Graph uses them.
#include <array>

#include "bindings.h"
#include "fix.h"
#include "graph/calls/call_fix.h"
#include "graph/origin.h"
#include "graph_object.h"
#include "plan/extents.h"
#include "source_location.h"
#include "tensor/branches.h"
#include "tensor/chosen.h"
#include "tensor/eager.h"
#include "tensor/loops.h"
#include "tensor/trace.h"
#include "tensor/trace_executor.h"

namespace sluice::python {
namespace {

thread_local std::optional<DeviceId> default_device;

// A C++ scope that Python opens and closes.
template <class Scope>
struct PyScope {
  std::unique_ptr<Scope> scope;
  void close() { scope.reset(); }
};

// Stacks of frames by the first node they belong to; kept when more than one frame is asked for.
struct PyTrace {
  PyTrace(const std::string& name, int stack_depth, const std::vector<nb::dict>& changes)
      : scope(std::make_unique<TraceScope>(default_eager(), name)) {
    std::vector<Fix> list;
    for (const nb::dict& change : changes) list.push_back(fix_from(change));
    fixes = std::make_unique<CallFixScope>(std::move(list), user_location);
    set_source_provider([this, stack_depth] {
      if (stack_depth > 1) {
        const int node = static_cast<int>(scope->graph().nodes().size());
        if (stacks.empty() || stacks.back().first != node) stacks.emplace_back(node, user_stack(stack_depth));
      }
      return user_location();
    });
  }
  ~PyTrace() { close(); }
  void close() {
    set_source_provider(nullptr);
    fixes.reset();
    scope.reset();
  }
  TraceScope& open() {
    if (!scope) fail(ErrorKind::kRuntime, "trace: this scope was closed; a scope makes one graph");
    return *scope;
  }

  std::unique_ptr<TraceScope> scope;
  std::unique_ptr<CallFixScope> fixes;
  std::vector<std::pair<int, std::vector<std::string>>> stacks;
};

void bind_trace(nb::module_& m) {
  bind_captured(m);
  nb::class_<PyTrace>(m, "TraceScope", "Ops on this thread make nodes until finish() or close().")
      .def(nb::init<const std::string&, int, const std::vector<nb::dict>&>(), nb::arg("name"),
           nb::arg("stack_depth") = 1, nb::arg("fixes") = std::vector<nb::dict>())
      .def(
          "add_input",
          [](PyTrace& t, const std::string& name, DType dtype, const Shape& shape,
             const std::optional<Strides>& strides) -> Value {
            return t.open().add_input(name, {dtype, shape}, strides);
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape"), nb::arg("strides") = nb::none())
      .def("register_variable",
           [](PyTrace& t, const std::string& name, const Value& tensor) { t.open().register_variable(name, tensor); })
      .def("finish",
           [](PyTrace& t, const std::vector<std::pair<std::string, Value>>& outputs) {
             PyCaptured captured{t.open().finish(outputs), std::move(t.stacks)};
             t.close();
             return captured;
           })
      .def("unfinished",
           [](PyTrace& t) {
             PyCaptured captured{t.open().executor().unfinished(), std::move(t.stacks)};
             t.close();
             return captured;
           })
      .def("set_micro_batches", [](PyTrace& t, int n) { t.open().graph().set_micro_batches(n); })
      .def("num_nodes", [](PyTrace& t) { return t.open().graph().nodes().size(); })
      .def("close", &PyTrace::close);
  nb::class_<Branches>(m, "Branches", "Branches of the graph being traced, of which each step takes one.")
      .def(nb::init<const Value&, int64_t>(), nb::arg("index"), nb::arg("n"))
      .def("run",
           [](Branches& b, int64_t branch, const nb::callable& trace) {
             return b.run(branch, [&] { return nb::cast<std::vector<Value>>(trace()); });
           })
      .def("join", [](const Branches& b, const std::vector<std::vector<Value>>& results) { return b.join(results); });
  // Loops of the graph being traced; body(values of a step) gives the next states, then what is stacked.
  m.def(
      "trace_scan",
      [](const std::vector<Value>& states, const std::vector<Value>& rows, int64_t length, bool reverse,
         const nb::callable& body, bool plain) {
        return trace_scan(states, rows, {length, reverse, plain}, [&](std::span<const Value> taken) {
          return nb::cast<std::vector<Value>>(body(std::vector<Value>(taken.begin(), taken.end())));
        });
      },
      nb::arg("states"), nb::arg("rows"), nb::arg("length"), nb::arg("reverse"), nb::arg("body"),
      nb::arg("plain") = false);
  m.def("trace_while", [](const std::vector<Value>& states, const nb::callable& body) {
    return trace_while(states, [&](std::span<const Value> taken) {
      return nb::cast<std::vector<Value>>(body(std::vector<Value>(taken.begin(), taken.end())));
    });
  });
  m.def("is_tracing", [] { return current_trace() != nullptr; });
  // Is it a value or a variable of the graph that is traced, rather than a constant.
  m.def("touches_graph", [](const Value& t) {
    TraceExecutor* trace = current_trace();
    return trace != nullptr && trace->touches_graph(t);
  });
  // Is it a tensor that was made while tracing and then written to, so that its content is a value of the graph.
  m.def("was_adopted", [](const Value& t) {
    TraceExecutor* trace = current_trace();
    return trace != nullptr && trace->was_adopted(t);
  });
  // Is it a value of the graph that is traced, with an axis whose length differs from step to step.
  m.def("varies", [](const Value& t) {
    TraceExecutor* trace = current_trace();
    return trace != nullptr && trace->touches_graph(t) && !trace->varying_axes(t).empty();
  });
  // Says of how many micro-batches the graph has one such value; 0 for what it has once for all, and for constants.
  m.def("micro_batches_of", [](const Value& t) {
    TraceExecutor* trace = current_trace();
    return trace != nullptr && trace->touches_graph(t) ? trace->every(t) : 0;
  });
  m.def("user_location", [] { return user_location().str(); });
}

}  // namespace

std::optional<DeviceId> placement_device() {
  const std::optional<DeviceId> placed = current_placement_device();
  return placed ? placed : default_device;
}

void bind_graph(nb::module_& m) {
  bind_trace(m);
  nb::class_<PyScope<PlacementScope>>(m, "PlacementScope")
      .def(
          "__init__",
          [](PyScope<PlacementScope>* self, std::optional<DeviceId> device, const std::string& stream, int quota) {
            new (self)
                PyScope<PlacementScope>{std::make_unique<PlacementScope>(graph::Placement{device, stream}, quota)};
          },
          nb::arg("device") = nb::none(), nb::arg("stream") = "", nb::arg("quota") = 0)
      .def("close", &PyScope<PlacementScope>::close);
  nb::class_<PyScope<ModuleScope>>(m, "ModuleScope")
      .def("__init__",
           [](PyScope<ModuleScope>* self, const std::string& name) {
             new (self) PyScope<ModuleScope>{std::make_unique<ModuleScope>(name)};
           })
      .def("close", &PyScope<ModuleScope>::close);
  m.def(
      "checkpoint_policy", [](const std::string& name) { checkpoint_policy(name); }, "Throws where there is none.");
  nb::class_<PyScope<CheckpointScope>>(m, "CheckpointScope")
      .def("__init__",
           [](PyScope<CheckpointScope>* self, const std::string& policy) {
             new (self) PyScope<CheckpointScope>{std::make_unique<CheckpointScope>(checkpoint_policy(policy))};
           })
      .def("close", &PyScope<CheckpointScope>::close);
  nb::class_<PyScope<RateScope>>(m, "RateScope")
      .def("__init__", [](PyScope<RateScope>* self,
                          int every) { new (self) PyScope<RateScope>{std::make_unique<RateScope>(every)}; })
      .def("close", &PyScope<RateScope>::close);
  nb::class_<PyScope<FixedLengthsScope>>(m, "FixedLengthsScope")
      .def("__init__",
           [](PyScope<FixedLengthsScope>* self) {
             new (self) PyScope<FixedLengthsScope>{std::make_unique<FixedLengthsScope>()};
           })
      .def("close", &PyScope<FixedLengthsScope>::close);
  nb::class_<PyScope<OriginScope>>(m, "RoleScope")
      .def("__init__",
           [](PyScope<OriginScope>* self, const std::string& role) {
             new (self) PyScope<OriginScope>{std::make_unique<OriginScope>(parse_role(role))};
           })
      .def("close", &PyScope<OriginScope>::close);
  m.def("placement_device", &placement_device,
        "Where tensors are made that are not told where: of the innermost scope, or the default; None: the cpu.");
  m.def(
      "set_default_device", [](const std::optional<DeviceId>& device) { default_device = device; },
      nb::arg("device").none(), "Of this thread.");
  bind_graph_session(m);
  bind_bound_call(m);
  bind_host_functions(m);
}

}  // namespace sluice::python
