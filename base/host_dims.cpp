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

// Without the extents behind them.
std::span<const TensorType> without_extents(std::span<const TensorType> tensors, int extents, const char* what) {
  const auto n = static_cast<size_t>(extents);
  SLUICE_CHECK(tensors.size() >= n, "dims: {} {}s; must be at least the {} extents", tensors.size(), what, n);
  for (size_t i = tensors.size() - n; i < tensors.size(); ++i)
    SLUICE_CHECK_KIND(kType, (tensors[i] == TensorType{DType::kInt64, {}}),
                      "dims: {} {} is {}; an extent must be int64()", what, i, tensors[i].str());
  return tensors.first(tensors.size() - n);
}

void check_room(std::span<const TensorType> tensors, const std::vector<HostDims::Axis>& axes, const HostDims& dims,
                const char* what, std::vector<int64_t>& room) {
  for (const HostDims::Axis& axis : axes) {
    const auto tensor = static_cast<size_t>(axis.tensor);
    SLUICE_CHECK(tensor < tensors.size() && axis.axis < tensors[tensor].shape.rank(),
                 "dims: {} {} has no axis {}; one of dim '{}' must be there", what, axis.tensor, axis.axis,
                 dims.names[static_cast<size_t>(axis.dim)]);
    const int64_t size = tensors[tensor].shape[axis.axis];
    int64_t& all = room[static_cast<size_t>(axis.dim)];
    if (all < 0) all = size;
    SLUICE_CHECK(all == size, "dims: axis {} of {} {} has room for {} of dim '{}', and another for {}; must be equal",
                 axis.axis, what, axis.tensor, size, dims.names[static_cast<size_t>(axis.dim)], all);
  }
}

}  // namespace

std::vector<int64_t> room_of(const HostDims& dims, std::span<const TensorType> inputs,
                             std::span<const TensorType> outputs) {
  std::vector<int64_t> room(dims.names.size(), -1);
  check_room(without_extents(inputs, dims.taken, "input"), dims.inputs, dims, "input", room);
  check_room(without_extents(outputs, dims.given(), "output"), dims.outputs, dims, "output", room);
  return room;
}

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
