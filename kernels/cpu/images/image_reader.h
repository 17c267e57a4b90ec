#pragma once
// Images of any format, row by row.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/files/image_use.h"
#include "kernels/cpu/images/encoded_file.h"

namespace sluice::cpu {

// A range of an axis, in pixels.
struct PixelRange {
  int64_t begin = 0, size = 0;
  int64_t end() const { return begin + size; }
};
struct Box {
  PixelRange rows, columns;
};

// Files say how much work they are. Who does not trust them says how much may be.
struct ImageLimits {
  int64_t pixels = int64_t{1} << 28;
  int64_t bytes = int64_t{1} << 30;          // of the file
  int64_t scans = 500;                       // of a JPEG file, each of which goes over the whole image
  int64_t decoder_bytes = int64_t{1} << 31;  // that a decoder may take, as it does for files that come in several scans
  ImageUse* use = nullptr;                   // told of what images take; null: nobody is
};
inline constexpr int64_t kMostSide = 65500;  // of any image, as in JPEG files

// Reads one image. Not thread-safe; several may be used at once.
class ImageReader {
 public:
  virtual ~ImageReader() = default;
  virtual int64_t height() const = 0;
  virtual int64_t width() const = 0;
  virtual int channels() const = 0;  // that the file has: 1 is gray
  // Bytes that the decoder has taken for the image so far, or wanted where that was refused.
  virtual int64_t decoder_bytes() const = 0;

  // Pixels have `channels` values from here on, 1 (gray) or 3 (RGB), and lie within `box`. Throws kValue where the
  // file's colours cannot be had so.
  virtual void start(int channels, const Box& box) = 0;
  // The next row of the box, in `row` or somewhere else where it stays until the next call: a byte per gray pixel, four
  // per RGB pixel, of which the last means nothing. Throws kValue where the file is broken, or ends early.
  // REQUIRES: started; `row` has row_bytes(width()); not all rows were read yet.
  virtual const uint8_t* read_row(uint8_t* row) = 0;

  // Of rows of `width` pixels, as vectors read and write them.
  static constexpr int64_t row_bytes(int64_t width) { return width * 4 + 64; }
};

enum class ImageFormats { kJpeg, kAny };

// Reads the head of the image. Throws kValue with the reason where it is none, or larger than it may be.
// REQUIRES: `file` and `limits` outlive the reader.
std::unique_ptr<ImageReader> open_image(EncodedFile& file, ImageFormats formats, const ImageLimits& limits);

// (channels, height, width) of a file. Throws as open_image() does.
std::array<int64_t, 3> image_shape(std::span<const std::byte> file, ImageFormats formats);

}  // namespace sluice::cpu
