#pragma once
// The files in a tar archive that is too large to be read whole, as those of training sets are.
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct TarMember {
  std::string name;                // bytes, as the archive has them
  uint64_t offset = 0, bytes = 0;  // where its content lies in the archive
};

// The regular files of an archive, in order; folders, links and devices are left out. Knows the formats ustar, GNU's
// and pax', and the one before them. Reads headers alone. Throws kIo where the file cannot be read, kValue where a
// header is broken, the archive ends before its mark of the end, or it has sparse files: "<path>: byte <where>:
// <what>".
std::vector<TarMember> tar_members(const std::string& path);

}  // namespace sluice
