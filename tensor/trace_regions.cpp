#include "tensor/trace_regions.h"

#include <algorithm>

#include "memory/storage.h"

namespace sluice {

using graph::ValueId;
using graph::ValueKind;

void TraceRegions::begin(TraceRegion& region, size_t current) {
  if (region.first_storage == 0) {
    region.first = graph_.nodes().size();
    region.first_storage = Storage::next_number();
  }
  region.current = current;
  stack_.push_back(&region);
}

void TraceRegions::end(bool closed) {
  if (closed) closed_.emplace_back(innermost().first, graph_.nodes().size());
  stack_.pop_back();
}

bool TraceRegions::outside(ValueId id) const {
  const graph::ValueInfo& info = graph_.values()[id];
  return info.kind != ValueKind::kNode || static_cast<size_t>(info.index) < innermost().first;
}

bool TraceRegions::closed(ValueId id) const {
  if (closed_.empty() || id == graph::kNoValue || graph_.values()[id].kind != ValueKind::kNode) return false;
  const auto node = static_cast<size_t>(graph_.values()[id].index);
  return std::any_of(closed_.begin(), closed_.end(),
                     [&](const auto& nodes) { return node >= nodes.first && node < nodes.second; });
}

}  // namespace sluice
