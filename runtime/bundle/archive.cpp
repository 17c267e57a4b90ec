#include "runtime/bundle/archive.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace sluice {
namespace {

constexpr size_t kBlock = 512;
// A field of a header: where it begins, and its bytes.
struct Field {
  size_t at, bytes;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kPrefix{345, 155}, kMagic{257, 5};
constexpr size_t kKind = 156;

using Bytes = std::span<const std::byte>;

std::string_view text_of(Bytes header, Field field) {
  const std::string_view all(reinterpret_cast<const char*>(header.data()) + field.at, field.bytes);
  return all.substr(0, all.find('\0'));
}

uint64_t number_of(const std::string& where, Bytes header, Field field, const char* what) {
  if ((header[field.at] & std::byte{0x80}) != std::byte{0}) {  // too large for octal digits: its lowest 8 bytes
    uint64_t value = 0;
    for (size_t i = field.bytes - 8; i < field.bytes; ++i)
      value = value << 8 | std::to_integer<uint64_t>(header[field.at + i]);
    return value;
  }
  std::string_view text = text_of(header, field);
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  uint64_t value = 0;
  for (const char c : text) {
    SLUICE_CHECK(c >= '0' && c <= '7', "{}: {} of a file in it is no octal number; pack it again with tar", where,
                 what);
    value = value * 8 + static_cast<uint64_t>(c - '0');  // at most 12 digits
  }
  SLUICE_CHECK(!text.empty(), "{}: a file in it has no {}; pack it again with tar", where, what);
  return value;
}

bool is_zero(Bytes block) {
  return std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; });
}

void check_header(const std::string& where, Bytes header) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const bool own = i >= kChecksum.at && i < kChecksum.at + kChecksum.bytes;  // counts as spaces
    sum += own ? ' ' : std::to_integer<uint64_t>(header[i]);
  }
  SLUICE_CHECK(text_of(header, kMagic) == "ustar" && number_of(where, header, kChecksum, "the checksum") == sum,
               "{}: no tar archive, or one that is damaged; `tar -cf {} -C BUNDLE .` packs a bundle", where, where);
}

std::string name_of(const std::string& where, Bytes header) {
  std::string name(text_of(header, kName));
  // In GNU's format the field holds times.
  if (header[kMagic.at + kMagic.bytes] == std::byte{0} && !text_of(header, kPrefix).empty())
    name = std::string(text_of(header, kPrefix)) + "/" + name;
  while (name.starts_with("./")) name.erase(0, 2);
  while (name.ends_with('/')) name.pop_back();
  const std::string inner = "/" + name + "/";
  SLUICE_CHECK(!name.starts_with('/') && inner.find("/../") == std::string::npos,
               "{}: it holds '{}'; names must be of files in its folder", where, name);
  return name;
}

}  // namespace

bool looks_like_archive(std::string_view begin) {
  return begin.size() >= kBlock && begin.substr(kMagic.at, kMagic.bytes) == "ustar";
}

std::map<std::string, Bytes> read_archive(const std::string& where, Bytes bytes) {
  std::map<std::string, Bytes> files;
  size_t at = 0;
  SLUICE_CHECK(bytes.size() >= kBlock, "{}: {} bytes; a tar archive has at least {}", where, bytes.size(), kBlock);
  while (bytes.size() - at >= kBlock && !is_zero(bytes.subspan(at, kBlock))) {
    const Bytes header = bytes.subspan(at, kBlock);
    check_header(where, header);
    at += kBlock;
    const uint64_t size = number_of(where, header, kSize, "the size");
    SLUICE_CHECK(size <= bytes.size() - at, "{}: it ends within a file; it is truncated", where);
    const Bytes content = bytes.subspan(at, size);
    at += std::min(bytes.size() - at, (size + kBlock - 1) / kBlock * kBlock);
    const auto kind = std::to_integer<char>(header[kKind]);
    const std::string name = name_of(where, header);
    if (kind == '5') continue;
    if (kind == 'x' || kind == 'g') {  // more about the next file, or all
      const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
      for (const char* key : {" path=", " size=", " linkpath=", " GNU.sparse"})
        SLUICE_CHECK_KIND(kUnsupported, text.find(key) == std::string_view::npos,
                          "{}: it has an extended header with{}; pack it with tar --format=ustar", where, key);
      continue;
    }
    SLUICE_CHECK_KIND(kUnsupported, kind == '0' || kind == '\0', "{}: '{}' is of type '{}'; it must hold files only",
                      where, name, kind);
    SLUICE_CHECK(!name.empty() && files.emplace(name, content).second, "{}: it holds '{}' twice; once is right", where,
                 name);
  }
  return files;
}

}  // namespace sluice
