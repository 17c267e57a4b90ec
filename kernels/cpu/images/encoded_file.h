#pragma once
// The bytes of an encoded image, in order: of memory, or of a file that is read in parts of a given buffer.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/files/file.h"
#include "base/files/image_use.h"
#include "base/files/packed_files.h"

namespace sluice::cpu {

// Not thread-safe.
class EncodedFile {
 public:
  static constexpr size_t kBufferBytes = 1 << 16;
  // Throws kIo where the file cannot be opened, kValue where it has more than `most` bytes.
  // REQUIRES: `buffer` has kBufferBytes; it and the content outlive this.
  // use: told of its size; null: nobody is.
  EncodedFile(const PackedFile& file, std::byte* buffer, int64_t most, ImageUse* use = nullptr);

  uint64_t size() const { return size_; }
  // The next bytes; none at the end. They stay until the next call. Throws kIo where reading fails.
  std::span<const std::byte> next();
  // The first bytes, as far as there are so many; next() begins with them, too.
  // REQUIRES: n <= kBufferBytes; next() was not called yet.
  std::span<const std::byte> first(size_t n);

 private:
  std::optional<InputFile> file_;
  std::byte* const buffer_;
  uint64_t begin_ = 0, size_ = 0, at_ = 0;  // what next() gives begins at at_, from begin_ of the file on
  std::span<const std::byte> here_;
};

}  // namespace sluice::cpu
