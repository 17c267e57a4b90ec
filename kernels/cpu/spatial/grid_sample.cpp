// grid_sample: images at the points of a grid. Compiled without contraction: where a point falls between two pixels is
// decided by the roundings of the formula, as ops of their own round.
#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/math/vector_math.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

using plan::KernelQuery;

constexpr int64_t kBlock = 256;              // points whose pixels are found at once
constexpr int64_t kGridSampleGrain = 16384;  // pixels worth a thread

struct Sampling {
  int64_t batch = 0, channels = 0, height = 0, width = 0, points = 0;
  bool bilinear = true, border = false, reflection = false, align_corners = false;
  int threads = 1;
};

// The pixels of a block of points: where, whether within the image, and their weights.
template <class C>
struct Corners {
  int32_t at[4][kBlock];
  int32_t inside[4][kBlock];
  C weight[4][kBlock];
};

// A coordinate in pixels.
template <class C>
SLUICE_INLINE C coordinate(const Sampling& s, C x, int64_t size) {
  const C n = static_cast<C>(size), last = n - 1;
  C at = s.align_corners ? (x + 1) / 2 * last : ((x + 1) * n - 1) / 2;
  if (s.reflection) {
    const C low = s.align_corners ? C(0) : C(-0.5), span = s.align_corners ? last : n;
    if (span == 0) {
      at *= 0;
    } else {
      const C away = std::fabs(at - low), turns = std::floor(away / span), rest = std::fmod(away, span);
      at = (std::fmod(turns, C(2)) == 0 ? rest : span - rest) + low;
    }
  }
  if (s.border || s.reflection) at = at > 0 ? (at < last ? at : last) : C(0);
  return at;
}

template <class T>
SLUICE_INLINE void find_corners(const Sampling& s, const T* grid, int64_t n, Corners<Compute<T>>& c) {
  using C = Compute<T>;
  const int corners = s.bilinear ? 4 : 1;
  for (int64_t i = 0; i < n; ++i) {
    const C x = coordinate(s, static_cast<C>(load(grid[2 * i])), s.width),
            y = coordinate(s, static_cast<C>(load(grid[2 * i + 1])), s.height);
    const C column = s.bilinear ? std::floor(x) : std::nearbyint(x),
            row = s.bilinear ? std::floor(y) : std::nearbyint(y);
    const C across = x - column, down = y - row;
    for (int k = 0; k < corners; ++k) {
      const C r = row + static_cast<C>(k / 2), q = column + static_cast<C>(k % 2);
      const bool inside = r >= 0 && r <= static_cast<C>(s.height - 1) && q >= 0 && q <= static_cast<C>(s.width - 1);
      c.inside[k][i] = inside;
      c.at[k][i] = inside ? static_cast<int32_t>(r) * static_cast<int32_t>(s.width) + static_cast<int32_t>(q) : 0;
      c.weight[k][i] = (k / 2 ? down : 1 - down) * (k % 2 ? across : 1 - across);
    }
  }
}

template <class T>
SLUICE_INLINE void sample_plane(const Sampling& s, const T* x, T* y, int64_t n, const Corners<Compute<T>>& c) {
  using C = Compute<T>;
  if (!s.bilinear) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const C v = load(x[c.at[0][i]]);
      store(y + i, c.inside[0][i] ? v : C(0));
    }
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const C a = load(x[c.at[0][i]]), b = load(x[c.at[1][i]]), d = load(x[c.at[2][i]]), e = load(x[c.at[3][i]]);
    const C top = (c.inside[0][i] ? a : C(0)) * c.weight[0][i] + (c.inside[1][i] ? b : C(0)) * c.weight[1][i];
    store(y + i, (top + (c.inside[2][i] ? d : C(0)) * c.weight[2][i]) + (c.inside[3][i] ? e : C(0)) * c.weight[3][i]);
  }
}

// Blocks [begin, end) of all points of all images.
template <class T>
SLUICE_INLINE void sample_blocks(const Sampling& s, const T* x, const T* grid, T* y, int64_t begin, int64_t end) {
  const int64_t blocks = (s.points + kBlock - 1) / kBlock, area = s.height * s.width;
  Corners<Compute<T>> corners;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t image = block / blocks, first = block % blocks * kBlock, n = std::min(kBlock, s.points - first);
    find_corners(s, grid + (image * s.points + first) * 2, n, corners);
    for (int64_t plane = image * s.channels; plane < (image + 1) * s.channels; ++plane)
      sample_plane(s, x + plane * area, y + plane * s.points + first, n, corners);
  }
}

template <class T>
void sample_any(const Sampling& s, const T* x, const T* grid, T* y, int64_t begin, int64_t end) {
  sample_blocks(s, x, grid, y, begin, end);
}
// The sampling of float for several instruction sets, which templates cannot be compiled for.
SLUICE_CLONES void sample_f32(const Sampling& s, const float* x, const float* grid, float* y, int64_t begin,
                              int64_t end) {
  sample_blocks(s, x, grid, y, begin, end);
}

std::unique_ptr<PreparedKernel> prepare(const KernelQuery& q, const PrepareContext& context) {
  const Shape &x = q.inputs.at(0).shape, &y = q.outputs.at(0).shape;
  const auto &mode = get_attr<std::string>(q.attrs, "mode"), &padding = get_attr<std::string>(q.attrs, "padding_mode");
  const Sampling s{.batch = x[0],
                   .channels = x[1],
                   .height = x[2],
                   .width = x[3],
                   .points = y[2] * y[3],
                   .bilinear = mode == "bilinear",
                   .border = padding == "border",
                   .reflection = padding == "reflection",
                   .align_corners = get_attr<bool>(q.attrs, "align_corners"),
                   .threads = context.threads};
  return dispatch_floating(q.inputs[0].dtype, "grid_sample", [&](auto element) {
    using T = decltype(element);
    using Run = void (*)(const Sampling&, const T*, const T*, T*, int64_t, int64_t);
    Run run = sample_any<T>;
    if constexpr (std::is_same_v<T, float>) run = sample_f32;
    return make_kernel(0, [s, run](const KernelArgs& args) {
      const T *pixels = static_cast<const T*>(args.inputs[0]), *grid = static_cast<const T*>(args.inputs[1]);
      T* out = static_cast<T*>(args.outputs[0]);
      parallel_ranges(s.threads, s.batch * ((s.points + kBlock - 1) / kBlock),
                      std::max<int64_t>(kGridSampleGrain / (kBlock * std::max<int64_t>(s.channels, 1)), 1),
                      [&](int64_t begin, int64_t end) { run(s, pixels, grid, out, begin, end); });
    });
  });
}

}  // namespace

void add_grid_sample_kernel(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "grid_sample", .prepare = prepare});
}

}  // namespace sluice::cpu
