#include "runtime/session/step_state.h"

#include <cstring>

namespace sluice {
namespace {

// Keeps the first `extent` rows of an axis of a contiguous tensor, contiguous again.
void shorten(OutputTensor& output, int axis, int64_t extent) {
  Shape& shape = output.type.shape;
  size_t row = dtype_size(output.type.dtype), blocks = 1;
  for (int i = 0; i < axis; ++i) blocks *= static_cast<size_t>(shape[i]);
  for (int i = axis + 1; i < shape.rank(); ++i) row *= static_cast<size_t>(shape[i]);
  const size_t all = row * static_cast<size_t>(shape[axis]), kept = row * static_cast<size_t>(extent);
  auto* const data = static_cast<std::byte*>(output.storage->data());
  for (size_t b = 1; b < blocks && kept < all; ++b) std::memmove(data + b * kept, data + b * all, kept);
  shape[axis] = extent;
}

}  // namespace

Status tagged(const Status& status, const std::string& tag) {
  if (tag.empty()) return status;
  try {
    return status.with_context("of the step tagged '" + tag + "'");
  } catch (const std::bad_alloc&) {
    return status;
  }
}

void StepState::cut() {
  if (varying == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (std::exchange(cut_, true)) return;
  for (size_t v = 0; v < varying->size(); ++v)
    shorten(outputs[static_cast<size_t>((*varying)[v].port)], (*varying)[v].axis, extents[v]);
}

}  // namespace sluice
