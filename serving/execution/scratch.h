#pragma once
// A folder of its own for bundles that a server makes; gone with it.
#include <string>

namespace sluice::serving {

class ScratchFolder {
 public:
  ScratchFolder();  // throws kInternal
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace sluice::serving
