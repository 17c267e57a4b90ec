// Gives every node a device and a stream, every variable a stream beside which it lies, and every input and output the
// host memory of its rank, or with options.device_ports that of a device.
#include <algorithm>
#include <map>

#include "base/fix.h"
#include "compiler/collectives.h"
#include "compiler/lowering/lowering.h"
#include "compiler/lowering/places.h"
#include "compiler/lowering/stream_cores.h"
#include "compiler/lowering/windows.h"
#include "graph/ops/micro_batches.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using graph::Node;
using graph::Placement;
using graph::ValueId;
using graph::ValueInfo;
using graph::ValueKind;
using plan::StreamKind;

std::string at(const Node& node) { return node.source.known() ? fmt::format("  ({})", node.source.str()) : ""; }

// Suggests how to put the calls of this line somewhere else.
Fix elsewhere(const Node& node, const char* field, const std::string& where) {
  if (!node.source.known()) return {};
  return {{"call", std::string(node.op->name)}, {"line", node.source.str()}, {field, where}};
}

class Placer {
 public:
  Placer(const graph::Graph& graph, const PassContext& context)
      : graph_(graph), context_(context), places_(context.target, context.options), root_(roots(graph)) {
    places_.desc(context.options.device);
    for (const Node& node : graph.nodes()) {
      at_.push_back(place(node));
      const bool named = node.placement.device || !node.placement.stream.empty();
      why_.push_back(named && node.placed == Placed::kDefault ? Placed::kNamed : node.placed);
      beside_.push_back(is_collective(*node.op) ? Places::at(*node.placement.device, StreamKind::kCompute)
                                                : at_.back());
      if (!node.op->view) check_kernel(node, *at_.back().device);
    }
    move_state_updates();
    find_homes();
    place_ports();
    for (size_t i = 0; i < at_.size(); ++i)
      if (graph.nodes()[i].op->view) move(static_cast<int>(i), place_view(static_cast<int>(i)), Placed::kView);
  }

  const Placement& node(int index) const { return at_[index]; }
  Placed why(int index) const { return why_[index]; }
  const Placement& variable(int index) const { return home_[index]; }
  const Placement& input(int index) const { return inputs_[index]; }
  const Placement& output(int index) const { return outputs_[index]; }

 private:
  void move(int index, Placement where, Placed why) {
    if (where == at_[index]) return;
    at_[index] = std::move(where);
    why_[index] = why;
  }

  Placement place(const Node& node) const {
    const DeviceId device = context_.device_of(node);
    if (is_collective(*node.op)) {
      const bool own = context_.target.has_kernel(node.op->name, device.kind);
      return Places::at(own ? device : Places::host_memory(device.rank).device, StreamKind::kCollective);
    }
    const std::string& name = node.placement.stream;
    const int compute = name.empty() ? 0 : stream_index(name, "compute");
    if (compute >= 0) {
      try {
        places_.desc(device);
      } catch (const Error& error) {
        throw FixableError(error.kind(), fmt::format("op {}: {}{}", node.op->name, error.what(), at(node)),
                           elsewhere(node, "device", places_.devices()[0].device.str()));
      }
      return Places::at(device, StreamKind::kCompute, compute);
    }
    const int host = stream_index(name, "host");
    if (host < 0) {
      throw FixableError(
          ErrorKind::kValue,
          fmt::format("op {}: unknown stream: \"{}\"; must be \"compute\", \"compute:N\", \"host\" or \"host:N\"{}",
                      node.op->name, name, at(node)),
          elsewhere(node, "stream", name.starts_with("h") ? "host" : "compute"));
    }
    return Places::at(Places::host_memory(device.rank).device, StreamKind::kHost, host);
  }

  void check_kernel(const Node& node, const DeviceId& device) const {
    const bool pack = node.op == &ops::pack_op();  // which the kernel of concat does
    if (is_collective(*node.op) || context_.target.has_kernel(pack ? "concat" : node.op->name, device.kind)) return;
    const std::vector<std::string>& off = context_.options.disabled_passes;
    const bool may_decompose = std::find(off.begin(), off.end(), "decompose") == off.end();
    fail(ErrorKind::kUnsupported, "op {}: no kernel{} on device {}; place it on a device that has one{}{}",
         node.op->name, pack ? " concat" : "", device.str(),
         may_decompose ? "" : ", or leave the pass \"decompose\" on, which computes some ops by others", at(node));
  }

  // Moves the nodes that only maintain state (a generator's step counter) next to the state's first reader.
  void move_state_updates() {
    const int num_nodes = static_cast<int>(graph_.nodes().size());
    const auto is_state = [&](ValueId value, const std::vector<bool>& only_state) {
      const ValueInfo& info = graph_.values()[value];
      if (info.kind == ValueKind::kVariable) return true;
      return info.kind == ValueKind::kNode && only_state[info.index];
    };
    // Forwards: computed from variables alone. Backwards: read by such nodes and updates alone.
    std::vector<bool> only_state(num_nodes, false);
    for (int i = 0; i < num_nodes; ++i) {
      const Node& node = graph_.nodes()[i];
      const bool free = node.placement == Placement{} || node.placed == Placed::kOrder;
      only_state[i] = free && !node.op->effectful;
      for (ValueId input : node.inputs) {
        if (input != kNoValue) only_state[i] = only_state[i] && is_state(input, only_state);
      }
    }
    const auto used_elsewhere = [&](ValueId value) {
      const ValueInfo& info = graph_.values()[value];
      if (info.kind == ValueKind::kNode) only_state[info.index] = false;
    };
    for (const graph::Output& output : graph_.outputs()) used_elsewhere(output.value);
    for (int i = num_nodes - 1; i >= 0; --i) {
      if (only_state[i]) continue;
      for (ValueId input : graph_.nodes()[i].inputs) {
        if (input != kNoValue) used_elsewhere(input);
      }
    }
    // The first other reader of a variable says where its state is kept; what follows from it stays there.
    std::vector<const Placement*> home(graph_.values().size(), nullptr);
    for (int i = 0; i < num_nodes; ++i) {
      if (only_state[i]) continue;
      for (ValueId input : graph_.nodes()[i].inputs) {
        if (input == kNoValue || home[input]) continue;
        const ValueInfo& info = graph_.values()[input];
        if (info.kind == ValueKind::kVariable && !graph_.variables()[info.index].constant) home[input] = &at_[i];
      }
    }
    for (int i = 0; i < num_nodes; ++i) {
      if (!only_state[i]) continue;
      const Node& node = graph_.nodes()[i];
      for (ValueId input : node.inputs) {
        if (input == kNoValue || !home[input]) continue;
        move(i, *home[input], Placed::kState);
        beside_[i] = at_[i];
        break;
      }
      for (ValueId output : node.outputs) home[output] = &at_[i];
      for (ValueId input : node.inputs) {  // numbers made from nothing: where they are used
        if (input == kNoValue || graph_.values()[input].kind != ValueKind::kNode) continue;
        const int made_by = graph_.values()[input].index;
        if (!only_state[made_by] || !graph_.nodes()[made_by].inputs.empty()) continue;
        move(made_by, at_[i], Placed::kState);
        beside_[made_by] = at_[made_by];
      }
    }
  }

  int variable_of(ValueId value) const {
    const ValueInfo& info = graph_.values()[root_[value]];
    return info.kind == ValueKind::kVariable ? info.index : -1;
  }

  // Beside the stream that writes a variable, else the first that reads it; of a shard, on its rank.
  void find_homes() {
    std::map<std::string, int> rank_of_shard;
    for (const plan::Shard& shard : context_.partition.shards) rank_of_shard[shard.name] = shard.device.rank;
    std::vector<int> ranks;
    for (const graph::Variable& v : graph_.variables()) {
      const auto found = rank_of_shard.find(v.name);
      ranks.push_back(found == rank_of_shard.end() ? -1 : found->second);
    }
    home_.resize(ranks.size());
    const auto settle = [&](int variable, const Placement& where) {
      if (ranks[variable] < 0 || where.device->rank == ranks[variable]) home_[variable] = where;
    };
    for (size_t i = 0; i < at_.size(); ++i) {
      if (graph_.nodes()[i].op->view) continue;
      for (ValueId input : graph_.nodes()[i].inputs) {
        const int variable = input == kNoValue ? -1 : variable_of(input);
        if (variable >= 0 && !home_[variable].device) settle(variable, beside_[i]);
      }
    }
    for (size_t v = 0; v < home_.size(); ++v) {
      const ValueId update = graph_.variables()[v].update;
      if (update != kNoValue) {
        const ValueInfo& made = graph_.values()[root_[update]];
        if (made.kind == ValueKind::kNode) settle(static_cast<int>(v), beside_[made.index]);
      }
      if (!home_[v].device) home_[v] = places_.usual(std::max(ranks[v], 0));
    }
  }

  // The placement of the copy that is made if the view cannot be one: on its own stream if that reads the memory in
  // which its input lies.
  Placement place_view(int index) const {
    const ValueInfo& seen = graph_.values()[root_[graph_.nodes()[index].outputs[0]]];
    Placement beside;
    if (seen.kind == ValueKind::kInput)
      beside = places_.computing_in(places_.port_memory(inputs_[seen.index]), at_[index]);
    else
      beside = seen.kind == ValueKind::kVariable ? home_[seen.index] : beside_[seen.index];
    return places_.reads(at_[index]) == places_.writes(beside) ? at_[index] : beside;
  }

  void place_ports() {
    const auto host = [](const std::vector<plan::Shard>& shards, size_t index) {
      return Placement{Places::host_memory(shards.empty() ? 0 : shards[index].device.rank).device, ""};
    };
    for (size_t i = 0; i < graph_.inputs().size(); ++i) inputs_.push_back(host(context_.partition.inputs, i));
    for (size_t o = 0; o < graph_.outputs().size(); ++o) outputs_.push_back(host(context_.partition.outputs, o));
    if (context_.options.device_ports) move_ports_to_devices();
  }

  // An input to where it is read first, an output to where it is made. Lengths of outputs are the host's to read.
  void move_ports_to_devices() {
    const plan::Shard* const part = !context_.partition.inputs.empty()    ? &context_.partition.inputs.front()
                                    : !context_.partition.outputs.empty() ? &context_.partition.outputs.front()
                                                                          : nullptr;
    SLUICE_CHECK_KIND(kUnsupported, context_.options.ranks == 1 && part == nullptr,
                      "device_ports: {}; must be off, so that ports lie in host memory",
                      part == nullptr ? fmt::format("{} ranks run the graph", context_.options.ranks)
                                      : fmt::format("'{}' lies on a mesh of devices", part->whole));
    std::vector<bool> read(inputs_.size(), false);
    for (size_t i = 0; i < at_.size(); ++i) {
      if (graph_.nodes()[i].op->view) continue;
      for (ValueId input : graph_.nodes()[i].inputs) {
        if (input == kNoValue || graph_.values()[root_[input]].kind != ValueKind::kInput) continue;
        const int index = graph_.values()[root_[input]].index;
        if (!read[index]) move_port(inputs_[index], places_.reads(at_[i]));
        read[index] = true;
      }
    }
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const graph::Output& output = graph_.outputs()[o];
      if (output.extent_of) continue;
      const ValueInfo& root = graph_.values()[root_[output.value]];
      if (root.kind == ValueKind::kInput)
        outputs_[o] = inputs_[root.index];
      else
        move_port(outputs_[o], places_.writes(root.kind == ValueKind::kVariable ? home_[root.index] : at_[root.index]));
    }
  }

  static void move_port(Placement& port, const plan::Space& space) {
    if (space.kind == plan::SpaceKind::kDevice) port = {space.device, ""};
  }

  const graph::Graph& graph_;
  const PassContext& context_;
  const Places places_;
  const std::vector<ValueId> root_;
  std::vector<Placement> at_;      // per node
  std::vector<Placed> why_;        // per node
  std::vector<Placement> beside_;  // per node: the stream beside which its variables and views lie
  std::vector<Placement> home_;    // per variable
  std::vector<Placement> inputs_, outputs_;
};

}  // namespace

int placement(graph::Graph& graph, PassContext& context) {
  const Placer placer(graph, context);
  const auto each = [](size_t count, auto place) {
    for (int i = 0; i < static_cast<int>(count); ++i) place(i);
  };
  each(graph.nodes().size(), [&](int i) {
    graph.mutable_nodes()[i].placement = placer.node(i);
    graph.mutable_nodes()[i].placed = placer.why(i);
  });
  each(graph.variables().size(), [&](int i) { graph.place_variable(i, placer.variable(i)); });
  each(graph.inputs().size(), [&](int i) { graph.place_input(i, placer.input(i)); });
  each(graph.outputs().size(), [&](int i) { graph.place_output(i, placer.output(i)); });
  context.cores = stream_cores(graph, context, Places(context.target, context.options));
  return static_cast<int>(graph.nodes().size());
}

void verify_placement(const graph::Graph& graph, const PassContext& context) {
  const Places places(context.target, context.options);
  const auto check_stream = [&](const auto& what, const Placement& placement) {
    try {
      Places::stream_kind(placement);
      places.desc(*placement.device);
    } catch (const Error& error) {
      fail(ErrorKind::kRuntime, "{}: {}", what(), error.what());
    }
  };
  const auto check_port = [&](const std::string& what, const Placement& placement) {
    const bool lies = placement.device &&
                      (places.port_memory(placement).kind != plan::SpaceKind::kDevice || context.options.device_ports);
    SLUICE_CHECK_KIND(kRuntime, lies, "{}: on device {}; must lie in the memory of a host{}", what,
                      placement.device ? placement.device->str() : "none",
                      context.options.device_ports ? " or device" : "");
  };
  for (const Node& node : graph.nodes()) check_stream([&] { return describe(node); }, node.placement);
  for (const graph::Variable& v : graph.variables()) check_stream([&] { return "variable " + v.name; }, v.placement);
  for (const graph::Input& input : graph.inputs()) check_port("input " + input.name, input.placement);
  for (const graph::Output& output : graph.outputs()) check_port("output " + output.name, output.placement);
}

}  // namespace sluice::compiler
