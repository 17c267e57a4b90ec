#pragma once
// Axes of a host function's arrays that may be shorter than their tensors, as the attributes of a call say it.
#include <span>
#include <vector>

#include "base/attr.h"

namespace sluice {

// How long such axes are in one call is the extent of their dim: at most what the tensors have room for. All axes of a
// dim are equally long. Extents are scalars of int64 beside the tensors: those of the first `taken` dims are the call's
// last inputs, those of the others its last outputs.
struct HostDims {
  struct Axis {
    int tensor = 0;  // which input, or output
    int axis = 0;
    int dim = 0;
  };
  Strings names;
  int taken = 0;
  std::vector<Axis> inputs, outputs;
  int given() const { return static_cast<int>(names.size()) - taken; }
};

// Reads the attributes "dims", names, and "input_dims" and "output_dims": of each axis the tensor, the axis and the
// dim, one after the other. Dims of inputs come first. Throws kValue for what is no such list.
HostDims host_dims(const Strings& names, const Ints& inputs, const Ints& outputs);
// The most there is room for, per dim, in a call with these tensors, extents included. Throws kValue for axes that are
// not there, or are not equally long, and kType for extents that are none.
std::vector<int64_t> room_of(const HostDims& dims, std::span<const TensorType> inputs,
                             std::span<const TensorType> outputs);
// The lists again.
Ints axes_list(const std::vector<HostDims::Axis>& axes);

}  // namespace sluice
