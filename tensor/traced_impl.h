#pragma once
// Tensors of a trace.
//
// Every eager block of memory that the graph may write is a cell: the graph value that it holds now. A tensor is a base
// (the whole cell) or a view of one (view ops applied to it). Writing to a view puts the value back into the base by
// ordinary ops and moves the cell on; a view that was made before is computed anew when it is read next.
#include <cstdint>
#include <memory>
#include <vector>

#include "graph/graph.h"
#include "tensor/tensor.h"

namespace sluice {

struct TraceCell {
  graph::ValueId current = graph::kNoValue;
  // Whether it, or what is a copy of it because of its strides, was written to, and what these have done.
  bool written = false, strides_decide = false, strides_told = false;
  std::shared_ptr<TraceCell> copy_of = nullptr;
};

class TracedImpl final : public TensorImpl {
 public:
  // A base with memory of its own.
  TracedImpl(uint64_t trace, const TensorSpec& spec, DeviceId device, graph::ValueId id);
  // A view of `parent` (traced, or an eager variable) whose memory is `cell`.
  TracedImpl(uint64_t trace, std::shared_ptr<TraceCell> cell, const std::shared_ptr<TensorImpl>& parent, ViewStep step,
             const TensorSpec& spec, graph::ValueId id);
  // The same memory without history; `other` is traced, or an eager tensor over `cell`.
  TracedImpl(uint64_t trace, std::shared_ptr<TraceCell> cell, const TensorImpl& other, std::vector<ViewStep> steps,
             std::shared_ptr<TensorImpl> base);
  bool unshared() const override { return cell.use_count() == 1; }

  const uint64_t trace;  // number of the trace it belongs to
  std::shared_ptr<TraceCell> cell;
  // The graph value of a view, as of `id_version`.
  graph::ValueId id = graph::kNoValue;
  uint64_t id_version = 0;
};

}  // namespace sluice
