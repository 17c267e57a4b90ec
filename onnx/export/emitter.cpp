#include "onnx/export/emitter.h"

#include <numeric>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/dead_code.h"
#include "graph/ops/loops.h"

namespace sluice::onnx::exporting {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;

namespace {

constexpr int kMostParts = 32;

std::vector<TensorType> types_of(const Graph& graph, const graph::ValueIds& values) {
  std::vector<TensorType> made;
  for (const ValueId v : values) made.push_back(v == kNoValue ? TensorType{} : graph.type(v));
  return made;
}

std::vector<bool> used_values(const Graph& graph) {
  std::vector<bool> used(graph.values().size());
  for (const Node& node : graph.nodes())
    for (const ValueId v : node.inputs)
      if (v != kNoValue) used[static_cast<size_t>(v)] = true;
  for (const graph::Output& o : graph.outputs()) used[static_cast<size_t>(o.value)] = true;
  return used;
}

}  // namespace

std::string shown(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

std::string where_of(const Provenance& p, const OpDef& op, const std::string& prefix) {
  const std::string module = shown(p.module, prefix);
  return fmt::format("{}{}{}", p.source.known() ? p.source.str() + ": " : "", op.name,
                     module.empty() ? "" : fmt::format(" of module '{}'", module));
}

std::vector<TensorType> Emitter::Walk::types(ValueId value) const {
  std::vector<TensorType> made;
  for (const Graph* g : graphs) made.push_back(g->type(value));
  return made;
}

void Emitter::run(const Graphs& graphs, Names& names, const Provenance* outer, int depth) {
  const Graph& first = *graphs.front();
  const Branching branching(first);
  Walk walk{graphs, names, outer, depth, used_values(first), branches_ ? &branching : nullptr};
  std::vector<size_t> all(first.nodes().size());
  std::iota(all.begin(), all.end(), size_t{0});
  write(walk, all, {});
}

void Emitter::write_node(Walk& walk, size_t n) {
  const Node& node = walk.first().nodes()[n];
  const Provenance& provenance = walk.provenance(n);
  Emission e{to_, *node.op, {}, {}, {}, {}, {}, where_of(provenance, *node.op, prefix_)};
  for (const Graph* g : walk.graphs) {
    const Node& same = g->nodes()[n];
    if (same.op != node.op || same.inputs != node.inputs || same.outputs != node.outputs)
      e.refuse("the program is another one at another size of a dim; export it with that dim fixed");
    e.attrs.push_back(&same.attrs);
    e.in.push_back(types_of(*g, same.inputs));
    e.out.push_back(types_of(*g, same.outputs));
  }
  for (const ValueId v : node.inputs) e.inputs.push_back(v == kNoValue ? "" : walk.name(v));
  for (const ValueId v : node.outputs) e.used.push_back(walk.used[static_cast<size_t>(v)]);
  to_.module = shown(provenance.module, prefix_);
  const Names made = emit(e, provenance, walk.depth);
  for (size_t o = 0; o < node.outputs.size(); ++o) walk.name(node.outputs[o]) = made[o];
}

Names Emitter::emit(const Emission& e, const Provenance& provenance, int depth) {
  if (e.op.random) e.refuse("it draws random numbers; export a model in eval() mode");
  if (&e.op == &ops::while_loop_op()) return while_loop(e, provenance, depth);
  if (&e.op == &ops::scan_op())
    if (Names made = scan(e, provenance, depth); !made.empty()) return made;
  const auto entry = all_emits().find(e.op.name);
  if (entry != all_emits().end())
    if (Names made = entry->second(e); !made.empty()) {
      made.resize(e.out.front().size());
      return made;
    }
  if (!e.op.decompose) e.refuse("it has no form in ONNX");
  SLUICE_CHECK_KIND(kRuntime, depth < kMostParts, "onnx.export: {} is made of itself; it must end", e.op.name);
  return decomposed(e, provenance, depth);
}

Names Emitter::decomposed(const Emission& e, const Provenance& provenance, int depth) {
  std::vector<Graph> parts(e.attrs.size());
  for (size_t t = 0; t < parts.size(); ++t) {
    Graph& part = parts[t];
    graph::GraphBuilder builder(part, DeviceId{});
    const ExecutorScope scope(builder);
    std::vector<Value> operands;
    for (size_t i = 0; i < e.inputs.size(); ++i)
      operands.push_back(e.has(i) ? builder.value(part.add_input("i" + std::to_string(i), e.in[t][i])) : Value());
    const std::vector<Value> results = e.op.decompose(operands, *e.attrs[t]);
    for (size_t o = 0; o < results.size(); ++o)
      if (e.used[o]) part.add_output("o" + std::to_string(o), builder.id(results[o]));
    graph::remove_dead_code(part);
  }
  Graphs graphs;
  for (const Graph& part : parts) {
    graphs.push_back(&part);
    if (part.nodes().size() != parts.front().nodes().size())
      e.refuse("it is made of other ops at another size of a dim; export it with that dim fixed");
  }
  Names names(parts.front().values().size());
  for (const graph::Input& input : parts.front().inputs())
    names[static_cast<size_t>(input.value)] = e.inputs[static_cast<size_t>(std::stoi(input.name.substr(1)))];
  run(graphs, names, &provenance, depth + 1);
  Names made(e.out.front().size());
  for (const graph::Output& output : parts.front().outputs())
    made[static_cast<size_t>(std::stoi(output.name.substr(1)))] = names[static_cast<size_t>(output.value)];
  return made;
}

}  // namespace sluice::onnx::exporting
