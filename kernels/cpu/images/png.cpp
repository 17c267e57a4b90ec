#include "kernels/cpu/images/png.h"

#include <png.h>

#include <cstring>
#include <vector>

#include "kernels/cpu/images/gray_rows.h"
#include "kernels/cpu/images/library_reader.h"

namespace sluice::cpu {
namespace {

class PngReader final : public LibraryReader {
 public:
  PngReader(EncodedFile& file, const ImageLimits& limits) : LibraryReader(file, limits) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &end, [](png_structp, png_const_charp) {});
    SLUICE_CHECK_KIND(kMemory, png_ != nullptr, "libpng has no memory");
    info_ = png_create_info_struct(png_);
    png_set_user_limits(png_, static_cast<png_uint_32>(kMostSide), static_cast<png_uint_32>(kMostSide));
    png_set_chunk_malloc_max(png_, static_cast<png_alloc_size_t>(limits_.decoder_bytes));
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
    png_set_read_fn(png_, this, &read);
    try {
      guarded([&] { png_read_info(png_, info_); });
    } catch (const Error&) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      throw;
    }
  }
  ~PngReader() override { png_destroy_read_struct(&png_, &info_, nullptr); }

  int64_t height() const override { return png_get_image_height(png_, info_); }
  int64_t width() const override { return png_get_image_width(png_, info_); }
  int channels() const override { return has_colours() ? 3 : 1; }
  int64_t decoder_bytes() const override { return whole_bytes_; }

  void start(int channels, const Box& box) override {
    // Gray is made of colours here, by Pillow's weights.
    colours_ = has_colours() || channels == 3;
    gray_ = colours_ && channels == 1;
    offset_ = box.columns.begin * (channels == 1 ? 1 : 4);
    const int type = png_get_color_type(png_, info_);
    guarded([&] {
      png_set_strip_16(png_);
      png_set_packing(png_);
      if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
      if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png_);
      png_set_strip_alpha(png_);
      if (!has_colours() && colours_) png_set_gray_to_rgb(png_);
      if (colours_) png_set_filler(png_, 0xFF, PNG_FILLER_AFTER);
      passes_ = png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
    const int64_t line = width() * (colours_ ? 4 : 1);
    SLUICE_CHECK(static_cast<int64_t>(png_get_rowbytes(png_, info_)) == line, "its rows have {} bytes; must be {}",
                 png_get_rowbytes(png_, info_), line);
    if (passes_ > 1) {
      read_all(line);
      row_ = box.rows.begin;
      return;
    }
    skipped_.resize(box.rows.begin > 0 ? static_cast<size_t>(line) : 0);
    guarded([&] {
      for (int64_t y = 0; y < box.rows.begin; ++y) png_read_row(png_, skipped_.data(), nullptr);
    });
  }

  const uint8_t* read_row(uint8_t* row) override {
    const int64_t line = width() * (colours_ ? 4 : 1);
    if (passes_ > 1)
      std::memcpy(row, whole_.data() + row_++ * line, static_cast<size_t>(line));
    else
      guarded([&] { png_read_row(png_, row, nullptr); });
    if (gray_) gray_row(row, width(), row);
    return row + offset_;
  }

 private:
  bool has_colours() const { return (png_get_color_type(png_, info_) & PNG_COLOR_MASK_COLOR) != 0; }

  // An image that comes in passes is complete only after the last.
  void read_all(int64_t line) {
    whole_bytes_ = line * height();
    SLUICE_CHECK(line * height() <= limits_.decoder_bytes, "interlaced, it takes {} bytes; must be {} at most",
                 line * height(), limits_.decoder_bytes);
    whole_.resize(static_cast<size_t>(line * height()));
    guarded([&] {
      for (int pass = 0; pass < passes_; ++pass)
        for (int64_t y = 0; y < height(); ++y) png_read_row(png_, whole_.data() + y * line, nullptr);
    });
  }

  [[noreturn]] static void end(png_structp png, png_const_charp message) {
    static_cast<PngReader*>(png_get_error_ptr(png))->give_up(message);
  }
  static void read(png_structp png, png_bytep to, size_t bytes) {
    auto& reader = *static_cast<PngReader*>(png_get_io_ptr(png));
    if (!reader.copy(to, bytes)) png_error(png, "the file ends early");
  }
  bool copy(uint8_t* to, size_t bytes) {
    while (bytes > 0) {
      if (here_.empty()) here_ = next_bytes();
      if (here_.empty()) return false;
      const size_t n = std::min(bytes, here_.size());
      std::memcpy(to, here_.data(), n);
      here_ = here_.subspan(n);
      to += n;
      bytes -= n;
    }
    return true;
  }

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::span<const std::byte> here_;  // of the file, and not read yet
  bool colours_ = false, gray_ = false;
  int passes_ = 1;
  int64_t offset_ = 0, row_ = 0, whole_bytes_ = 0;
  std::vector<uint8_t> whole_, skipped_;
};

}  // namespace

std::unique_ptr<ImageReader> open_png(EncodedFile& file, const ImageLimits& limits) {
  return std::make_unique<PngReader>(file, limits);
}

}  // namespace sluice::cpu
