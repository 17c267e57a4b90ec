#include "kernels/cpu/images/image_reader.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/images/jpeg.h"
#include "kernels/cpu/images/png.h"
#include "kernels/cpu/images/webp.h"

namespace sluice::cpu {
namespace {

template <size_t n>
bool begins_with(std::span<const std::byte> file, const uint8_t (&mark)[n]) {
  return file.size() >= n &&
         std::equal(mark, mark + n, file.begin(), [](uint8_t a, std::byte b) { return std::byte{a} == b; });
}

std::unique_ptr<ImageReader> reader_of(EncodedFile& file, ImageFormats formats, const ImageLimits& limits) {
  constexpr uint8_t kJpeg[] = {0xFF, 0xD8}, kPng[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  const std::span<const std::byte> first = file.first(12);
  if (begins_with(first, kJpeg)) return open_jpeg(file, limits);
  SLUICE_CHECK(formats == ImageFormats::kAny, "not a JPEG file: its {} bytes do not begin with FF D8", file.size());
  if (begins_with(first, kPng)) return open_png(file, limits);
  if (looks_like_webp(first)) return open_webp(file, limits);
  fail(ErrorKind::kValue, "neither a JPEG nor a PNG nor a WebP file, by the first of its {} bytes", file.size());
}

}  // namespace

std::unique_ptr<ImageReader> open_image(EncodedFile& file, ImageFormats formats, const ImageLimits& limits) {
  std::unique_ptr<ImageReader> reader = reader_of(file, formats, limits);
  const int64_t height = reader->height(), width = reader->width();
  if (limits.use != nullptr) ImageUse::raise(limits.use->pixels, height * width);
  SLUICE_CHECK(height >= 1 && width >= 1 && height <= kMostSide && width <= kMostSide,
               "it has {} x {} pixels; must be 1 to {} each way", height, width, kMostSide);
  SLUICE_CHECK(height * width <= limits.pixels, "it has {} x {} pixels; must be {} at most", height, width,
               limits.pixels);
  return reader;
}

std::array<int64_t, 3> image_shape(std::span<const std::byte> bytes, ImageFormats formats) {
  SLUICE_CHECK(!bytes.empty(), "it is empty; must be the bytes of a file");
  const ImageLimits limits;
  EncodedFile file({{}, bytes}, nullptr, limits.bytes);
  const std::unique_ptr<ImageReader> reader = open_image(file, formats, limits);
  return {reader->channels(), reader->height(), reader->width()};
}

}  // namespace sluice::cpu
