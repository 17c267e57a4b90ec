#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/panel_conv.cpp"

#include "kernels/cpu/conv/panel_conv.h"

#include <algorithm>

#include "kernels/cpu/math/simd_foreach.h"
#include "kernels/cpu/strides/strided.h"
//
#include "kernels/cpu/conv/conv_common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kPixels = 96;  // of y whose sums stay in the first cache, beside a panel's weights

// x amid zeros.
void pad(const PanelConv& c, const float* x, float* to, int threads) {
  const int64_t row = c.padded_width() * c.channels;
  parallel_each(threads, c.images * c.padded_height(), [&](int64_t i) {
    float* const begin = to + i * row;
    const int64_t from = i % c.padded_height() - c.top;
    if (from < 0 || from >= c.height) {
      std::fill_n(begin, row, 0.0f);
      return;
    }
    float* at = std::fill_n(begin, c.left * c.channels, 0.0f);
    at = std::copy_n(x + (i / c.padded_height() * c.height + from) * c.width * c.channels, c.width * c.channels, at);
    std::fill(at, begin + row, 0.0f);
  });
}

// The pixels [begin, end) of y, counted through all images, times a panel.
HWY_NOINLINE void convolve_pixels(const PanelConv& c, const float* x, const float* weights, int64_t begin, int64_t end,
                                  int64_t channel, const ConvFinish& f, float* y) {
  alignas(64) float sums[kPixels * kConvPanel];
  const int64_t depth = c.window_width * c.channels;
  for (int64_t row = 0; row < c.window_height; ++row)
    for (int64_t first = 0; first < depth; first += kDepth)
      for (int64_t pixel = begin; pixel < end;) {
        const int64_t line = pixel / c.out_width, column = pixel % c.out_width;
        const int64_t rows = std::min(c.out_width - column, end - pixel);
        const int64_t from = line / c.out_height * c.padded_height() + line % c.out_height * c.down + row;
        multiply<float>({.a = x + (from * c.padded_width() + column * c.across) * c.channels + first,
                         .a_row = c.across * c.channels,
                         .a_depth = 1,
                         .b = weights + (row * depth + first) * kConvPanel,
                         .b_row = kConvPanel,
                         .c = sums + (pixel - begin) * kConvPanel,
                         .c_row = kConvPanel,
                         .rows = rows,
                         .depth = std::min(kDepth, depth - first),
                         .lanes = kConvPanel,
                         .fresh = row == 0 && first == 0});
        pixel += rows;
      }
  for (int64_t lane = 0; lane < kConvPanel; lane += kLanes) {
    const FinishLanes finish(f, channel + lane);
    for (int64_t pixel = begin; pixel < end; ++pixel)
      finish(read(sums + (pixel - begin) * kConvPanel + lane), y, pixel * c.out_channels + channel + lane);
  }
}

void convolve_panels(const PanelConv& c, const float* x, const float* packed, const ConvFinish& f, float* y,
                     float* workspace, int threads) {
  if (c.padded()) pad(c, x, workspace, threads), x = workspace;
  const int64_t pixels = c.images * c.out_height * c.out_width, panels = c.out_channels / kConvPanel;
  const int64_t strip = c.out_width <= kPixels ? kPixels / c.out_width * c.out_width : kPixels;
  const int64_t panel = c.window_height * c.window_width * c.channels * kConvPanel;
  parallel_each(threads, (pixels + strip - 1) / strip * panels, [&](int64_t i) {
    const int64_t begin = i / panels * strip;
    convolve_pixels(c, x, packed + i % panels * panel, begin, std::min(pixels, begin + strip), i % panels * kConvPanel,
                    f, y);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
namespace {

HWY_EXPORT(convolve_panels);

}  // namespace

uint64_t PanelConv::weight_bytes() const {
  return static_cast<uint64_t>(out_channels * window_height * window_width * channels) * sizeof(float);
}

uint64_t PanelConv::workspace_bytes() const {
  return padded() ? static_cast<uint64_t>(images * padded_height() * padded_width() * channels) * sizeof(float) : 0;
}

void pack_weights(const PanelConv& c, const float* w, float* packed, int threads) {
  const int64_t taps = c.window_height * c.window_width;
  parallel_each(threads, c.out_channels / kConvPanel, [&](int64_t panel) {
    const float* const from = w + panel * kConvPanel * c.channels * taps;
    float* to = packed + panel * taps * c.channels * kConvPanel;
    for (int64_t tap = 0; tap < taps; ++tap)
      for (int64_t channel = 0; channel < c.channels; ++channel)
        for (int64_t o = 0; o < kConvPanel; ++o) *to++ = from[(o * c.channels + channel) * taps + tap];
  });
}

void convolve(const PanelConv& c, const float* x, const float* packed, const ConvFinish& finish, float* y,
              float* workspace, int threads) {
  HWY_DYNAMIC_DISPATCH(convolve_panels)(c, x, packed, finish, y, workspace, threads);
}

}  // namespace sluice::cpu
#endif
