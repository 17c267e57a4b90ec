#include "base/host_dims.h"

#include <algorithm>

#include "base/error.h"
#include "base/shape.h"

namespace sluice {
namespace {

std::vector<HostDims::Axis> axes_of(const Ints& list, size_t dims, const char* what) {
  SLUICE_CHECK(list.size() % 3 == 0, "{}: {} numbers; must be a tensor, an axis and a dim for each", what, list.size());
  std::vector<HostDims::Axis> axes;
  for (size_t i = 0; i < list.size(); i += 3) {
    const bool fits = list[i] >= 0 && list[i] <= INT16_MAX && list[i + 1] >= 0 && list[i + 1] < kMaxRank &&
                      list[i + 2] >= 0 && list[i + 2] < static_cast<int64_t>(dims);
    SLUICE_CHECK(fits, "{}: ({}, {}, {}); must be a tensor, an axis of it and one of {} dims", what, list[i],
                 list[i + 1], list[i + 2], dims);
    axes.push_back({static_cast<int>(list[i]), static_cast<int>(list[i + 1]), static_cast<int>(list[i + 2])});
  }
  return axes;
}

}  // namespace

HostDims host_dims(const Strings& names, const Ints& inputs, const Ints& outputs) {
  HostDims dims{names, 0, axes_of(inputs, names.size(), "input_dims"), axes_of(outputs, names.size(), "output_dims")};
  for (const HostDims::Axis& axis : dims.inputs) dims.taken = std::max(dims.taken, axis.dim + 1);
  for (int d = 0; d < static_cast<int>(names.size()); ++d) {
    const auto& axes = d < dims.taken ? dims.inputs : dims.outputs;
    SLUICE_CHECK(std::any_of(axes.begin(), axes.end(), [&](const HostDims::Axis& axis) { return axis.dim == d; }),
                 "dims: no {} has an axis of '{}'; one must", d < dims.taken ? "input" : "output", names[d]);
  }
  return dims;
}

Ints axes_list(const std::vector<HostDims::Axis>& axes) {
  Ints list;
  for (const HostDims::Axis& axis : axes) list.insert(list.end(), {axis.tensor, axis.axis, axis.dim});
  return list;
}

}  // namespace sluice
