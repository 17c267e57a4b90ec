// Tracing inside of branches and bodies of loops.
#include "graph/tape.h"
#include "tensor/trace_executor.h"

namespace sluice {

using graph::ValueId;
using graph::ValueKind;

void TraceExecutor::begin_region(TraceRegion& region, size_t current) {
  if (region.first_storage == 0) {
    region.first = graph_.nodes().size();
    region.first_storage = Storage::next_number();
  }
  region.current = current;
  if (regions_.empty()) set_router(this);
  regions_.push_back(&region);
}

void TraceExecutor::end_region(bool closed) {
  if (closed) closed_.emplace_back(regions_.back()->first, graph_.nodes().size());
  regions_.pop_back();
  if (regions_.empty()) set_router(nullptr);
}

bool TraceExecutor::closed(ValueId id) const {
  if (closed_.empty() || id == graph::kNoValue || graph_.values()[id].kind != ValueKind::kNode) return false;
  const auto node = static_cast<size_t>(graph_.values()[id].index);
  return std::any_of(closed_.begin(), closed_.end(),
                     [&](const auto& nodes) { return node >= nodes.first && node < nodes.second; });
}

Value TraceExecutor::stand_in(const TensorType& type, const DeviceId& device) {
  const OpDef& full = builtin_ops().get("full");
  refresh_context();
  return handle(id(GraphBuilder::call(full, {}, {type.shape.vec(), 0.0, type.dtype})[0]), device);
}

bool TraceExecutor::outside(ValueId id) const {
  const graph::ValueInfo& info = graph_.values()[id];
  return info.kind != ValueKind::kNode || static_cast<size_t>(info.index) < regions_.back()->first;
}

// The value as the innermost region reads it. Called by bring() in turn, for the regions around that one.
Value TraceExecutor::route(const Value& value) {
  if (!value.defined()) return value;
  TraceRegion& region = *regions_.back();
  const bool traced = touches_graph(value);
  if (!traced && !region.brings_constant(value)) return value;
  if (traced && !outside(cell_of(value)->current)) return value;  // of a view, where its memory was made
  const ValueId id = traced ? current_id(value) : graph::kNoValue;
  const auto [entry, fresh] = region.routed.try_emplace({value.ptr().get(), id});
  TraceRegion::Routed& routed = entry->second;
  if (fresh) {
    regions_.pop_back();
    const struct Again {
      std::vector<TraceRegion*>& stack;
      TraceRegion* top;
      ~Again() { stack.push_back(top); }
    } again{regions_, &region};
    const GradMode recording(true);  // another call inside may want its history
    routed = {value, id, region.bring(value)};
    for (const Value& output : routed.outputs) region.copies.insert(current_id(output));
  }
  return routed.outputs[region.current];
}

std::vector<Value> TraceExecutor::routed(std::span<const Value> inputs) {
  std::vector<Value> values;
  // Calls on others' values, of constants or of a gradient rule's symbols, are none of the region.
  if (regions_.empty() || &current_executor() != static_cast<const Executor*>(this)) return values;
  for (const Value& input : inputs) values.push_back(route(input));
  return values;
}

void TraceExecutor::check_write_in_region(const Value& target, bool constant) {
  const TraceRegion& region = *regions_.back();
  bool own = false;
  if (constant) {
    own = static_cast<const EagerImpl&>(*target.impl()).storage()->number() >= region.first_storage;
  } else {
    const ValueId now = cell_of(target)->current;
    own = !outside(now) && !region.copies.contains(now);
  }
  SLUICE_CHECK_KIND(kUnsupported, own, "{} writes in place to a tensor from outside: {}; {}", region.owner,
                    target.type().str(), region.advice);
}

}  // namespace sluice
