#include "kernels/cpu/images/crops.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace sluice::cpu {
namespace {

double between(uint32_t word, double low, double high) {
  return low + static_cast<double>(word) * 0x1p-32 * (high - low);
}

PixelRange in_the_middle(int64_t all, double part) {
  const int64_t size = std::clamp<int64_t>(std::llround(part), 1, all);
  return {(all - size) / 2, size};
}

}  // namespace

PixelRange part_of(int64_t size, double begin, double length) {
  SLUICE_CHECK(begin >= 0 && begin <= 1 && length >= 0,
               "its box begins at {} and is {} long, in parts of the image; must begin in [0, 1] and not be negative",
               begin, length);
  const double all = static_cast<double>(size), end = std::min(begin + length, 1.0);
  const int64_t from = std::min(std::llround(begin * all), static_cast<long long>(size) - 1);
  return {from, std::max<int64_t>(std::llround(end * all) - from, 1)};
}

Box random_resized_box(int64_t height, int64_t width, std::span<const double> given,
                       std::span<const uint32_t, kCropWords> words) {
  const double high = static_cast<double>(height), wide = static_cast<double>(width);
  const double low_ratio = std::log(given[2]), high_ratio = std::log(given[3]);
  for (int i = 0; i < 10; ++i) {
    const double area = high * wide * between(words[4 * i], given[0], given[1]);
    const double ratio = std::exp(between(words[4 * i + 1], low_ratio, high_ratio));
    const int64_t w = std::llround(std::sqrt(area * ratio)), h = std::llround(std::sqrt(area / ratio));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const auto begin = [&](uint32_t word, int64_t room) {
      return static_cast<int64_t>((uint64_t{word} * static_cast<uint64_t>(room + 1)) >> 32);
    };
    return {{begin(words[4 * i + 2], height - h), h}, {begin(words[4 * i + 3], width - w), w}};
  }
  // The middle, in the nearest ratio that there is.
  const double ratio = wide / high;
  if (ratio < given[2]) return {in_the_middle(height, wide / given[2]), {0, width}};
  if (ratio > given[3]) return {{0, height}, in_the_middle(width, high * given[3])};
  return {{0, height}, {0, width}};
}

Box central_box(int64_t height, int64_t width, double shorter, int64_t crop_height, int64_t crop_width) {
  const double scale = static_cast<double>(std::min(height, width)) / shorter;
  return {in_the_middle(height, static_cast<double>(crop_height) * scale),
          in_the_middle(width, static_cast<double>(crop_width) * scale)};
}

}  // namespace sluice::cpu
