#include "kernels/cpu/support/support.h"

#include <algorithm>

#include "base/layout.h"
#include "kernels/cpu/strides/strided.h"

namespace sluice::cpu {
namespace {

template <class T>
void transpose(const T* from, T* to, int64_t n, int64_t c, int64_t s, int threads) {
  constexpr int64_t kTile = 16;
  const int64_t tiles = (s + kTile - 1) / kTile;
  parallel_each(threads, n * tiles, [&](int64_t i) {
    const T* x = from + i / tiles * c * s;
    T* y = to + i / tiles * c * s;
    const int64_t s0 = i % tiles * kTile, s1 = std::min(s0 + kTile, s);
    for (int64_t c0 = 0; c0 < c; c0 += kTile) {
      const int64_t c1 = std::min(c0 + kTile, c);
      for (int64_t p = s0; p < s1; ++p) {
        for (int64_t k = c0; k < c1; ++k) y[p * c + k] = x[k * s + p];
      }
    }
  });
}

}  // namespace

plan::Layout spatial_layout(const TensorSpec& spec) {
  const Shape& shape = spec.shape;
  if (std::any_of(shape.begin(), shape.end(), [](int64_t d) { return d == 0; })) return plan::Layout::kChannelsLast;
  if (same_layout(shape, spec.strides, shape.rank() < 3 ? contiguous_strides(shape) : channels_last_strides(shape))) {
    return plan::Layout::kChannelsLast;
  }
  return same_layout(shape, spec.strides, contiguous_strides(shape)) ? plan::Layout::kContiguous : plan::Layout::kAny;
}

bool is_channels_last(const TensorSpec& spec, const char* op) {
  const plan::Layout layout = spatial_layout(spec);
  SLUICE_CHECK_KIND(kUnsupported, layout != plan::Layout::kAny,
                    "{}: an operand lies neither contiguous nor channels-last: shape {}, strides {}; copy it first", op,
                    spec.shape.str(), spec.strides.str());
  return layout == plan::Layout::kChannelsLast;
}

plan::LayoutPreference any_layouts(const plan::KernelQuery& query) {
  return {std::vector(query.inputs.size(), plan::Layout::kAny), std::vector(query.outputs.size(), plan::Layout::kAny)};
}

plan::LayoutPreference channels_last_where_spatial(const plan::KernelQuery& query) {
  auto choose = [](const TensorSpec& s) {
    return s.shape.rank() >= 3 ? plan::Layout::kChannelsLast : plan::Layout::kContiguous;
  };
  plan::LayoutPreference preference;
  for (const auto& s : query.inputs) preference.inputs.push_back(choose(s));
  for (const auto& s : query.outputs) preference.outputs.push_back(choose(s));
  return preference;
}

plan::LayoutPreference spatial_as_inputs_lie(const plan::KernelQuery& query) {
  for (const TensorSpec& in : query.inputs)
    if (in.shape.rank() >= 3 && spatial_layout(in) != plan::Layout::kContiguous)
      return channels_last_where_spatial(query);
  return {std::vector(query.inputs.size(), plan::Layout::kContiguous),
          std::vector(query.outputs.size(), plan::Layout::kContiguous)};
}

void contiguous_to_channels_last(const void* from, void* to, int64_t n, int64_t c, int64_t s, size_t elem_size,
                                 int threads) {
  switch (elem_size) {
    case 1: return transpose(static_cast<const uint8_t*>(from), static_cast<uint8_t*>(to), n, c, s, threads);
    case 2: return transpose(static_cast<const uint16_t*>(from), static_cast<uint16_t*>(to), n, c, s, threads);
    case 4: return transpose(static_cast<const uint32_t*>(from), static_cast<uint32_t*>(to), n, c, s, threads);
    default: return transpose(static_cast<const uint64_t*>(from), static_cast<uint64_t*>(to), n, c, s, threads);
  }
}

}  // namespace sluice::cpu
