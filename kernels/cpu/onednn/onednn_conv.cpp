#include "kernels/cpu/onednn/onednn_conv.h"

#include <algorithm>

#include "kernels/cpu/onednn/packing.h"

namespace sluice::cpu {

using onednn::Desc;

ConvGeometry conv_geometry(const plan::KernelQuery& q) {
  return {get_attr<Ints>(q.attrs, "stride"), get_attr<Ints>(q.attrs, "padding"), get_attr<Ints>(q.attrs, "dilation"),
          get_attr<int64_t>(q.attrs, "groups")};
}

onednn::ConvGeometry onednn_geometry(const ConvGeometry& g, const ConvOperands& o) {
  onednn::ConvGeometry r{g.stride, g.dilation, g.padding, {}};
  for (size_t d = 0; d < g.stride.size(); ++d) {
    const int axis = 2 + static_cast<int>(d);
    r.dilation[d] -= 1;
    // The rest of the input behind the last window is not padded: the high padding may be negative.
    r.padding_high.push_back((o.y.shape[axis] - 1) * g.stride[d] + g.dilation[d] * (o.w.shape[axis] - 1) + 1 -
                             o.x.shape[axis] - g.padding[d]);
  }
  return r;
}

Shape weight_shape(const Shape& w, int64_t groups) {
  if (groups == 1) return w;
  Shape s = w;
  s[0] /= groups;
  s.insert(0, groups);
  return s;
}

Desc activation_desc(const TensorSpec& spec, bool channels_last) {
  return onednn::desc(spec.dtype, spec.shape,
                      channels_last ? channels_last_strides(spec.shape) : contiguous_strides(spec.shape));
}

Port Ports::input(const Desc& given, const Desc& wanted, const plan::KernelQuery& query, int number) {
  const bool may = std::find(query.packed.begin(), query.packed.end(), number) != query.packed.end();
  std::optional<Packing> made = may ? packing(number, given, wanted, threads_) : std::nullopt;
  if (!made) return input(given, wanted);
  packings_.push_back(std::move(*made));
  return {};
}

std::unique_ptr<onednn::Primitive> Ports::reorder(const Desc& from, const Desc& to) {
  auto made = onednn::Primitive::make_reorder(from, to, threads_);
  reorder_scratch_ = std::max<uint64_t>(reorder_scratch_, made->scratchpad_bytes());
  return made;
}

Port Ports::make(const Desc& given, const Desc& wanted, const Desc& from, const Desc& to) {
  Port port;
  if (given == wanted) return port;
  port.reorder = reorder(from, to);
  port.offset = layout_.add(onednn::bytes(wanted));
  return port;
}

}  // namespace sluice::cpu
