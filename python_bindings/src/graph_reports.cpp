// Reports of a compiled graph about itself.
#include "bindings.h"
#include "graph_object.h"
#include "kernels/target.h"
#include "plan/pack/ledger.h"
#include "plan/query.h"
#include "runtime/session/engine.h"
#include "runtime/session/session.h"
#include "tensor/session/graph_session.h"

namespace sluice::python {

nb::dict stats_of(GraphSession& session) {
  const SessionStats stats = session.session().stats();
  nb::dict d, firings;
  d["submitted"] = stats.submitted;
  d["finished"] = stats.finished;
  d["failed"] = stats.failed;
  d["in_flight"] = stats.in_flight;
  d["max_in_flight"] = stats.max_in_flight;
  d["spilled"] = stats.spilled;
  d["fetched"] = stats.fetched;
  for (const ActorStats& actor : stats.actors) firings[actor.name.c_str()] = actor.firings;
  d["firings"] = firings;
  nb::dict libraries;
  for (const KernelLibrary& kernel : stats.libraries) libraries[kernel.name.c_str()] = kernel.library;
  d["libraries"] = libraries;
  return d;
}

nb::list memory_of(GraphSession& session) {
  nb::list list;
  for (const SessionMemory::Space& space : session.session().memory().spaces) {
    nb::dict d;
    d["space"] = space.name;
    d["arenas"] = space.arenas;
    d["shared"] = space.shared;
    d["variables"] = space.variables;
    d["packed"] = space.packed;
    d["mapped"] = space.mapped;
    d["inputs"] = space.inputs;
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
  d["packed"] = ledger.packed;
  d["register_slots"] = ledger.register_slots;
  d["workspaces"] = ledger.workspaces;
  d["intermediates"] = ledger.intermediates;
  d["total"] = ledger.total;
  for (size_t i = 0; i < plan.spaces.size(); ++i) spaces[plan.spaces[i].str().c_str()] = ledger.space_bytes[i];
  d["spaces"] = spaces;
  return d;
}

nb::dict offload_of(const CompileResult& result) {
  const Offload& offload = result.offload;
  nb::dict d;
  nb::list nodes;
  for (const Offload::Node& node : offload.nodes) {
    nb::dict n;
    n["op"] = node.op;
    n["module"] = node.module;
    n["source"] = node.source;
    n["cluster"] = node.cluster >= 0 ? nb::object(nb::cast(node.cluster)) : nb::object(nb::none());
    n["reason"] = node.reason;
    n["flops"] = node.flops;
    nodes.append(n);
  }
  d["backend"] = offload.backend;
  d["version"] = offload.version;
  d["clusters"] = offload.clusters;
  d["line"] = offload.backend.empty() ? std::string() : offload.line();
  d["nodes"] = nodes;
  return d;
}

nb::list ports_of(const std::vector<PortInfo>& ports) {
  nb::list list;
  for (const PortInfo& port : ports) list.append(nb::make_tuple(port.name, port.type.dtype, port.type.shape));
  return list;
}

// The inputs of a call: for a graph that several ranks run, the graph's own, of which this rank may have parts.
nb::list inputs_of(GraphSession& session) {
  if (!session.of_ranks()) return ports_of(session.session().inputs());
  const graph::Graph& graph = session.captured().graph;
  std::vector<PortInfo> wholes;
  for (const graph::Input& input : graph.inputs()) wholes.push_back({input.name, graph.type(input.value)});
  return ports_of(wholes);
}

// ("kernel", its text), of kernels that are made at run time.
nb::list sources_of(const GraphSession& session) {
  const plan::Plan& plan = session.running_plan();
  const std::vector<int> streams = plan::streams_of_kernels(plan);
  const KernelTarget target(default_eager().engine().kernel_cache(), {});
  nb::list list;
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    if (streams[k] < 0) continue;
    const plan::KernelQuery query =
        plan::query_of(plan, plan.kernels[k], plan.streams[static_cast<size_t>(streams[k])]);
    if (const std::string text = target.source(query); !text.empty())
      list.append(nb::make_tuple(plan.kernels[k].name, text));
  }
  return list;
}

nb::list passes_of(const CompileResult& result) {
  nb::list list;
  for (const PassReport& pass : result.passes) list.append(nb::make_tuple(pass.name, pass.rewrites, pass.seconds));
  return list;
}

// What is brought from lying one way to lying another: (kind, module, from, to, bytes), in the order of the program.
nb::list conversions_of(const GraphSession& session) {
  nb::list list;
  for (const Boxing& b : session.compiled().partition.boxings)
    list.append(nb::make_tuple(b.kind, b.module, b.from, b.to, b.bytes));
  return list;
}

// The figures of the search for layouts: (what the greedy ones cost, what those found do, plans tried, candidates),
// a cost being (bytes, conversions, flops) and a candidate (value, alike, type, sbp, cost, total, chosen).
nb::tuple layout_search_of(const GraphSession& session) {
  const auto tuple_of = [](const LayoutCost& c) { return nb::make_tuple(c.bytes, c.conversions, c.flops); };
  const LayoutSearch& search = session.compiled().partition.search;
  nb::list candidates;
  for (const LayoutCandidate& c : search.candidates)
    candidates.append(nb::make_tuple(c.value, c.alike, c.type, c.sbp, tuple_of(c.cost), c.total, c.chosen));
  return nb::make_tuple(tuple_of(search.greedy), tuple_of(search.found), search.tried, candidates);
}

// The layout of each traced node's first output: ("S(0)", its devices), without devices where it is on one.
nb::list layouts_of(const GraphSession& session) {
  const compiler::SbpPlan plan = session.layouts();
  nb::list list;
  for (const graph::Node& node : session.captured().graph.nodes()) {
    const compiler::Lay lay = node.outputs.empty() ? compiler::Lay{} : plan.source_values[node.outputs[0]];
    list.append(nb::make_tuple(lay.sbp.str(), lay.on_mesh() ? plan.meshes[lay.mesh].str() : ""));
  }
  return list;
}

}  // namespace sluice::python
