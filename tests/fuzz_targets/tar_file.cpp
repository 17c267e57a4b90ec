#include <cstdio>

#include "base/error.h"
#include "base/files/tar_members.h"
#include "fuzz_targets/bytes.h"
#include "fuzz_targets/scratch.h"
#include "fuzz_targets/targets.h"

namespace sluice::fuzz {

namespace {

// Gives headers their check sums, which chance does not find.
void mend(std::string& archive) {
  for (size_t at = 0; archive.size() - at >= 512; at += 512) {
    const std::string_view header = std::string_view(archive).substr(at, 512);
    if (header.substr(257, 5) != "ustar") continue;
    unsigned sum = 8 * ' ';
    for (size_t i = 0; i < 512; ++i)
      if (i < 148 || i >= 156) sum += static_cast<uint8_t>(header[i]);
    char text[8];
    std::snprintf(text, sizeof(text), "%06o", sum);
    archive.replace(at + 148, 8, std::string(text, 7) + " ");
  }
}

}  // namespace

// The first byte says whether check sums are mended.
int tar_file(const uint8_t* data, size_t length) {
  Bytes bytes(data, length);
  const bool mended = bytes.flag();
  std::string content = bytes.rest();
  if (mended) mend(content);
  const size_t size = content.size();
  const std::string path = scratch_file("in.tar", content);
  std::vector<TarMember> members;
  try {
    members = tar_members(path);
  } catch (const Error& error) {
    expect(error.kind() == ErrorKind::kValue && std::string_view(error.what()).starts_with(path + ": byte "),
           "tar_file: the error names no place", error.what());
    return 0;
  }
  uint64_t end = 0;
  for (const TarMember& member : members) {
    expect(member.offset >= end + 512 && member.offset % 512 == 0, "tar_file: a file lies in another", member.name);
    expect(member.offset <= size && member.bytes <= size - member.offset, "tar_file: a file ends behind the archive",
           member.name);
    end = member.offset + member.bytes;
  }
  return 0;
}

}  // namespace sluice::fuzz
