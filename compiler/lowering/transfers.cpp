// Copies values to where they are read. A device's memory is reached through the host's: down the stream "copy_out" of
// the device where a value is made, up "copy_in" of the one where it is read. A host reads what lies in another host's
// memory as it is, since a register between them crosses; but only all of what a kernel has made.
#include <algorithm>

#include "compiler/lowering/copies.h"
#include "graph/ops/movement.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using graph::ValueIds;
using graph::ValueKind;
using plan::Space;
using plan::StreamKind;

class Transfers final : public CopyingRewriter {
 public:
  Transfers(Graph& source, PassContext& context) : CopyingRewriter(source, context), shares_(source) {
    for (const Node& node : source.nodes()) {
      if (node.op->view) continue;
      const Space space = places_.reads(node.placement);
      for (ValueId input : node.inputs)
        if (input != kNoValue) wanted(input, space);
    }
    // A part of a value that is an output needs memory of its own in any case.
    for (const graph::Output& output : source.outputs())
      if (!is_part(output.value)) wanted(output.value, places_.port_memory(output.placement));
    for (const graph::Variable& v : source.variables())
      if (v.update != kNoValue) wanted(v.update, places_.writes(v.placement));
  }

  // Everything lies where it is read.
  bool none() const {
    const auto lies = [&](const graph::Output& output) {
      return memory(output.value) == places_.port_memory(output.placement);
    };
    return shares_.empty() && std::all_of(source_.outputs().begin(), source_.outputs().end(), lies);
  }

 protected:
  ValueIds inputs_of(const Node& node) override {
    ValueIds inputs;
    if (node.inputs.empty()) return inputs;
    const Space space = places_.reads(node.placement);
    const Reader reader = reader_of(node);
    for (ValueId input : node.inputs) inputs.push_back(input == kNoValue ? kNoValue : at(input, space, reader));
    return inputs;
  }

  ValueId output(const graph::Output& output) override {
    const Reader reader = reader_of(output);
    const Space space = places_.port_memory(output.placement);
    const ValueId id = at(output.value, space, reader);
    if (memory_of_id(id) == space) return id;
    return copy(ops::copy_op(), output.value, id, reader.placement, reader);
  }

  ValueId update(const graph::Variable& variable) override {
    return at(variable.update, places_.writes(variable.placement), reader_of(variable));
  }

  // How values lie in memory is the next pass's: here they could all be seen.
  std::optional<Window> seen(const Node& view, const Window& input) const override {
    return Window{input.root, 0, TensorSpec::contiguous(source_.type(view.outputs[0]))};
  }

 private:
  bool is_part(ValueId value) const {
    return numel(source_.type(value).shape) < numel(source_.type(root_[value]).shape);
  }

  void wanted(ValueId value, const Space& space) {
    const Space host = Places::host_memory(space.device.rank);
    const Space& from = memory(value);
    if (from == space) return;
    shares_.add(root_[value], value, space.str());
    if (from != host && space != host) shares_.add(root_[value], value, host.str());
  }

  // `value` as kernels that read from `space` can: an id of the new graph.
  ValueId at(ValueId value, const Space& space, const Reader& reader) {
    if (Places::is_host(space)) return in_host(value, space, reader);
    const auto here = [&](const Way& way) { return way.space == space; };
    if (const ValueId id = find(value, reader, here); id != kNoValue) return id;
    const ValueId moved = shares_.together(root_[value], space.str()) ? root_[value] : value;
    const ValueId from = in_host(moved, Places::host_memory(space.device.rank), reader);
    const ValueId id = copy(ops::copy_op(), moved, from, Places::at(space.device, StreamKind::kCopyIn), reader);
    return moved == value ? id : find_at_any_rate(value, reader, here);
  }

  ValueId in_host(ValueId value, const Space& host, const Reader& reader) {
    const bool together = shares_.together(root_[value], host.str());
    const auto crosses = [&](const Way& way) {
      const graph::ValueInfo& of = rewriter_.target().values()[way.window.root];
      return Places::is_host(way.space) && of.kind != ValueKind::kVariable &&
             (together || numel(source_.type(value).shape) >= numel(of.type.shape));
    };
    ValueId id = find(value, reader, [&](const Way& way) { return way.space == host; });
    if (id == kNoValue) id = find(value, reader, crosses);
    if (id != kNoValue) return id;
    const ValueId moved = together ? root_[value] : value;
    const ValueId from = find_at_any_rate(moved, reader, [](const Way& way) { return way.original; });
    const Space& lies = memory(value);
    const graph::Placement mover = Places::is_host(lies) ? places_.computing_in(lies, beside(value))
                                                         : Places::at(lies.device, StreamKind::kCopyOut);
    id = copy(ops::copy_op(), moved, from, mover, reader);
    return moved == value ? id : find_at_any_rate(value, reader, [&](const Way& way) { return way.window.root == id; });
  }

  Shares shares_;
};

}  // namespace

int transfers(Graph& graph, PassContext& context) {
  Transfers transfers(graph, context);
  if (transfers.none()) return 0;
  graph = transfers.run();
  return transfers.copies();
}

void verify_transfers(const Graph& graph, const PassContext& context) {
  const Places places(context.target, context.options);
  const std::vector<ValueId> root = roots(graph);
  const auto memory = [&](ValueId value) {
    const graph::ValueInfo& info = graph.values()[root[value]];
    if (info.kind == ValueKind::kInput) return places.port_memory(graph.inputs()[info.index].placement);
    return places.writes(info.kind == ValueKind::kVariable ? graph.variables()[info.index].placement
                                                           : graph.nodes()[info.index].placement);
  };
  const auto check = [&](const auto& what, ValueId value, const Space& space) {
    const Space lies = memory(value);
    const bool crosses =
        Places::is_host(space) && Places::is_host(lies) && graph.values()[root[value]].kind != ValueKind::kVariable;
    SLUICE_CHECK_KIND(kRuntime, lies == space || crosses, "{}: reads %{} from {}; it lies in {}", what(), value,
                      space.str(), lies.str());
  };
  for (const Node& node : graph.nodes()) {
    const Space space = places.reads(node.placement);
    for (ValueId input : node.inputs)
      if (input != kNoValue) check([&] { return describe(node); }, input, space);
  }
  for (const graph::Output& output : graph.outputs()) {
    const Space space = places.port_memory(output.placement);
    SLUICE_CHECK_KIND(kRuntime, memory(output.value) == space, "output {}: lies in {}; must lie in {}", output.name,
                      memory(output.value).str(), space.str());
  }
  for (const graph::Variable& v : graph.variables())
    if (v.update != kNoValue) check([&] { return "update of " + v.name; }, v.update, places.writes(v.placement));
}

}  // namespace sluice::compiler
