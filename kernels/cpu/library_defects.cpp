#include "kernels/cpu/library_defects.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace sluice::cpu {
namespace {

bool any_above(const Ints& sizes, int64_t least) {
  return std::any_of(sizes.begin(), sizes.end(), [=](int64_t n) { return n > least; });
}
bool is_bfloat16(const ConvOperands& o) { return o.x.dtype == DType::kBFloat16; }
bool windows_of_one(const ConvOperands& o) { return numel(o.w.shape) == o.w.shape[0] * o.w.shape[1]; }

bool gradient_of_volumes(const ConvOperands& o, const ConvGeometry& g) {
  const bool depthwise = o.w.shape[1] == 1 && o.x.shape[1] > 1;
  return is_bfloat16(o) && o.x.shape.rank() == 5 && (depthwise || (any_above(g.stride, 1) && any_above(g.padding, 0)));
}

bool odd_results_of_windows_of_one(const ConvOperands& o, const ConvGeometry& g) {
  return is_bfloat16(o) && windows_of_one(o) && o.w.shape[0] / g.groups % 2 == 1;
}

bool gradient_of_one_element(const ConvOperands& o, const ConvGeometry&) {
  return is_bfloat16(o) && numel(o.x.shape) == 1;
}

// oneDNN copies the pixels that such windows read to its scratchpad, one behind the other. It counts the place of a
// pixel in blocks of 16 channels (8 with AVX2), and the room for all in the channels that there are: fewer than a block
// end beyond the room, as soon as an image is cut into several pieces. It does so where the steps cut lines and images
// of up to two dims evenly.
bool copied_beyond_the_scratchpad(const ConvOperands& o, const ConvGeometry& g) {
  constexpr int64_t kBlockOfChannels = 16;
  const Shape &x = o.x.shape, &y = o.y.shape;
  if (!windows_of_one(o) || g.groups != 1 || x.rank() > 4 || x[1] >= kBlockOfChannels) return false;
  if (!any_above(g.stride, 1) || any_above(g.padding, 0)) return false;
  for (int axis = 2; axis < x.rank(); ++axis)
    if (y[axis] * g.stride[axis - 2] != x[axis]) return false;
  return true;
}

constexpr std::array kDefects = {
    LibraryDefect{"oneDNN", "conv_weight_grad", "", "2.6", kNotFixed, "wrong values",
                  "bfloat16, volumes, depthwise or with steps and padding", gradient_of_volumes, Instead::kFloat32},
    LibraryDefect{"oneDNN", "conv_input_grad", "", "2.6", kNotFixed, "wrong values",
                  "bfloat16, windows of one element, an odd number of results of a group",
                  odd_results_of_windows_of_one, Instead::kFloat32},
    LibraryDefect{"oneDNN", "conv_weight_grad", "jit_bf16:", "2.6", kNotFixed, "reads an element beyond its input",
                  "bfloat16, an input of one element", gradient_of_one_element, Instead::kFloat32},
    LibraryDefect{"oneDNN", "conv_weight_grad", "jit_1x1:", "2.6 to 3.7", kNotFixed, "writes beyond its scratchpad",
                  "windows of one element in steps that divide the image, fewer than 16 channels, channels-last",
                  copied_beyond_the_scratchpad, Instead::kUnitStride},
    LibraryDefect{"oneDNN", "conv_weight_grad", "jit_bf16_1x1:", "2.6 to 3.7", kNotFixed,
                  "writes beyond its scratchpad", "as jit_1x1", copied_beyond_the_scratchpad, Instead::kUnitStride},
};

const char* op_of(ConvRole result) {
  switch (result) {
    case ConvRole::kInput: return "conv_input_grad";
    case ConvRole::kWeight: return "conv_weight_grad";
    case ConvRole::kOutput: return "conv";
  }
  return "";
}

}  // namespace

std::span<const LibraryDefect> library_defects() { return kDefects; }

bool needs(Instead instead, ConvRole result, const ConvOperands& operands, const ConvGeometry& geometry) {
  const dnnl_version_t& version = *dnnl_version();
  const std::string_view op = op_of(result);
  return std::any_of(kDefects.begin(), kDefects.end(), [&](const LibraryDefect& d) {
    return op == d.op && d.instead == instead && 100 * version.major + version.minor < d.fixed_in &&
           d.shows(operands, geometry);
  });
}

}  // namespace sluice::cpu
