// torch.nn.functional's spelling of what is done to images without weights: padding, windows, shuffles, resampling.
#include <algorithm>
#include <cmath>

#include "graph/ops/activation.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/movement.h"
#include "graph/ops/pooling.h"
#include "graph/ops/reduction.h"
#include "graph/ops/resampling.h"
#include "graph/ops/shaping.h"
#include "graph/ops/spatial/spatial.h"

namespace sluice::ops {
namespace {

// One dim of x with `low` and `high` elements more, made of its own.
Value pad_dim(const Value& x, int d, int64_t low, int64_t high, const std::string& mode) {
  const int64_t size = x.shape()[d];
  const bool fits = mode == "reflect"
                        ? std::max(low, high) < size
                        : (mode == "replicate" ? size > 0 || low + high == 0 : std::max(low, high) <= size);
  SLUICE_CHECK_KIND(kRuntime, fits,
                    "pad: Padding size should be {} the corresponding input dimension, but got: padding ({}, {}) at "
                    "dimension {} of input {} in mode '{}'{}",
                    mode == "reflect" ? "less than" : "at most", low, high, d, x.shape().str(), mode,
                    mode == "circular" ? ": Padding value causes wrapping around more than once" : "");
  Shape edge = x.shape();
  std::vector<Value> parts;
  if (low > 0) {
    edge[d] = low;
    parts.push_back(mode == "reflect"     ? flip(narrow(x, d, 1, low), {d})
                    : mode == "replicate" ? expand(narrow(x, d, 0, 1), edge)
                                          : narrow(x, d, size - low, low));
  }
  parts.push_back(x);
  if (high > 0) {
    edge[d] = high;
    parts.push_back(mode == "reflect"     ? flip(narrow(x, d, size - 1 - high, high), {d})
                    : mode == "replicate" ? expand(narrow(x, d, size - 1, 1), edge)
                                          : narrow(x, d, 0, high));
  }
  return parts.size() == 1 ? x : concat(parts, d);
}

Value crop(const Value& x, int d, int64_t low, int64_t high) {
  const int64_t start = std::max<int64_t>(-low, 0), stop = x.shape()[d] - std::max<int64_t>(-high, 0);
  if (start == 0 && stop == x.shape()[d]) return x;
  SLUICE_CHECK_KIND(kRuntime, start <= stop,
                    "pad: The input size {}, plus negative padding {} and {}, resulted in a negative output size at "
                    "dimension {}",
                    x.shape()[d], low, high, d);
  return narrow(x, d, start, stop - start);
}

Value pad_by(const Value& input, const Ints& amounts, const std::string& mode, const std::optional<double>& value) {
  const int rank = input.rank(), padded = static_cast<int>(amounts.size()) / 2;
  SLUICE_CHECK_KIND(kRuntime, amounts.size() % 2 == 0 && padded <= rank,
                    "pad: got {} amounts for a tensor of {} dims; Padding length must be divisible by 2 and at most "
                    "twice the number of dimensions of the input: a pair for each dim, last first",
                    amounts.size(), rank);
  const bool constant = mode == "constant";
  SLUICE_CHECK_KIND(kUnsupported, constant || mode == "reflect" || mode == "replicate" || mode == "circular",
                    "pad: Unrecognised padding mode '{}'; must be 'constant', 'reflect', 'replicate' or 'circular'",
                    mode);
  if (!constant) {
    SLUICE_CHECK_KIND(kRuntime, !value || *value == 0,
                      "pad: Padding mode \"{}\" doesn't take in value argument: got {}", mode, *value);
    SLUICE_CHECK_KIND(
        kUnsupported, padded >= 1 && padded <= 3 && (rank == padded + 1 || rank == padded + 2),
        "pad: Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now: got {} amounts "
        "for input {}; mode '{}' pads all dims but the first one or two",
        amounts.size(), input.shape().str(), mode);
  }
  Value x = input;
  Ints low(rank, 0), high(rank, 0);
  for (int i = 0; i < padded; ++i) {
    const int d = rank - 1 - i;
    const int64_t before = amounts[2 * i], after = amounts[2 * i + 1];
    low[d] = std::max<int64_t>(before, 0), high[d] = std::max<int64_t>(after, 0);
    // A reflection or repetition may need elements that the other side crops, so crops come after
    // it; a circular padding goes round what is left.
    if (constant || mode == "circular") x = crop(x, d, before, after);
    if (!constant) x = pad_dim(x, d, low[d], high[d], mode);
    if (!constant && mode != "circular") x = crop(x, d, before, after);
  }
  if (!constant) return x;
  if (value) Operand(*value).check_fits(x.dtype(), "pad");
  return pad(x, low, high, value.value_or(0));
}

// Windows over two spatial dims.
Windows windows_of(const char* where, const Ints& kernel, const Ints& dilation, const Ints& padding,
                   const Ints& stride) {
  const Windows w{per_dim(kernel, 2, 1, where, "kernel_size"), per_dim(stride, 2, 1, where, "stride"),
                  per_dim(padding, 2, 0, where, "padding"), per_dim(dilation, 2, 1, where, "dilation")};
  for (const auto& [name, entries, least] : {std::tuple("kernel size", &w.kernel, 1),
                                             {"stride", &w.stride, 1},
                                             {"padding", &w.padding, 0},
                                             {"dilation", &w.dilation, 1}})
    SLUICE_CHECK_KIND(kRuntime, std::min((*entries)[0], (*entries)[1]) >= least, "{}: {} should be {}, but got {}",
                      where, name, least == 0 ? "non-negative" : "greater than zero", attr_str(*entries));
  return w;
}

int64_t positions(const char* where, const Windows& w, int64_t height, int64_t width) {
  const int64_t rows = window_count(height, w.kernel[0], w.stride[0], w.padding[0], w.dilation[0]);
  const int64_t columns = window_count(width, w.kernel[1], w.stride[1], w.padding[1], w.dilation[1]);
  SLUICE_CHECK_KIND(kRuntime, rows >= 1 && columns >= 1,
                    "{}: spatial size ({}, {}) with kernel_size {}, dilation {}, padding {}: calculated shape of the "
                    "array of sliding blocks as ({}, {}), but its components must be at least one",
                    where, height, width, attr_str(w.kernel), attr_str(w.dilation), attr_str(w.padding), rows, columns);
  return rows * columns;
}

Value unfold_of(const Value& input, const Ints& kernel, const Ints& dilation, const Ints& padding, const Ints& stride) {
  SLUICE_CHECK_KIND(kRuntime, input.rank() == 3 || input.rank() == 4,
                    "unfold: Expected 3D or 4D (batch mode) tensor, but got: {}", input.shape().str());
  const Windows w = windows_of("unfold", kernel, dilation, padding, stride);
  const bool added = input.rank() == 3;
  const Value x = added ? unsqueeze(input, 0) : input;
  const int64_t blocks = positions("unfold", w, x.shape()[2], x.shape()[3]);
  const Value y = reshape(unfold(x, w), {x.shape()[0], x.shape()[1] * w.kernel[0] * w.kernel[1], blocks});
  return added ? squeeze(y, Ints{0}) : y;
}

Value fold_of(const Value& input, const Ints& size, const Ints& kernel, const Ints& dilation, const Ints& padding,
              const Ints& stride) {
  SLUICE_CHECK_KIND(kRuntime, input.rank() == 2 || input.rank() == 3,
                    "fold: Expected 2D or 3D (batch mode) tensor, but got: {}", input.shape().str());
  const Windows w = windows_of("fold", kernel, dilation, padding, stride);
  const Ints out = per_dim(size, 2, 1, "fold", "output_size");
  const bool added = input.rank() == 2;
  const Value x = added ? unsqueeze(input, 0) : input;
  const int64_t area = w.kernel[0] * w.kernel[1], rows = x.shape()[1];
  SLUICE_CHECK_KIND(kRuntime, rows % area == 0,
                    "fold: Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
                    "input.size(1)={} and kernel_size={}",
                    rows, attr_str(w.kernel));
  const int64_t blocks = positions("fold", w, out[0], out[1]);
  SLUICE_CHECK_KIND(kRuntime, x.shape()[2] == blocks,
                    "fold: Given output_size={}, kernel_size={}, dilation={}, padding={}, stride={}, expected size of "
                    "input's dimension 2 to match the calculated number of sliding blocks {}, but got {}",
                    attr_str(out), attr_str(w.kernel), attr_str(w.dilation), attr_str(w.padding), attr_str(w.stride),
                    blocks, x.shape()[2]);
  const int64_t n = x.shape()[0], channels = rows / area;
  const Value y = fold(reshape(x, {n, channels, area, blocks}), {n, channels, out[0], out[1]}, w);
  return added ? squeeze(y, Ints{0}) : y;
}

// (..., C r r, H, W) as (..., C, H r, W r), and back.
Value pixel_shuffle(const Value& x, int64_t r) {
  const int rank = x.rank();
  SLUICE_CHECK_KIND(kRuntime, rank >= 3, "pixel_shuffle: expects input to have at least 3 dimensions, but got {}",
                    rank);
  SLUICE_CHECK_KIND(kRuntime, r > 0, "pixel_shuffle: expects a positive upscale_factor, but got {}", r);
  const int64_t channels = x.shape()[rank - 3], height = x.shape()[rank - 2], width = x.shape()[rank - 1];
  SLUICE_CHECK_KIND(kRuntime, channels % (r * r) == 0,
                    "pixel_shuffle: expects its input's 'channel' dimension to be divisible by the square of "
                    "upscale_factor, but input.size(-3)={} is not divisible by {}",
                    channels, r * r);
  Ints lead(x.shape().begin(), x.shape().end() - 3), split = lead, merged = lead, order;
  for (int i = 0; i < rank - 3; ++i) order.push_back(i);
  split.insert(split.end(), {channels / (r * r), r, r, height, width});
  merged.insert(merged.end(), {channels / (r * r), height * r, width * r});
  for (int i : {0, 3, 1, 4, 2}) order.push_back(rank - 3 + i);
  return reshape(permute(reshape(x, split), order), merged);
}

Value pixel_unshuffle(const Value& x, int64_t r) {
  const int rank = x.rank();
  SLUICE_CHECK_KIND(kRuntime, rank >= 3, "pixel_unshuffle: expects input to have at least 3 dimensions, but got {}",
                    rank);
  SLUICE_CHECK_KIND(kRuntime, r > 0, "pixel_unshuffle: expects a positive downscale_factor, but got {}", r);
  const int64_t channels = x.shape()[rank - 3], height = x.shape()[rank - 2], width = x.shape()[rank - 1];
  SLUICE_CHECK_KIND(
      kRuntime, height % r == 0 && width % r == 0,
      "pixel_unshuffle: expects height and width to be divisible by downscale_factor, but ({}, {}) is not "
      "divisible by {}",
      height, width, r);
  Ints lead(x.shape().begin(), x.shape().end() - 3), split = lead, merged = lead, order;
  for (int i = 0; i < rank - 3; ++i) order.push_back(i);
  split.insert(split.end(), {channels, height / r, r, width / r, r});
  merged.insert(merged.end(), {channels * r * r, height / r, width / r});
  for (int i : {0, 2, 4, 1, 3}) order.push_back(rank - 3 + i);
  return reshape(permute(reshape(x, split), order), merged);
}

Value channel_shuffle(const Value& x, int64_t groups) {
  SLUICE_CHECK_KIND(kRuntime, x.rank() > 2, "channel_shuffle: expects input with > 2 dims, but got input with sizes {}",
                    x.shape().str());
  const int64_t n = x.shape()[0], channels = x.shape()[1];
  SLUICE_CHECK_KIND(kRuntime, groups > 0 && channels % groups == 0,
                    "channel_shuffle: Number of channels must be divisible by groups, which must be positive: got {} "
                    "channels and {} groups",
                    channels, groups);
  Ints split = {n, groups, channels / groups}, order = {0, 2, 1};
  for (int i = 2; i < x.rank(); ++i) {
    split.push_back(x.shape()[i]);
    order.push_back(i + 1);
  }
  return reshape(permute(reshape(x, split), order), x.shape().vec());
}

// Divided by (k + alpha * mean of squares over `size` channels around) ^ beta.
Value local_response_norm(const Value& x, int64_t size, double alpha, double beta, double k) {
  SLUICE_CHECK(x.rank() >= 3, "local_response_norm: Expected 3D or higher dimensionality input (got {} dimensions)",
               x.rank());
  if (numel(x.shape()) == 0) return x;
  const int64_t n = x.shape()[0], channels = x.shape()[1], rest = numel(x.shape()) / (n * channels);
  const Value squares = pad(reshape(mul(x, x), {n, 1, channels, rest}), {0, 0, size / 2, 0}, {0, 0, (size - 1) / 2, 0});
  const Value means = avg_pool(squares, {{.kernel_size = {size, 1}, .stride = {1, 1}}});
  return div(x, reshape(pow(add(mul(means, alpha), k), beta), x.shape().vec()));
}

struct Interpolation {
  const char* name;
  const char* mode;  // of resize()
  int rank;          // that it needs; 0: any
};
constexpr Interpolation kInterpolations[] = {{"nearest", "nearest", 0}, {"nearest-exact", "nearest-exact", 0},
                                             {"area", "area", 0},       {"linear", "linear", 3},
                                             {"bilinear", "linear", 4}, {"trilinear", "linear", 5},
                                             {"bicubic", "cubic", 4}};

Value interpolate(const Value& x, const std::optional<Ints>& size, const std::optional<std::vector<double>>& scales,
                  const std::string& mode, const std::optional<bool>& align_corners,
                  const std::optional<bool>& recompute, bool antialias) {
  const auto* const known = std::find_if(std::begin(kInterpolations), std::end(kInterpolations),
                                         [&](const Interpolation& i) { return mode == i.name; });
  SLUICE_CHECK_KIND(kUnsupported, x.rank() >= 3 && x.rank() <= 5 && known != std::end(kInterpolations),
                    "interpolate: Input Error: Only 3D, 4D and 5D input Tensors supported (got {}D) for the modes: "
                    "nearest | linear | bilinear | bicubic | trilinear | area | nearest-exact (got {})",
                    x.rank(), mode);
  const bool interpolates = known->rank != 0;
  SLUICE_CHECK(!align_corners || interpolates,
               "interpolate: align_corners option can only be set with the interpolating modes: linear | bilinear | "
               "bicubic | trilinear: mode is '{}'",
               mode);
  SLUICE_CHECK_KIND(kUnsupported, !interpolates || x.rank() == known->rank,
                    "interpolate: Got {}D input, but {} mode needs {}D input", x.rank(), mode, known->rank);
  SLUICE_CHECK(
      !antialias || ((mode == "bilinear" || mode == "bicubic") && x.rank() == 4),
      "interpolate: Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as "
      "input: mode is '{}', input {}",
      mode, x.shape().str());
  SLUICE_CHECK(!(size && scales), "interpolate: only one of size or scale_factor should be defined: both are");
  SLUICE_CHECK(size || scales, "interpolate: either size or scale_factor should be defined: neither is");
  SLUICE_CHECK(!(size && recompute.value_or(false)),
               "interpolate: recompute_scale_factor is not meaningful with an explicit size");
  const int dims = x.rank() - 2;
  ResizeOptions o{.size = size.value_or(Ints{}), .scale_factors = scales.value_or(std::vector<double>{})};
  if (o.size.size() == 1) o.size.assign(dims, o.size[0]);
  if (o.scale_factors.size() == 1) o.scale_factors.assign(dims, o.scale_factors[0]);
  const size_t given = size ? o.size.size() : o.scale_factors.size();
  SLUICE_CHECK(given == static_cast<size_t>(dims),
               "interpolate: Input and output must have the same number of spatial dimensions, but got input with "
               "spatial dimensions of {} and {} of {} entries",
               attr_str(Ints(x.shape().begin() + 2, x.shape().end())), size ? "output size" : "scale_factor", given);
  for (int d = 0; !size && d < dims; ++d) {
    const double out = std::floor(static_cast<double>(x.shape()[2 + d]) * o.scale_factors[d]);
    SLUICE_CHECK(std::isfinite(out) && std::abs(out) < 0x1p62, "interpolate: scale_factor is out of range: {}",
                 o.scale_factors[d]);
    o.size.push_back(static_cast<int64_t>(out));
  }
  if (mode == "area") return adaptive_avg_pool(x, o.size);
  if (recompute.value_or(false)) o.scale_factors.clear();
  o.mode = known->mode, o.align_corners = align_corners.value_or(false), o.antialias = antialias;
  return resize(x, o);
}

Value affine_grid_of(const Value& theta, const Ints& size, const std::optional<bool>& align_corners) {
  SLUICE_CHECK(is_floating(theta.dtype()), "affine_grid: Expected theta to have floating point type, but got {}",
               dtype_name(theta.dtype()));
  SLUICE_CHECK_KIND(kUnsupported, size.size() == 4 || size.size() == 5,
                    "affine_grid: only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got "
                    "size {}",
                    attr_str(size));
  const int64_t dims = static_cast<int64_t>(size.size()) - 2;
  SLUICE_CHECK(theta.shape() == Shape({size[0], dims, dims + 1}),
               "affine_grid: Expected a batch of {}D affine matrices of shape {} for size {}. Got {}", dims,
               Shape({size[0], dims, dims + 1}).str(), attr_str(size), theta.shape().str());
  SLUICE_CHECK(*std::min_element(size.begin(), size.end()) > 0,
               "affine_grid: Expected non-zero, positive output size. Got {}", attr_str(size));
  return affine_grid(theta, size, align_corners.value_or(false));
}

Value grid_sample_of(const Value& x, const Value& grid, const std::string& mode, const std::string& padding_mode,
                     const std::optional<bool>& align_corners) {
  SLUICE_CHECK(mode == "bilinear" || mode == "nearest" || mode == "bicubic",
               "grid_sample: expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{}'", mode);
  SLUICE_CHECK(padding_mode == "zeros" || padding_mode == "border" || padding_mode == "reflection",
               "grid_sample: expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{}'",
               padding_mode);
  SLUICE_CHECK_KIND(kRuntime, (x.rank() == 4 || x.rank() == 5) && grid.rank() == x.rank(),
                    "grid_sample: expected 4D or 5D input and grid with same number of dimensions, but got input with "
                    "sizes {} and grid with sizes {}",
                    x.shape().str(), grid.shape().str());
  SLUICE_CHECK_KIND(kRuntime, x.dtype() == grid.dtype() && is_floating(x.dtype()),
                    "grid_sample: expected input and grid to have the same floating dtype, but input has {} and grid "
                    "has {}",
                    dtype_name(x.dtype()), dtype_name(grid.dtype()));
  SLUICE_CHECK_KIND(
      kRuntime, x.shape()[0] == grid.shape()[0],
      "grid_sample: expected grid and input to have same batch size, but got input with sizes {} and grid "
      "with sizes {}",
      x.shape().str(), grid.shape().str());
  SLUICE_CHECK_KIND(kRuntime, grid.shape().back() == x.rank() - 2,
                    "grid_sample: expected grid to have size {} in last dimension, but got grid with sizes {}",
                    x.rank() - 2, grid.shape().str());
  for (int d = 2; d < x.rank(); ++d)
    SLUICE_CHECK_KIND(kRuntime, x.shape()[d] > 0,
                      "grid_sample: expected input to have non-empty spatial dimensions, but input has sizes {} with "
                      "dimension {} being empty",
                      x.shape().str(), d);
  SLUICE_CHECK_KIND(kRuntime, mode != "bicubic" || x.rank() == 4,
                    "grid_sample: bicubic interpolation only supports 4D input, but got {}", x.shape().str());
  return grid_sample(x, grid, {mode, padding_mode, align_corners.value_or(false)});
}

}  // namespace

std::vector<Form> spatial_forms() {
  std::vector<Form> forms;
  const auto add = [&](const char* doc, Overload o, std::vector<const char*> aliases = {}) {
    forms.push_back({.doc = doc, .overloads = {std::move(o)}, .aliases = std::move(aliases), .method = false});
  };
  add("Padded by (low, high) pairs from the last dim backwards: by a value, or by what is reflected at, repeated from "
      "or "
      "beyond the other end of the borders; negative amounts crop. F.pad.",
      overload("nn.functional.pad(Tensor input, int[] pad, str mode=\"constant\", float? value=None) -> Tensor",
               &pad_by));
  add("All windows of (N, C, H, W) as columns: (N, C * kernel area, windows). F.unfold.",
      overload("nn.functional.unfold(Tensor input, int[1] kernel_size, int[1] dilation=1, int[1] padding=0, int[1] "
               "stride=1) -> Tensor",
               &unfold_of));
  add("Columns (N, C * kernel area, windows) added up to images (N, C, *output_size). F.fold.",
      overload("nn.functional.fold(Tensor input, int[1] output_size, int[1] kernel_size, int[1] dilation=1, int[1] "
               "padding=0, int[1] stride=1) -> Tensor",
               &fold_of));
  add("(..., C r^2, H, W) as (..., C, H r, W r). F.pixel_shuffle.",
      overload("pixel_shuffle(Tensor input, int upscale_factor) -> Tensor", &pixel_shuffle),
      {"nn.functional.pixel_shuffle"});
  add("(..., C, H r, W r) as (..., C r^2, H, W). F.pixel_unshuffle.",
      overload("pixel_unshuffle(Tensor input, int downscale_factor) -> Tensor", &pixel_unshuffle),
      {"nn.functional.pixel_unshuffle"});
  add("Channels of (N, C, ...) in the order of a transposed (groups, C / groups). F.channel_shuffle.",
      overload("channel_shuffle(Tensor input, int groups) -> Tensor", &channel_shuffle),
      {"nn.functional.channel_shuffle"});
  add("Divided by (k + alpha * mean of squares of `size` neighbouring channels)^beta. F.local_response_norm.",
      overload("nn.functional.local_response_norm(Tensor input, int size, float alpha=0.0001, float beta=0.75, float "
               "k=1.0) -> Tensor",
               &local_response_norm));
  add("(N, C, spatial...) at another size, or scaled: nearest, nearest-exact, linear, bilinear, trilinear, bicubic, "
      "area. "
      "F.interpolate.",
      overload(
          "nn.functional.interpolate(Tensor input, int[1]? size=None, float[1]? scale_factor=None, str "
          "mode=\"nearest\", bool? align_corners=None, bool? recompute_scale_factor=None, bool antialias=False) -> "
          "Tensor",
          &interpolate));
  add("Points of images of `size` (N, C, spatial...) under maps theta (N, d, d + 1) of [-1, 1]^d. F.affine_grid.",
      overload("nn.functional.affine_grid(Tensor theta, int[] size, bool? align_corners=None) -> Tensor",
               &affine_grid_of));
  add("(N, C, spatial...) at points (N, out..., d) of [-1, 1]^d, the last dim first. F.grid_sample.",
      overload(
          "nn.functional.grid_sample(Tensor input, Tensor grid, str mode=\"bilinear\", str padding_mode=\"zeros\", "
          "bool? align_corners=None) -> Tensor",
          &grid_sample_of));
  return forms;
}

}  // namespace sluice::ops
