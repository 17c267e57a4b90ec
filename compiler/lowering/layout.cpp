// Lays out what kernels write, as they prefer, and reorders what they cannot read as it lies. A kernel that takes any
// order writes in that of its first operand.
#include "compiler/lowering/copies.h"
#include "graph/ops/movement.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using graph::ValueIds;
using plan::Layout;

// Strides of an output: what its kernel wants, else those of the first operand of its shape.
Strides output_strides(const TensorSpec& spec, Layout layout, const std::vector<TensorSpec>& inputs) {
  if (layout != Layout::kAny) return with_layout(spec, layout).strides;
  for (const TensorSpec& input : inputs)
    if (input.shape == spec.shape && is_dense(input.shape, input.strides)) return input.strides;
  return contiguous_strides(spec.shape);
}

class Layouts final : public CopyingRewriter {
 public:
  Layouts(Graph& source, PassContext& context) : CopyingRewriter(source, context) {}

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
    return read(output.value, Layout::kContiguous, reader_of(output));
  }
  ValueId update(const graph::Variable& variable) override {
    return read(variable.update, Layout::kAny, reader_of(variable));
  }

 private:
  ValueId read(ValueId value, Layout layout, const Reader& reader) {
    const plan::Space space = places_.reads(reader.placement);
    // What lies in another rank's host memory is read there.
    const auto here = [&](const Way& way) { return way.space == space || way.space == memory(value); };
    const auto lying = [&](Layout wanted) {
      return find(value, reader, [&](const Way& way) { return here(way) && fits(wanted, way.window.spec); });
    };
    if (const ValueId id = lying(layout); id != kNoValue) return id;
    if (const ValueId id = lying(Layout::kAny); id != kNoValue) {
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
};

// kSuit: outputs may lie in any order that their kernels write. kGiven: in the one that this pass gives them.
enum class Outputs { kSuit, kGiven };

// Of the first operand that lies otherwise than its kernel wants it: which, and how. None: all lie well.
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
      const bool good = outputs == Outputs::kSuit
                            ? fits(preference.outputs[o], spec)
                            : spec.strides == output_strides(spec, preference.outputs[o], query.inputs);
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
  return layouts.copies();
}

void verify_layout(const Graph& graph, const PassContext& context) {
  const std::optional<std::string> wrong = misfit(graph, windows(graph), context, Outputs::kSuit);
  SLUICE_CHECK_KIND(kRuntime, !wrong, "{}", *wrong);
}

}  // namespace sluice::compiler
