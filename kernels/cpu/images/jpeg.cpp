#include "kernels/cpu/images/jpeg.h"

// clang-format off: jpeglib.h needs what comes before it, and jerror.h needs jpeglib.h
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <cstdio>
// clang-format on

#include "kernels/cpu/images/library_reader.h"

namespace sluice::cpu {
namespace {

// Upsampling of colours looks at neighbours: with so many columns beside it, a part has the bits of the whole image.
constexpr int64_t kMargin = 16;

class JpegReader final : public LibraryReader {
 public:
  JpegReader(EncodedFile& file, const ImageLimits& limits) : LibraryReader(file, limits) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = &end;
    errors_.emit_message = &warn;
    progress_.progress_monitor = &watch;
    source_.init_source = [](j_decompress_ptr) {};
    source_.term_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = &fill;
    source_.skip_input_data = &skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    try {
      guarded([&] {
        info_.client_data = this;
        jpeg_create_decompress(&info_);
        info_.src = &source_;
        info_.progress = &progress_;
        info_.mem->max_memory_to_use = static_cast<long>(limits_.decoder_bytes);
        count_memory();
        jpeg_read_header(&info_, TRUE);
      });
    } catch (const Error&) {
      jpeg_destroy_decompress(&info_);
      throw;
    }
  }
  ~JpegReader() override { jpeg_destroy_decompress(&info_); }

  int64_t height() const override { return info_.image_height; }
  int64_t width() const override { return info_.image_width; }
  int channels() const override { return info_.num_components; }
  int64_t decoder_bytes() const override { return taken_; }

  void start(int channels, const Box& box) override {
    SLUICE_CHECK(info_.jpeg_color_space != JCS_CMYK && info_.jpeg_color_space != JCS_YCCK,
                 "its colours are CMYK; save it as RGB or gray");
    info_.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_EXT_RGBX;
    const int64_t begin = std::max<int64_t>(box.columns.begin - kMargin, 0);
    const int64_t end = std::min(box.columns.end() + kMargin, width());
    JDIMENSION first = static_cast<JDIMENSION>(begin), size = static_cast<JDIMENSION>(end - begin);
    guarded([&] {
      jpeg_start_decompress(&info_);
      if (size < info_.output_width)
        jpeg_crop_scanline(&info_, &first, &size);
      else
        first = 0;
      if (box.rows.begin > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(box.rows.begin));
    });
    offset_ = (box.columns.begin - static_cast<int64_t>(first)) * (channels == 1 ? 1 : 4);
  }

  const uint8_t* read_row(uint8_t* row) override {
    // The library stores rows that are aligned past the caches; this one is read at once.
    row += 8;
    guarded([&] {
      JSAMPROW rows[] = {row};
      jpeg_read_scanlines(&info_, rows, 1);
    });
    return row + offset_;
  }

 private:
  // Puts functions that count before those by which the library's parts ask for memory.
  void count_memory() {
    memory_ = *info_.mem;
    info_.mem->alloc_small = [](j_common_ptr info, int pool, size_t bytes) {
      return counted(info, bytes).alloc_small(info, pool, bytes);
    };
    info_.mem->alloc_large = [](j_common_ptr info, int pool, size_t bytes) {
      return counted(info, bytes).alloc_large(info, pool, bytes);
    };
    info_.mem->alloc_sarray = [](j_common_ptr info, int pool, JDIMENSION row, JDIMENSION rows) {
      return counted(info, size_t{row} * rows).alloc_sarray(info, pool, row, rows);
    };
    info_.mem->alloc_barray = [](j_common_ptr info, int pool, JDIMENSION row, JDIMENSION rows) {
      return counted(info, size_t{row} * rows * sizeof(JBLOCK)).alloc_barray(info, pool, row, rows);
    };
    info_.mem->request_virt_barray = [](j_common_ptr info, int pool, boolean zero, JDIMENSION row, JDIMENSION rows,
                                        JDIMENSION most) {
      return counted(info, size_t{row} * rows * sizeof(JBLOCK)).request_virt_barray(info, pool, zero, row, rows, most);
    };
  }
  // The library's functions, for a call that takes so many bytes.
  static const jpeg_memory_mgr& counted(j_common_ptr info, size_t bytes) {
    JpegReader& reader = of(info);
    reader.taken_ += static_cast<int64_t>(bytes);
    return reader.memory_;
  }

  template <class Info>
  static JpegReader& of(Info* info) {
    return *static_cast<JpegReader*>(info->client_data);
  }
  [[noreturn]] static void end(j_common_ptr info) {
    char message[JMSG_LENGTH_MAX];
    info->err->format_message(info, message);
    of(info).give_up(message);
  }
  // The only warning that is an error is that the file ends early; others are about bytes that decoders step over.
  static void warn(j_common_ptr info, int level) {
    if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) end(info);
  }
  static void watch(j_common_ptr info) {
    JpegReader& reader = of(info);
    const auto most = static_cast<long long>(reader.limits_.scans);
    if (reader.info_.input_scan_number <= most) return;
    char message[JMSG_LENGTH_MAX];
    std::snprintf(message, sizeof(message), "it has more scans than may be: must be %lld at most", most);
    reader.give_up(message);
  }
  static boolean fill(j_decompress_ptr info) {
    JpegReader& reader = of(info);
    const std::span<const std::byte> next = reader.next_bytes();
    if (next.empty()) WARNMS(info, JWRN_JPEG_EOF);  // does not return
    reader.source_.next_input_byte = reinterpret_cast<const JOCTET*>(next.data());
    reader.source_.bytes_in_buffer = next.size();
    return TRUE;
  }
  static void skip(j_decompress_ptr info, long bytes) {
    JpegReader& reader = of(info);
    if (bytes <= 0) return;
    auto left = static_cast<size_t>(bytes);
    for (; left > reader.source_.bytes_in_buffer; fill(info)) {
      left -= reader.source_.bytes_in_buffer;
      reader.source_.bytes_in_buffer = 0;
    }
    reader.source_.next_input_byte += left;
    reader.source_.bytes_in_buffer -= left;
  }

  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
  jpeg_memory_mgr memory_{};  // the library's
  int64_t taken_ = 0;
  int64_t offset_ = 0;  // of the box's first pixel in a row that was read
};

}  // namespace

std::unique_ptr<ImageReader> open_jpeg(EncodedFile& file, const ImageLimits& limits) {
  return std::make_unique<JpegReader>(file, limits);
}

}  // namespace sluice::cpu
