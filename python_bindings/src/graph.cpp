// Tracing scopes and placement, as Python's nn.Graph uses them.
#include <nanobind/stl/tuple.h>

#include <array>

#include "bindings.h"
#include "fix.h"
#include "graph/call_fix.h"
#include "graph/origin.h"
#include "graph_object.h"
#include "plan/extents.h"
#include "source_location.h"
#include "tensor/branches.h"
#include "tensor/eager.h"
#include "tensor/trace.h"
#include "tensor/trace_executor.h"

namespace sluice::python {
namespace {

thread_local std::optional<DeviceId> default_device;

// A C++ scope that Python opens and closes: `with` statements close in reverse order, as the scopes demand.
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

nb::list describe_types(const graph::Graph& graph, const std::vector<graph::ValueId>& values) {
  nb::list list;
  for (graph::ValueId value : values)
    list.append(value == graph::kNoValue ? nb::none() : nb::cast(graph.type(value).str()));
  return list;
}

// What debug output and print(graph) show of each node.
nb::list describe_nodes(const graph::Graph& graph) {
  nb::list list;
  for (const graph::Node& node : graph.nodes()) {
    nb::dict d;
    d["op"] = node.op->name;
    d["module"] = node.module;
    d["role"] = role_name(node.role);
    d["source"] = node.source.str();
    d["device"] = node.placement.device ? node.placement.device->str() : "";
    d["stream"] = node.placement.stream;
    d["inputs"] = describe_types(graph, node.inputs);
    d["outputs"] = describe_types(graph, node.outputs);
    nb::list attrs;
    for (size_t i = 0; i < node.attrs.size(); ++i)
      attrs.append(std::string(node.op->params[i].name) + "=" + attr_str(node.attrs[i]));
    d["attrs"] = attrs;
    list.append(d);
  }
  return list;
}

void bind_trace(nb::module_& m) {
  nb::class_<TakenContents>(m, "TakenContents", "Eager tensors whose contents a graph has as constants.")
      .def("changed", &TakenContents::changed, "Whether one of them has been written to since.");
  nb::class_<PyCaptured>(m, "Captured", "A traced graph and the tensors behind its variables.")
      .def("text", [](const PyCaptured& c) { return graph::to_text(c.graph.graph); })
      .def_prop_ro("ordered", [](const PyCaptured& c) { return c.graph.ordered; })
      .def("nodes", [](const PyCaptured& c) { return describe_nodes(c.graph.graph); })
      .def_ro("stacks", &PyCaptured::stacks)
      .def_prop_ro("taken", [](const PyCaptured& c) { return c.graph.taken; })
      .def("outputs",
           [](const PyCaptured& c) {
             std::vector<plan::NamedType> outputs;
             for (const graph::Output& o : c.graph.graph.outputs())
               outputs.push_back({o.name, c.graph.graph.type(o.value), o.extent_of});
             nb::list list;
             for (const plan::NamedType& o : plan::visible(outputs))
               list.append(nb::make_tuple(o.name, o.type.dtype, o.type.shape));
             return list;
           })
      .def("variables", [](const PyCaptured& c) {
        nb::dict d;
        for (const graph::Variable& v : c.graph.graph.variables()) {
          nb::dict entry;
          entry["type"] = c.graph.graph.type(v.value).str();
          entry["constant"] = v.constant;
          entry["updated"] = v.update != graph::kNoValue;
          d[v.name.c_str()] = entry;
        }
        return d;
      });
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
  m.def("is_tracing", [] { return current_trace() != nullptr; });
  // Is it a value or a variable of the graph that is traced, rather than a constant.
  m.def("touches_graph", [](const Value& t) {
    TraceExecutor* trace = current_trace();
    return trace != nullptr && trace->touches_graph(t);
  });
  // Of how many micro-batches the graph has one such value; 0 of what it has once for all, and of constants.
  m.def("micro_batches_of", [](const Value& t) {
    TraceExecutor* trace = current_trace();
    return trace != nullptr && trace->touches_graph(t) ? trace->every(t) : 0;
  });
  m.def("user_location", [] { return user_location().str(); });
}

std::map<std::string, std::vector<std::byte>> contents_of(const CapturedGraph& captured) {
  std::map<std::string, std::vector<std::byte>> contents;
  for (const graph::Variable& v : captured.graph.variables()) {
    const TensorType& type = captured.graph.type(v.value);
    std::vector<std::byte>& bytes = contents[v.name];
    bytes.resize(checked_bytes(type.shape, dtype_size(type.dtype)));
    captured.variables.at(v.name).copy_to_host(bytes.data());
  }
  return contents;
}

}  // namespace

Pattern pattern_of(nb::handle pattern) {
  const auto [name, before, after] = nb::cast<std::tuple<std::string, nb::object, nb::object>>(pattern);
  const CapturedGraph &from = nb::cast<const PyCaptured&>(before).graph, &to = nb::cast<const PyCaptured&>(after).graph;
  return {name, from.graph, to.graph, contents_of(from), contents_of(to)};
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
  nb::class_<PyScope<CheckpointScope>>(m, "CheckpointScope")
      .def("__init__",
           [](PyScope<CheckpointScope>* self) {
             new (self) PyScope<CheckpointScope>{std::make_unique<CheckpointScope>()};
           })
      .def("close", &PyScope<CheckpointScope>::close);
  nb::class_<PyScope<RateScope>>(m, "RateScope")
      .def("__init__", [](PyScope<RateScope>* self,
                          int every) { new (self) PyScope<RateScope>{std::make_unique<RateScope>(every)}; })
      .def("close", &PyScope<RateScope>::close);
  nb::class_<PyScope<OriginScope>>(m, "RoleScope")
      .def("__init__",
           [](PyScope<OriginScope>* self, const std::string& role) {
             new (self) PyScope<OriginScope>{std::make_unique<OriginScope>(parse_role(role))};
           })
      .def("close", &PyScope<OriginScope>::close);
  m.def(
      "placement_device",
      [] {
        const std::optional<DeviceId> placed = current_placement_device();
        return placed ? placed : default_device;
      },
      "Where tensors are made that are not told where: of the innermost scope, or the default; None: the cpu.");
  m.def(
      "set_default_device", [](const std::optional<DeviceId>& device) { default_device = device; },
      nb::arg("device").none(), "Of this thread.");
  bind_graph_session(m);
  bind_host_functions(m);
}

}  // namespace sluice::python
