#pragma once
// Tells where the elements of values are, and asks devices about the kernels that make them.
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/pass.h"

namespace sluice::compiler {

// Per value: what it is, at the bottom, a view of.
std::vector<graph::ValueId> roots(const graph::Graph& graph);

// No micro-batch of a step changes the value: it is a view or a step's copy of a variable.
bool same_in_all_batches(const graph::Graph& graph, const std::vector<graph::ValueId>& roots, graph::ValueId value);

// A strided window on the memory of a value that is no view. Its strides are canonical (base/layout.h).
struct Window {
  graph::ValueId root = graph::kNoValue;
  uint64_t offset = 0;  // bytes
  TensorSpec spec;
};
// The window on its input that a view node, whose output has `dtype`, sees; none when it cannot be seen so.
std::optional<Window> seen_through(const graph::Node& view, const Window& input, DType dtype);
// The windows of every value. Throws kRuntime, naming the node, when a view cannot be one.
std::vector<Window> windows(const graph::Graph& graph);
// The same without an error: none.
std::optional<std::vector<Window>> windows_if_seen(const graph::Graph& graph);

// The kernel that runs a node, for operands that lie so; what its work costs is not said. `pack` takes the values of
// all micro-batches, `reorder` is a copy.
plan::KernelQuery kernel_query(const graph::Graph& graph, const graph::Node& node,
                               const std::vector<TensorSpec>& inputs, const PassContext& context);
// The query for a kernel whose operands lie as they do in `windows`. REQUIRES: a graph that is laid out.
plan::KernelQuery kernel_query(const graph::Graph& graph, const graph::Node& node, const std::vector<Window>& windows,
                               const PassContext& context);
// The layouts that a kernel wants of its operands; contiguous ones for every kernel where its device is not asked.
plan::LayoutPreference preference_of(const graph::Node& node, const plan::KernelQuery& query,
                                     const PassContext& context);

// A target's answers, each asked for once.
class KernelAnswers {
 public:
  // weights_stay: variables that no step changes stay as they are for many steps.
  explicit KernelAnswers(const PassContext& context, bool weights_stay = true)
      : target_(context.target),
        weights_stay_(weights_stay),
        workspace_limit_(context.options.workspace_limit),
        trials_(context.options.kernel_trials) {}
  struct Answer {
    uint64_t workspace_bytes = 0;
    double cost_ns = 0;
    std::vector<plan::InPlacePair> in_place;
    std::vector<plan::PackedInput> packings;
    NamedAttrs attrs;  // with which the kernel is prepared: the query's, and the limit where it matters
  };
  // Errors name the node's line. Throws kUnsupported where no kernel keeps the limit of workspaces.
  const Answer& ask(const graph::Node& node, const plan::KernelQuery& query);

 private:
  Answer answer(const plan::KernelQuery& query) const;

  const plan::Target& target_;
  const bool weights_stay_;
  const uint64_t workspace_limit_;  // 0: none
  const bool trials_;
  std::unordered_map<std::string, Answer> answers_;
};

}  // namespace sluice::compiler
