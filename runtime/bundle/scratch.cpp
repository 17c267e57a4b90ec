#include "runtime/bundle/scratch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <system_error>

#include "base/error.h"
#include "runtime/bundle/bundle_layout.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kScratchPrefix = ".sluice-saving-";
constexpr size_t kScratchDigits = 16;

// Opens what is there now at `path` and locks it. -1 where it is in use, gone, or in the end something else.
int locked_descriptor(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return -1;
  struct stat opened {
  }, named{};
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && ::fstat(descriptor, &opened) == 0 &&
      ::lstat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino && opened.st_dev == named.st_dev)
    return descriptor;
  ::close(descriptor);
  return -1;
}

void remove_left_behind(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (!is_scratch(entry.path().filename().string())) continue;
    const int descriptor = locked_descriptor(entry.path());
    if (descriptor < 0) continue;
    if (entry.is_directory(ignored))
      remove_bundle(entry.path());
    else
      fs::remove(entry.path(), ignored);
    ::close(descriptor);
  }
}

}  // namespace

bool is_scratch(const std::string& name) {
  return name.starts_with(kScratchPrefix) && name.size() == kScratchPrefix.size() + kScratchDigits &&
         name.find_first_not_of("0123456789abcdef", kScratchPrefix.size()) == std::string::npos;
}

fs::path free_name(const fs::path& folder, std::string_view prefix) {
  std::random_device random;
  return folder /
         fmt::format("{}{:08x}{:08x}", prefix, static_cast<uint32_t>(random()), static_cast<uint32_t>(random()));
}

bool has_scratch(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (is_scratch(entry.path().filename().string())) return true;
  return false;
}

Scratch::Scratch(const fs::path& folder, Kind kind) {
  remove_left_behind(folder);
  while (descriptor_ < 0) {
    path_ = free_name(folder, kScratchPrefix);
    const int file = kind == Kind::kFile ? ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
    const bool made = kind == Kind::kFile ? file >= 0 : ::mkdir(path_.c_str(), 0777) == 0;
    const int error = errno;
    if (file >= 0) ::close(file);
    if (!made && error != EEXIST)
      throw fs::filesystem_error("nothing can be made in it", folder, {error, std::generic_category()});
    // Between the two another may take it for one that was left behind, and then another is made.
    if (made) descriptor_ = locked_descriptor(path_);
  }
}

bool Scratch::holds_another() {
  own_ = false;
  ::close(descriptor_);
  descriptor_ = locked_descriptor(path_);
  if (descriptor_ < 0) path_.clear();
  return descriptor_ >= 0;
}

Scratch::~Scratch() {
  std::error_code ignored;
  if (!path_.empty()) {
    if (own_)
      fs::remove_all(path_, ignored);
    else
      remove_bundle(path_);
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace sluice
