// A compiled graph: calls, reports, traces, bundles.
#include "tensor/session/graph_session.h"

#include <nanobind/stl/map.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/files/file.h"
#include "bindings.h"
#include "graph_object.h"
#include "live_graphs.h"
#include "plan/json/json.h"
#include "plan/pack/ledger.h"
#include "plan/record/blame.h"
#include "plan/time/costs.h"
#include "runtime/bundle/bundle_source.h"
#include "runtime/bundle/replace_bundle.h"
#include "runtime/live/live.h"
#include "runtime/report/trace_file.h"
#include "runtime/session/session.h"
#include "tensor/eager.h"
#include "tensor/session/graph_family.h"

namespace sluice::python {
namespace {

// A trace on its way to a file, and the session that it is of.
struct PyTraceFile {
  PyTraceFile(std::shared_ptr<GraphSession> of, const std::string& path)
      : graph(std::move(of)), file(graph->session(), path) {}
  std::shared_ptr<GraphSession> graph;
  TraceFile file;
};

nb::dict family_ledger_of(const std::vector<PyGraph*>& members, bool shared_arenas,
                          const std::map<std::string, uint64_t>& held_bytes) {
  std::vector<std::shared_ptr<GraphSession>> held;
  std::vector<const plan::Plan*> plans;
  for (PyGraph* member : members) {
    held.push_back(member->get());
    plans.push_back(&held.back()->running_plan());
  }
  const plan::FamilyLedger ledger = plan::family_ledger(plans, shared_arenas, held_bytes);
  nb::dict d, spaces;
  d["arenas"] = ledger.arenas;
  d["variables"] = ledger.variables;
  d["constants"] = ledger.constants;
  d["packed"] = ledger.packed;
  d["total"] = ledger.total;
  for (const auto& [name, bytes] : ledger.spaces) spaces[name.c_str()] = bytes;
  d["spaces"] = spaces;
  return d;
}

void save_members(const std::string& dir, const plan::Family& family, const std::vector<PyGraph*>& members,
                  const std::map<std::string, std::string>& meta) {
  std::vector<std::shared_ptr<GraphSession>> held;
  std::vector<const GraphSession*> sessions;
  for (PyGraph* member : members) sessions.push_back(held.emplace_back(member->get()).get());
  GilRelease release;
  save_family(dir, family, sessions, meta);
}

nb::tuple load_members(const BundleSource& source, const nb::dict& options, const nb::dict& functions) {
  GraphSessionOptions o = graph_options_of(options, functions);
  GraphFamily family;
  {
    GilRelease release;
    family = load_family(default_eager(), source, std::move(o));
  }
  nb::list members;
  for (auto& member : family.members)
    members.append(nb::cast(new PyGraph(std::move(member)), nb::rv_policy::take_ownership));
  return nb::make_tuple(std::move(family.family), members, family.meta);
}

void bind_bundle_files(nb::module_& m) {
  m.def(
      "blame_text", [](const std::string& path) { return plan::summary_str(plan::load_recording(path)); }, Release(),
      nb::arg("path"), "Where the time of a recorded run went, as text.");
  m.def("set_live", &sluice::set_live, Release(), nb::arg("on"), "Lets this process be looked at, or no longer.");
  m.def("is_live", &sluice::live, "Whether this process can be looked at.");
  nb::class_<PyTraceFile>(m, "TraceFile")
      .def(
          "close", [](PyTraceFile& f) { f.file.close(); }, Release());
  nb::class_<BundleSource>(m, "BundleSource",
                           "The files of a bundle as they are now, also while others save to its path.")
      .def(nb::init<const std::string&>(), Release(), nb::arg("path"))
      .def_prop_ro("name", &BundleSource::name)
      .def("has", &BundleSource::has, nb::arg("file"))
      .def("text", &BundleSource::utf8_text, Release(), nb::arg("file"))
      .def("inner", &BundleSource::inner, nb::arg("folder"));
  m.def(
      "replace_bundle",
      [](const std::string& directory, const nb::callable& write) {
        replace_bundle(directory, [&](const std::filesystem::path& path) { write(path.string()); });
      },
      nb::arg("directory"), nb::arg("write"),
      "Fills a new folder by `write(path)` and puts it into the place of a bundle, or where nothing is.");
}

void bind_graph_making(nb::class_<PyGraph>& graph) {
  graph
      .def("__init__",
           [](PyGraph* self, const PyCaptured& captured, const nb::dict& options, const nb::dict& functions) {
             GraphSessionOptions o = graph_options_of(options, functions);
             std::unique_ptr<GraphSession> session;
             {
               GilRelease release;
               session = std::make_unique<GraphSession>(default_eager(), captured.graph, std::move(o));
             }
             new (self) PyGraph(std::move(session));
           })
      .def_static(
          "load",
          [](const BundleSource& source, const nb::dict& options, const nb::dict& functions) {
            GraphSessionOptions o = graph_options_of(options, functions);
            std::unique_ptr<GraphSession> session;
            {
              GilRelease release;
              session = GraphSession::load(default_eager(), source, std::move(o));
            }
            return new PyGraph(std::move(session));
          },
          nb::rv_policy::take_ownership)
      .def_static(
          "resume",
          [](const std::map<std::string, std::string>& texts, const std::map<std::string, Value>& variables,
             const std::string& name, const nb::dict& options) {
            GraphSessionOptions o = graph_options_of(options, nb::dict());
            SavedPlan saved{texts, {variables.begin(), variables.end()}};
            std::unique_ptr<GraphSession> session;
            {
              GilRelease release;
              session = GraphSession::resume(default_eager(), saved, name, std::move(o));
            }
            return new PyGraph(std::move(session));
          },
          nb::rv_policy::take_ownership, nb::arg("texts"), nb::arg("variables"), nb::arg("name"), nb::arg("options"));
}

std::vector<Tensor> tensors_of(std::vector<Value> values) {
  return {std::make_move_iterator(values.begin()), std::make_move_iterator(values.end())};
}
std::vector<Value> values_of(std::vector<Tensor> tensors) {
  return {std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end())};
}

void bind_graph_calls(nb::class_<PyGraph>& graph) {
  graph
      .def(
          "call",
          [](PyGraph& g, std::vector<Value> inputs, double timeout_s) {
            return values_of(g.get()->call(tensors_of(std::move(inputs)), nanoseconds_of(timeout_s)));
          },
          Release(), nb::arg("inputs"), nb::arg("timeout_s") = -1.0)
      .def(
          "try_call",
          [](PyGraph& g, std::vector<Value> inputs) -> std::optional<std::vector<Value>> {
            auto outputs = g.get()->try_call(tensors_of(std::move(inputs)));
            if (!outputs) return std::nullopt;
            return values_of(std::move(*outputs));
          },
          Release(), nb::arg("inputs"))
      .def(
          "synchronize", [](PyGraph& g) { g.get()->synchronize(); }, Release())
      .def(
          "reset", [](PyGraph& g) { g.get()->reset(); }, Release())
      .def(
          "close", [](PyGraph& g) { g.close(); }, Release());
}

// These members tell what the graph was compiled from, and to.
void bind_graph_plan(nb::class_<PyGraph>& graph) {
  graph
      .def(
          "plan_json", [](PyGraph& g) { return plan::to_json(g.get()->compiled().plan); }, Release())
      .def(
          "graph_text", [](PyGraph& g) { return graph::to_text(g.get()->compiled().graph); }, Release())
      .def("output_axes",
           [](PyGraph& g) {
             std::map<std::string, std::vector<int>> axes;
             for (const plan::Output& output : g.get()->compiled().plan.outputs)
               if (!output.axes.empty()) axes[output.name] = output.axes;
             return axes;
           })
      .def(
          "running_plan_json", [](PyGraph& g) { return plan::to_json(g.get()->running_plan()); }, Release())
      .def("ledger", [](PyGraph& g) { return ledger_of(g.get()->running_plan()); })
      .def("layouts", [](PyGraph& g) { return layouts_of(*g.get()); })
      .def("layout_search", [](PyGraph& g) { return layout_search_of(*g.get()); })
      .def("conversions", [](PyGraph& g) { return conversions_of(*g.get()); })
      .def("sources", [](PyGraph& g) { return sources_of(*g.get()); })
      .def("offload", [](PyGraph& g) { return offload_of(g.get()->compiled()); })
      .def("passes", [](PyGraph& g) { return passes_of(g.get()->compiled()); })
      .def("meta", [](PyGraph& g) { return g.get()->meta(); })
      .def(
          "saved_plan",
          [](PyGraph& g) {
            SavedPlan saved = g.get()->saved_plan();
            return std::pair(std::move(saved.texts),
                             std::map<std::string, Value>(saved.variables.begin(), saved.variables.end()));
          },
          Release())
      .def("captured", [](PyGraph& g) { return PyCaptured(g.get()->captured(), {}); })
      .def_prop_ro("replanned", [](PyGraph& g) { return g.get()->replanned(); })
      .def_prop_ro("writes_variables",
                   [](PyGraph& g) {
                     const std::vector<bool> written = plan::written_variables(g.get()->compiled().plan);
                     return std::find(written.begin(), written.end(), true) != written.end();
                   })
      .def_prop_ro("compile_seconds", [](PyGraph& g) { return g.get()->compiled().seconds; });
}

void bind_graph_counters(nb::class_<PyGraph>& graph) {
  graph.def("stats", [](PyGraph& g) { return stats_of(*g.get()); })
      .def("counters", [](PyGraph& g) { return counters_of(g.get()->session().stats()); })
      .def("counters_text", [](PyGraph& g) { return g.get()->session().stats().str(); })
      .def(
          "set_quota", [](PyGraph& g, const std::string& reg, int slots) { g.get()->session().set_quota(reg, slots); },
          Release())
      .def("session_memory", [](PyGraph& g) { return memory_of(*g.get()); })
      .def(
          "wait_report", [](PyGraph& g) { return g.get()->session().wait_report(); }, Release())
      .def("inputs", [](PyGraph& g) { return inputs_of(*g.get()); })
      .def("outputs", [](PyGraph& g) { return ports_of(g.get()->session().outputs()); });
}

// A trace tells when steps ran, and what their kernels took.
void bind_graph_traces(nb::class_<PyGraph>& graph) {
  graph
      .def(
          "set_trace", [](PyGraph& g, bool on) { g.get()->session().set_trace(on); }, Release())
      .def(
          "take_trace",
          [](PyGraph& g) {
            const std::shared_ptr<GraphSession> graph = g.get();
            Session& session = graph->session();
            return chrome_trace_json(session.take_trace(), session.trace_names());
          },
          Release())
      .def(
          "record_trace", [](PyGraph& g, const std::string& path) { return new PyTraceFile(g.get(), path); },
          nb::rv_policy::take_ownership, Release(), nb::arg("path"))
      .def(
          "take_costs",
          [](PyGraph& g, const std::string& path) {
            const std::shared_ptr<GraphSession> graph = g.get();
            plan::Machine machine = machine_of(path);
            plan::merge(machine.measured,
                        plan::measured_runs(graph->session().plan(), graph->session().take_trace().events));
            return plan::to_json(machine);
          },
          Release(), nb::arg("path"))
      .def(
          "costs_known",
          [](PyGraph& g, const std::string& path) {
            return plan::has_all(machine_of(path).measured, g.get()->session().plan());
          },
          Release(), nb::arg("path"));
}

void bind_graph_saving(nb::class_<PyGraph>& graph) {
  graph
      .def(
          "save", [](PyGraph& g, const std::string& dir) { g.get()->save(dir); }, Release())
      .def(
          "save_exported",
          [](PyGraph& g, const std::string& dir, std::optional<std::vector<int>> outputs, std::string signature,
             bool freeze) {
            g.get()->exported({std::move(outputs), std::move(signature), freeze})->save(dir);
          },
          nb::arg("dir"), nb::arg("outputs").none(), nb::arg("signature"), nb::arg("freeze"), Release());
}

// These functions take several graphs: the members of a family.
void bind_family_members(nb::module_& m) {
  m.def("check_member",
        [](const plan::Family& family, size_t member, PyGraph& g) { check_member(family, member, *g.get()); });
  m.def("family_ledger", &family_ledger_of, nb::arg("members"), nb::arg("shared_arenas"), nb::arg("held"));
  m.def("save_family", &save_members);
  m.def("load_family", &load_members);
}

}  // namespace

void bind_graph_session(nb::module_& m) {
  bind_family(m);
  bind_graph_options(m);
  bind_plan_cache(m);
  bind_quantization(m);
  bind_bundle_files(m);
  nb::class_<PyGraph> graph(m, "GraphSession", "A compiled graph that runs on the default engine.");
  bind_graph_making(graph);
  bind_graph_calls(graph);
  bind_graph_plan(graph);
  bind_graph_counters(graph);
  bind_graph_traces(graph);
  bind_graph_saving(graph);
  m.def("pass_names", &pass_names);
  m.def(
      "moved_plan",
      [](const std::map<std::string, std::string>& texts, const std::string& name, const DeviceId& to) {
        return moved_plan({texts}, name, to, default_eager().ops()).texts;
      },
      Release(), nb::arg("texts"), nb::arg("name"), nb::arg("device"));
  m.def("graphs_left", &graphs_left, "How many graphs were let go before their steps were done; they end later.");
  bind_family_members(m);
}

}  // namespace sluice::python
