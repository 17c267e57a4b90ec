#pragma once
// Versions of the libraries that Sluice stands on, each told by the folder that owns it.
#include <string>
#include <vector>

namespace sluice {

struct LibraryVersion {
  std::string name, version;
};

// fmt, spdlog.
std::vector<LibraryVersion> base_libraries();

}  // namespace sluice
