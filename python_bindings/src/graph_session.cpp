// A compiled graph: calls, reports, traces, bundles.
#include "tensor/graph_session.h"

#include <nanobind/stl/map.h>

#include <mutex>
#include <set>

#include "both.h"
#include "graph_object.h"
#include "live_graphs.h"
#include "plan/json.h"
#include "plan/ledger.h"
#include "runtime/session.h"
#include "tensor/eager.h"

namespace sluice::python {
namespace {

class PyGraph;
struct LiveGraphs {
  std::mutex mutex;
  std::set<PyGraph*> graphs;
};
LiveGraphs& live_graphs() {
  static auto* live = new LiveGraphs();
  return *live;
}

// Owns a GraphSession and can be ended before its Python object is: at exit, or by close().
class PyGraph {
 public:
  explicit PyGraph(std::unique_ptr<GraphSession> session) : session_(std::move(session)) {
    std::lock_guard lock(live_graphs().mutex);
    live_graphs().graphs.insert(this);
  }
  PyGraph(const PyGraph&) = delete;
  ~PyGraph() {
    std::unique_ptr<GraphSession> ending;
    {
      std::lock_guard lock(live_graphs().mutex);
      live_graphs().graphs.erase(this);
      ending = std::move(session_);
    }
    if (!ending) return;
    nb::gil_scoped_release release;  // its steps in flight may need it
    ending.reset();
  }
  GraphSession& get() {
    if (!session_) fail(ErrorKind::kRuntime, "graph: it was closed; compile it again to call it");
    return *session_;
  }
  std::unique_ptr<GraphSession> take() { return std::move(session_); }

 private:
  std::unique_ptr<GraphSession> session_;
};

template <class T>
void read(const nb::dict& d, const char* key, T* value) {
  if (d.contains(key)) *value = nb::cast<T>(d[key]);
}

GraphSessionOptions options_of(const nb::dict& d, const nb::dict& functions) {
  GraphSessionOptions o;
  read(d, "name", &o.compile.name);
  read(d, "device", &o.compile.device);
  if (d.contains("granularity"))
    o.compile.granularity = nb::cast<std::string>(d["granularity"]) == "op" ? Granularity::kOp : Granularity::kProgram;
  read(d, "outputs_buffer_size", &o.compile.outputs_buffer_size);
  read(d, "quotas", &o.compile.quotas);
  read(d, "reuse_memory", &o.compile.reuse_memory);
  read(d, "in_place", &o.compile.in_place);
  read(d, "memory_budget", &o.compile.memory_budget);
  read(d, "cores", &o.compile.cores);
  read(d, "disabled_passes", &o.compile.disabled_passes);
  read(d, "dump_dir", &o.compile.dump_dir);
  read(d, "trace", &o.trace);
  read(d, "check_numerics", &o.check_numerics);
  read(d, "dry_run", &o.dry_run);
  read(d, "meta", &o.meta);
  if (d.contains("wait_timeout")) {
    const auto seconds = std::chrono::duration<double>(nb::cast<double>(d["wait_timeout"]));
    o.wait_timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(seconds);
  }
  for (auto [name, function] : functions) {
    const std::string key = nb::cast<std::string>(name);
    o.functions[key] = host_function_of(key, nb::borrow(function));
  }
  return o;
}

// At capacity, waits in slices so that Ctrl-C works.
std::vector<Tensor> call(PyGraph& graph, const std::vector<Tensor>& inputs, double timeout_s) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  GraphSession& session = graph.get();
  std::vector<Tensor> outputs;
  for (bool submitted = false; !submitted;) {
    {
      nb::gil_scoped_release release;
      const double left =
          timeout_s < 0 ? 0.1 : std::min(0.1, timeout_s - std::chrono::duration<double>(Clock::now() - start).count());
      const auto slice =
          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(std::max(left, 0.0)));
      try {
        outputs = session.call(inputs, slice);
        submitted = true;
      } catch (const Error& error) {
        const bool over = timeout_s >= 0 && std::chrono::duration<double>(Clock::now() - start).count() >= timeout_s;
        if (error.kind() != ErrorKind::kTimeout || over) throw;
      }
    }
    if (!submitted && PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  return outputs;
}

nb::dict stats_of(GraphSession& session) {
  const SessionStats stats = session.session().stats();
  nb::dict d, firings;
  d["submitted"] = stats.submitted;
  d["finished"] = stats.finished;
  d["failed"] = stats.failed;
  d["in_flight"] = stats.in_flight;
  d["max_in_flight"] = stats.max_in_flight;
  for (const ActorStats& actor : stats.actors) firings[actor.name.c_str()] = actor.firings;
  d["firings"] = firings;
  return d;
}

nb::list memory_of(GraphSession& session) {
  nb::list list;
  for (const SessionMemory::Space& space : session.session().memory().spaces) {
    nb::dict d;
    d["space"] = space.name;
    d["arenas"] = space.arenas;
    d["variables"] = space.variables;
    d["outputs"] = space.outputs;
    list.append(d);
  }
  return list;
}

nb::dict ledger_of(const plan::Plan& plan) {
  const plan::Ledger ledger = plan::ledger(plan);
  nb::dict d, spaces;
  d["arenas"] = ledger.arenas;
  d["variables"] = ledger.variables;
  d["constants"] = ledger.constants;
  d["register_slots"] = ledger.register_slots;
  d["workspaces"] = ledger.workspaces;
  d["intermediates"] = ledger.intermediates;
  d["total"] = ledger.total;
  for (size_t i = 0; i < plan.spaces.size(); ++i) spaces[plan.spaces[i].str().c_str()] = ledger.space_bytes[i];
  d["spaces"] = spaces;
  return d;
}

nb::list ports_of(const std::vector<PortInfo>& ports) {
  nb::list list;
  for (const PortInfo& port : ports) list.append(nb::make_tuple(port.name, port.type.dtype, port.type.shape));
  return list;
}

nb::list passes_of(const CompileResult& result) {
  nb::list list;
  for (const PassReport& pass : result.passes) list.append(nb::make_tuple(pass.name, pass.rewrites, pass.seconds));
  return list;
}

}  // namespace

void close_all_graphs() {
  std::vector<std::unique_ptr<GraphSession>> ending;
  {
    std::lock_guard lock(live_graphs().mutex);
    for (PyGraph* graph : live_graphs().graphs) ending.push_back(graph->take());
  }
  ending.clear();
}

void bind_graph_session(nb::module_& m) {
  nb::class_<PyGraph>(m, "GraphSession", "A compiled graph that runs on the default engine.")
      .def("__init__",
           [](PyGraph* self, const PyCaptured& captured, const nb::dict& options, const nb::dict& functions) {
             GraphSessionOptions o = options_of(options, functions);
             std::unique_ptr<GraphSession> session;
             {
               nb::gil_scoped_release release;
               session = std::make_unique<GraphSession>(default_eager(), captured.graph, std::move(o));
             }
             new (self) PyGraph(std::move(session));
           })
      .def_static(
          "load",
          [](const std::string& dir, const nb::dict& options, const nb::dict& functions) {
            GraphSessionOptions o = options_of(options, functions);
            std::unique_ptr<GraphSession> session;
            {
              nb::gil_scoped_release release;
              session = GraphSession::load(default_eager(), dir, std::move(o));
            }
            return new PyGraph(std::move(session));
          },
          nb::rv_policy::take_ownership)
      .def(
          "call",
          [](PyGraph& g, const std::vector<Value>& inputs, double timeout_s) {
            const std::vector<Tensor> outputs = call(g, {inputs.begin(), inputs.end()}, timeout_s);
            return std::vector<Value>(outputs.begin(), outputs.end());
          },
          nb::arg("inputs"), nb::arg("timeout_s") = -1.0)
      .def("synchronize",
           [](PyGraph& g) {
             Session& session = g.get().session();
             wait_interruptibly([&](int timeout_ms) {
               try {
                 session.wait_all(std::chrono::milliseconds(timeout_ms));
                 return true;
               } catch (const Error& error) {
                 if (error.kind() != ErrorKind::kTimeout) throw;
                 return false;
               }
             });
           })
      .def(
          "plan_json", [](PyGraph& g) { return plan::to_json(g.get().compiled().plan); }, Release())
      .def(
          "graph_text", [](PyGraph& g) { return graph::to_text(g.get().compiled().graph); }, Release())
      .def("ledger", [](PyGraph& g) { return ledger_of(g.get().compiled().plan); })
      .def("passes", [](PyGraph& g) { return passes_of(g.get().compiled()); })
      .def_prop_ro("compile_seconds", [](PyGraph& g) { return g.get().compiled().seconds; })
      .def("stats", [](PyGraph& g) { return stats_of(g.get()); })
      .def("session_memory", [](PyGraph& g) { return memory_of(g.get()); })
      .def("wait_report", [](PyGraph& g) { return g.get().session().wait_report(); })
      .def("inputs", [](PyGraph& g) { return ports_of(g.get().session().inputs()); })
      .def("outputs", [](PyGraph& g) { return ports_of(g.get().session().outputs()); })
      .def("set_trace", [](PyGraph& g, bool on) { g.get().session().set_trace(on); })
      .def(
          "take_trace",
          [](PyGraph& g) {
            Session& session = g.get().session();
            return chrome_trace_json(session.take_trace(), session.trace_names());
          },
          Release())
      .def(
          "save", [](PyGraph& g, const std::string& dir) { g.get().save(dir); }, Release())
      .def("close", [](PyGraph& g) {
        std::unique_ptr<GraphSession> ending = g.take();
        nb::gil_scoped_release release;
        ending.reset();
      });
  m.def("pass_names", &pass_names);
}

}  // namespace sluice::python
