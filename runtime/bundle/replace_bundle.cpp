#include "runtime/bundle/replace_bundle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "runtime/bundle/bundle_layout.h"
#include "runtime/bundle/scratch.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMayBe = "give a folder that is a bundle, or empty, or not there";
constexpr int kReplaceTries =
    1000;  // others may save to the same place; each try needs another of theirs between two calls

const char* file_kind(fs::file_type type) {
  switch (type) {
    case fs::file_type::regular: return "a file";
    case fs::file_type::character:
    case fs::file_type::block: return "a device";
    case fs::file_type::fifo: return "a pipe";
    case fs::file_type::socket: return "a socket";
    default: return "no folder";
  }
}

[[noreturn]] void refuse_place(const std::string& directory, const std::string& what,
                               const std::string& instead = kMayBe) {
  fail(ErrorKind::kIo, "bundle '{}': cannot be saved there: it is {}; {}", directory, what, instead);
}

// The place where the folder is, or is to be; links are followed, so what they name is replaced, and they stay.
fs::path place_of(const std::string& directory) {
  SLUICE_CHECK_KIND(kIo, !directory.empty() && directory.find('\0') == std::string::npos, "bundle '{}': no path; {}",
                    directory.c_str(), kMayBe);
  std::string named = directory;
  while (named.size() > 1 && (named.ends_with('/') || named.ends_with("/."))) named.pop_back();
  const fs::file_status status = fs::symlink_status(named);
  if (fs::is_symlink(status) && !fs::exists(named)) refuse_place(directory, "a symbolic link to nothing");
  std::error_code gone;  // others may be saving to it
  if (fs::exists(status))
    if (const fs::path whole = fs::canonical(named, gone); !gone) return whole;
  const fs::path path = fs::absolute(named);
  if (path.filename() == "..") refuse_place(directory, "not there");
  return path;
}

// The file or folder that is at a path now. It is held, so that nothing new can pass for it.
class There {
 public:
  explicit There(const fs::path& path)
      : path_(path), descriptor_(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)) {}
  ~There() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  There(const There&) = delete;
  There& operator=(const There&) = delete;

  bool exists() const { return descriptor_ >= 0; }
  bool still() const {
    struct stat held {
    }, named{};
    return ::fstat(descriptor_, &held) == 0 && ::lstat(path_.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
  }

 private:
  const fs::path path_;
  const int descriptor_;
};

// The thing that may be replaced: a bundle, which is exchanged, or else nothing, or an empty folder.
struct Found {
  bool bundle = false;
  std::string wrong;  // why neither, as words behind "it is"
};

// REQUIRES: something is there. Others may put a new folder there, and take this one apart, meanwhile.
Found found_now(const fs::path& place) {
  const fs::file_status status = fs::symlink_status(place);
  if (!fs::is_directory(status)) return {false, file_kind(status.type())};
  const std::string wrong = why_no_bundle(place);
  return {!fs::is_empty(place), wrong.empty() ? wrong : "a folder that " + wrong};
}

// Throws where what is there may not be replaced. Whether it is a bundle.
bool check_place(const std::string& directory, const fs::path& place) {
  Found found;
  for (int i = 0;; ++i) {
    const There there(place);
    if (!there.exists()) return false;
    try {
      found = found_now(place);
    } catch (const fs::filesystem_error& error) {
      if (i == kReplaceTries || there.still()) throw;
      continue;
    }
    if (i == kReplaceTries || there.still()) break;
  }
  if (!found.wrong.empty()) refuse_place(directory, found.wrong);
  if (::access(place.c_str(), W_OK) != 0 && errno != ENOENT)
    refuse_place(directory, fmt::format("a folder that may not be written to ({})", std::strerror(errno)));
  std::error_code unknown;
  const std::string here = fs::current_path(unknown).string() + "/";
  if (!unknown && here.starts_with(place.string() + "/"))
    refuse_place(directory,
                 "the working directory of this process, or around it, and would be another folder afterwards",
                 "give a folder in it, or change the working directory");
  return found.bundle;
}

// Folders that a save had to make go again when it fails.
class Parents {
 public:
  explicit Parents(const fs::path& folder) {
    for (fs::path at = folder; !at.empty() && !fs::exists(at) && at != at.parent_path(); at = at.parent_path())
      made_.push_back(at);
    fs::create_directories(folder);
  }
  ~Parents() {
    std::error_code ignored;
    for (const fs::path& folder : made_) fs::remove(folder, ignored);
  }
  void keep() { made_.clear(); }

 private:
  std::vector<fs::path> made_;  // innermost first
};

int rename_error(const fs::path& from, const fs::path& to, unsigned flags) {
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0 ? 0 : errno;
}

bool changed_meanwhile(int error) {
  return error == ENOENT || error == ENOTEMPTY || error == EEXIST || error == ENOTDIR;
}

// Exchanges two folders; where the file system cannot, by way of a third name. 0 or an errno.
int exchange_folders(const fs::path& fresh, const fs::path& place, FolderExchange exchange) {
  int error = exchange == FolderExchange::kAtomic ? rename_error(fresh, place, RENAME_EXCHANGE) : EINVAL;
  if (error != EINVAL && error != ENOSYS && error != ENOTSUP) return error;
  // Its name is none of those that are removed when they are left behind: should the process end now, it is still
  // there.
  const fs::path aside = free_name(place.parent_path(), ".sluice-replaced-");
  error = rename_error(place, aside, 0);
  if (error != 0) return error;
  error = rename_error(fresh, place, 0);
  if (rename_error(aside, error == 0 ? fresh : place, 0) != 0) remove_bundle(aside);  // another has saved there
  return error;
}

// The folder gets the rights of the one before it, so that those who may read it still may.
void take_rights(const fs::path& fresh, const fs::path& place) {
  struct stat of {};
  if (::stat(place.c_str(), &of) != 0) return;
  if (::chown(fresh.c_str(), of.st_uid, of.st_gid) != 0) errno = 0;  // only root can give folders away
  ::chmod(fresh.c_str(), of.st_mode & 07777);
}

// Puts the folder in its place. The old folder goes, if it is still the one that check_place() found.
void put_in_place(const std::string& directory, Scratch& fresh, const fs::path& place, FolderExchange exchange) {
  int error = 0;
  for (int i = 0; i < kReplaceTries; ++i) {
    const bool bundle = check_place(directory, place);
    take_rights(fresh.path(), place);
    // A folder that is renamed takes the place of an empty one, and of nothing else.
    error = bundle ? exchange_folders(fresh.path(), place, exchange) : rename_error(fresh.path(), place, 0);
    if (changed_meanwhile(error)) continue;
    if (error != 0) break;
    if (!bundle) {
      fresh.release();
    } else if (fresh.holds_another()) {
      if (const std::string wrong = why_no_bundle(fresh.path()); !wrong.empty()) {  // has come since it was looked at
        if (exchange_folders(fresh.path(), place, exchange) == 0)
          fresh.holds_own();
        else
          fresh.release();
        refuse_place(directory, "a folder that " + wrong);
      }
    }
    return;
  }
  if (error == EBUSY) refuse_place(directory, "a mount point, which stays where it is", "give a folder in it");
  throw fs::filesystem_error("cannot take its place", place, {error, std::generic_category()});
}

}  // namespace

void replace_bundle(const std::string& directory, const std::function<void(const fs::path&)>& write,
                    FolderExchange exchange) {
  try {
    const fs::path place = place_of(directory);
    check_place(directory, place);  // before the work
    Parents parents(place.parent_path());
    Scratch fresh(place.parent_path(), Scratch::Kind::kFolder);
    try {
      write(fresh.path());
    } catch (const Error& error) {
      std::string what = error.what();
      const std::string scratch = fresh.path().string();
      for (size_t at = 0; (at = what.find(scratch, at)) != std::string::npos;)
        what.replace(at, scratch.size(), directory);
      throw Error(error.kind(), what);
    }
    put_in_place(directory, fresh, place, exchange);
    parents.keep();
  } catch (const fs::filesystem_error& error) {
    fail(ErrorKind::kIo, "bundle '{}': cannot be saved: {}: {}", directory, error.path1().string(),
         error.code().message());
  }
}

void replace_file(const std::string& path, const std::function<void(std::ofstream&)>& write) {
  try {
    const fs::file_status status = fs::status(path);
    const bool link = fs::is_symlink(fs::symlink_status(path));
    SLUICE_CHECK_KIND(kIo, fs::exists(status) ? fs::is_regular_file(status) : !link,
                      "{}: cannot be written: it is {}; it must be a file, or not there", path,
                      fs::is_directory(status) ? "a folder"
                      : fs::exists(status)     ? file_kind(status.type())
                                               : "a symbolic link to nothing");
    const fs::path place = fs::exists(status) ? fs::canonical(path) : fs::absolute(path);
    Scratch fresh(place.parent_path(), Scratch::Kind::kFile);
    std::ofstream file(fresh.path(), std::ios::binary);
    write(file);
    file.close();
    SLUICE_CHECK_KIND(kIo, file, "{}: cannot be written: {}", path, std::strerror(errno));
    if (fs::exists(status)) fs::permissions(fresh.path(), status.permissions());
    fs::rename(fresh.path(), place);
    fresh.release();
  } catch (const fs::filesystem_error& error) {
    fail(ErrorKind::kIo, "{}: cannot be written: {}", path, error.code().message());
  }
}

}  // namespace sluice
