// Makes one op of the steps of an optimizer for many parameters, where options ask for that, on devices with a kernel
// "multi_update": one sweep instead of a launch each. A cast of the gradient, or its product with a number, moves into
// the step: one pass over memory less. So does a cast of the parameter that it has made, where a variable keeps that
// (tensor/session/half_copies.h). Steps whose results are read in the graph stay single, for what reads them.
#include <algorithm>
#include <map>
#include <optional>

#include "compiler/pass.h"
#include "graph/ops/fused.h"
#include "graph/ops/multi_update.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;

constexpr int kGradient = 1;  // which operand of a step it is

// A step with what makes its gradient.
struct Update {
  int node = -1, maker = -1, cast = -1;  // of the new parameter
  AttrGraph body = {};
  std::vector<ValueId> replaced = {}, others = {};  // the body's inputs
};

class Updates {
 public:
  Updates(const graph::Graph& graph, PassContext& context)
      : graph_(graph), context_(context), uses_(count_uses(graph)), casts_(casts_between_variables()) {
    read_.assign(graph.values().size(), false);
    for (const Node& node : graph.nodes())
      for (ValueId input : node.inputs)
        if (input != kNoValue) read_[input] = true;
    place_.assign(graph.nodes().size(), kStays);
    std::map<std::string, int> open;
    for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
      std::optional<Update> update = update_of(i);
      if (!update) continue;
      if (context.options.updates != "all" || update->cast >= 0 || !is_final(graph.nodes()[i])) {
        if (update->maker >= 0 || update->cast >= 0) groups_.push_back({std::move(*update)});
        continue;
      }
      const auto [at, added] = open.emplace(key_of(*update), static_cast<int>(groups_.size()));
      if (added) groups_.emplace_back();
      groups_[at->second].push_back(std::move(*update));
      if (static_cast<int64_t>(groups_[at->second].size()) == ops::kMostUpdates) open.erase(at);
    }
    for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
      if (groups_[g].size() == 1 && groups_[g][0].maker < 0 && groups_[g][0].cast < 0) continue;
      for (const Update& update : groups_[g]) {
        place_[update.node] = kGone;
        if (update.cast >= 0) place_[update.cast] = kGone;
        if (update.maker >= 0) place_[update.maker] = kGone;
      }
      place_[groups_[g].back().node] = g;
      ++made_;
    }
  }

  int made() const { return made_; }
  bool stays(int node) const { return place_[node] == kStays; }
  // Those that become one in the place of `node`; null where none do.
  const std::vector<Update>* group_at(int node) const { return place_[node] >= 0 ? &groups_[place_[node]] : nullptr; }

 private:
  static constexpr int kStays = -2, kGone = -1;

  // A step writes variables that nobody reads in this graph afterwards, so that it may wait for others.
  bool is_final(const Node& node) const {
    return std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) { return read_[output]; });
  }

  std::optional<Update> update_of(int i) const {
    const Node& node = graph_.nodes()[i];
    if (!ops::is_update(*node.op) || !context_.target.has_kernel("multi_update", context_.device_of(node).kind))
      return std::nullopt;
    const auto absent = std::find(node.inputs.begin(), node.inputs.end(), kNoValue);
    if (std::any_of(absent, node.inputs.end(), [](ValueId input) { return input != kNoValue; })) return std::nullopt;
    const std::vector<ValueId> given(node.inputs.begin(), absent);
    Update update{.node = i};
    // Results replace the operands in front but the gradient, in their order.
    for (int k = 0; k <= node.op->num_outputs; ++k)
      if (k != kGradient) update.replaced.push_back(given[k]);
    std::vector<AttrCall> steps;
    take_maker(node, update, steps);
    AttrGraph& body = update.body;
    std::vector<int> operands;
    const int replaced = static_cast<int>(update.replaced.size());
    int other = replaced + static_cast<int>(update.others.size());
    if (update.maker < 0) {
      update.others.push_back(given[kGradient]);
      ++other;
    }
    for (size_t k = static_cast<size_t>(replaced) + 1; k < given.size(); ++k) update.others.push_back(given[k]);
    body.inputs = replaced + static_cast<int>(update.others.size());
    // Steps count their operands from the first of `others`, and what they make behind those.
    const int read = other - replaced, more = body.inputs - other;
    for (AttrCall& step : steps) {
      for (int& operand : step.operands) operand += replaced + (operand >= read ? more : 0);
      body.calls.push_back(std::move(step));
    }
    for (size_t k = 0; k < given.size(); ++k) {
      if (k == kGradient)
        operands.push_back(update.maker < 0 ? replaced : body.inputs + static_cast<int>(body.calls.size()) - 1);
      else if (static_cast<int>(k) <= replaced)
        operands.push_back(k == 0 ? 0 : static_cast<int>(k) - 1);
      else
        operands.push_back(other++);
    }
    body.calls.push_back({node.op->name, name_attrs(*node.op, node.attrs), std::move(operands)});
    body.outputs = {body.inputs + static_cast<int>(body.calls.size()) - 1};
    if (body.inputs > kMostFusedInputs) return std::nullopt;
    update.cast = cast_of(node);
    return update;
  }

  // The casts of new contents of variables that are new contents of others, by what they cast.
  std::map<ValueId, int> casts_between_variables() const {
    std::map<ValueId, int> casts;
    if (!context_.options.cast_updates) return casts;
    for (const graph::Variable& v : graph_.variables()) {
      if (v.update == kNoValue || graph_.values()[v.update].kind != graph::ValueKind::kNode) continue;
      const int made_by = graph_.values()[v.update].index;
      const Node& node = graph_.nodes()[made_by];
      if (std::string_view(node.op->name) == "cast") casts.emplace(node.inputs[0], made_by);
    }
    return casts;
  }
  int cast_of(const Node& step) const {
    const auto cast = casts_.find(step.outputs[0]);
    if (cast == casts_.end()) return -1;
    const Node& node = graph_.nodes()[cast->second];
    return node.placement == step.placement && node.every == step.every ? cast->second : -1;
  }

  // The gradient as casts of one value and products with numbers: a single op, or a chain that is fused already.
  void take_maker(const Node& node, Update& update, std::vector<AttrCall>& steps) const {
    if (!context_.options.scaled_updates) return;
    const ValueId gradient = node.inputs[kGradient];
    const graph::ValueInfo& info = graph_.values()[gradient];
    if (info.kind != graph::ValueKind::kNode || uses_[gradient] != 1) return;
    const Node& maker = graph_.nodes()[info.index];
    if (maker.placement != node.placement || maker.quota != node.quota || maker.every != node.every) return;
    int tensors = 0;
    for (ValueId input : maker.inputs) {
      if (input == kNoValue) return;
      const Shape& shape = graph_.type(input).shape;
      if (shape.rank() > 0 && shape != graph_.type(gradient).shape) return;
      tensors += shape.rank() > 0 ? 1 : 0;
    }
    if (tensors != 1 || maker.inputs.size() > kMostNumbers + 1) return;
    const auto scales = [](std::string_view op) { return op == "cast" || op == "mul" || op == "div"; };
    if (maker.op == &ops::fused_op()) {
      const AttrGraph& body = attr<AttrGraph>(maker.attrs, 0);
      if (!std::all_of(body.calls.begin(), body.calls.end(), [&](const AttrCall& step) { return scales(step.op); }))
        return;
      if (body.outputs[0] != body.inputs + static_cast<int>(body.calls.size()) - 1) return;
      steps = body.calls;
    } else if (scales(maker.op->name)) {
      AttrCall step{maker.op->name, name_attrs(*maker.op, maker.attrs), {}};
      for (size_t k = 0; k < maker.inputs.size(); ++k) step.operands.push_back(static_cast<int>(k));
      steps = {std::move(step)};
    } else {
      return;
    }
    update.maker = info.index;
    update.others.assign(maker.inputs.begin(), maker.inputs.end());
  }

  // Updates with equal keys may be one.
  std::string key_of(const Update& update) const {
    const Node& node = graph_.nodes()[update.node];
    std::string key =
        fmt::format("{} {} {} {} {} {}", attr_str(update.body), context_.device_of(node).str(), node.placement.stream,
                    node.quota, node.every, dtype_name(graph_.type(update.replaced[0]).dtype));
    for (ValueId other : update.others)
      key +=
          fmt::format(" {}{}", dtype_name(graph_.type(other).dtype), graph_.type(other).shape.rank() == 0 ? "" : "*");
    return key;
  }

  static constexpr size_t kMostNumbers = 4;

  const graph::Graph& graph_;
  PassContext& context_;
  const std::vector<int> uses_;
  const std::map<ValueId, int> casts_;
  std::vector<bool> read_;  // per value: by a node
  std::vector<int> place_;  // per node: the group that it becomes
  std::vector<std::vector<Update>> groups_;
  int made_ = 0;
};

void rewrite(graph::Rewriter& rewriter, const std::vector<Update>& group) {
  const graph::Graph& source = rewriter.source();
  Node made = source.nodes()[group.back().node];
  made.op = &ops::multi_update_op();
  const int cast = group[0].cast;
  const ValueId copy = cast < 0 ? kNoValue : source.nodes()[cast].outputs[0];
  made.attrs = {group[0].body, static_cast<int64_t>(group.size()),
                cast < 0 ? std::string() : std::string(dtype_name(source.type(copy).dtype))};
  made.inputs.clear();
  made.outputs.clear();
  for (const Update& update : group)
    for (ValueId value : update.replaced) made.inputs.push_back(rewriter[value]);
  for (const Update& update : group)
    for (ValueId value : update.others) made.inputs.push_back(rewriter[value]);
  std::vector<const Provenance*> origins;
  for (const Update& update : group) origins.push_back(&source.nodes()[update.node]);
  static_cast<Provenance&>(made) = merged(source.nodes()[group[0].node], origins);
  const int index = rewriter.target().add_node(std::move(made));
  size_t o = 0;
  for (const Update& update : group)
    for (ValueId output : source.nodes()[update.node].outputs)
      rewriter.map(output, rewriter.target().nodes()[index].outputs[o++]);
  if (copy != kNoValue) rewriter.map(copy, rewriter.target().nodes()[index].outputs[o]);
}

}  // namespace

int fuse_updates(graph::Graph& graph, PassContext& context) {
  if (context.options.prims) return 0;
  if (context.options.updates == "single" && !context.options.scaled_updates && !context.options.cast_updates) return 0;
  const Updates updates(graph, context);
  if (updates.made() == 0) return 0;
  graph::Rewriter rewriter(graph);
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    if (const std::vector<Update>* group = updates.group_at(i))
      rewrite(rewriter, *group);
    else if (updates.stays(i))
      rewriter.take(i);
  }
  graph = rewriter.finish();
  return updates.made();
}

}  // namespace sluice::compiler
