#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/winograd.cpp"

#include "kernels/cpu/conv/winograd.h"

#include <algorithm>

#include "kernels/cpu/math/simd_foreach.h"
#include "kernels/cpu/strides/strided.h"
//
#include "kernels/cpu/conv/conv_common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {
namespace {

// One side of a tile: its elements, its three weights and its results, each transformed along it, and the adjoints of
// the last two. The polynomials meet at 0, 1, -1, infinity, and for 4 results at 2 and -2, too.
template <int kSide>
struct Line;

template <>
struct Line<2> {
  template <class V>
  static HWY_INLINE void elements(const V (&d)[4], V (&to)[4]) {
    to[0] = d[0] - d[2], to[1] = d[1] + d[2], to[2] = d[2] - d[1], to[3] = d[1] - d[3];
  }
  template <class V>
  static HWY_INLINE void weights(const V (&g)[3], V (&to)[4]) {
    const V ends = (g[0] + g[2]) * 0.5f, middle = g[1] * 0.5f;
    to[0] = g[0], to[1] = ends + middle, to[2] = ends - middle, to[3] = g[2];
  }
  template <class V>
  static HWY_INLINE void results(const V (&m)[4], V (&to)[2]) {
    to[0] = m[0] + m[1] + m[2], to[1] = m[1] - m[2] - m[3];
  }
  template <class V>
  static HWY_INLINE void of_results(const V (&y)[2], V (&to)[4]) {
    to[0] = y[0], to[1] = y[0] + y[1], to[2] = y[0] - y[1], to[3] = -y[1];
  }
  template <class V>
  static HWY_INLINE void of_weights(const V (&u)[4], V (&to)[3]) {
    const V half = (u[1] + u[2]) * 0.5f;
    to[0] = u[0] + half, to[1] = (u[1] - u[2]) * 0.5f, to[2] = half + u[3];
  }
};

template <>
struct Line<4> {
  template <class V>
  static HWY_INLINE void elements(const V (&d)[6], V (&to)[6]) {
    const V far = d[4] - 4.0f * d[2], near = d[3] - 4.0f * d[1];
    const V even = d[4] - d[2], odd = 2.0f * (d[3] - d[1]);
    to[0] = 4.0f * d[0] - 5.0f * d[2] + d[4];
    to[1] = far + near, to[2] = far - near, to[3] = even + odd, to[4] = even - odd;
    to[5] = 4.0f * d[1] - 5.0f * d[3] + d[5];
  }
  template <class V>
  static HWY_INLINE void weights(const V (&g)[3], V (&to)[6]) {
    const V ends = (g[0] + g[2]) * (-1.0f / 6), middle = g[1] * (-1.0f / 6);
    const V far = g[0] * (1.0f / 24) + g[2] * (1.0f / 6), near = g[1] * (1.0f / 12);
    to[0] = g[0] * 0.25f;
    to[1] = ends + middle, to[2] = ends - middle, to[3] = far + near, to[4] = far - near;
    to[5] = g[2];
  }
  template <class V>
  static HWY_INLINE void results(const V (&m)[6], V (&to)[4]) {
    const V sum = m[1] + m[2], difference = m[1] - m[2], sum2 = m[3] + m[4], difference2 = m[3] - m[4];
    to[0] = m[0] + sum + sum2;
    to[1] = difference + 2.0f * difference2;
    to[2] = sum + 4.0f * sum2;
    to[3] = difference + 8.0f * difference2 + m[5];
  }
  template <class V>
  static HWY_INLINE void of_results(const V (&y)[4], V (&to)[6]) {
    const V even = y[0] + y[2], odd = y[1] + y[3], even2 = y[0] + 4.0f * y[2], odd2 = 2.0f * y[1] + 8.0f * y[3];
    to[0] = y[0], to[1] = even + odd, to[2] = even - odd, to[3] = even2 + odd2, to[4] = even2 - odd2, to[5] = y[3];
  }
  template <class V>
  static HWY_INLINE void of_weights(const V (&u)[6], V (&to)[3]) {
    const V near = (u[1] + u[2]) * (1.0f / 6), far = u[3] + u[4];
    to[0] = u[0] * 0.25f - near + far * (1.0f / 24);
    to[1] = (u[2] - u[1]) * (1.0f / 6) + (u[3] - u[4]) * (1.0f / 12);
    to[2] = far * (1.0f / 6) - near + u[5];
  }
};

// The places of the channels of the tiles at hand: those of a tile side by side, or a panel's side by side, tile by
// tile. Places do not begin at the same offset of a page.
struct Matrices {
  int64_t place, tile, panel;  // strides

  int64_t channel(int64_t c) const { return c / kConvPanel * panel + c % kConvPanel; }
};
HWY_INLINE Matrices by_tile(int64_t tiles, int64_t channels) {
  return {tiles * channels + kConvPanel, channels, kConvPanel};
}
HWY_INLINE Matrices by_panel(int64_t tiles, int64_t channels) {
  return {tiles * channels + kConvPanel, kConvPanel, tiles * kConvPanel};
}

// The corner of y at which a tile begins.
struct Corner {
  int64_t image, row, column;
};
HWY_INLINE Corner corner_of(const Winograd& c, int64_t tile) {
  const int64_t across = c.tiles_across(), rest = tile % (c.tiles_down() * across);
  return {tile / (c.tiles_down() * across), rest / across * c.side, rest % across * c.side};
}

// A square transformed along both of its sides: reads (row, column) below kFrom, writes those below kTo.
template <int kFrom, int kTo, class Along, class Read, class Write>
HWY_INLINE void along_both(Along along, Read read_at, Write write_at) {
  Lanes half[kFrom][kTo];  // [column][row]
  for (int j = 0; j < kFrom; ++j) {
    Lanes from[kFrom];
#pragma GCC unroll 6
    for (int i = 0; i < kFrom; ++i) from[i] = read_at(i, j);
    along(from, half[j]);
  }
#pragma GCC unroll 6
  for (int i = 0; i < kTo; ++i) {
    Lanes from[kFrom], to[kTo];
#pragma GCC unroll 6
    for (int j = 0; j < kFrom; ++j) from[j] = half[j][i];
    along(from, to);
#pragma GCC unroll 6
    for (int j = 0; j < kTo; ++j) write_at(i, j, to[j]);
  }
}

// The square of images that begins at (row, column) of one of them, zeros beyond its edges, transformed for each
// channel.
struct Images {
  const float* data;
  int64_t height, width, channels;
};
template <int kFrom, int kTo, class Along>
HWY_INLINE void transform_square(const Images& from, int64_t image, int64_t row, int64_t column, Along along, float* to,
                                 const Matrices& lie) {
  const int64_t first_row = std::max<int64_t>(0, -row), last_row = std::min<int64_t>(kFrom, from.height - row);
  const int64_t first = std::max<int64_t>(0, -column), last = std::min<int64_t>(kFrom, from.width - column);
  const float* const origin = from.data + ((image * from.height + row) * from.width + column) * from.channels;
  for (int64_t channel = 0; channel < from.channels; channel += kLanes) {
    float* const place = to + lie.channel(channel);
    along_both<kFrom, kTo>(
        along,
        [&](int i, int j) {
          const bool inside = i >= first_row && i < last_row && j >= first && j < last;
          return inside ? read(origin + (i * from.width + j) * from.channels + channel) : Lanes{};
        },
        [&](int i, int j, Lanes v) { write(place + (i * kTo + j) * lie.place, v); });
  }
}

template <int kSide>
HWY_NOINLINE void transform_elements(const Winograd& c, const float* x, int64_t tile, float* to, const Matrices& lie) {
  const Corner corner = corner_of(c, tile);
  const auto along = [](const auto& d, auto& out) { Line<kSide>::elements(d, out); };
  transform_square<kSide + 2, kSide + 2>({x, c.height, c.width, c.channels}, corner.image, corner.row - c.top,
                                         corner.column - c.left, along, to, lie);
}

template <int kSide>
HWY_NOINLINE void transform_results(const Winograd& c, const float* y, int64_t tile, float* to, const Matrices& lie) {
  const Corner corner = corner_of(c, tile);
  const auto along = [](const auto& d, auto& out) { Line<kSide>::of_results(d, out); };
  transform_square<kSide, kSide + 2>({y, c.out_height, c.out_width, c.out_channels}, corner.image, corner.row,
                                     corner.column, along, to, lie);
}

template <int kSide>
HWY_NOINLINE void finish_tile(const Winograd& c, const float* products, int64_t place, int64_t tile,
                              const ConvFinish& f, float* y) {
  constexpr int kSize = kSide + 2;
  const Corner corner = corner_of(c, tile);
  const int64_t rows = std::min<int64_t>(kSide, c.out_height - corner.row);
  const int64_t columns = std::min<int64_t>(kSide, c.out_width - corner.column);
  const int64_t origin = ((corner.image * c.out_height + corner.row) * c.out_width + corner.column) * c.out_channels;
  const auto along = [](const auto& m, auto& out) { Line<kSide>::results(m, out); };
  for (int64_t channel = 0; channel < c.out_channels; channel += kLanes) {
    const FinishLanes finish(f, channel);
    along_both<kSize, kSide>(
        along, [&](int i, int j) { return read(products + (i * kSize + j) * place + channel); },
        [&](int i, int j, Lanes v) {
          if (i < rows && j < columns) finish(v, y, origin + (i * c.out_width + j) * c.out_channels + channel);
        });
  }
}

// The columns `panel` of a place's products, for all tiles at hand.
HWY_NOINLINE void multiply_panel(const Winograd& c, const float* elements, int64_t tiles, const float* panel,
                                 float* to) {
  for (int64_t first = 0; first < c.channels; first += kDepth)
    multiply<float>({.a = elements + first,
                     .a_row = c.channels,
                     .a_depth = 1,
                     .b = panel + first * kConvPanel,
                     .b_row = kConvPanel,
                     .c = to,
                     .c_row = c.out_channels,
                     .rows = tiles,
                     .depth = std::min(kDepth, c.channels - first),
                     .lanes = kConvPanel,
                     .fresh = first == 0});
}

// f(first, tiles) for as many tiles as the caches hold, until all are done.
template <class F>
void for_tiles(const Winograd& c, const F& f) {
  const int64_t all = c.tiles(), most = c.tiles_at_once();
  for (int64_t first = 0; first < all; first += most) f(first, std::min(most, all - first));
}
// Behind the elements of most tiles.
float* other_matrices(const Winograd& c, float* workspace) {
  return workspace + c.places() * by_tile(c.tiles_at_once(), c.channels).place;
}

template <int kSide>
void convolve_tiles(const Winograd& c, const float* x, const float* transformed, const ConvFinish& f, float* y,
                    float* workspace, int threads) {
  const int64_t panels = c.out_channels / kConvPanel;
  float *const elements = workspace, *const products = other_matrices(c, workspace);
  for_tiles(c, [&](int64_t first, int64_t tiles) {
    const Matrices in = by_tile(tiles, c.channels), out = by_tile(tiles, c.out_channels);
    parallel_each(threads, tiles,
                  [&](int64_t t) { transform_elements<kSide>(c, x, first + t, elements + t * in.tile, in); });
    parallel_each(threads, c.places() * panels, [&](int64_t i) {
      multiply_panel(c, elements + i / panels * in.place, tiles, transformed + i * c.channels * kConvPanel,
                     products + i / panels * out.place + i % panels * out.panel);
    });
    parallel_each(threads, tiles,
                  [&](int64_t t) { finish_tile<kSide>(c, products + t * out.tile, out.place, first + t, f, y); });
  });
}

// f(at, begin, stride) for each channel of x and panel of channels of y: a panel's windows begin at w[begin], `stride`
// apart, and transformed they lie at transformed[place][at], side by side.
template <class F>
void for_windows(const Winograd& c, int threads, const F& f) {
  const int64_t in_stride = 9 * (c.result == ConvRole::kInput ? c.out_channels : 1);
  const int64_t out_stride = 9 * (c.result == ConvRole::kInput ? 1 : c.channels);
  parallel_each(threads, c.channels * c.out_channels / kConvPanel, [&](int64_t i) {
    f(i * kConvPanel, i / c.channels * kConvPanel * out_stride + i % c.channels * in_stride, out_stride);
  });
}

template <int kSide>
void transform_windows(const Winograd& c, const float* w, float* transformed, int threads) {
  constexpr int kSize = kSide + 2;
  const int64_t place = c.channels * c.out_channels;
  const auto along = [](const auto& g, auto& out) { Line<kSide>::weights(g, out); };
  for_windows(c, threads, [&](int64_t at, int64_t from, int64_t stride) {
    alignas(64) float window[9][kConvPanel];
    for (int64_t o = 0; o < kConvPanel; ++o)
      for (int k = 0; k < 9; ++k) window[k][o] = w[from + o * stride + (c.result == ConvRole::kInput ? 8 - k : k)];
    for (int64_t o = 0; o < kConvPanel; o += kLanes)
      along_both<3, kSize>(
          along, [&](int i, int j) { return read(window[3 * i + j] + o); },
          [&](int i, int j, Lanes v) { write(transformed + (i * kSize + j) * place + at + o, v); });
  });
}

template <int kSide>
void windows_of(const Winograd& c, const float* transformed, float* w, int threads) {
  constexpr int kSize = kSide + 2;
  const int64_t place = c.channels * c.out_channels;
  const auto along = [](const auto& u, auto& out) { Line<kSide>::of_weights(u, out); };
  for_windows(c, threads, [&](int64_t at, int64_t to, int64_t stride) {
    alignas(64) float window[9][kConvPanel];
    for (int64_t o = 0; o < kConvPanel; o += kLanes)
      along_both<kSize, 3>(
          along, [&](int i, int j) { return read(transformed + (i * kSize + j) * place + at + o); },
          [&](int i, int j, Lanes v) { write(window[3 * i + j] + o, v); });
    for (int64_t o = 0; o < kConvPanel; ++o)
      for (int k = 0; k < 9; ++k) w[to + o * stride + k] = window[k][o];
  });
}

// The adjoint of convolve_tiles by its weights: what a place's weights are multiplied with times what its products
// become.
template <int kSide>
void gradient_of_windows(const Winograd& c, const float* x, const float* y, float* w, float* workspace, int threads) {
  const int64_t panels = c.out_channels / kConvPanel;
  float *const elements = workspace, *const results = other_matrices(c, workspace);
  float* const transformed = results + c.places() * by_panel(c.tiles_at_once(), c.out_channels).place;
  for_tiles(c, [&](int64_t first, int64_t tiles) {
    const Matrices in = by_panel(tiles, c.channels), out = by_panel(tiles, c.out_channels);
    parallel_each(threads, tiles, [&](int64_t t) {
      transform_elements<kSide>(c, x, first + t, elements + t * in.tile, in);
      transform_results<kSide>(c, y, first + t, results + t * out.tile, out);
    });
    parallel_each(threads, c.places() * panels, [&](int64_t i) {
      for (int64_t panel = 0; panel < c.channels / kConvPanel; ++panel)
        multiply<float>({.a = elements + i / panels * in.place + panel * in.panel,
                         .a_row = 1,
                         .a_depth = kConvPanel,
                         .b = results + i / panels * out.place + i % panels * out.panel,
                         .b_row = kConvPanel,
                         .c = transformed + (i * c.channels + panel * kConvPanel) * kConvPanel,
                         .c_row = kConvPanel,
                         .rows = kConvPanel,
                         .depth = tiles,
                         .lanes = kConvPanel,
                         .fresh = first == 0});
    });
  });
  windows_of<kSide>(c, transformed, w, threads);
}

void pack_weights(const Winograd& c, const float* w, float* transformed, int threads) {
  (c.side == 2 ? transform_windows<2> : transform_windows<4>)(c, w, transformed, threads);
}
void convolve(const Winograd& c, const float* x, const float* transformed, const ConvFinish& finish, float* y,
              float* workspace, int threads) {
  (c.side == 2 ? convolve_tiles<2> : convolve_tiles<4>)(c, x, transformed, finish, y, workspace, threads);
}

void weight_gradient(const Winograd& c, const float* x, const float* y, float* w, float* workspace, int threads) {
  (c.side == 2 ? gradient_of_windows<2> : gradient_of_windows<4>)(c, x, y, w, workspace, threads);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
namespace {

HWY_EXPORT(pack_weights);
HWY_EXPORT(convolve);
HWY_EXPORT(weight_gradient);

}  // namespace

int64_t Winograd::tiles_at_once() const {
  constexpr int64_t kCached = 2 << 20, kFew = 48;  // fewer tiles would read the weights too often
  const int64_t tile = places() * (channels + out_channels) * static_cast<int64_t>(sizeof(float));
  const int64_t most = std::max(kCached / tile, kFew), turns = (tiles() + most - 1) / most;
  return (tiles() + turns - 1) / turns;
}

uint64_t Winograd::weight_bytes() const {
  return static_cast<uint64_t>(places() * channels * out_channels) * sizeof(float);
}

uint64_t Winograd::workspace_bytes() const {
  const int64_t floats = places() * (tiles_at_once() * (channels + out_channels) + 2 * kConvPanel);
  return static_cast<uint64_t>(floats) * sizeof(float) + (result == ConvRole::kWeight ? weight_bytes() : 0);
}

void pack_weights(const Winograd& c, const float* w, float* transformed, int threads) {
  HWY_DYNAMIC_DISPATCH(pack_weights)(c, w, transformed, threads);
}

void convolve(const Winograd& c, const float* x, const float* transformed, const ConvFinish& finish, float* y,
              float* workspace, int threads) {
  HWY_DYNAMIC_DISPATCH(convolve)(c, x, transformed, finish, y, workspace, threads);
}

void weight_gradient(const Winograd& c, const float* x, const float* y, float* w, float* workspace, int threads) {
  HWY_DYNAMIC_DISPATCH(weight_gradient)(c, x, y, w, workspace, threads);
}

}  // namespace sluice::cpu
#endif
