#include "kernels/cpu/conv/requantize.h"

#include <algorithm>

#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

using i64 = int64_t;
using u64 = uint64_t;
#define INTEGER_FUNCTION(NAME, PARAMETERS, ...) \
  inline i64 NAME PARAMETERS { __VA_ARGS__ }
#include "base/scalar/fixed_point.inc"
#undef INTEGER_FUNCTION

// Sums are (outer, channels, inner).
struct Scaling {
  int64_t outer = 1, channels = 1, inner = 1, zero = 0, low = 0, high = 0;
};

template <class To>
void scale_sums(const Scaling& s, const KernelArgs& args) {
  const auto* x = static_cast<const int32_t*>(args.inputs[0]);
  const auto* const multiplier = static_cast<const int32_t*>(args.inputs[1]);
  const auto* const exponent = static_cast<const int32_t*>(args.inputs[2]);
  auto* y = static_cast<To*>(args.outputs[0]);
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t c = 0; c < s.channels; ++c)
      for (int64_t i = 0; i < s.inner; ++i)
        *y++ = static_cast<To>(std::clamp(requantized_i(*x++, multiplier[c], exponent[c]) + s.zero, s.low, s.high));
}

std::unique_ptr<PreparedKernel> prepare_requantize(const plan::KernelQuery& q, const PrepareContext&) {
  const Shape& shape = q.inputs.at(0).shape;
  const auto number = [&](const char* name) { return get_attr<int64_t>(q.attrs, name); };
  const auto axis = static_cast<int>(number("axis"));
  Scaling s{.channels = shape[axis], .zero = number("zero_point"), .low = number("low"), .high = number("high")};
  for (int d = 0; d < shape.rank(); ++d)
    if (d != axis) (d < axis ? s.outer : s.inner) *= shape[d];
  const bool is_signed = q.outputs.at(0).dtype == DType::kInt8;
  return make_kernel(0,
                     [=](const KernelArgs& args) { (is_signed ? scale_sums<int8_t> : scale_sums<uint8_t>)(s, args); });
}

}  // namespace

void add_requantize_kernel(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "requantize", .prepare = prepare_requantize});
}

}  // namespace sluice::cpu
