#pragma once
// Files and bundles take the place of others at once, and of nothing that is not to be replaced.
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

namespace sluice {

// kRename: as where a file system cannot exchange two folders; there is a moment in which the place is empty.
enum class FolderExchange { kAtomic, kRename };

// Fills a new folder with `write` and puts it into the place of `directory`, or of what that links to. There may be
// nothing, an empty folder or a bundle; everything else, and a bundle in which something else lies, is refused by name
// and stays as it is. So does what was there when `write` throws. Throws kIo.
void replace_bundle(const std::string& directory, const std::function<void(const std::filesystem::path&)>& write,
                    FolderExchange exchange = FolderExchange::kAtomic);

// Fills a new file with `write` and puts it into the place of `path`, or of what that links to: whoever has the old one
// open or mapped keeps it as it was. Throws kIo, and then the old one is still there; also where that is no file.
void replace_file(const std::string& path, const std::function<void(std::ofstream&)>& write);

}  // namespace sluice
