#include "kernels/cpu/images/webp.h"

#include <cstring>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/images/gray_rows.h"

#ifdef SLUICE_WEBP
#include <webp/decode.h>
#endif

namespace sluice::cpu {

bool looks_like_webp(std::span<const std::byte> first) {
  return first.size() >= 12 && std::memcmp(first.data(), "RIFF", 4) == 0 &&
         std::memcmp(first.data() + 8, "WEBP", 4) == 0;
}

#ifdef SLUICE_WEBP

namespace {

// The library decodes images as a whole: it gives no part of one the bits that it has in the whole.
class WebpReader final : public ImageReader {
 public:
  WebpReader(EncodedFile& file, const ImageLimits& limits) : limits_(limits) {
    take(static_cast<int64_t>(file.size()));
    content_.reserve(file.size());
    for (auto bytes = file.next(); !bytes.empty(); bytes = file.next())
      content_.insert(content_.end(), bytes.begin(), bytes.end());
    const VP8StatusCode status = WebPGetFeatures(data(), content_.size(), &features_);
    SLUICE_CHECK(status == VP8_STATUS_OK, "libwebp: the head of the file is broken (status {})",
                 static_cast<int>(status));
    SLUICE_CHECK(features_.has_animation == 0, "it is animated; save one of its pictures");
  }

  int64_t height() const override { return features_.height; }
  int64_t width() const override { return features_.width; }
  int channels() const override { return 3; }
  int64_t decoder_bytes() const override { return taken_; }

  void start(int channels, const Box& box) override {
    gray_ = channels == 1;
    row_ = box.rows.begin;
    offset_ = box.columns.begin * (gray_ ? 1 : 4);
    constexpr int kLossless = 2;  // which the library decodes to memory of its own first
    take(row_bytes(width()) + 4 * width() * height() * (features_.format == kLossless ? 2 : 1));
    pixels_.resize(static_cast<size_t>(4 * width() * height() + row_bytes(0)));
    WebPDecoderConfig config;
    SLUICE_CHECK_KIND(kRuntime, WebPInitDecoderConfig(&config) != 0, "libwebp: another version than it was built for");
    config.output.colorspace = MODE_RGBA;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = {pixels_.data(), static_cast<int>(4 * width()), static_cast<size_t>(4 * width() * height())};
    const VP8StatusCode status = WebPDecode(data(), content_.size(), &config);
    SLUICE_CHECK_KIND(kMemory, status != VP8_STATUS_OUT_OF_MEMORY, "libwebp has no memory");
    SLUICE_CHECK(status == VP8_STATUS_OK, "libwebp: the file is broken, or ends early (status {})",
                 static_cast<int>(status));
  }

  const uint8_t* read_row(uint8_t* row) override {
    const uint8_t* const pixels = pixels_.data() + 4 * width() * row_++;
    if (!gray_) return pixels + offset_;
    gray_row(pixels, width(), row);
    return row + offset_;
  }

 private:
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(content_.data()); }

  void take(int64_t bytes) {
    taken_ += bytes;
    SLUICE_CHECK(taken_ <= limits_.decoder_bytes, "it takes {} bytes to decode; must be {} at most", taken_,
                 limits_.decoder_bytes);
  }

  const ImageLimits& limits_;
  WebPBitstreamFeatures features_{};
  std::vector<std::byte> content_;
  std::vector<uint8_t> pixels_;
  int64_t taken_ = 0, row_ = 0, offset_ = 0;
  bool gray_ = false;
};

}  // namespace

bool reads_webp() { return true; }

std::unique_ptr<ImageReader> open_webp(EncodedFile& file, const ImageLimits& limits) {
  return std::make_unique<WebpReader>(file, limits);
}

#else

bool reads_webp() { return false; }

std::unique_ptr<ImageReader> open_webp(EncodedFile&, const ImageLimits&) {
  fail(ErrorKind::kUnsupported,
       "a WebP file, and this build has no libwebp; install libwebp-dev and build again, or save JPEG or PNG");
}

#endif

}  // namespace sluice::cpu
