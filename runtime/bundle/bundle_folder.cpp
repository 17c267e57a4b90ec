#include "runtime/bundle/bundle_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <thread>

#include "base/error.h"
#include "runtime/bundle/bundle_layout.h"
#include "runtime/bundle/scratch.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr int kOpenTries = 1000;

class OpenFile {
 public:
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

bool still_at(int folder, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(folder, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

// The folder is away for a moment, on a file system that cannot exchange two.
bool comes_back(const std::string& path) {
  const fs::path at = fs::path(path).has_filename() ? fs::path(path) : fs::path(path).parent_path();
  return has_scratch(at.has_parent_path() ? at.parent_path() : fs::path("."));
}

}  // namespace

// A file that is open, one that was read, or why it is neither.
class BundleFolder::Entry {
 public:
  Entry(int folder, const std::string& name, const std::string& path, bool read) {
    try {
      InputFile file(path, folder, name, Links::kRefuse);
      if (read)
        text_ = file.read_all();
      else
        opened_ = ::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0);
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  ~Entry() {
    if (opened_ >= 0) ::close(opened_);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  InputFile open(const std::string& path) const {
    if (error_ != nullptr) std::rethrow_exception(error_);
    if (text_) return InputFile(path, std::as_bytes(std::span(*text_)));
    return InputFile(path, ::fcntl(opened_, F_DUPFD_CLOEXEC, 0));
  }

 private:
  int opened_ = -1;
  std::optional<std::string> text_;
  std::exception_ptr error_;
};

BundleFolder::BundleFolder(const std::string& path) {
  int absent = 0;  // it was neither there nor being saved; a save may begin or end between the two questions
  for (int i = 0;; ++i) {
    const OpenFile folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const int error = errno;
    if (folder.get() >= 0) {
      entries_.clear();
      folders_.clear();
      open_all(folder.get(), path, "");
      // It had not been replaced when the last of them was open, so none had been taken away.
      if (still_at(folder.get(), path)) return;
    } else if (error != ENOENT || i == kOpenTries || !(comes_back(path) || fs::exists(path) || ++absent < 3)) {
      fail(ErrorKind::kIo, "{}: cannot be read: {}", path, std::strerror(error));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    SLUICE_CHECK_KIND(kIo, i < kOpenTries, "{}: cannot be read: it was replaced {} times while it was opened", path,
                      kOpenTries);
  }
}

void BundleFolder::open_all(int folder, const std::string& path, const std::string& prefix) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(::fcntl(folder, F_DUPFD_CLOEXEC, 0)), ::closedir);
  if (listing == nullptr) return;
  for (const dirent* found = nullptr; (found = ::readdir(listing.get())) != nullptr;) {
    const std::string name = found->d_name, full = prefix + name, at = (fs::path(path) / full).string();
    if (is_bundle_file(name)) {
      // Some files stay open; the texts of many members would be too many.
      const bool read = !prefix.empty() && name != kWeightsFile;
      entries_[full] = std::make_shared<const Entry>(folder, name, at, read);
    } else if (is_bundle_folder(name)) {
      const OpenFile inner(::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (inner.get() < 0) continue;
      folders_.insert(full);
      open_all(inner.get(), path, full + "/");
    }
  }
}

bool BundleFolder::has(const std::string& name) const { return entries_.contains(name) || has_folder(name); }

InputFile BundleFolder::open(const std::string& name, const std::string& path) const {
  const auto found = entries_.find(name);
  SLUICE_CHECK_KIND(kIo, found != entries_.end(), "{}: cannot be read: {}", path, std::strerror(ENOENT));
  return found->second->open(path);
}

}  // namespace sluice
