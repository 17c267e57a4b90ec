#include "serving/repository/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <system_error>

#include "serving/core/error.h"
#include "serving/repository/names.h"

namespace sluice::serving {

namespace {

constexpr int kDeepestFolder = 16;
constexpr size_t kMostEntries = 100000;

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void refuse(const std::string& name, int error) {
  if (error == ELOOP || error == EXDEV)
    throw Error(
        Code::kInvalidArgument,
        fmt::format("'{}': it is a link, or leads out of its folder; models are files and folders of their own; "
                    "with --follow-links, links may lead to others of the repository",
                    shown(name)));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    throw Error(Code::kUnavailable, fmt::format("'{}': it cannot be written: the disk is full", shown(name)));
  throw Error(Code::kInvalidArgument, fmt::format("'{}': {}", shown(name), reason(error)));
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  void reset(int fd) {
    ::close(fd_);
    fd_ = fd;
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Component by component, where the system has no openat2.
int open_by_steps(int folder, const std::string& name, int flags) {
  File at(::fcntl(folder, F_DUPFD_CLOEXEC, 0));
  size_t begin = 0;
  while (at.fd() >= 0) {
    const size_t end = name.find('/', begin);
    const std::string part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") {
      errno = EXDEV;
      return -1;
    }
    if (end == std::string::npos) return ::openat(at.fd(), part.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, 0600);
    const int next = ::openat(at.fd(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0) {
      if (errno == ENOTDIR) errno = ELOOP;  // a link, or a file
      return -1;
    }
    at.reset(next);
    begin = end + 1;
  }
  return -1;
}

int open_beneath(int folder, const std::string& name, int flags, uint64_t links = RESOLVE_NO_SYMLINKS) {
  if (name.empty() || name.find('\0') != std::string::npos) {
    errno = EINVAL;
    return -1;
  }
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.mode = (flags & O_CREAT) != 0 ? 0600 : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | links;
  const long fd = ::syscall(SYS_openat2, folder, name.c_str(), &how, sizeof how);
  if (fd >= 0 || links == 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(fd);
  return open_by_steps(folder, name, flags);
}

using Skip = std::function<bool(const std::string&)>;

}  // namespace

// `top` is what open() was given, and links lead nowhere but beneath it; null: they are refused. Then `at` is the path
// from there, as it was when this folder was opened, so that a link on it that is exchanged later changes nothing.
struct Folder::Handle {
  explicit Handle(int fd) : fd(fd) {}
  ~Handle() {
    ::close(fd);
    std::error_code none;
    if (!remove.empty()) std::filesystem::remove_all(remove, none);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  int open(const std::string& name, int flags) const {
    if (!follows) return open_beneath(fd, name, flags);
    const int from = top != nullptr ? top->fd : fd;
    return open_beneath(from, at.empty() ? name : at + "/" + name, flags, 0);
  }
  bool status(const std::string& name, struct stat& status) const {
    if (::fstatat(fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return false;  // gone meanwhile
    if (!follows || !S_ISLNK(status.st_mode)) return true;
    const File target(open(name, O_PATH));
    return target.fd() < 0 || ::fstat(target.fd(), &status) == 0;  // one that leads nowhere remains a link
  }

  int fd;
  bool follows = false;
  std::shared_ptr<const Handle> top;
  std::string at;
  std::string remove;  // the private folder's path
};

namespace {

std::string path_of(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

std::vector<Folder::Entry> entries_of(const Folder::Handle& folder, const std::string& name) {
  const int copy = ::openat(folder.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(copy < 0 ? nullptr : ::fdopendir(copy), ::closedir);
  if (dir == nullptr) {
    const int error = errno;
    if (copy >= 0) ::close(copy);
    refuse(name, error);
  }
  std::vector<Folder::Entry> entries;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view at = entry->d_name;
    if (at == "." || at == "..") continue;
    if (entries.size() >= kMostEntries)
      throw Error(Code::kTooLarge, fmt::format("'{}': it has more than {} files", shown(name), kMostEntries));
    struct stat status {};
    if (!folder.status(entry->d_name, status)) continue;
    entries.push_back({std::string(at), S_ISREG(status.st_mode)   ? Folder::Kind::kFile
                                        : S_ISDIR(status.st_mode) ? Folder::Kind::kFolder
                                                                  : Folder::Kind::kOther});
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

// Opens the folder of this name in `folder`.
std::shared_ptr<const Folder::Handle> enter(const std::shared_ptr<const Folder::Handle>& folder,
                                            const std::string& name) {
  const int fd = folder->open(name, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return nullptr;
  auto inside = std::make_shared<Folder::Handle>(fd);
  if (!folder->follows) return inside;
  inside->follows = true;
  inside->top = folder->top != nullptr ? folder->top : folder;
  inside->at = folder->at.empty() ? name : folder->at + "/" + name;
  std::error_code unknown;
  const std::string top = std::filesystem::read_symlink(path_of(inside->top->fd), unknown).string() + "/";
  const std::string real = std::filesystem::read_symlink(path_of(fd), unknown).string();
  if (!unknown && real.starts_with(top)) inside->at = real.substr(top.size());
  return inside;
}

void add_prints(const std::shared_ptr<const Folder::Handle>& folder, const std::string& name, int depth,
                std::string& prints, const Skip& skip, size_t& entries) {
  if (depth > kDeepestFolder)
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}': folders within folders; at most {}", shown(name), kDeepestFolder));
  for (const Folder::Entry& entry : entries_of(*folder, name)) {
    if (skip && skip(entry.name)) continue;
    const std::string below = name.empty() ? entry.name : name + "/" + entry.name;
    if (++entries > kMostEntries)
      throw Error(Code::kTooLarge,
                  fmt::format("'{}': with all below it has more than {} files", shown(name), kMostEntries));
    struct stat status {};
    if (!folder->status(entry.name, status)) continue;
    if (S_ISLNK(status.st_mode)) refuse(below, ELOOP);
    if (S_ISDIR(status.st_mode)) {
      const auto inside = enter(folder, entry.name);
      if (inside == nullptr) refuse(below, errno);
      prints += below + "/\n";
      add_prints(inside, below, depth + 1, prints, {}, entries);
      continue;
    }
    if (!S_ISREG(status.st_mode))
      throw Error(Code::kInvalidArgument, fmt::format("'{}': it is neither a file nor a folder", shown(below)));
    if (status.st_nlink != 1)
      throw Error(Code::kInvalidArgument,
                  fmt::format("'{}': the file has {} names; a model's files must be its own: copy it", shown(below),
                              status.st_nlink));
    prints += fmt::format("{} {} {}.{} {} {}\n", below, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
                          status.st_dev, status.st_ino);
  }
}

}  // namespace

Folder Folder::open(const std::string& path, const std::string& what, Links links) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    throw Error(Code::kNotFound, fmt::format("{} '{}': {}; it must be a folder", what, shown(path), reason(errno)));
  const auto handle = std::make_shared<Handle>(fd);
  handle->follows = links == Links::kFollowedBeneath;
  return Folder(handle);
}

Folder Folder::make_private() {
  const char* const base = std::getenv("TMPDIR");
  std::string path = std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/sluice-model-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr)
    throw Error(Code::kUnavailable, "load: no folder for the model's files: " + reason(errno));
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) throw Error(Code::kUnavailable, "load: no folder for the model's files: " + reason(errno));
  auto handle = std::make_shared<Handle>(fd);
  handle->remove = path;
  return Folder(std::move(handle));
}

std::vector<Folder::Entry> Folder::list() const { return entries_of(*handle_, "."); }

std::optional<Folder> Folder::find(const std::string& name) const {
  if (auto inside = enter(handle_, name)) return Folder(std::move(inside));
  if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
  refuse(name, errno);
}

std::optional<std::string> Folder::read(const std::string& name, size_t most) const {
  const File file(handle_->open(name, O_RDONLY | O_NONBLOCK));
  if (file.fd() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    refuse(name, errno);
  }
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) refuse(name, errno);
  if (!S_ISREG(status.st_mode)) throw Error(Code::kInvalidArgument, fmt::format("'{}': it is no file", shown(name)));
  std::string content;
  while (content.size() <= most) {
    const size_t had = content.size();
    content.resize(had + std::min<size_t>(most + 1 - had, 65536));
    const ssize_t got = ::read(file.fd(), content.data() + had, content.size() - had);
    if (got < 0 && errno != EINTR) refuse(name, errno);
    content.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return content;
  }
  throw Error(Code::kTooLarge, fmt::format("'{}': it has more than {} bytes", shown(name), most));
}

void Folder::write(const std::string& name, const std::string& content) const {
  for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    // Every part before has just been made here, or is looked up beneath again.
    const std::string part = name.substr(0, slash);
    const size_t last = part.rfind('/');
    const File parent(last == std::string::npos
                          ? ::fcntl(handle_->fd, F_DUPFD_CLOEXEC, 0)
                          : open_beneath(handle_->fd, part.substr(0, last), O_RDONLY | O_DIRECTORY));
    if (parent.fd() < 0) refuse(name, errno);
    if (::mkdirat(parent.fd(), part.substr(last + 1).c_str(), 0700) != 0 && errno != EEXIST) refuse(name, errno);
  }
  const File file(open_beneath(handle_->fd, name, O_WRONLY | O_CREAT | O_EXCL));
  if (file.fd() < 0) refuse(name, errno);
  for (size_t at = 0; at < content.size();) {
    const ssize_t put = ::write(file.fd(), content.data() + at, content.size() - at);
    if (put < 0 && errno != EINTR) refuse(name, errno);
    at += static_cast<size_t>(std::max<ssize_t>(put, 0));
  }
}

std::string Folder::fingerprint(const Skip& skip) const {
  std::string prints;
  size_t entries = 0;
  add_prints(handle_, "", 0, prints, skip, entries);
  return prints;
}

std::string Folder::path() const { return path_of(handle_->fd); }

}  // namespace sluice::serving
