#include "onnx/ops/windows.h"

#include <algorithm>

#include "base/error.h"
#include "graph/ops/movement.h"
#include "graph/ops/strided_view.h"

namespace sluice::onnx {

Windows windows_of(const Call& call, const Shape& input, const Ints& kernel) {
  SLUICE_CHECK(input.rank() >= 3, "an input of shape {}; must be (N, C, spatial...)", input.str());
  const auto dims = static_cast<size_t>(input.rank() - 2);
  Windows w{call.is("kernel_shape", kernel),
            call.is("strides", Ints(dims, 1)),
            call.is("dilations", Ints(dims, 1)),
            {},
            {},
            {}};
  const Ints pads = call.is("pads", Ints(2 * dims, 0));
  const std::string rule = call.s("auto_pad", "NOTSET");
  const bool up = call.i("ceil_mode") != 0;
  SLUICE_CHECK(
      w.kernel.size() == dims && w.stride.size() == dims && w.dilation.size() == dims && pads.size() == 2 * dims,
      "kernel, strides, dilations and pads have {}, {}, {} and {} numbers; {} spatial dims want one each, and two",
      w.kernel.size(), w.stride.size(), w.dilation.size(), pads.size(), dims);
  for (size_t d = 0; d < dims; ++d) {
    const int64_t size = input[static_cast<int>(d) + 2];
    SLUICE_CHECK(w.kernel[d] > 0 && w.stride[d] > 0 && w.dilation[d] > 0 && pads[d] >= 0 && pads[d + dims] >= 0,
                 "kernel {}, stride {}, dilation {}, pads {} and {}; must be positive, and pads not negative",
                 w.kernel[d], w.stride[d], w.dilation[d], pads[d], pads[d + dims]);
    const int64_t extent = checked_add(checked_mul(w.kernel[d] - 1, w.dilation[d]), 1);
    int64_t low = pads[d], high = pads[d + dims];
    if (rule == "VALID") low = high = 0;
    int64_t places = 0;
    if (rule.starts_with("SAME")) {
      places = (size + w.stride[d] - 1) / w.stride[d];
      const int64_t all = std::max<int64_t>((places - 1) * w.stride[d] + extent - size, 0);
      low = rule == "SAME_UPPER" ? all / 2 : all - all / 2;
      high = all - low;
    } else {
      const int64_t room = size + low + high - extent;
      SLUICE_CHECK(room >= 0, "a window of {} over {} elements; must not be larger", extent, size + low + high);
      places = (up ? (room + w.stride[d] - 1) / w.stride[d] : room / w.stride[d]) + 1;
      if (up && (places - 1) * w.stride[d] >= size + low) --places;  // none begins in the padding behind
    }
    w.low.push_back(low);
    w.high.push_back(high);
    w.sizes.push_back(places);
  }
  return w;
}

bool symmetric(const Windows& windows) { return windows.low == windows.high; }

Value all_windows(const Value& x, const Windows& w, double fill) {
  const size_t dims = w.kernel.size();
  Ints low{0, 0}, high{0, 0};
  for (size_t d = 0; d < dims; ++d) {
    const int64_t needed = (w.sizes[d] - 1) * w.stride[d] + (w.kernel[d] - 1) * w.dilation[d] + 1;
    low.push_back(w.low[d]);
    high.push_back(std::max<int64_t>(needed - w.low[d] - x.shape()[static_cast<int>(d) + 2], 0));
  }
  const Value padded = ops::pad(x, low, high, fill);
  const size_t rank = dims + 2;
  SLUICE_CHECK(2 * dims + 2 <= static_cast<size_t>(kMaxRank), "{} spatial dims; at most 3 are supported", dims);
  Ints shape{x.shape()[0], x.shape()[1]};
  shape.insert(shape.end(), w.sizes.begin(), w.sizes.end());
  shape.insert(shape.end(), w.kernel.begin(), w.kernel.end());
  Ints steps(shape.size() * rank, 0);
  steps[0] = steps[rank + 1] = 1;
  for (size_t d = 0; d < dims; ++d) {
    steps[(2 + d) * rank + 2 + d] = w.stride[d];
    steps[(2 + dims + d) * rank + 2 + d] = w.dilation[d];
  }
  return ops::strided_view(padded, shape, Ints(rank, 0), steps);
}

}  // namespace sluice::onnx
