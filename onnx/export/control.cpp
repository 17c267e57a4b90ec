// Branches and loops: nodes that hold graphs, which read the names around them.
#include <algorithm>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/nested.h"
#include "graph/ops/loops.h"
#include "onnx/export/emitter.h"

namespace sluice::onnx::exporting {

using graph::Graph;
using graph::Node;
using graph::ValueId;

// Esacs that are the results of the same branches.
struct Emitter::Choice {
  Walk& walk;
  std::vector<size_t> esacs;
  const BranchSet& within;

  const Node& node(size_t i = 0) const { return walk.first().nodes()[esacs[i]]; }
  ValueId index() const { return node().inputs[0]; }
  // The types of the results, by trace.
  std::vector<Port> ports(const Names& names) const {
    std::vector<Port> made;
    for (size_t i = 0; i < esacs.size(); ++i) made.push_back({names[i], walk.types(node(i).outputs[0])});
    return made;
  }
};

void Emitter::write(Walk& walk, const std::vector<size_t>& nodes, const BranchSet& within) {
  for (size_t at = 0; at < nodes.size(); ++at) {
    const size_t n = nodes[at];
    if (walk.branching == nullptr) {
      write_node(walk, n);
      continue;
    }
    const BranchSet& of = walk.branching->of(n);
    // Nodes of a branch within are written where its results are read.
    if (!std::includes(within.begin(), within.end(), of.begin(), of.end())) continue;
    const Node& node = walk.first().nodes()[n];
    if (walk.branching->begins(n)) {
      for (const ValueId output : node.outputs) walk.name(output) = walk.name(node.inputs[1]);
    } else if (walk.branching->ends(n)) {
      const size_t end = n + walk.branching->results_from(n);
      Choice choice{walk, {n}, within};
      for (; at + 1 < nodes.size() && nodes[at + 1] < end; ++at) choice.esacs.push_back(nodes[at + 1]);
      write_choice(choice);
    } else {
      write_node(walk, n);
    }
  }
}

void Emitter::write_choice(const Choice& choice) {
  to_.module = shown(choice.walk.provenance(choice.esacs[0]).module, prefix_);
  const Names made = chosen(choice, static_cast<int64_t>(choice.node().inputs.size()) - 2);
  for (size_t i = 0; i < choice.esacs.size(); ++i) choice.walk.name(choice.node(i).outputs[0]) = made[i];
}

// The results of the branch that a step takes among those up to `last`.
Names Emitter::chosen(const Choice& choice, int64_t last) {
  if (last == 0) return taken(choice, 0);
  const std::string index = choice.walk.name(choice.index());
  const DType dtype = choice.walk.first().type(choice.index()).dtype;
  const std::string module = to_.module;
  const std::string is_last =
      dtype == DType::kBool ? index : to_.add1("Equal", {index, to_.scalar(static_cast<double>(last), dtype)});
  Exporter::HeldGraphs branches;
  branches.emplace_back("then_branch", to_.nested({}, [&] { return choice.ports(taken(choice, last)); }));
  branches.emplace_back("else_branch", to_.nested({}, [&] { return choice.ports(chosen(choice, last - 1)); }));
  to_.module = module;
  return to_.add_with_graphs("If", {is_last}, {}, std::move(branches), static_cast<int>(choice.esacs.size()));
}

// The results of a branch, whose nodes are written here.
Names Emitter::taken(const Choice& choice, int64_t branch) {
  std::vector<ValueId> results;
  for (size_t i = 0; i < choice.esacs.size(); ++i)
    results.push_back(choice.node(i).inputs[static_cast<size_t>(branch) + 1]);
  BranchSet inner = choice.within;
  inner.emplace(choice.index(), branch);
  write(choice.walk, choice.walk.branching->needed(results, choice.within), inner);
  Names names;
  for (const ValueId value : results) names.push_back(choice.walk.name(value));
  return names;
}

std::vector<Port> Emitter::turn(const Emission& e, const std::vector<std::vector<TensorType>>& types,
                                const Names& operands, const Provenance& provenance, int depth) {
  static_assert(static_cast<int>(ops::scan_attr::kBody) == static_cast<int>(ops::while_attr::kBody));
  std::vector<Graph> bodies(e.attrs.size());
  Graphs graphs;
  for (size_t t = 0; t < bodies.size(); ++t) {
    graph::GraphBuilder builder(bodies[t], DeviceId{});
    const ExecutorScope scope(builder);
    std::vector<Value> values;
    for (size_t i = 0; i < operands.size(); ++i)
      values.push_back(builder.value(bodies[t].add_input("i" + std::to_string(i), types[t][i])));
    size_t number = 0;
    for (const Value& given : call_nested(std::get<AttrGraph>((*e.attrs[t])[ops::scan_attr::kBody]), values))
      bodies[t].add_output("o" + std::to_string(number++), builder.id(given));
    graphs.push_back(&bodies[t]);
    if (bodies[t].nodes().size() != bodies.front().nodes().size())
      e.refuse("its turns are others at another size of a dim; export it with that dim fixed");
  }
  const Graph& first = bodies.front();
  Names names(first.values().size());
  for (size_t i = 0; i < operands.size(); ++i) names[static_cast<size_t>(first.inputs()[i].value)] = operands[i];
  run(graphs, names, &provenance, depth + 1);
  std::vector<Port> made;
  for (const graph::Output& output : first.outputs()) {
    Port& port = made.emplace_back(Port{names[static_cast<size_t>(output.value)]});
    for (const Graph* g : graphs) port.types.push_back(g->type(output.value));
  }
  return made;
}

namespace {

std::vector<TensorType> by_trace(const std::vector<std::vector<TensorType>>& types, size_t i) {
  std::vector<TensorType> made;
  for (const auto& of : types) made.push_back(of[i]);
  return made;
}

Exporter::HeldGraphs held(const char* name, format::GraphProto graph) {
  Exporter::HeldGraphs graphs;
  graphs.emplace_back(name, std::move(graph));
  return graphs;
}

}  // namespace

// A loop of so many turns. One that takes nothing apart is given a row of zeros for each turn, since Scan has no other
// way to say how many there are.
Names Emitter::scan(const Emission& e, const Provenance& provenance, int depth) {
  const auto states = static_cast<size_t>(std::get<int64_t>((*e.attrs.front())[ops::scan_attr::kStates]));
  const auto rows = static_cast<size_t>(std::get<int64_t>((*e.attrs.front())[ops::scan_attr::kRows]));
  Number lengths;
  for (const Attrs* attrs : e.attrs) lengths.push_back(std::get<int64_t>((*attrs)[ops::scan_attr::kLength]));
  if (std::find(lengths.begin(), lengths.end(), 0) != lengths.end()) return {};  // its results have no turn to be of
  auto types = e.in;
  for (auto& of : types)
    for (size_t i = states; i < states + rows; ++i) of[i].shape.erase(0);
  Names given(e.inputs.begin(), e.inputs.begin() + static_cast<int64_t>(states + rows)), operands = e.inputs;
  std::vector<Port> taken;
  for (size_t i = 0; i < states + rows; ++i) {
    operands[i] = to_.fresh(i < states ? "state" : "row");
    taken.push_back({operands[i], by_trace(types, i)});
  }
  if (rows == 0) {
    given.push_back(to_.add1("ConstantOfShape", {to_.ints({lengths})}));
    taken.push_back({to_.fresh("turn"), std::vector<TensorType>(lengths.size(), TensorType{DType::kFloat32, {}})});
  }
  auto body = to_.nested(taken, [&] { return turn(e, types, operands, provenance, depth); });
  const size_t results = e.out.front().size(), scanned = std::max<size_t>(rows, 1);
  to_.module = shown(provenance.module, prefix_);
  Exporter::Attributes attributes{{"num_scan_inputs", static_cast<int64_t>(scanned)}};
  if (std::get<bool>((*e.attrs.front())[ops::scan_attr::kReverse])) {
    attributes.emplace_back("scan_input_directions", Ints(scanned, 1));
    attributes.emplace_back("scan_output_directions", Ints(results - states, 1));
  }
  return to_.add_with_graphs("Scan", given, attributes, held("body", std::move(body)), static_cast<int>(results));
}

// A loop as long as its first state is true.
Names Emitter::while_loop(const Emission& e, const Provenance& provenance, int depth) {
  const auto states = static_cast<size_t>(std::get<int64_t>((*e.attrs.front())[ops::while_attr::kStates]));
  const auto same = [&](DType dtype) { return std::vector<TensorType>(e.attrs.size(), TensorType{dtype, {}}); };
  std::vector<Port> taken{{to_.fresh("turn"), same(DType::kInt64)}, {to_.fresh("goes_on"), same(DType::kBool)}};
  Names given{"", e.inputs[0]}, operands = e.inputs;
  for (size_t i = 0; i < states; ++i) {
    given.push_back(e.inputs[i]);
    operands[i] = to_.fresh("state");
    taken.push_back({operands[i], by_trace(e.in, i)});
  }
  auto body = to_.nested(taken, [&] {
    std::vector<Port> made = turn(e, e.in, operands, provenance, depth);
    made.insert(made.begin(), Port(made.front()));  // whether there is a turn more is a state, too
    return made;
  });
  to_.module = shown(provenance.module, prefix_);
  return to_.add_with_graphs("Loop", given, {}, held("body", std::move(body)), static_cast<int>(states));
}

}  // namespace sluice::onnx::exporting
