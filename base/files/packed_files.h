#pragma once
// Files, or names of files, in one run of bytes, so that a plan can pass them on as a tensor (Python: sluice.io.pack).
//
// First come 32 bytes for each file, four int64 in the machine's order: where its name begins, the name's length, where
// its content begins, the content's length, all in bytes from the beginning. A file without content is to be read by
// its name; one without name, too, is not there. So zeros are files that are not there. Of a larger file, as a tar
// file, a part is to be read where the content begins at -1 - offset: it lies at this offset of the file that is named.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

struct PackedFile {
  static constexpr int64_t kHeadBytes = 32;
  std::string_view name;
  std::span<const std::byte> content;
  int64_t offset = -1, length = 0;  // of the part that is to be read; -1: all of the file
  bool there() const { return !name.empty() || !content.empty(); }
};

// File `i`. Throws kValue where it does not lie within `bytes`.
PackedFile packed_file(std::span<const std::byte> bytes, int64_t i);

}  // namespace sluice
