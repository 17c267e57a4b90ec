#pragma once
// Arguments of functions with a number of spatial dims in their name.
#include <string>

#include "base/error.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {

// (N, C, spatial...) of (C, spatial...), and what was done undone.
struct Batched {
  Value x;
  bool added;

  Batched(const Value& input, int dims, const std::string& name) : x(input), added(input.rank() == dims + 1) {
    SLUICE_CHECK_KIND(kRuntime, added || input.rank() == dims + 2,
                      "{}: expected {}D (unbatched) or {}D (batched) input: got shape {}; it must have one of these",
                      name, dims + 1, dims + 2, input.shape().str());
    if (added) x = unsqueeze(input, 0);
  }
  Value undo(const Value& y) const { return added ? squeeze(y, Ints{0}) : y; }
};

// One entry for each of `dims` spatial dims.
inline Ints spatial(const Ints& values, int dims, const char* what, const std::string& name) {
  if (values.size() == 1) return Ints(dims, values[0]);
  SLUICE_CHECK_KIND(kRuntime, static_cast<int>(values.size()) == dims, "{}: {} is {}; must be an int or {} ints", name,
                    what, attr_str(values), dims);
  return values;
}

}  // namespace sluice::ops
