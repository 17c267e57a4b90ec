// Nodes -> tasks. Every node that is no view is one kernel call, whose operands are windows of stores: of what a node
// writes, an input or a variable. Nothing is added here.
#include <algorithm>
#include <map>

#include "compiler/collectives.h"
#include "compiler/lowering/lowering.h"
#include "compiler/lowering/places.h"
#include "compiler/lowering/windows.h"
#include "graph/ops/folded_weights.h"
#include "graph/ops/micro_batches.h"
#include "graph/ops/movement.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::Placement;
using graph::ValueId;

bool has_backward_pass(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const Node& node) { return node.role == Role::kBackward; });
}

class Lowering {
 public:
  Lowering(const Graph& graph, const PassContext& context)
      : graph_(graph),
        context_(context),
        places_(context.target, context.options),
        answers_(context, !context.options.weights_change && !has_backward_pass(graph)),
        root_(roots(graph)),
        lying_(windows(graph)),
        store_(graph.values().size(), -1) {}

  Lowered run() {
    add_inputs_and_variables();
    for (const Node& node : graph_.nodes())
      if (!node.op->view && !derive(node)) add_task(node);
    for (const graph::Output& output : graph_.outputs()) {
      out_.outputs.push_back(operand(output.value));
      TensorSpec& spec = out_.outputs.back().spec;
      spec.strides = contiguous_strides(spec.shape);  // whatever the strides of axes of one element
    }
    for (int rank = 0; rank < context_.options.ranks; ++rank) place_ports(rank);
    pin_what_devices_copy();
    for (const plan::Stream& s : out_.streams) out_.stream_space.push_back(space(places_.writes(placement_of(s))));
    for (const plan::DeviceDesc& d : context_.target.devices())
      if (d.device.kind == DeviceKind::kCpu && d.device.index == 0)
        out_.host_cores = out_.host_cores == 0 ? d.cores : std::min(out_.host_cores, d.cores);
    return std::move(out_);
  }

 private:
  static Placement placement_of(const plan::Stream& s) { return Places::at(s.device, s.kind, s.index); }

  int add_store(Store store) {
    store.bytes = std::max<uint64_t>(store.bytes, 1);  // zero-size tensors have an address too
    out_.stores.push_back(std::move(store));
    return static_cast<int>(out_.stores.size()) - 1;
  }

  int space(const plan::Space& space) {
    const auto it = std::find(out_.spaces.begin(), out_.spaces.end(), space);
    if (it != out_.spaces.end()) return static_cast<int>(it - out_.spaces.begin());
    out_.spaces.push_back(space);
    return static_cast<int>(out_.spaces.size()) - 1;
  }

  int stream(const Placement& placement) {
    const auto [known, fresh] = streams_.try_emplace(placement, static_cast<int>(out_.streams.size()));
    if (!fresh) return known->second;
    plan::Stream stream = Places::stream(placement);
    const auto same = [&](const plan::Stream& s) { return s.name == stream.name; };
    const auto it = std::find_if(out_.streams.begin(), out_.streams.end(), same);
    if (it != out_.streams.end()) return known->second = static_cast<int>(it - out_.streams.begin());
    if (const auto cores = context_.cores.find(placement); cores != context_.cores.end()) stream.cores = cores->second;
    out_.streams.push_back(std::move(stream));
    return known->second;
  }

  std::string unique_name(const std::string& base) {
    const int n = ++names_[base];
    return n == 1 ? base : fmt::format("{}#{}", base, n);
  }

  // Copies are named after what they copy.
  std::string name_of(const Node& node) {
    if (ops::is_copy(*node.op)) return unique_name(out_.stores[operand(node.inputs[0]).store].name + "/copy");
    return unique_name(node.module.empty() ? node.op->name : node.module + "/" + node.op->name);
  }

  Operand operand(ValueId value) const {
    if (value == kNoValue) return {};
    return {store_[lying_[value].root], lying_[value].offset, lying_[value].spec};
  }

  void add_inputs_and_variables() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const graph::Input& input = graph_.inputs()[i];
      store_[input.value] =
          add_store({Store::Kind::kInput, static_cast<int>(i), space(places_.port_memory(input.placement)),
                     graph_.spec(input.value).extent_bytes(), input.name, 0});
    }
    for (size_t i = 0; i < graph_.variables().size(); ++i) {
      const graph::Variable& v = graph_.variables()[i];
      store_[v.value] = add_store({Store::Kind::kVariable, static_cast<int>(i), space(places_.writes(v.placement)),
                                   graph_.spec(v.value).extent_bytes(), v.name, 0});
      out_.variable_store.push_back(store_[v.value]);
      if (v.update != kNoValue) updates_.emplace(v.update, static_cast<int>(i));
    }
    out_.writer.assign(graph_.variables().size(), -1);
  }

  // Whether the node's result is kept beside the variables of which it is made, rather than made in each step.
  bool derive(const Node& node) {
    if (!ops::folds_weights(*node.op) || !Places::is_host(places_.writes(node.placement))) return false;
    const ValueId result = node.outputs[0];
    if (read_apart()[result]) return false;
    plan::Derivation derived{
        node.op->name, name_attrs(*node.op, node.attrs), {}, TensorSpec::contiguous(graph_.type(result))};
    int first = -1;
    for (ValueId input : node.inputs) {
      derived.inputs.push_back(input == kNoValue ? -1 : unchanging_variable(input));
      if (input == kNoValue) continue;
      if (derived.inputs.back() < 0) return false;
      if (first < 0) first = derived.inputs.back();
    }
    store_[result] = out_.variable_store[first];
    derived_.emplace(result, std::move(derived));
    return true;
  }

  // Per value: it does not lie as its type says, somebody reads a part of it that begins elsewhere, or it is handed
  // out.
  const std::vector<bool>& read_apart() {
    if (!read_apart_.empty()) return read_apart_;
    for (size_t v = 0; v < lying_.size(); ++v) {
      const Window& own = lying_[v];
      read_apart_.push_back(!is_contiguous(own.spec.shape, own.spec.strides));
    }
    for (const Node& node : graph_.nodes())
      for (ValueId read : node.inputs)
        if (read != kNoValue && !node.op->view && lying_[read].offset != 0) read_apart_[lying_[read].root] = true;
    for (const graph::Output& output : graph_.outputs()) read_apart_[lying_[output.value].root] = true;
    return read_apart_;
  }

  // The variable of the host that the value is, whole and contiguous, where no step changes it; or -1.
  int unchanging_variable(ValueId value) const {
    const graph::ValueInfo& root = graph_.values()[lying_[value].root];
    if (root.kind != graph::ValueKind::kVariable || graph_.variables()[root.index].update != kNoValue) return -1;
    const bool on_host = Places::is_host(places_.writes(graph_.variables()[root.index].placement));
    return on_host && is_whole(value) ? root.index : -1;
  }
  bool is_whole(ValueId value) const {
    const Window& window = lying_[value];
    return window.offset == 0 && is_contiguous(window.spec.shape, window.spec.strides) &&
           window.spec.extent_bytes() == graph_.spec(window.root).extent_bytes();
  }

  void add_task(const Node& node) {
    plan::KernelQuery query = kernel_query(graph_, node, lying_, context_);
    query.cost = graph_.cost(node);
    Task task;
    task.name = name_of(node);
    task.op = query.op;
    task.attrs = query.attrs;
    task.stream = stream(node.placement);
    static_cast<Provenance&>(task) = node;
    task.effectful = node.op->effectful;
    task.source = node.op->effectful && node.inputs.empty() && !is_collective(*node.op);
    task.every = node.every;
    task.inputs.reserve(node.inputs.size());
    for (ValueId input : node.inputs) {
      const auto made = input == kNoValue ? derived_.end() : derived_.find(lying_[input].root);
      if (made != derived_.end()) task.derived.emplace(static_cast<int>(task.inputs.size()), made->second);
      task.inputs.push_back(operand(input));
    }
    if (is_collective(*node.op)) {
      task.ranks = ranks_of(node);
      task.meeting = meeting_of(node);
      task.cost_ns = context_.target.cost_ns(query);
    } else {
      query.packed = unchanging_inputs(node);
      const KernelAnswers::Answer& answer = answers_.ask(node, query);
      task.packings = answer.packings;
      task.workspace_bytes = answer.workspace_bytes;
      task.cost_ns = answer.cost_ns;
      task.attrs = answer.attrs;
      if (context_.options.in_place) task.in_place = answer.in_place;
    }
    if (node.op == &ops::pack_op()) take_all_values(task, query, same_in_all_batches(graph_, root_, node.inputs[0]));
    for (size_t o = 0; o < node.outputs.size(); ++o)
      task.outputs.push_back({written_store(node, static_cast<int>(o), task), 0, graph_.spec(node.outputs[o])});
    out_.tasks.push_back(std::move(task));
  }

  // Inputs that are all of a variable, contiguous, which steps do not change; or of what is derived from such.
  std::vector<int> unchanging_inputs(const Node& node) const {
    std::vector<int> inputs;
    if (!context_.options.pack_weights || node.op == &ops::pack_op()) return inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      const bool derived = derived_.contains(lying_[node.inputs[i]].root) && is_whole(node.inputs[i]);
      if (derived || unchanging_variable(node.inputs[i]) >= 0) inputs.push_back(static_cast<int>(i));
    }
    return inputs;
  }

  // The kernel of concat takes them from the slots of one register; or one value as often, where they are the same.
  static void take_all_values(Task& task, const plan::KernelQuery& query, bool same) {
    Operand part = task.inputs[0];
    task.inputs.clear();
    for (const TensorSpec& spec : query.inputs) {
      part.spec = spec;
      task.inputs.push_back(part);
      part.token += !same;
    }
  }

  int written_store(const Node& node, int o, const Task& task) {
    const ValueId value = node.outputs[o];
    if (const auto update = updates_.find(value); update != updates_.end()) {
      out_.writer[update->second] = static_cast<int>(out_.tasks.size());
      return store_[value] = out_.variable_store[update->second];
    }
    const int every = graph_.every(value) == 0 ? node.every : graph_.every(value);
    return store_[value] = add_store({Store::Kind::kTemp, -1, space(places_.writes(node.placement)),
                                      graph_.spec(value).extent_bytes(),
                                      o == 0 ? task.name : fmt::format("{}.{}", task.name, o), node.quota, every});
  }

  // The actor that brings inputs runs where they are prepared on the host, so that a long program of the compute stream
  // does not hold back the preparation of the next step.
  void place_ports(int rank) {
    const int port = stream(places_.computing_in(Places::host_memory(rank), places_.usual(rank)));
    out_.sink_streams.push_back(port);
    out_.feed_streams.push_back(port);
    for (const Task& task : out_.tasks) {
      for (const Operand& in : task.inputs) {
        const plan::Stream& s = out_.streams[task.stream];
        if (in.store < 0 || out_.stores[in.store].kind != Store::Kind::kInput) continue;
        if (s.kind != plan::StreamKind::kHost || s.device.rank != rank) continue;
        out_.feed_streams.back() = task.stream;
        return;
      }
    }
  }

  // Values that a device copies to or from the host by itself are pinned there.
  void pin_what_devices_copy() {
    for (const Task& task : out_.tasks) {
      const plan::Stream& s = out_.streams[task.stream];
      if (!places_.moves_dense_bytes(placement_of(s))) continue;
      for (const std::vector<Operand>* operands : {&task.inputs, &task.outputs}) {
        for (const Operand& operand : *operands) {
          Store& store = out_.stores[operand.store];
          if (out_.spaces[store.space] != Places::host_memory(s.device.rank)) continue;
          if (store.kind != Store::Kind::kVariable) store.space = space({plan::SpaceKind::kPinned, s.device});
        }
      }
    }
  }

  const Graph& graph_;
  const PassContext& context_;
  const Places places_;
  KernelAnswers answers_;
  const std::vector<ValueId> root_;           // per value
  const std::vector<Window> lying_;           // per value
  std::vector<int> store_;                    // per value that is no view
  std::unordered_map<ValueId, int> updates_;  // variables, by their new content
  std::map<ValueId, plan::Derivation> derived_;
  std::vector<bool> read_apart_;
  std::map<Placement, int> streams_;            // indices, by what is placed there
  std::unordered_map<std::string, int> names_;  // how often each was given
  Lowered out_;
};

}  // namespace

Lowered lower(const Graph& graph, const PassContext& context) { return Lowering(graph, context).run(); }

}  // namespace sluice::compiler
