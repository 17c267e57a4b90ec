#pragma once
// A reader on a C library that tells errors by a function that must not return: it jumps back to where the library was
// called.
#include <csetjmp>
#include <cstring>
#include <span>

#include "base/error.h"
#include "kernels/cpu/images/image_reader.h"

namespace sluice::cpu {

class LibraryReader : public ImageReader {
 protected:
  LibraryReader(EncodedFile& file, const ImageLimits& limits) : limits_(limits), file_(file) {}

  // Calls the library; throws what it gives up with. REQUIRES: `call` leaves nothing behind when it does not return.
  template <class Call>
  void guarded(const Call& call) {
    if (setjmp(back_) == 0) {
      call();
      return;
    }
    failure_.throw_if_error();
    fail(ErrorKind::kValue, "{}", message_);
  }
  // Ends the call in work. REQUIRES: within guarded().
  [[noreturn]] void give_up(const char* message) {
    std::strncpy(message_, message, sizeof(message_) - 1);
    std::longjmp(back_, 1);
  }
  // The next bytes of the file; none at its end. Ends the call in work where reading fails. REQUIRES: within guarded().
  std::span<const std::byte> next_bytes() {
    const std::span<const std::byte> bytes = read();
    if (!failure_.ok()) std::longjmp(back_, 1);
    return bytes;
  }

  const ImageLimits& limits_;

 private:
  std::span<const std::byte> read() {
    try {
      return file_.next();
    } catch (const Error&) {
      failure_ = Status::from_current_exception();
      return {};
    }
  }

  EncodedFile& file_;
  std::jmp_buf back_;
  Status failure_;  // of the file, which the library does not know
  char message_[256] = {};
};

}  // namespace sluice::cpu
