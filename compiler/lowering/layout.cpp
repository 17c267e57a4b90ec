// Lays out what kernels write, as they prefer, and reorders what they cannot read as it lies. A kernel that takes any
// order writes in that of its first operand.
#include "base/layout.h"

#include <algorithm>
#include <numeric>

#include "compiler/lowering/copies.h"
#include "graph/builder.h"
#include "graph/ops/movement.h"
#include "plan/layout.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using graph::ValueIds;
using plan::fits;
using plan::Layout;
using plan::with_layout;

// Strides of an output: what its kernel wants, else those of the first operand of its shape.
Strides output_strides(const TensorSpec& spec, Layout layout, const std::vector<TensorSpec>& inputs) {
  if (layout != Layout::kAny) return with_layout(spec, layout).strides;
  for (const TensorSpec& input : inputs)
    if (input.shape == spec.shape && is_dense(input.shape, input.strides)) return input.strides;
  return contiguous_strides(spec.shape);
}

// The order of axes in which what is dense lies; empty where it has none.
std::vector<int> order_of(const TensorSpec& spec) {
  std::vector<int> axes(spec.shape.rank());
  std::iota(axes.begin(), axes.end(), 0);
  std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) { return spec.strides[a] > spec.strides[b]; });
  Shape shape, strides;
  for (const int axis : axes) {
    shape.push_back(spec.shape[axis]);
    strides.push_back(spec.strides[axis]);
  }
  return is_contiguous(shape, strides) ? axes : std::vector<int>();
}

class Layouts final : public CopyingRewriter {
 public:
  Layouts(Graph& source, PassContext& context) : CopyingRewriter(source, context) {}

  // Gives outputs of the graph that run() has made their order, where they may have any.
  void order_outputs(Graph& made) {
    graph::GraphBuilder builder(made, context_.options.device);
    const ExecutorScope scope(builder);
    for (const Ordered& o : ordered_) {
      builder.context = o.context;
      const Value view = ops::permute(builder.value(o.value), {o.axes.begin(), o.axes.end()});
      made.set_output(o.output, builder.id(view), o.axes);
    }
  }

 protected:
  ValueIds inputs_of(const Node& node) override {
    const Reader reader = reader_of(node);
    ValueIds inputs(node.inputs.size(), kNoValue);
    std::vector<TensorSpec> specs(node.inputs.size());
    const auto read_all = [&](const plan::LayoutPreference* preference) {
      for (size_t i = 0; i < inputs.size(); ++i) {
        const Layout layout = preference ? preference->inputs[i] : Layout::kAny;
        if (node.inputs[i] == kNoValue || (inputs[i] != kNoValue && fits(layout, specs[i]))) continue;
        inputs[i] = read(node.inputs[i], layout, reader);
        specs[i] = window_of_id(inputs[i]).spec;
      }
    };
    read_all(nullptr);
    plan::KernelQuery query = kernel_query(source_, node, specs, context_);
    const plan::LayoutPreference preference = preference_of(node, query, context_);
    read_all(&preference);
    if (places_.moves_dense_bytes(node.placement) && !is_dense(specs[0].shape, specs[0].strides)) {
      Reader packer = reader;
      packer.placement = places_.computing_in(places_.reads(node.placement), beside(node.inputs[0]));
      inputs[0] = read(node.inputs[0], Layout::kContiguous, packer);
      specs[0] = window_of_id(inputs[0]).spec;
    }
    for (size_t o = 0; o < node.outputs.size(); ++o)
      laid_out_[node.outputs[o]] = output_strides(query.outputs[o], preference.outputs[o], specs);
    return inputs;
  }

  void made(int index, Node& there) override {
    const Node& old = source_.nodes()[index];
    for (size_t o = 0; o < old.outputs.size(); ++o) {
      lay_out(there.outputs[o], laid_out_.at(old.outputs[o]));
    }
  }

  ValueId output(const graph::Output& output) override {
    const Reader reader = reader_of(output);
    if (const std::optional<Ordered> ordered = as_it_lies(output, reader)) {
      ordered_.push_back(*ordered);
      return ordered->value;
    }
    return read(output.value, Layout::kContiguous, reader);
  }
  ValueId update(const graph::Variable& variable) override {
    return read(variable.update, Layout::kAny, reader_of(variable));
  }

 private:
  // An output whose axes are to be in another order: a value of the new graph, and where its view is seen.
  struct Ordered {
    int output = 0;
    ValueId value = kNoValue;
    std::vector<int> axes;
    graph::NodeContext context;
  };

  // An output that may have its axes in any order and would be copied. One of several micro-batches, or of which
  // another tells how long it is, stays as it is.
  std::optional<Ordered> as_it_lies(const graph::Output& output, const Reader& reader) {
    const std::vector<std::string>& any_order = context_.options.any_order;
    if (std::find(any_order.begin(), any_order.end(), output.name) == any_order.end()) return std::nullopt;
    if (!output.axes.empty()) return std::nullopt;
    const auto measures = [&](const graph::Output& o) { return o.extent_of && o.extent_of->output == output.name; };
    const std::vector<graph::Output>& all = source_.outputs();
    if (source_.micro_batches() > 1 || std::any_of(all.begin(), all.end(), measures)) return std::nullopt;
    if (lying(output.value, Layout::kContiguous, reader) != kNoValue) return std::nullopt;
    const ValueId value = lying(output.value, Layout::kAny, reader);
    if (value == kNoValue) return std::nullopt;
    std::vector<int> axes = order_of(window_of_id(value).spec);
    if (axes.empty()) return std::nullopt;
    return Ordered{static_cast<int>(&output - all.data()),
                   value,
                   std::move(axes),
                   {reader.origin, places_.computing_in(memory_of_id(value), reader.placement)}};
  }

  // A value in another rank's host memory is read there.
  ValueId lying(ValueId value, Layout layout, const Reader& reader) {
    const plan::Space space = places_.reads(reader.placement);
    return find(value, reader, [&](const Way& way) {
      return (way.space == space || way.space == memory(value)) && fits(layout, way.window.spec);
    });
  }

  ValueId read(ValueId value, Layout layout, const Reader& reader) {
    if (const ValueId id = lying(value, layout, reader); id != kNoValue) return id;
    if (const ValueId id = lying(value, Layout::kAny, reader); id != kNoValue) {
      const Strides strides = with_layout(window_of_id(id).spec, layout).strides;
      return copy(ops::reorder_op(), value, id, reader.placement, reader, strides);
    }
    const Node& view = source_.nodes()[source_.values()[value].index];
    const Window plain{kNoValue, 0, TensorSpec::contiguous(source_.type(view.inputs[0]))};
    SLUICE_CHECK_KIND(kRuntime, seen(view, plain), "{}: cannot view a contiguous {}; a view op must", describe(view),
                      source_.type(view.inputs[0]).str());
    Reader packer = reader_of(view);
    packer.every = reader.every;  // else the reader could not take what is made for it
    read(view.inputs[0], Layout::kContiguous, packer);
    return read(value, layout, reader);
  }

  std::unordered_map<ValueId, Strides> laid_out_;  // of outputs, by value
  std::vector<Ordered> ordered_;
};

// kSuit: outputs may lie in any order that their kernels write. kGiven: in the one that this pass gives them.
enum class Outputs { kSuit, kGiven };

// Finds the first operand that lies otherwise than its kernel wants it, and says which it is and how it lies. None: all
// lie well.
std::optional<std::string> misfit(const Graph& graph, const std::vector<Window>& lying, const PassContext& context,
                                  Outputs outputs) {
  const Places places(context.target, context.options);
  const auto named = [](const std::string& what, const char* operand, size_t i, const TensorSpec& spec) {
    return fmt::format("{}: {} {} has strides {} of {}; its kernel wants another order", what, operand, i,
                       spec.strides.str(), spec.shape.str());
  };
  for (const Node& node : graph.nodes()) {
    if (node.op->view) continue;
    const plan::KernelQuery query = kernel_query(graph, node, lying, context);
    const plan::LayoutPreference preference = preference_of(node, query, context);
    const bool dense = places.moves_dense_bytes(node.placement);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      const TensorSpec& spec = lying[node.inputs[i]].spec;
      const bool good = fits(preference.inputs[i], spec) && (!dense || is_dense(spec.shape, spec.strides));
      if (!good) return named(describe(node), "input", i, spec);
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const TensorSpec spec = graph.spec(node.outputs[o]);
      const bool good =
          outputs == Outputs::kSuit
              ? fits(preference.outputs[o], spec)
              : same_layout(spec.shape, spec.strides, output_strides(spec, preference.outputs[o], query.inputs));
      if (!good) return named(describe(node), "output", o, spec);
    }
  }
  for (size_t k = 0; k < graph.outputs().size(); ++k) {
    const TensorSpec& spec = lying[graph.outputs()[k].value].spec;
    if (!is_contiguous(spec.shape, spec.strides)) return named("output " + graph.outputs()[k].name, "value", k, spec);
  }
  return std::nullopt;
}

bool lies_well(const Graph& graph, const PassContext& context) {
  const std::optional<std::vector<Window>> lying = windows_if_seen(graph);
  return lying && !misfit(graph, *lying, context, Outputs::kGiven);
}

}  // namespace

int layout(Graph& graph, PassContext& context) {
  if (lies_well(graph, context)) return 0;
  Layouts layouts(graph, context);
  graph = layouts.run();
  layouts.order_outputs(graph);
  return layouts.copies();
}

void verify_layout(const Graph& graph, const PassContext& context) {
  const std::optional<std::string> wrong = misfit(graph, windows(graph), context, Outputs::kSuit);
  SLUICE_CHECK_KIND(kRuntime, !wrong, "{}", *wrong);
}

}  // namespace sluice::compiler
