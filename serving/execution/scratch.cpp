#include "serving/execution/scratch.h"

#include <cstdlib>
#include <filesystem>

#include "serving/core/error.h"

namespace sluice::serving {

ScratchFolder::ScratchFolder() {
  std::error_code none;
  path_ = (std::filesystem::temp_directory_path(none) / "sluice-serve-XXXXXX").string();
  if (none || mkdtemp(path_.data()) == nullptr)
    throw Error(Code::kInternal, "server: no folder for files of its own; TMPDIR must be one that it may write to");
}

ScratchFolder::~ScratchFolder() {
  std::error_code none;
  std::filesystem::remove_all(path_, none);
}

}  // namespace sluice::serving
