// Replaces ops without a kernel on their device by their `decompose`, as often as needed; where the options ask for
// primitive ops alone, all that have one.
#include <algorithm>

#include "base/fix.h"
#include "compiler/collectives.h"
#include "compiler/pass.h"
#include "graph/ops/loops.h"
#include "graph/ops/micro_batches.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

// Makes nodes for ops that have kernels, and calls the decomposition of the others.
class Decomposer : public graph::GraphBuilder {
 public:
  Decomposer(graph::Graph& target, PassContext& pass) : GraphBuilder(target, pass.options.device), pass_(pass) {}

  static bool runs_as_is(const PassContext& pass, const OpDef& op, const DeviceId& device, const Attrs& attrs) {
    if (&op == &ops::pack_op() && attr<int64_t>(attrs, 0) > 1) return true;  // lower() knows how
    const bool loop = &op == &ops::loop_op();  // of any length; its body has been through this pass
    if (pass.options.prims && op.decompose != nullptr && !loop) return false;
    return op.view != nullptr || is_collective(op) || pass.target.has_kernel(op.name, device.kind);
  }

  std::vector<Value> call(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) override {
    const DeviceId device = pass_.device_for(op, context.placement);
    if (runs_as_is(pass_, op, device, attrs)) return GraphBuilder::call(op, inputs, attrs);
    const std::string at = context.source.known() ? fmt::format("  ({})", context.source.str()) : "";
    if (op.decompose == nullptr) {
      throw FixableError(
          ErrorKind::kUnsupported,
          fmt::format("op {}: no kernel on device {}; place it on a device that has one{}", op.name, device.str(), at),
          device_with(op));
    }
    SLUICE_CHECK_KIND(kUnsupported, depth_ < kDeepest, "op {}: its decomposition on device {} does not end{}", op.name,
                      device.str(), at);
    ++depth_;
    const std::vector<Value> outputs = op.decompose(inputs, attrs);
    --depth_;
    return outputs;
  }

 private:
  Fix device_with(const OpDef& op) const {
    for (const plan::DeviceDesc& d : pass_.target.devices()) {
      if (context.source.known() && pass_.target.has_kernel(op.name, d.device.kind)) {
        return {{"call", std::string(op.name)}, {"line", context.source.str()}, {"device", d.device.str()}};
      }
    }
    return {};
  }

  static constexpr int kDeepest = 64;
  PassContext& pass_;
  int depth_ = 0;
};

}  // namespace

int decompose(graph::Graph& graph, PassContext& context) {
  const auto runs_as_is = [&](const graph::Node& node) {
    return Decomposer::runs_as_is(context, *node.op, context.device_of(node), node.attrs);
  };
  if (std::all_of(graph.nodes().begin(), graph.nodes().end(), runs_as_is)) return 0;
  graph::Rewriter rewriter(graph);
  Decomposer decomposer(rewriter.target(), context);
  const ExecutorScope scope(decomposer);
  int replaced = 0;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const graph::Node& node = graph.nodes()[i];
    if (runs_as_is(node)) {
      rewriter.take(static_cast<int>(i));
      continue;
    }
    ++replaced;
    decomposer.context = graph::Rewriter::context_of(node);
    std::vector<Value> inputs;
    for (graph::ValueId input : node.inputs) {
      inputs.push_back(input == graph::kNoValue ? Value() : decomposer.value(rewriter[input]));
    }
    const std::vector<Value> outputs = decomposer.call(*node.op, inputs, node.attrs);
    SLUICE_CHECK_KIND(kRuntime, outputs.size() == node.outputs.size(),
                      "{}: its decomposition gives {} outputs; needs {}", describe(node), outputs.size(),
                      node.outputs.size());
    for (size_t o = 0; o < outputs.size(); ++o) {
      SLUICE_CHECK_KIND(kRuntime, outputs[o].type() == graph.type(node.outputs[o]),
                        "{}: its decomposition gives {}; must be {}", describe(node), outputs[o].type().str(),
                        graph.type(node.outputs[o]).str());
      rewriter.map(node.outputs[o], decomposer.id(outputs[o]));
    }
  }
  graph = rewriter.finish();
  return replaced;
}

}  // namespace sluice::compiler
