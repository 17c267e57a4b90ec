#include "tensor/trace.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tensor/trace_executor.h"

namespace sluice {

static thread_local TraceExecutor* innermost = nullptr;

TraceContext& trace_context() {
  thread_local TraceContext context;
  return context;
}

TraceExecutor* current_trace() { return innermost; }

void strides_told(const Value& tensor) {
  if (tensor.impl()->traced()) static_cast<const TracedImpl&>(*tensor.impl()).cell->strides_told = true;
}

void strides_decided(const Value& tensor, const Value& copy) {
  if (!tensor.impl()->traced()) return;
  const std::shared_ptr<TraceCell>& cell = static_cast<const TracedImpl&>(*tensor.impl()).cell;
  cell->strides_decide = true;
  if (copy.defined()) static_cast<const TracedImpl&>(*copy.impl()).cell->copy_of = cell;
}

TraceScope::TraceScope(EagerExecutor& eager, std::string graph_name)
    : executor_(std::make_unique<TraceExecutor>(eager, std::move(graph_name))),
      scope_(std::make_unique<ExecutorScope>(*executor_)),
      previous_(std::exchange(innermost, executor_.get())) {}

TraceScope::~TraceScope() {
  if (!scope_) return;
  executor_->restore_autograd();
  innermost = previous_;
}

Tensor TraceScope::add_input(const std::string& name, const TensorType& type, const std::optional<Strides>& strides) {
  return executor_->add_input(name, type, strides);
}

void TraceScope::register_variable(const std::string& name, const Value& tensor) {
  executor_->register_variable(name, tensor);
}

CapturedGraph TraceScope::finish(const std::vector<std::pair<std::string, Value>>& outputs) {
  SLUICE_CHECK_KIND(kRuntime, scope_ != nullptr, "trace: finished twice; a scope makes one graph");
  CapturedGraph captured = executor_->finish(outputs);
  scope_.reset();
  innermost = previous_;
  return captured;
}

void TakenContents::add(const TensorImpl& tensor) {
  const std::shared_ptr<uint64_t>& counter = tensor.version_counter();
  versions_.try_emplace(counter.get(), counter, *counter);
}

void TakenContents::forget_changed() {
  std::erase_if(versions_, [](const auto& entry) {
    const std::shared_ptr<uint64_t> now = entry.second.first.lock();
    return !now || *now != entry.second.second;
  });
}

bool TakenContents::changed() const {
  return std::any_of(versions_.begin(), versions_.end(), [](const auto& entry) {
    const std::shared_ptr<uint64_t> now = entry.second.first.lock();
    return now && *now != entry.second.second;
  });
}

graph::Graph& TraceScope::graph() { return executor_->graph(); }

static Placing within_outer(const graph::Placement& placement, int quota) {
  Placing placing = trace_context().placing.now();
  if (placement.device) placing.placement.device = placement.device;
  if (!placement.stream.empty()) placing.placement.stream = placement.stream;
  if (quota) placing.quota = quota;
  return placing;
}

PlacementScope::PlacementScope(const graph::Placement& placement, int quota)
    : scope_(trace_context().placing, within_outer(placement, quota)) {}

std::optional<DeviceId> current_placement_device() { return trace_context().placing.now().placement.device; }

CheckpointPolicy checkpoint_policy(std::string_view name) {
  static constexpr std::array kNames = {"nothing_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable",
                                        "everything_saveable"};
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  SLUICE_CHECK(found != kNames.end(), "checkpoint: policy '{}'; must be one of {}", name, fmt::join(kNames, ", "));
  return static_cast<CheckpointPolicy>(found - kNames.begin());
}

bool keeps(CheckpointPolicy policy, const graph::Graph& graph, const graph::Node& node) {
  if (policy == CheckpointPolicy::kNothing || policy == CheckpointPolicy::kEverything)
    return policy == CheckpointPolicy::kEverything;
  if (node.op->precision == OpDef::Precision::kNone) return false;
  if (policy == CheckpointPolicy::kDots || node.op->precision == OpDef::Precision::kConv) return true;
  const auto of_many = [&](int i) { return graph.type(node.inputs[i]).shape.rank() > 2; };
  return !(of_many(0) && of_many(1));
}

static Recomputing next_region(CheckpointPolicy policy) {
  TraceExecutor* const trace = current_trace();
  return {trace != nullptr ? trace->next_region() : trace_context().recomputing.now().region, policy};
}

CheckpointScope::CheckpointScope(CheckpointPolicy policy) : scope_(trace_context().recomputing, next_region(policy)) {}

ModuleScope::ModuleScope(std::string name) : scope_(trace_context().module, std::move(name)) {}

RateScope::RateScope(int every) : scope_(trace_context().every, every) {}

void set_source_provider(std::function<SourceLocation()> provider) { trace_context().source = std::move(provider); }

}  // namespace sluice
