#include "base/files/packed_files.h"

#include <cstring>

#include "base/error.h"

namespace sluice {

PackedFile packed_file(std::span<const std::byte> bytes, int64_t i) {
  const int64_t size = static_cast<int64_t>(bytes.size());
  SLUICE_CHECK(i >= 0 && i < size / PackedFile::kHeadBytes, "packed files: no file {} in {} bytes", i, size);
  int64_t head[4];
  std::memcpy(head, bytes.data() + i * PackedFile::kHeadBytes, sizeof(head));
  const auto part = [&](int64_t begin, int64_t length, const char* what) {
    SLUICE_CHECK(begin >= 0 && length >= 0 && begin <= size && length <= size - begin,
                 "packed files: the {} of file {} is at {}, {} bytes; must lie within {} bytes, as io.pack makes them",
                 what, i, begin, length, size);
    return bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(length));
  };
  const std::span<const std::byte> bytes_of_name = part(head[0], head[1], "name");
  const std::string_view name(reinterpret_cast<const char*>(bytes_of_name.data()), bytes_of_name.size());
  if (head[2] < 0 && !name.empty() && head[3] >= 0) return {name, {}, -1 - head[2], head[3]};
  return {name, part(head[2], head[3], "content")};
}

}  // namespace sluice
