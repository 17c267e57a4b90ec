#include "compiler/lowering/windows.h"

#include "base/fix.h"
#include "base/layout.h"
#include "compiler/collectives.h"
#include "compiler/lowering/places.h"
#include "graph/ops/attention.h"
#include "graph/ops/micro_batches.h"
#include "graph/ops/movement.h"
#include "plan/query.h"

namespace sluice::compiler {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using plan::Layout;

namespace {

// Asks a target about a node's kernel; its errors name the node's line.
template <class Ask>
auto with_line(const Node& node, Ask ask) {
  try {
    return ask();
  } catch (const Error& error) {
    if (!node.source.known()) throw;
    throw FixableError(error.kind(), fmt::format("{}  ({})", error.what(), node.source.str()), fix_of(error));
  }
}

// Adds the windows of all values, up to the first view that cannot be one, which it returns; null: there is none.
const Node* see(const Graph& graph, std::vector<Window>& windows) {
  windows.resize(graph.values().size());
  for (size_t v = 0; v < windows.size(); ++v) {
    const ValueId value = static_cast<ValueId>(v);
    const graph::ValueInfo& info = graph.values()[v];
    const Node* view = info.kind == graph::ValueKind::kNode ? &graph.nodes()[info.index] : nullptr;
    if (!view || !view->op->view) {
      windows[v] = {value, 0, canonical(graph.spec(value))};
      continue;
    }
    const std::optional<Window> seen = seen_through(*view, windows[view->inputs[0]], info.type.dtype);
    if (!seen) return view;
    windows[v] = *seen;
  }
  return nullptr;
}

}  // namespace

std::vector<ValueId> roots(const Graph& graph) {
  std::vector<ValueId> root(graph.values().size());
  for (size_t v = 0; v < root.size(); ++v) root[v] = static_cast<ValueId>(v);
  for (const Node& node : graph.nodes()) {
    if (node.op->view) root[node.outputs[0]] = root[node.inputs[0]];
  }
  return root;
}

bool same_in_all_batches(const Graph& graph, const std::vector<ValueId>& roots, ValueId value) {
  if (graph.every(value) != 0) return false;
  const graph::ValueInfo& root = graph.values()[roots[value]];
  if (root.kind != graph::ValueKind::kVariable) return true;
  const ValueId update = graph.variables()[root.index].update;
  return update == kNoValue || graph.every(update) == graph.micro_batches();
}

std::optional<Window> seen_through(const Node& view, const Window& input, DType dtype) {
  const auto seen = view.op->view(input.spec, view.attrs);
  if (!seen) return std::nullopt;
  const uint64_t offset = static_cast<uint64_t>(seen->offset) * dtype_size(dtype);
  return Window{input.root, input.offset + offset, canonical({dtype, seen->shape, seen->strides})};
}

std::vector<Window> windows(const Graph& graph) {
  std::vector<Window> windows;
  const Node* const view = see(graph, windows);
  SLUICE_CHECK_KIND(kRuntime, view == nullptr,
                    "{}: %{} with strides {} cannot be viewed so; it must be reordered before", describe(*view),
                    view->inputs[0], windows[view->inputs[0]].spec.strides.str());
  return windows;
}

std::optional<std::vector<Window>> windows_if_seen(const Graph& graph) {
  std::vector<Window> windows;
  if (see(graph, windows) != nullptr) return std::nullopt;
  return windows;
}

plan::KernelQuery kernel_query(const Graph& graph, const Node& node, const std::vector<TensorSpec>& inputs,
                               const PassContext& context) {
  const auto cores = context.cores.find(node.placement);
  plan::KernelQuery query{.op = node.op == &ops::reorder_op() ? ops::copy_op().name : node.op->name,
                          .attrs = name_attrs(*node.op, node.attrs),
                          .inputs = inputs,
                          .outputs = {},
                          .device = *node.placement.device,
                          .cores = cores == context.cores.end() ? 1 : cores->second};
  query.outputs.reserve(node.outputs.size());
  for (ValueId output : node.outputs) query.outputs.push_back(canonical(graph.spec(output)));
  if (node.op == &ops::pack_op()) {
    query.op = "concat";
    query.attrs = {{"dim", int64_t{0}}};
    TensorSpec part = inputs[0];
    if (part.shape.rank() == 0) part = TensorSpec::contiguous({part.dtype, {1}});
    query.inputs.assign(static_cast<size_t>(node.every), part);
  } else if (is_collective(*node.op)) {
    query.attrs.clear();
  }
  set_precision(query, *node.op, context.options);
  const bool varies = node.op->precision == OpDef::Precision::kConv
                          ? !context.options.deterministic_convs
                          : ops::is_attention(*node.op) && !context.options.deterministic_attention;
  if (varies) query.attrs.emplace_back(plan::kDeterministic, false);
  if (context.options.generated_kernels && context.target.source(query).empty()) {
    plan::KernelQuery generated = query;
    generated.attrs.emplace_back(plan::kImplementation, plan::kGenerated);
    if (!context.target.source(generated).empty()) return generated;
  }
  return query;
}

plan::KernelQuery kernel_query(const Graph& graph, const Node& node, const std::vector<Window>& windows,
                               const PassContext& context) {
  std::vector<TensorSpec> inputs;
  inputs.reserve(node.inputs.size());
  for (ValueId input : node.inputs) inputs.push_back(input == kNoValue ? TensorSpec{} : windows[input].spec);
  return kernel_query(graph, node, inputs, context);
}

plan::LayoutPreference preference_of(const Node& node, const plan::KernelQuery& query, const PassContext& context) {
  const bool contiguous = node.op == &ops::pack_op() || is_collective(*node.op);
  const Layout layout = contiguous ? Layout::kContiguous : Layout::kAny;
  if (contiguous || ops::is_copy(*node.op))
    return {std::vector(node.inputs.size(), layout), std::vector(node.outputs.size(), layout)};
  plan::LayoutPreference preference = with_line(node, [&] { return context.target.layouts(query); });
  preference.inputs.resize(node.inputs.size(), Layout::kAny);
  preference.outputs.resize(node.outputs.size(), Layout::kContiguous);
  return preference;
}

const KernelAnswers::Answer& KernelAnswers::ask(const Node& node, const plan::KernelQuery& query) {
  std::string key = plan::key_of(query).take();
  if (const auto it = answers_.find(key); it != answers_.end()) return it->second;
  return answers_.emplace(std::move(key), with_line(node, [&] { return answer(query); })).first->second;
}

KernelAnswers::Answer KernelAnswers::answer(const plan::KernelQuery& query) const {
  const auto of = [this](plan::KernelQuery q) {
    std::vector<plan::PackedInput> packings;
    if (!q.packed.empty()) packings = target_.packings(q, weights_stay_);
    q.packed.clear();
    for (const plan::PackedInput& packing : packings) q.packed.push_back(packing.input);
    if (const std::string fastest = trials_ ? target_.implementation(q) : std::string(); !fastest.empty()) {
      q.attrs.emplace_back(plan::kImplementation, fastest);
      if (!packings.empty()) packings = target_.packings(q, weights_stay_);  // another one may want them otherwise
      q.packed.clear();
      for (const plan::PackedInput& packing : packings) q.packed.push_back(packing.input);
    }
    return Answer{target_.workspace_bytes(q), target_.cost_ns(q), target_.in_place(q), std::move(packings), q.attrs};
  };
  const Answer usual = of(query);
  if (workspace_limit_ == 0 || usual.workspace_bytes <= workspace_limit_) return usual;
  plan::KernelQuery limited = query;
  limited.attrs.emplace_back(plan::kWorkspaceLimit, static_cast<int64_t>(workspace_limit_));
  Answer fitting = of(limited);
  if (fitting.workspace_bytes <= workspace_limit_) return fitting;
  throw FixableError(
      ErrorKind::kUnsupported,
      fmt::format("{}: workspace: {} bytes at least, for {}; must be at most {}, the workspace_limit", query.op,
                  fitting.workspace_bytes, query.device.str(), workspace_limit_),
      {{"option", std::string("workspace_limit")}, {"value", static_cast<int64_t>(fitting.workspace_bytes)}});
}

}  // namespace sluice::compiler
