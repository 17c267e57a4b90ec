#include "kernels/cpu/spatial/jpeg.h"

// clang-format off: jpeglib.h needs what comes before it, and jerror.h needs jpeglib.h
#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
#include <cstdio>
// clang-format on

#include "base/error.h"

namespace sluice::cpu {

// libjpeg tells errors by a function that must not return: it jumps back to where the library was called.
struct JpegReader::State {
  jpeg_error_mgr errors{};
  jpeg_decompress_struct info{};
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX] = {};

  static State& of(j_common_ptr info) { return *static_cast<State*>(info->client_data); }
  [[noreturn]] static void give_up(j_common_ptr info) {
    State& state = of(info);
    info->err->format_message(info, state.message);
    std::longjmp(state.back, 1);
  }
  // The only warning that is an error is that the file ends early; others are about bytes that decoders step over.
  static void warn(j_common_ptr info, int level) {
    if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) give_up(info);
  }

  // Calls the library. REQUIRES: `call` leaves nothing behind when it does not return.
  template <class Call>
  void guarded(const Call& call) {
    if (setjmp(back) == 0) {
      call();
      return;
    }
    fail(ErrorKind::kValue, "{}", message);
  }
};

JpegReader::JpegReader(std::span<const std::byte> file) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.info.err = jpeg_std_error(&s.errors);
  s.errors.error_exit = &State::give_up;
  s.errors.emit_message = &State::warn;
  s.info.client_data = &s;
  SLUICE_CHECK(file.size() >= 2 && file[0] == std::byte{0xFF} && file[1] == std::byte{0xD8},
               "not a JPEG file: its {} bytes do not begin with FF D8", file.size());
  try {
    s.guarded([&] {
      jpeg_create_decompress(&s.info);
      jpeg_mem_src(&s.info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
      jpeg_read_header(&s.info, TRUE);
    });
  } catch (const Error&) {
    jpeg_destroy_decompress(&s.info);
    throw;
  }
}

JpegReader::~JpegReader() { jpeg_destroy_decompress(&state_->info); }

int64_t JpegReader::height() const { return state_->info.image_height; }
int64_t JpegReader::width() const { return state_->info.image_width; }
int JpegReader::channels() const { return state_->info.num_components; }

void JpegReader::start(int channels) {
  State& s = *state_;
  SLUICE_CHECK(s.info.jpeg_color_space != JCS_CMYK && s.info.jpeg_color_space != JCS_YCCK,
               "its colours are CMYK; save it as RGB or gray");
  s.info.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  s.guarded([&] { jpeg_start_decompress(&s.info); });
}

void JpegReader::read_row(uint8_t* row) {
  State& s = *state_;
  s.guarded([&] {
    JSAMPROW rows[] = {row};
    jpeg_read_scanlines(&s.info, rows, 1);
  });
}

std::array<int64_t, 3> jpeg_shape(std::span<const std::byte> file) {
  const JpegReader reader(file);
  return {reader.channels(), reader.height(), reader.width()};
}

}  // namespace sluice::cpu
