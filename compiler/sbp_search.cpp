#include "compiler/sbp_search.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "compiler/boxing_path.h"
#include "compiler/pass.h"
#include "graph/ops/global.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using graph::ValueKind;

constexpr size_t kNodesTried = 60'000;  // of all plans together
constexpr size_t kLeastPlans = 24;      // however large the graph

// Adds up conversions as the partitioner makes them: of each value once for each way in which it is wanted.
class Pricing {
 public:
  explicit Pricing(const SbpPlan& plan) : plan_(plan), made_(plan.values.size()) {
    for (size_t v = 0; v < made_.size(); ++v) made_[v].insert(key_of(plan.values[v]));
  }

  LayoutCost run() {
    const graph::Graph& graph = plan_.graph;
    for (size_t n = 0; n < graph.nodes().size(); ++n) {
      const SplitCall& call = plan_.calls[n];
      if (call.mesh < 0) continue;
      const Node& node = graph.nodes()[n];
      const bool moves = node.op == &ops::to_global_op() || node.op == &ops::global_like_op();
      for (size_t i = 0; i < (moves ? 1 : node.inputs.size()); ++i)
        if (node.inputs[i] != kNoValue) want(node.inputs[i], {call.mesh, call.input(i)});
      if (!moves) cost_.flops += flops_of_first(node, call);
    }
    for (const graph::Output& output : graph.outputs()) want(output.value, Lay{});
    for (const graph::Variable& v : graph.variables())
      if (v.update != kNoValue) want(v.update, plan_.values[v.value]);
    return cost_;
  }

 private:
  using Key = std::pair<int, std::string>;
  Key key_of(const Lay& lay) const {
    if (!lay.on_mesh()) return {lay.mesh, ""};
    NdSbp sbp = lay.sbp;
    const auto& axes = plan_.meshes[lay.mesh].axes();
    for (int k = 0; k < sbp.size(); ++k)
      if (axes[static_cast<size_t>(k)].size == 1) sbp[k] = Sbp::broadcast();
    return {lay.mesh, sbp.str()};
  }
  Spread spread(const Lay& lay) const {
    return lay.on_mesh() ? spread_over(plan_.meshes[lay.mesh], lay.sbp) : off_mesh(DeviceId{}, 1);
  }

  void want(ValueId value, const Lay& wanted) {
    const Lay& lies = plan_.values[value];
    if (lies.mesh == Lay::kFree || !made_[value].insert(key_of(wanted)).second) return;
    if (!lies.on_mesh()) return;  // it comes in from outside in any case
    const TensorType& type = plan_.graph.type(value);
    const Spread from = spread(lies), to = spread(wanted);
    if (from.sbp.size() == 1 && to.sbp.size() == 1)
      return add(boxing_bytes(static_cast<double>(bytes_of(type)), from.sbp[0], from.size(), to.sbp[0], to.size(),
                              lies.mesh != wanted.mesh));
    for (const BoxingStep& step : boxing_path(type, from, to)) add(step.bytes);
  }
  void add(double bytes) {
    cost_.bytes += bytes;
    if (bytes > 0) ++cost_.conversions;
  }

  double flops_of_first(const Node& node, const SplitCall& call) const {
    const MeshShape shape = shape_of(plan_.meshes[call.mesh]);
    std::vector<TensorType> inputs(node.inputs.size()), outputs;
    const std::unique_ptr<bool[]> present(new bool[node.inputs.size() + 1]);
    for (size_t i = 0; i < inputs.size(); ++i) {
      present[i] = node.inputs[i] != kNoValue;
      if (present[i]) inputs[i] = local_type(plan_.graph.type(node.inputs[i]), shape, call.input(i), 0);
    }
    for (size_t o = 0; o < node.outputs.size(); ++o)
      outputs.push_back(local_type(plan_.graph.type(node.outputs[o]), shape, call.output(o), 0));
    return cost_of(*node.op, inputs, outputs, node.attrs).flops;
  }

  const SbpPlan& plan_;
  std::vector<std::set<Key>> made_;  // per value: how it lies so far
  LayoutCost cost_;
};

// Values that may lie otherwise, all of them alike.
struct FreeValue {
  std::string value;                   // the first one's name or line
  std::vector<std::string> variables;  // by name
  std::vector<int> moves;              // calls of to_global
  TensorType type;
  DeviceMesh mesh;
  NdSbp sbp;
  int size() const { return static_cast<int>(std::max(variables.size(), moves.size())); }
};

std::string without_numbers(const std::string& name) {
  std::string text;
  for (const char c : name)
    if (std::isdigit(static_cast<unsigned char>(c)) == 0)
      text += c;
    else if (text.empty() || text.back() != '#')
      text += '#';
  return text;
}

bool can_lie(const TensorType& type, const DeviceMesh& mesh, const NdSbp& sbp) {
  try {
    check_layout(type.shape, mesh, sbp, "value");
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A graph without the calls of to_global on variables, which then lie as their readers want.
struct FreedGraph {
  graph::Graph graph;
  std::vector<ValueId> value_of;  // per value of the graph as it was
};
FreedGraph freed(graph::Graph graph) {
  FreedGraph result;
  const int micro_batches = graph.micro_batches();
  graph::Rewriter rewriter(graph);
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (node.op == &ops::to_global_op() && graph.values()[node.inputs[0]].kind == ValueKind::kVariable)
      rewriter.map(node.outputs[0], rewriter[node.inputs[0]]);
    else
      rewriter.take(static_cast<int>(n));
  }
  for (size_t v = 0; v < graph.values().size(); ++v) result.value_of.push_back(rewriter[static_cast<ValueId>(v)]);
  result.graph = rewriter.finish();
  result.graph.set_micro_batches(micro_batches);
  return result;
}

class LayoutSearcher {
 public:
  LayoutSearcher(const graph::Graph& graph, const Components* components, const SbpSearchOptions& options,
                 LayoutSearch& report)
      : graph_(graph),
        components_(components),
        options_(options),
        report_(report),
        most_(static_cast<int>(std::max(kLeastPlans, kNodesTried / std::max<size_t>(1, graph.nodes().size())))),
        best_(infer_sbp(graph, components)) {}

  double weighed(const LayoutCost& cost) const {
    return cost.bytes + options_.compute_ratio * cost.flops + options_.wait_bytes * cost.conversions;
  }

  SbpPlan run() {
    report_.greedy = cost_ = cost_of_layouts(best_);
    total_ = weighed(cost_);
    report_.tried = 1;
    const std::vector<FreeValue> single = free_values();
    const std::vector<FreeValue> alike = together(single);
    while (sweep(alike)) {
    }
    size_t plans = 0;  // of one more turn
    for (const FreeValue& group : single) plans += others(group, lies(group)).size();
    if (alike.size() < single.size() && plans <= static_cast<size_t>(most_ - report_.tried))
      while (sweep(single)) {
      }
    report_.found = cost_;
    return std::move(best_);
  }

 private:
  // The values that may lie otherwise, each by itself.
  std::vector<FreeValue> free_values() const {
    std::vector<int> first_reader(graph_.variables().size(), -1);
    std::vector<std::vector<int>> asked(graph_.variables().size());  // the calls of to_global on a variable
    std::vector<FreeValue> groups;
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      const bool moves = node.op == &ops::to_global_op();
      bool of_variable = false;
      for (const ValueId input : node.inputs) {
        if (input == kNoValue || graph_.values()[input].kind != ValueKind::kVariable) continue;
        const auto v = static_cast<size_t>(graph_.values()[input].index);
        if (first_reader[v] < 0 && !moves) first_reader[v] = static_cast<int>(n);
        if (moves) asked[v].push_back(static_cast<int>(n));
        of_variable = true;
      }
      if (!moves || of_variable || !options_.ignore_user || node.role != Role::kForward) continue;
      const GlobalPlacement placement = ops::placement_of(node.attrs);
      const std::string where = node.source.known() ? node.source.str() : fmt::format("node {}", n);
      groups.push_back({fmt::format("to_global ({})", where),
                        {},
                        {static_cast<int>(n)},
                        graph_.type(node.outputs[0]),
                        placement.mesh,
                        placement.sbp});
    }
    for (size_t v = 0; v < graph_.variables().size(); ++v) {
      const graph::Variable& variable = graph_.variables()[v];
      const Lay& lay = best_.source_values[variable.value];
      const bool update = first_reader[v] >= 0 && graph_.nodes()[first_reader[v]].role == Role::kUpdate;
      const bool told = !asked[v].empty() && !options_.ignore_user;
      const bool component = components_ != nullptr && components_->contains(variable.name);
      if (variable.constant) continue;
      if (lay.on_mesh() && !told && !component && (!update || !asked[v].empty()) &&
          graph_.type(variable.value).shape.rank() > 0)
        groups.push_back(
            {variable.name, {variable.name}, asked[v], graph_.type(variable.value), best_.meshes[lay.mesh], lay.sbp});
    }
    return groups;
  }

  static std::vector<FreeValue> together(const std::vector<FreeValue>& single) {
    std::vector<FreeValue> groups;
    std::map<std::string, size_t> known;
    for (const FreeValue& one : single) {
      const auto key = fmt::format("{} {} {} {}", one.variables.empty() ? one.value : without_numbers(one.value),
                                   one.type.str(), one.mesh.str(), one.sbp.str());
      const auto [at, fresh] = known.emplace(key, groups.size());
      if (fresh) {
        groups.push_back(one);
        continue;
      }
      FreeValue& group = groups[at->second];
      group.variables.insert(group.variables.end(), one.variables.begin(), one.variables.end());
      group.moves.insert(group.moves.end(), one.moves.begin(), one.moves.end());
    }
    return groups;
  }

  NdSbp lies(const FreeValue& group) const {
    if (!group.variables.empty()) {
      const auto chosen = choices_.variables.find(group.variables[0]);
      return chosen == choices_.variables.end() ? group.sbp : chosen->second;
    }
    const auto chosen = choices_.moves.find(group.moves[0]);
    return chosen == choices_.moves.end() ? group.sbp : chosen->second;
  }

  // Goes through all groups once. True when something has become cheaper, and more plans may be tried.
  bool sweep(const std::vector<FreeValue>& groups) {
    bool better = false;
    report_.candidates.clear();
    for (const FreeValue& group : groups) {
      const NdSbp before = lies(group);
      std::vector<std::pair<NdSbp, LayoutCost>> tried = {{before, cost_}};
      NdSbp now = before;
      for (const NdSbp& sbp : others(group, before)) {
        if (report_.tried >= most_) break;
        LayoutCost cost;
        if (!attempt(group, sbp, cost)) continue;
        tried.emplace_back(sbp, cost);
        if (lies(group) == sbp) now = sbp;
      }
      better = better || !(now == before);
      for (const auto& [sbp, cost] : tried)
        report_.candidates.push_back(
            {group.value, group.size(), group.type.str(), sbp.str(), cost, weighed(cost), sbp == now});
    }
    return better && report_.tried < most_;
  }

  // The ways that differ along one axis.
  static std::vector<NdSbp> others(const FreeValue& group, const NdSbp& before) {
    std::vector<NdSbp> result;
    for (int axis = 0; axis < before.size(); ++axis) {
      if (group.mesh.axes()[static_cast<size_t>(axis)].size == 1) continue;
      for (int dim = -1; dim < group.type.shape.rank(); ++dim) {
        NdSbp sbp = before;
        sbp[axis] = dim < 0 ? Sbp::broadcast() : Sbp::split(dim);
        if (!(sbp == before) && can_lie(group.type, group.mesh, sbp)) result.push_back(sbp);
      }
    }
    return result;
  }

  // The plan with a group laid so; it is kept where it is cheaper. False where there is none such.
  bool attempt(const FreeValue& group, const NdSbp& sbp, LayoutCost& cost) {
    SbpChoices choices = choices_;
    for (const std::string& name : group.variables) choices.variables[name] = sbp;
    for (const int n : group.moves) choices.moves[n] = sbp;
    ++report_.tried;
    try {
      SbpPlan plan = infer_sbp(graph_, components_, &choices);
      cost = cost_of_layouts(plan);
      if (!options_.moves || weighed(cost) >= total_) return true;
      best_ = std::move(plan);
    } catch (const Error&) {
      return false;
    }
    choices_ = std::move(choices);
    cost_ = cost;
    total_ = weighed(cost);
    return true;
  }

  const graph::Graph& graph_;
  const Components* components_;
  const SbpSearchOptions options_;
  LayoutSearch& report_;
  const int most_;  // plans
  SbpPlan best_;
  SbpChoices choices_;  // of the best plan
  LayoutCost cost_;
  double total_ = 0;
};

}  // namespace

LayoutCost cost_of_layouts(const SbpPlan& plan) { return Pricing(plan).run(); }

SbpPlan search_sbp(const graph::Graph& graph, const Components* components, const SbpSearchOptions& options,
                   LayoutSearch* report) {
  LayoutSearch own;
  LayoutSearch& told = report != nullptr ? *report : own;
  if (options.ignore_user && components == nullptr) {
    const SbpPlan user = infer_sbp(graph);
    const FreedGraph free = freed(graph);
    LayoutSearcher searcher(free.graph, nullptr, options, told);
    SbpPlan plan = searcher.run();
    // Values are where they were, or else the calls are needed.
    bool same_places = true;
    std::vector<Lay> values;
    for (size_t v = 0; v < graph.values().size(); ++v) {
      const Lay &before = user.source_values[v], &now = plan.source_values[free.value_of[v]];
      same_places = same_places && before.on_mesh() == now.on_mesh() &&
                    (!now.on_mesh() || user.meshes[before.mesh] == plan.meshes[now.mesh]);
      values.push_back(now);
    }
    told.greedy = cost_of_layouts(user);
    if (same_places && searcher.weighed(told.found) <= searcher.weighed(told.greedy)) {
      plan.source_values = std::move(values);
      return plan;
    }
    told = {};
  }
  return LayoutSearcher(graph, components, options, told).run();
}

SbpPlan choose_sbp(const graph::Graph& graph, const CompileOptions& options, LayoutSearch* report) {
  const Components* components = options.ranks > 1 ? &options.components : nullptr;
  if (options.sbp_policy == "greedy") return infer_sbp(graph, components);
  return search_sbp(graph, components,
                    {options.ignore_user_sbp, options.sbp_compute_ratio, options.sbp_wait_bytes, true}, report);
}

}  // namespace sluice::compiler
