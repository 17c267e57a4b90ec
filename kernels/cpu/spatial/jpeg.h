#pragma once
// JPEG files, row by row.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace sluice::cpu {

// Reads one file. Not thread-safe; several may be used at once.
class JpegReader {
 public:
  // Reads the head. Throws kValue with the reason where it is none. REQUIRES: `file` outlives it.
  explicit JpegReader(std::span<const std::byte> file);
  ~JpegReader();
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  int64_t height() const;
  int64_t width() const;
  int channels() const;  // that the file has: 1 is gray

  // Rows have `channels` values per pixel, 1 (gray) or 3 (RGB), from here on. Throws kValue where the file's colours
  // cannot be had so.
  void start(int channels);
  // The next row, width() * channels bytes. Throws kValue where the file is broken, or ends early.
  // REQUIRES: started; height() rows have not been read yet.
  void read_row(uint8_t* row);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// (channels, height, width) of a file. Throws as JpegReader does.
std::array<int64_t, 3> jpeg_shape(std::span<const std::byte> file);

}  // namespace sluice::cpu
