#include "kernels/cpu/onednn/library_defects.h"

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

// The sums of the last channels are read with those of a whole vector of 4, by an implementation that machines of any
// instructions may choose.
bool sums_of_odd_channels(const ConvOperands& o, const ConvGeometry& g) {
  constexpr int64_t kBlockOfChannels = 8;
  return g.groups > 1 && o.w.shape[1] == 1 && o.w.shape[0] % kBlockOfChannels != 0;
}

// Two or more windows begin in the padding before a volume, which is counted in planes.
bool windows_that_begin_before_the_volume(const ConvOperands& o, const ConvGeometry& g) {
  return o.x.shape.rank() == 5 && g.stride[0] > 1 && g.padding[0] > g.stride[0];
}

// No window reads an element of its line, as with one element, a step of 2 and a padding of 1, or with taps as far
// apart.
bool lines_that_no_window_reads(const ConvOperands& o, const ConvGeometry& g) {
  const size_t last = g.stride.size() - 1;
  const int axis = 2 + static_cast<int>(last);
  for (int64_t window = 0; window < o.y.shape[axis]; ++window)
    for (int64_t tap = 0; tap < o.w.shape[axis]; ++tap) {
      const int64_t read = window * g.stride[last] - g.padding[last] + tap * g.dilation[last];
      if (read >= 0 && read < o.x.shape[axis]) return false;
    }
  return true;
}

// A line of one window, which is moved by more than an element: over one channel, more elements are read than it has.
bool lines_of_one_window_in_steps(const ConvOperands& o, const ConvGeometry& g) {
  const int last = o.x.shape.rank() - 1;
  return o.x.shape[1] == 1 && o.y.shape[last] == 1 && o.w.shape[last] > 1 && g.stride.back() > 1;
}

// oneDNN reads such a row as if its elements were neighbours.
bool row_of_scattered_elements(const TensorSpec& m) {
  const int r = m.shape.rank();
  return m.shape[r - 2] == 1 && m.shape[r - 1] > 1 && m.strides[r - 1] != 1;
}

// With two or more axes of batches, oneDNN takes some of the holes for elements of the next matrix.
bool batches_with_holes(const TensorSpec& m) {
  return m.shape.rank() > 3 && m.extent_bytes() != static_cast<uint64_t>(numel(m.shape)) * dtype_size(m.dtype);
}

constexpr std::array kDefects = {
    LibraryDefect{"oneDNN", "conv_weight_grad", "", "2.6", 0, kNotFixed, "wrong values",
                  "bfloat16, volumes, depthwise or with steps and padding", Instead::kFloat32, gradient_of_volumes},
    LibraryDefect{"oneDNN", "conv_input_grad", "", "2.6", 0, kNotFixed, "wrong values",
                  "bfloat16, windows of one element, an odd number of results of a group", Instead::kFloat32,
                  odd_results_of_windows_of_one},
    LibraryDefect{"oneDNN", "conv_weight_grad", "jit_bf16:", "2.6", 0, kNotFixed, "reads an element beyond its input",
                  "bfloat16, an input of one element", Instead::kFloat32, gradient_of_one_element},
    LibraryDefect{"oneDNN", "conv_weight_grad", "jit_1x1:", "2.6 to 3.7", 0, kNotFixed, "writes beyond its scratchpad",
                  "windows of one element in steps that divide the image, fewer than 16 channels, channels-last",
                  Instead::kUnitStride, copied_beyond_the_scratchpad},
    LibraryDefect{"oneDNN", "conv_weight_grad", "jit_bf16_1x1:", "2.6 to 3.7", 0, kNotFixed,
                  "writes beyond its scratchpad", "as jit_1x1", Instead::kUnitStride, copied_beyond_the_scratchpad},
    LibraryDefect{"oneDNN", "conv_weight_grad", "jit:avx512_core", "2.6 to 3.7", 0, kNotFixed,
                  "reads and writes beyond its operands",
                  "AVX-512, volumes with steps, of which a padding before the first plane is longer than a step",
                  Instead::kLoops, windows_that_begin_before_the_volume},
    LibraryDefect{"oneDNN", "conv", "jit_dw:sse41", "2.6 to 3.7", 0, kNotFixed, "reads beyond its result",
                  "depthwise, a residual, channels that do not fill blocks of 8", Instead::kOwnSum,
                  sums_of_odd_channels},
    LibraryDefect{"oneDNN", "conv", "brg_conv_fwd:", "3.7", 300, kNotFixed, "segmentation fault",
                  "lines of which no window reads an element", Instead::kLoops, lines_that_no_window_reads},
    LibraryDefect{"oneDNN", "conv", "brg_conv_fwd:", "3.7", 300, kNotFixed, "wrong values",
                  "AVX-512, one channel, lines of one window of several elements, in steps", Instead::kLoops,
                  lines_of_one_window_in_steps},
    LibraryDefect{"oneDNN", "matmul", "brg_matmul:", "3.7", 300, kNotFixed, "wrong values",
                  "AVX-512, matrices of one row whose elements are not neighbours", Instead::kDense, nullptr,
                  row_of_scattered_elements},
    LibraryDefect{"oneDNN", "matmul", "brg_matmul:", "3.7", 300, kNotFixed, "wrong values",
                  "AVX-512, two or more axes of batches, of matrices with holes between their elements",
                  Instead::kDense, nullptr, batches_with_holes},
};

bool is_here(const LibraryDefect& defect) {
  const dnnl_version_t& library = *dnnl_version();
  const int version = 100 * library.major + library.minor;
  return defect.since <= version && version < defect.fixed_in;
}

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
  const std::string_view op = op_of(result);
  return std::any_of(kDefects.begin(), kDefects.end(), [&](const LibraryDefect& d) {
    return op == d.op && d.instead == instead && is_here(d) && d.of_conv(operands, geometry);
  });
}

bool needs(Instead instead, const TensorSpec& matrix) {
  return std::any_of(kDefects.begin(), kDefects.end(), [&](const LibraryDefect& d) {
    return d.of_matrix != nullptr && d.instead == instead && is_here(d) && d.of_matrix(matrix);
  });
}

}  // namespace sluice::cpu
