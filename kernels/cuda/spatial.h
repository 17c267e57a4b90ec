#pragma once
// Text that convolutions, poolings and batch norms share: positions over three spatial dims; missing ones have size 1.
#include <array>

#include "kernels/cuda/writer.h"

namespace sluice::cuda {

using Three = std::array<int64_t, 3>;

// The last dims of a tensor (N, C, spatial...), or what is given per spatial dim.
Three spatial_dims(const Shape& shape);
Three spatial_values(const Ints& values, int64_t missing);
inline int64_t positions(const Three& dims) { return dims[0] * dims[1] * dims[2]; }

// A function that takes i apart: Spot{rest, {position}}.
std::string spot_function(const char* name, const Three& dims);
// "Index NAME(Index n, Index c, const Index* at)": the offset of an element (N, C, spatial...).
std::string offset_function(const char* name, const TensorSpec& spec);

// Tensors as rows of channels, one for each position of each sample. Sources have kChannels.
std::string row_spot(const Shape& shape);  // Spot and row_spot(), for place_function()
// "Index NAME(Index c, Index row)": without divisions where a tensor lies as channels-last, with one where it is
// contiguous.
std::string place_function(const char* name, const TensorSpec& spec);
// Elements in the order in which `spec` lies in memory: "c" and "row" from i.
std::string in_memory_order(const TensorSpec& spec);

// Input i, an element per channel, for channel `c`; `fallback` where it is absent.
std::string channel_operand(const plan::KernelQuery& query, size_t i, const char* fallback, const char* c = "c");

// A window over x for every position of y.
struct Windows {
  Three x{1, 1, 1}, kernel{1, 1, 1}, y{1, 1, 1}, step{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
};
// x_spot, k_spot, y_spot; "bool tap(y, k, x)": the position of x under tap k of window y, if it is inside;
// "bool untap(x, k, y)": the window whose tap k lies on x, if there is one.
std::string window_functions(const Windows& windows);

}  // namespace sluice::cuda
