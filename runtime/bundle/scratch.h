#pragma once
// A file or folder that is written before it takes its place: it lies beside that place, under a name that nobody else
// has.
#include <filesystem>
#include <string>
#include <string_view>

namespace sluice {

// Whether a file or folder of this name is one. Their names begin with a dot and are of one form.
bool is_scratch(const std::string& name);
// Whether something in this folder is being replaced now.
bool has_scratch(const std::filesystem::path& folder);

// A path that nothing has yet: in a folder, a name of `prefix` and 16 random digits.
std::filesystem::path free_name(const std::filesystem::path& folder, std::string_view prefix);

// Invariants: as long as one lives, its file or folder is locked (flock), so others know that it is in use; whoever
// makes one first removes those beside it that processes have left behind which were ended.
class Scratch {
 public:
  enum class Kind { kFile, kFolder };
  // In a folder. Throws std::filesystem::filesystem_error.
  Scratch(const std::filesystem::path& folder, Kind kind);
  // Removes it, with all that is in it, unless it was let go of.
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // It has another place now.
  void release() { path_.clear(); }
  // A bundle that was elsewhere lies at its path now, and of it no more than the files of a bundle are removed. False,
  // and nothing is left to do, where another process removes it already.
  bool holds_another();
  // The thing that was made lies there again.
  void holds_own() { own_ = true; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  bool own_ = true;
};

}  // namespace sluice
