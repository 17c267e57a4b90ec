#include <algorithm>
#include <vector>

#include "base/error.h"
#include "fuzz_targets/bytes.h"
#include "fuzz_targets/targets.h"
#include "kernels/cpu/images/image_reader.h"

namespace sluice::fuzz {
namespace {

// A part of an axis, from two numbers of 0 to 255.
cpu::PixelRange part_of(int64_t size, int64_t begin, int64_t length) {
  const int64_t first = begin * (size - 1) / 255;
  return {first, std::max<int64_t>((size - first) * (length + 1) / 256, 1)};
}

}  // namespace

// The first five bytes choose the part that is shown and its colours.
int encoded_image(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  const int channels = bytes.flag() ? 1 : 3;
  int64_t numbers[4];
  for (int64_t& number : numbers) number = bytes.byte();
  const std::string content = bytes.rest();
  if (content.empty()) return 0;
  ImageUse use;
  const cpu::ImageLimits limits{
      .pixels = 1 << 18, .bytes = 1 << 20, .scans = 50, .decoder_bytes = 1 << 24, .use = &use};
  try {
    cpu::EncodedFile file({{}, std::as_bytes(std::span(content))}, nullptr, limits.bytes);
    const std::unique_ptr<cpu::ImageReader> reader = cpu::open_image(file, cpu::ImageFormats::kAny, limits);
    const int64_t height = reader->height(), width = reader->width();
    expect(height >= 1 && width >= 1 && height * width <= limits.pixels, "encoded_image: larger than it may be");
    const cpu::Box box{part_of(height, numbers[0], numbers[1]), part_of(width, numbers[2], numbers[3])};
    reader->start(channels, box);
    std::vector<uint8_t> row(static_cast<size_t>(cpu::ImageReader::row_bytes(width)));
    uint32_t sum = 0;
    for (int64_t y = 0; y < box.rows.size; ++y) {
      const uint8_t* const pixels = reader->read_row(row.data());
      // A sanitizer sees each byte that a resizer would read.
      for (int64_t i = 0; i < box.columns.size * (channels == 1 ? 1 : 4); ++i) sum += pixels[i];
    }
    expect(reader->decoder_bytes() <= limits.decoder_bytes, "encoded_image: a decoder took more than it may",
           std::to_string(sum));
  } catch (const Error& error) {
    // It says so of a format that the build does not read.
    expect(error.kind() == ErrorKind::kValue || error.kind() == ErrorKind::kUnsupported,
           "encoded_image: an error that is not about the file", error.what());
  }
  return 0;
}

}  // namespace sluice::fuzz
