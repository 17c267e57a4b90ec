// Applies the patterns of the caller (CompileOptions::patterns): where a graph has what `before` computes, and nobody
// reads what lies between, it computes `after` instead. Patterns are graphs, so there is nothing to write in C++ for
// one. Each is looked for once, in the order given, at every node; what one has made is there for the next.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "compiler/pass.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using graph::ValueIds;
using graph::ValueInfo;
using graph::ValueKind;

// One place where a pattern fits: the node that stands for each of its nodes, and the value for each of its values.
struct Match {
  std::map<int, int> nodes;
  std::map<ValueId, ValueId> values;
};

class Matcher {
 public:
  Matcher(const Pattern& pattern, const Graph& graph, const PassContext& context)
      : pattern_(pattern), graph_(graph), context_(context), uses_(count_uses(graph)) {}

  // The match whose result is that of `node`.
  std::optional<Match> ending_in(int node) const {
    const ValueId result = pattern_.before.outputs()[0].value;
    const ValueInfo& info = pattern_.before.values()[result];
    const ValueIds& outputs = graph_.nodes()[node].outputs;
    if (info.output >= static_cast<int>(outputs.size())) return std::nullopt;
    Match match;
    if (!is(result, outputs[info.output], match) || !is_closed(match, outputs[info.output])) return std::nullopt;
    return match;
  }

 private:
  const Graph& before() const { return pattern_.before; }

  // Compares backwards from the result. Each value of the pattern stands for one value of the graph; where the pattern
  // names it again, the graph must have the same value there. An input of the pattern stands for anything.
  bool is(ValueId wanted, ValueId value, Match& match) const {
    if (wanted == kNoValue || value == kNoValue) return wanted == value;
    if (before().type(wanted).dtype != graph_.type(value).dtype) return false;
    const auto [known, added] = match.values.emplace(wanted, value);
    if (!added) return known->second == value;
    const ValueInfo& info = before().values()[wanted];
    if (info.kind == ValueKind::kInput) return true;
    const ValueInfo& found = graph_.values()[value];
    if (info.kind != found.kind) return false;
    if (info.kind == ValueKind::kVariable) return same_constant(info.index, found.index);
    return info.output == found.output && is_node(info.index, found.index, match);
  }

  // Operands are compared in their order. A pattern that is to fit sums in either order has to be given twice.
  bool is_node(int wanted, int node, Match& match) const {
    const auto [known, added] = match.nodes.emplace(wanted, node);
    if (!added) return known->second == node;
    const Node &w = before().nodes()[wanted], &n = graph_.nodes()[node];
    if (w.op != n.op || w.attrs != n.attrs || w.inputs.size() != n.inputs.size()) return false;
    for (size_t i = 0; i < w.inputs.size(); ++i)
      if (!is(w.inputs[i], n.inputs[i], match)) return false;
    return true;
  }

  // Constants are equal if their bytes are, since a pattern may hold a number such as the 3 of `x ** 3`.
  bool same_constant(int wanted, int found) const {
    const graph::Variable &w = before().variables()[wanted], &f = graph_.variables()[found];
    const void* const data = f.constant ? context_.constant_data(f.name) : nullptr;
    const auto content = pattern_.before_constants.find(w.name);
    if (data == nullptr || content == pattern_.before_constants.end() || before().type(w.value) != graph_.type(f.value))
      return false;
    return std::memcmp(data, content->second.data(), content->second.size()) == 0;
  }

  // Nobody else reads what the match has inside, and all of it runs in one place, as often.
  bool is_closed(const Match& match, ValueId result) const {
    std::map<ValueId, int> reads;
    const Node& last = graph_.nodes()[graph_.values()[result].index];
    for (const auto& [wanted, node] : match.nodes) {
      const Node& n = graph_.nodes()[node];
      if (n.placement != last.placement || n.every != last.every || n.quota != last.quota) return false;
      // The reads within the match are counted, and below compared with all reads: a value with more of them is read
      // outside.
      for (ValueId input : n.inputs)
        if (input != kNoValue) ++reads[input];
    }
    for (const auto& [wanted, node] : match.nodes)
      for (ValueId output : graph_.nodes()[node].outputs)
        if (output != result && uses_[output] != reads[output]) return false;
    return true;
  }

  const Pattern& pattern_;
  const Graph& graph_;
  const PassContext& context_;
  const std::vector<int> uses_;
};

// Whether the ops of `after` take what is there where the pattern was found, and give the type that was there.
// The types of the pattern were those of its example inputs, so all types are inferred anew from the operands that were
// found.
bool fits(const Pattern& pattern, const Match& match, const Graph& graph) {
  const Graph &before = pattern.before, &after = pattern.after;
  std::vector<TensorType> types;
  for (const ValueInfo& value : after.values()) types.push_back(value.type);
  for (size_t i = 0; i < after.inputs().size(); ++i) {
    const auto bound = match.values.find(before.inputs()[i].value);
    if (bound != match.values.end()) types[after.inputs()[i].value] = graph.type(bound->second);
  }
  for (const Node& node : after.nodes()) {
    std::vector<TensorType> inputs;
    std::vector<uint8_t> there;
    for (ValueId input : node.inputs) {
      inputs.push_back(input == kNoValue ? TensorType{} : types[input]);
      there.push_back(input != kNoValue);
    }
    const std::unique_ptr<bool[]> present(new bool[there.size() + 1]);
    std::copy(there.begin(), there.end(), present.get());
    try {
      const std::vector<TensorType> made = infer_types(*node.op, inputs, {present.get(), there.size()}, node.attrs);
      if (made.size() != node.outputs.size()) return false;
      for (size_t o = 0; o < made.size(); ++o) types[node.outputs[o]] = made[o];
    } catch (const Error&) {
      return false;  // its ops do not take operands like these
    }
  }
  return types[after.outputs()[0].value] == graph.type(match.values.at(before.outputs()[0].value));
}

class Application {
 public:
  Application(const Pattern& pattern, Graph& graph, PassContext& context)
      : pattern_(pattern), context_(context), rewriter_(graph) {
    for (const graph::Variable& v : graph.variables()) names_.insert(v.name);
  }

  // Makes `after` in the place of the match, and returns the value of its result.
  ValueId make(const Match& match, int last) {
    const Graph& after = pattern_.after;
    std::vector<const Provenance*> origins;
    for (const auto& [wanted, node] : match.nodes) origins.push_back(&rewriter_.source().nodes()[node]);
    const Node& replaced = rewriter_.source().nodes()[last];
    const Provenance from = merged(replaced, origins);
    std::vector<ValueId> values(after.values().size(), kNoValue);
    for (size_t i = 0; i < after.inputs().size(); ++i) {
      const auto bound = match.values.find(pattern_.before.inputs()[i].value);
      if (bound != match.values.end()) values[after.inputs()[i].value] = rewriter_[bound->second];
    }
    for (const graph::Variable& v : after.variables()) values[v.value] = constant(v.name, after.type(v.value));
    for (const Node& node : after.nodes()) {
      Node made = node;
      static_cast<Provenance&>(made) = from;
      made.placement = replaced.placement;
      made.quota = replaced.quota;
      made.every = replaced.every;
      made.outputs.clear();
      for (ValueId& input : made.inputs) input = input == kNoValue ? kNoValue : values[input];
      const int index = rewriter_.target().add_node(std::move(made));
      for (size_t o = 0; o < node.outputs.size(); ++o)
        values[node.outputs[o]] = rewriter_.target().nodes()[index].outputs[o];
    }
    return values[after.outputs()[0].value];
  }

  graph::Rewriter& rewriter() { return rewriter_; }

 private:
  // One constant of the pattern becomes one variable of the graph, however often the pattern is applied.
  ValueId constant(const std::string& of, const TensorType& type) {
    const auto [made, added] = made_.emplace(of, kNoValue);
    if (!added) return made->second;
    std::string name = fmt::format("pattern.{}.{}", pattern_.name, of);
    while (!names_.insert(name).second) name += "'";
    context_.constants.emplace(name, pattern_.after_constants.at(of));
    return made->second = rewriter_.target().add_variable(name, type, /*constant=*/true);
  }

  const Pattern& pattern_;
  PassContext& context_;
  graph::Rewriter rewriter_;
  std::set<std::string> names_;
  std::map<std::string, ValueId> made_;  // constants of the pattern
};

int apply(const Pattern& pattern, Graph& graph, PassContext& context) {
  // All matches are found before the graph is changed. A node belongs to one match: where two overlap, the one that
  // ends first counts.
  std::map<int, Match> matches;  // by last node
  std::vector<bool> claimed(graph.nodes().size(), false);
  const Matcher matcher(pattern, graph, context);
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    std::optional<Match> match = matcher.ending_in(i);
    const auto is_claimed = [&](const auto& pair) { return claimed[pair.second]; };
    if (!match || std::any_of(match->nodes.begin(), match->nodes.end(), is_claimed) || !fits(pattern, *match, graph))
      continue;
    for (const auto& [wanted, node] : match->nodes) claimed[node] = true;
    matches.emplace(i, std::move(*match));
  }
  if (matches.empty()) return 0;
  Application application(pattern, graph, context);
  graph::Rewriter& rewriter = application.rewriter();
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    const auto match = matches.find(i);
    if (match != matches.end()) {
      const ValueId result = match->second.values.at(pattern.before.outputs()[0].value);
      rewriter.map(result, application.make(match->second, i));
    } else if (!claimed[i]) {
      rewriter.take(i);
    }
  }
  graph = rewriter.finish();
  return static_cast<int>(matches.size());
}

void check(const Pattern& pattern) {
  const auto refuse = [&](const std::string& text) {
    throw Error(ErrorKind::kValue, fmt::format("pattern '{}': {}", pattern.name, text));
  };
  const auto check_graph = [&](const char* which, const Graph& graph, const Pattern::Contents& constants) {
    if (graph.outputs().size() != 1)
      refuse(fmt::format("{} has {} results; it must have one", which, graph.outputs().size()));
    for (const graph::Variable& v : graph.variables()) {
      if (!v.constant || v.update != kNoValue || !constants.contains(v.name))
        refuse(fmt::format("{} reads '{}', which is no argument and no constant; make it an argument", which, v.name));
    }
    for (const Node& node : graph.nodes()) {
      if (node.op->random || node.op->effectful || node.op->host || node.op->of_all)
        refuse(fmt::format("{} has {}; patterns are of ops that only compute", which, describe(node)));
    }
  };
  check_graph("before", pattern.before, pattern.before_constants);
  check_graph("after", pattern.after, pattern.after_constants);
  if (pattern.before.inputs().size() != pattern.after.inputs().size())
    refuse(fmt::format("after has {} arguments; it must have those of before, which has {}",
                       pattern.after.inputs().size(), pattern.before.inputs().size()));
  const ValueId result = pattern.before.outputs()[0].value;
  if (pattern.before.values()[result].kind != ValueKind::kNode) refuse("before computes nothing; it must have an op");
  const auto uses = [](const Graph& graph, size_t i) { return count_uses(graph)[graph.inputs()[i].value] > 0; };
  for (size_t i = 0; i < pattern.before.inputs().size(); ++i) {
    if (uses(pattern.after, i) && !uses(pattern.before, i))
      refuse(fmt::format("after reads argument {}, which before does not", i));
  }
}

}  // namespace

int patterns(graph::Graph& graph, PassContext& context) {
  int rewrites = 0;
  for (const Pattern& pattern : context.options.patterns) {
    check(pattern);
    const int applied = apply(pattern, graph, context);
    context.applied[pattern.name] += applied;
    rewrites += applied;
  }
  return rewrites;
}

}  // namespace sluice::compiler
