#include "plan/layout.h"

#include "base/layout.h"

namespace sluice::plan {

TensorSpec with_layout(const TensorSpec& spec, Layout layout) {
  const bool last = layout == Layout::kChannelsLast && spec.shape.rank() >= 3;
  return canonical({spec.dtype, spec.shape, last ? channels_last_strides(spec.shape) : contiguous_strides(spec.shape)});
}

bool fits(Layout layout, const TensorSpec& spec) {
  return layout == Layout::kAny || same_layout(spec, with_layout(spec, layout));
}

}  // namespace sluice::plan
