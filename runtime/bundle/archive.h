#pragma once
// Tar archives, read where they lie.
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

// The files of an archive by name, as parts of `bytes`. Folders are left out, as is a "./" before a name. Reads
// strictly what `tar` writes of files: checksums, sizes and names are checked. Throws kValue "<where>: ..." for what is
// no such archive, holds links or devices, names a file twice, or one outside of the archive's folder.
std::map<std::string, std::span<const std::byte>> read_archive(const std::string& where,
                                                               std::span<const std::byte> bytes);
// Tells from a file's first 512 bytes whether it may be one.
bool looks_like_archive(std::string_view begin);

}  // namespace sluice
