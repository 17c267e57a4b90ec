#include "compiler/sbp_infer.h"

#include <algorithm>
#include <limits>
#include <memory>

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

constexpr int kDeepest = 4;  // decompositions within decompositions that are tried

bool is_to_global(const OpDef& op) { return &op == &ops::to_global_op(); }
int index_of(SbpPlan& plan, const DeviceMesh& mesh) {
  const auto it = std::find(plan.meshes.begin(), plan.meshes.end(), mesh);
  if (it != plan.meshes.end()) return static_cast<int>(it - plan.meshes.begin());
  plan.meshes.push_back(mesh);
  return static_cast<int>(plan.meshes.size()) - 1;
}

NdSbp without_sums(NdSbp sbp) {
  for (int k = 0; k < sbp.size(); ++k)
    if (sbp[k].kind == Sbp::Kind::kPartialSum) sbp[k] = Sbp::broadcast();
  return sbp;
}

// The places in which a variable may lie.
struct Residence {
  int mesh = Lay::kOff;
  bool chosen = false;  // by to_global, or by its first reader
  NdSbp sbp;
};

// Makes the nodes of the plan's graph, and says where each lies as it does.
class Inference final : public graph::GraphBuilder {
 public:
  using Prices = std::map<std::string, double>;  // of conversions on several axes
  Inference(SbpPlan& plan, graph::Graph& graph, int depth, std::shared_ptr<Prices> prices)
      : GraphBuilder(graph, DeviceId{}), plan_(plan), depth_(depth), prices_(std::move(prices)) {}

  // The places in which the outputs of the next top-level call have to be in the end; a call with a wish is not taken
  // apart.
  std::vector<std::optional<Lay>> wishes;
  const NdSbp* asked = nullptr;  // of the next call of to_global, in place of what it says

  void add(const Lay& lay) { plan_.values.push_back(lay); }
  void reside(ValueId variable, const Residence& residence) {
    open_.resize(plan_.values.size(), false);
    open_[variable] = residence.mesh >= 0 && !residence.chosen;
    plan_.values[variable] = {residence.mesh, residence.sbp};
    if (open_[variable])
      plan_.values[variable].sbp =
          NdSbp::filled(static_cast<int>(plan_.meshes[residence.mesh].axes().size()), Sbp::broadcast());
  }

  std::vector<Value> call(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) override {
    Node node;
    node.op = &op;
    node.attrs = attrs;
    for (const Value& input : inputs) node.inputs.push_back(id(input));
    if (is_to_global(op)) {
      const auto [mesh, sbp] = ops::placement_of(attrs);
      next_ = {index_of(plan_, mesh), {}};
      for (const Sbp& along : (asked != nullptr ? *asked : sbp).axes()) next_.rows.push_back({{along}, {along}});
    } else if (&op == &ops::global_like_op()) {
      next_ = like(lay(node.inputs[0]), lay(node.inputs[1]));
    } else {
      next_ = {mesh_of(node), {}};
      double bytes = 0;
      if (next_.mesh >= 0) bytes = choose(node);
      if (bytes > 0 && better_taken_apart(node, bytes)) return taken_apart(node, inputs);
    }
    return GraphBuilder::call(op, inputs, attrs);
  }

 protected:
  void on_node(int index) override {
    const Node& node = graph_.nodes()[index];
    for (size_t i = 0; i < node.inputs.size() && next_.mesh >= 0; ++i) {
      const ValueId input = node.inputs[i];
      if (input == kNoValue || i >= next_.rows[0].inputs.size()) continue;
      settle(input, next_.input(i));
      plan_.bytes += price(graph_.type(input), lay(input), next_.input(i));
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) add({next_.mesh, next_.mesh >= 0 ? next_.output(o) : NdSbp()});
    if (next_.mesh < 0) next_.rows = {};
    plan_.calls.push_back(next_);
  }

 private:
  const Lay& lay(ValueId value) const { return plan_.values[value]; }
  bool open(ValueId value) const { return value < static_cast<ValueId>(open_.size()) && open_[value]; }

  // The gradient of to_global: back on the devices of `like`, unless it is there already.
  SplitCall like(const Lay& x, const Lay& like) const {
    const bool moves = like.on_mesh() && x.on_mesh() && like.mesh != x.mesh;
    const NdSbp sbp = moves ? without_sums(like.sbp) : x.sbp;
    SplitCall call{moves ? like.mesh : x.mesh, {}};
    // `like` is not read: it stays as it is.
    for (int k = 0; k < sbp.size(); ++k)
      call.rows.push_back({{sbp[k], like.mesh == call.mesh ? like.sbp[k] : Sbp::broadcast()}, {sbp[k]}});
    return call;
  }

  int mesh_of(const Node& node) const {
    if (context.placement != graph::Placement{} || node.op->effectful) return Lay::kOff;
    int mesh = Lay::kFree, of = -1;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      const int own = lay(node.inputs[i]).mesh;
      if (own >= 0 && mesh >= 0 && own != mesh) {
        const auto name = [&](size_t k) {
          return node.op->variadic() ? fmt::format("input {}", k) : node.op->inputs[k];
        };
        const std::string at = context.source.known() ? fmt::format("  ({})", context.source.str()) : "";
        fail(ErrorKind::kValue,
             "{}: operands lie on different placements: {} on {}, {} on {}; move one with to_global(placement=...){}",
             node.op->name, name(of), plan_.meshes[mesh].str(), name(i), plan_.meshes[own].str(), at);
      }
      if (own > mesh) of = static_cast<int>(i);
      mesh = std::max(mesh, own);
    }
    return mesh == Lay::kFree && node.op->random ? Lay::kOff : mesh;
  }

  // Bytes that an operand costs when it is to lie so on next_.mesh. A value from outside has to come in any case.
  double price(const TensorType& type, const Lay& from, const NdSbp& to) {
    if (!from.on_mesh()) return 0;
    const DeviceMesh &source = plan_.meshes[from.mesh], &target = plan_.meshes[next_.mesh];
    if (from.sbp.size() == 1 && to.size() == 1)
      return boxing_bytes(static_cast<double>(bytes_of(type)), from.sbp[0], source.size(), to[0], target.size(),
                          from.mesh != next_.mesh);
    if (from.mesh == next_.mesh && from.sbp == to) return 0;
    // Trials know the same meshes by the same numbers.
    const auto key =
        fmt::format("{} {} on {} to {} on {}", type.str(), from.sbp.str(), from.mesh, to.str(), next_.mesh);
    const auto [known, fresh] = prices_->emplace(key, 0.0);
    if (fresh)
      for (const BoxingStep& step : boxing_path(type, spread_over(source, from.sbp), spread_over(target, to)))
        known->second += step.bytes;
    return known->second;
  }

  // An undecided variable lies as its first reader wants it.
  void settle(ValueId value, const NdSbp& wanted) {
    if (!open(value)) return;
    open_[value] = false;
    plan_.values[value].sbp = without_sums(wanted);
  }

  // Sets next_.rows; returns the bytes they move.
  double choose(const Node& node) {
    const size_t count = node.inputs.size();
    std::vector<TensorType> types(count);
    const std::unique_ptr<bool[]> present(new bool[count + 1]);
    for (size_t i = 0; i < count; ++i) {
      present[i] = node.inputs[i] != kNoValue;
      if (present[i]) types[i] = graph_.type(node.inputs[i]);
    }
    const std::span<const bool> are_present{present.get(), count};
    const std::vector<TensorType> outputs = infer_types(*node.op, types, are_present, node.attrs);
    next_.rows.clear();
    double bytes = 0;
    // What the axes before this one have left: all calls that differ. The first is that of the first device.
    std::vector<LocalCall> left = {{node.attrs, std::move(types), outputs}};
    const MeshShape shape = shape_of(plan_.meshes[next_.mesh]);
    for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis) {
      const int n = shape[static_cast<size_t>(axis)];
      bytes += choose_along(node, axis, n, left, are_present);
      if (axis + 1 < static_cast<int>(shape.size())) left = shards_of(node, left, are_present, next_.rows.back(), n);
    }
    return shape.size() == 1 ? bytes : bytes_of_rows(node, outputs);
  }

  // The row along one axis.
  double choose_along(const Node& node, int axis, int n, const std::vector<LocalCall>& left,
                      std::span<const bool> present) {
    const LocalCall& first = left.front();
    double best = std::numeric_limits<double>::infinity();
    int fewest = 0;
    SbpRow chosen;
    for (const SbpRow& row : node.op->sbp(first.inputs, first.attrs)) {
      const bool fits = std::all_of(left.begin(), left.end(), [&](const LocalCall& call) {
        return can_split({*node.op, call.attrs, call.inputs, present, call.outputs}, row, n);
      });
      if (!fits) continue;
      double bytes = 0;
      int converted = 0;
      bool any_split = false;
      const auto price_here = [&](const TensorType& type, const Sbp& from, const Sbp& to) {
        return boxing_bytes(static_cast<double>(bytes_of(type)), from, n, to, n, false);
      };
      const auto convert = [&](const TensorType& type, const Sbp& from, const Sbp& to) {
        if (from == to) return;
        bytes += price_here(type, from, to);
        ++converted;
      };
      for (size_t i = 0; i < present.size(); ++i) {
        if (!present[i] || !lay(node.inputs[i]).on_mesh() || open(node.inputs[i])) continue;
        const Sbp& lies = lay(node.inputs[i]).sbp[axis];
        convert(first.inputs[i], lies, row.inputs[i]);
        any_split = any_split || lies.kind == Sbp::Kind::kSplit;
      }
      for (size_t o = 0; o < first.outputs.size(); ++o) {
        if (o < wishes.size() && wishes[o] && wishes[o]->mesh == next_.mesh)
          convert(first.outputs[o], row.outputs[o], wishes[o]->sbp[axis]);
        else if (!any_split && row.outputs[o].kind == Sbp::Kind::kSplit)  // what lay whole will be wanted whole
          bytes += price_here(first.outputs[o], row.outputs[o], Sbp::broadcast());
      }
      if (bytes > best || (bytes == best && converted >= fewest)) continue;
      best = bytes;
      fewest = converted;
      chosen = row;
    }
    SLUICE_CHECK_KIND(kUnsupported, best < std::numeric_limits<double>::infinity(),
                      "{}: no placement row fits its operands; an op must at least take broadcast ones", node.op->name);
    next_.rows.push_back(std::move(chosen));
    return best;
  }

  // What one more axis leaves of calls.
  static std::vector<LocalCall> shards_of(const Node& node, const std::vector<LocalCall>& calls,
                                          std::span<const bool> present, const SbpRow& row, int n) {
    std::vector<LocalCall> shards;
    for (const LocalCall& call : calls)
      for (const int i : different_parts({*node.op, call.attrs, call.inputs, present, call.outputs}, row, n)) {
        LocalCall shard = local_call({*node.op, call.attrs, call.inputs, present, call.outputs}, row, n, i);
        if (std::find(shards.begin(), shards.end(), shard) == shards.end()) shards.push_back(std::move(shard));
      }
    return shards;
  }

  // What next_.rows move, by the paths that conversions on several axes take.
  double bytes_of_rows(const Node& node, const std::vector<TensorType>& outputs) {
    double bytes = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue || open(node.inputs[i])) continue;
      bytes += price(graph_.type(node.inputs[i]), lay(node.inputs[i]), next_.input(i));
    }
    for (size_t o = 0; o < outputs.size() && o < wishes.size(); ++o)
      if (wishes[o] && wishes[o]->mesh == next_.mesh)
        bytes += price(outputs[o], {next_.mesh, next_.output(o)}, wishes[o]->sbp);
    return bytes;
  }

  bool better_taken_apart(const Node& node, double bytes) const {
    if (depth_ >= kDeepest || !node.op->decompose || !wishes.empty()) return false;
    SbpPlan scratch;
    scratch.meshes = plan_.meshes;
    Inference trial(scratch, scratch.graph, depth_ + 1, prices_);
    const ExecutorScope scope(trial);
    std::vector<Value> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      inputs.emplace_back();
      if (node.inputs[i] == kNoValue) continue;
      const ValueId input = scratch.graph.add_input(fmt::format("{}", i), graph_.type(node.inputs[i]));
      const Lay& from = lay(node.inputs[i]);
      trial.add(from);
      if (open(node.inputs[i])) trial.reside(input, {from.mesh, false, from.sbp});
      inputs.back() = trial.value(input);
    }
    node.op->decompose(inputs, node.attrs);
    return scratch.bytes < bytes;
  }

  std::vector<Value> taken_apart(const Node& node, std::span<const Value> inputs) {
    ++depth_;
    std::vector<Value> outputs = node.op->decompose(inputs, node.attrs);
    --depth_;
    return outputs;
  }

  SbpPlan& plan_;
  int depth_;
  SplitCall next_;                  // of the node being made
  std::shared_ptr<Prices> prices_;  // shared with trials
  std::vector<bool> open_;          // variables on a mesh that nobody has read yet
};

// The places in which variables may lie: on the mesh on which all their readers are.
std::vector<Residence> residences(const graph::Graph& graph, SbpPlan& plan, const Components* components,
                                  const SbpChoices* choices) {
  // The mesh of every node, were all variables outside.
  std::vector<int> mesh(graph.values().size(), Lay::kOff);
  std::vector<Residence> homes(graph.variables().size());
  std::vector<bool> read(graph.variables().size(), false);
  for (const Node& node : graph.nodes()) {
    int own = Lay::kOff;
    if (is_to_global(*node.op)) {
      own = index_of(plan, ops::placement_of(node.attrs).mesh);
    } else if (node.placement == graph::Placement{} && !node.op->effectful) {
      for (ValueId input : node.inputs)
        if (input != kNoValue) own = std::max(own, mesh[input]);
      if (node.op == &ops::global_like_op()) {
        const int x = mesh[node.inputs[0]], like = mesh[node.inputs[1]];
        own = x >= 0 && like >= 0 ? like : x;
      }
    }
    for (ValueId output : node.outputs) mesh[output] = own;
    for (ValueId input : node.inputs) {
      if (input == kNoValue || graph.values()[input].kind != ValueKind::kVariable) continue;
      const int v = graph.values()[input].index;
      Residence& home = homes[v];
      if (!read[v]) home.mesh = own;
      read[v] = true;
      if (home.mesh != own) home.mesh = Lay::kOff;
      if (!is_to_global(*node.op) || home.chosen) continue;
      home.chosen = true;
      home.sbp = ops::placement_of(node.attrs).sbp;
    }
  }
  for (size_t v = 0; components != nullptr && v < homes.size(); ++v) {
    const auto component = components->find(graph.variables()[v].name);
    homes[v] = component == components->end()
                   ? Residence{}
                   : Residence{index_of(plan, component->second.mesh), true, component->second.sbp};
  }
  for (size_t v = 0; choices != nullptr && v < homes.size(); ++v) {
    const auto choice = choices->variables.find(graph.variables()[v].name);
    if (choice != choices->variables.end() && homes[v].mesh >= 0) homes[v] = {homes[v].mesh, true, choice->second};
  }
  for (size_t v = 0; v < homes.size(); ++v)
    SLUICE_CHECK(homes[v].mesh < 0 || !homes[v].sbp.any(Sbp::Kind::kPartialSum),
                 "to_global: variable '{}' is asked to lie as {}; a variable must lie as S or B",
                 graph.variables()[v].name, homes[v].sbp.str());
  return homes;
}

}  // namespace

bool is_global(const graph::Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& n) { return is_to_global(*n.op); });
}

SbpPlan infer_sbp(graph::Graph source, const Components* components, const SbpChoices* choices) {
  SbpPlan plan;
  graph::Rewriter rewriter(source);
  Inference inference(plan, rewriter.target(), 0, std::make_shared<Inference::Prices>());
  const ExecutorScope scope(inference);
  const std::vector<Residence> homes = residences(source, plan, components, choices);
  plan.values.assign(rewriter.target().values().size(), Lay{});
  for (const graph::Input& input : rewriter.target().inputs()) {
    if (components == nullptr || !components->contains(input.name)) continue;
    const GlobalPlacement& global = components->at(input.name);
    plan.values[input.value] = {index_of(plan, global.mesh), global.sbp};
  }
  for (size_t v = 0; v < homes.size(); ++v) inference.reside(rewriter.target().variables()[v].value, homes[v]);
  std::vector<int> update_of(source.values().size(), -1);
  for (size_t v = 0; v < homes.size(); ++v)
    if (source.variables()[v].update != kNoValue) update_of[source.variables()[v].update] = static_cast<int>(v);
  for (size_t n = 0; n < source.nodes().size(); ++n) {
    const Node& node = source.nodes()[n];
    inference.asked = nullptr;
    if (choices != nullptr && choices->moves.contains(static_cast<int>(n)))
      inference.asked = &choices->moves.at(static_cast<int>(n));
    inference.context = graph::Rewriter::context_of(node);
    inference.wishes.clear();
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const int v = update_of[node.outputs[o]];
      if (v < 0) continue;
      inference.wishes.resize(o + 1);
      const Lay& lay = plan.values[rewriter.target().variables()[v].value];
      if (lay.on_mesh()) inference.wishes[o] = lay;
    }
    std::vector<Value> inputs;
    for (ValueId input : node.inputs) inputs.push_back(input == kNoValue ? Value() : inference.value(rewriter[input]));
    const std::vector<Value> outputs = inference.call(*node.op, inputs, node.attrs);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      SLUICE_CHECK_KIND(kRuntime, outputs.at(o).type() == source.type(node.outputs[o]),
                        "{}: its decomposition gives {}; must be {}", describe(node), outputs[o].type().str(),
                        source.type(node.outputs[o]).str());
      rewriter.map(node.outputs[o], inference.id(outputs[o]));
    }
  }
  for (size_t v = 0; v < source.values().size(); ++v)
    plan.source_values.push_back(plan.values[rewriter[static_cast<ValueId>(v)]]);
  plan.graph = rewriter.finish();
  return plan;
}

}  // namespace sluice::compiler
