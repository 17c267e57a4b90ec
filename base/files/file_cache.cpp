#include "base/files/file_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <random>
#include <tuple>
#include <vector>

#include "base/files/sha256.h"
#include "base/log.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostEntryBytes = uint64_t{1} << 30;
constexpr size_t kNameLength = 64;  // of a SHA-256 in hexadecimal
constexpr std::string_view kScratch = ".part-";
constexpr time_t kScratchSeconds = 3600;  // whoever writes longer is gone

class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  int get() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

bool of_the_user_alone(const struct stat& status) {
  return status.st_uid == ::geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// The folder; not valid where there is none. Throws kIo for one that others could have written to.
int open_directory(const std::string& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    SLUICE_CHECK_KIND(kIo, errno == ENOENT, "cache: {}: cannot be opened: {}", directory, std::strerror(errno));
    return -1;
  }
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && of_the_user_alone(status)) return descriptor;
  ::close(descriptor);
  fail(ErrorKind::kIo,
       "cache: {}: others may write to it; it must belong to the user, with no rights of others to write", directory);
}

std::string header_of(const std::string& name, std::string_view content) {
  return fmt::format("sluice cache 1 {} {}\n", name, sha256_hex(content));
}

bool is_entry(std::string_view name) {
  return name.size() == kNameLength && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Finer than the clock of the file system, which may stand still between two uses.
void mark_used(int descriptor) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const timespec times[2] = {now, now};
  ::futimens(descriptor, times);
}

void write_all(int descriptor, std::string_view bytes, const std::string& directory) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    SLUICE_CHECK_KIND(kIo, n > 0, "cache: {}: cannot be written: {}", directory, std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

struct Entry {
  timespec used{};
  uint64_t bytes = 0;
  std::string name;
  bool operator<(const Entry& other) const {
    return std::tie(used.tv_sec, used.tv_nsec, name) < std::tie(other.used.tv_sec, other.used.tv_nsec, other.name);
  }
};

// Lists the files that the folder has. Removes what writers that are gone have left.
std::vector<Entry> entries_of(int directory) {
  std::vector<Entry> entries;
  const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const all = copy < 0 ? nullptr : ::fdopendir(copy);
  if (all == nullptr) {
    if (copy >= 0) ::close(copy);
    return entries;
  }
  while (const dirent* one = ::readdir(all)) {
    const std::string_view name = one->d_name;
    struct stat status {};
    if (!is_entry(name) && !name.starts_with(kScratch)) continue;
    if (::fstatat(directory, one->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (is_entry(name)) {
      entries.push_back({status.st_mtim, static_cast<uint64_t>(status.st_size), std::string(name)});
    } else if (status.st_mtim.tv_sec + kScratchSeconds < ::time(nullptr)) {
      ::unlinkat(directory, one->d_name, 0);
    }
  }
  ::closedir(all);
  return entries;
}

}  // namespace

std::string cache_directory(const char* kind) {
  for (const auto& [variable, inside] :
       {std::pair{"SLUICE_CACHE_DIR", ""}, std::pair{"XDG_CACHE_HOME", "sluice"}, std::pair{"HOME", ".cache/sluice"}}) {
    const char* path = std::getenv(variable);
    if (path != nullptr && *path != '\0') return (fs::path(path) / inside / kind).string();
  }
  return {};
}

bool caches_are_on() {
  const char* const given = std::getenv("SLUICE_CACHE");
  return given == nullptr || std::string_view(given) != "off";
}

FileCache::FileCache(std::string directory, uint64_t most_bytes)
    : directory_(std::move(directory)), most_bytes_(most_bytes) {}

std::string FileCache::name_of(const std::string& key) { return sha256_hex(key); }

int FileCache::folder_to_read() {
  try {
    return open_directory(directory_);
  } catch (const Error& error) {
    warn(error);
    return -1;
  }
}

void FileCache::warn(const Error& error) {
  if (!warned_.exchange(true)) log(LogLevel::kWarn, LogArea::kBase, "{}; nothing is kept there", error.what());
}

std::optional<std::string> FileCache::read(const std::string& name) {
  const Descriptor folder(folder_to_read());
  if (!folder.valid()) return std::nullopt;
  const Descriptor file(::openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) return std::nullopt;
  SLUICE_CHECK_KIND(kIo, file.valid(), "cannot be read: {}", std::strerror(errno));
  struct stat status {};
  SLUICE_CHECK_KIND(kIo, ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) && of_the_user_alone(status),
                    "is no file of the user's alone");
  const auto size = static_cast<uint64_t>(status.st_size);
  SLUICE_CHECK_KIND(kIo, size <= kMostEntryBytes, "has {} bytes; at most {} are read", size, kMostEntryBytes);
  std::string all(size, '\0');
  size_t got = 0;
  while (got < all.size()) {
    const ssize_t n = ::read(file.get(), &all[got], all.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  all.resize(got);
  const size_t header = header_of(name, "").size();
  SLUICE_CHECK_KIND(kIo, all.size() >= header, "is cut off after {} bytes", all.size());
  const std::string_view content = std::string_view(all).substr(header);
  SLUICE_CHECK_KIND(kIo, all.compare(0, header, header_of(name, content)) == 0,
                    "is not what was put there: its hash differs");
  mark_used(file.get());
  all.erase(0, header);
  return all;
}

void FileCache::reject(const std::string& name, const char* why) {
  ++rejected_;
  log(LogLevel::kWarn, LogArea::kBase, "cache: {}/{}: {}; it is ignored, and made anew", directory_, name, why);
  const Descriptor folder(folder_to_read());
  if (folder.valid()) ::unlinkat(folder.get(), name.c_str(), 0);
}

void FileCache::put(const std::string& key, std::string_view content) {
  const std::string name = name_of(key);
  if (content.size() > most_bytes() || content.size() > kMostEntryBytes) {
    log(LogLevel::kInfo, LogArea::kBase, "cache: {}: {} bytes are more than it may have, and are not kept", directory_,
        content.size());
    return;
  }
  try {
    std::error_code made;
    // Folders that are made for it are nobody else's business either.
    if (fs::create_directories(directory_, made)) fs::permissions(directory_, fs::perms::owner_all, made);
    const Descriptor folder(open_directory(directory_));
    SLUICE_CHECK_KIND(kIo, folder.valid(), "cache: {}: cannot be made: {}", directory_, made.message());
    // Not by the process's number, which another container may have, too.
    std::random_device random;
    const std::string scratch = fmt::format("{}{:08x}{:08x}{:08x}", kScratch, random(), random(), random());
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    const Descriptor file(::openat(folder.get(), scratch.c_str(), flags, 0600));
    SLUICE_CHECK_KIND(kIo, file.valid(), "cache: {}: cannot be written: {}", directory_, std::strerror(errno));
    try {
      write_all(file.get(), header_of(name, content), directory_);
      write_all(file.get(), content, directory_);
      mark_used(file.get());
      SLUICE_CHECK_KIND(kIo, ::renameat(folder.get(), scratch.c_str(), folder.get(), name.c_str()) == 0,
                        "cache: {}: cannot be written: {}", directory_, std::strerror(errno));
    } catch (...) {
      ::unlinkat(folder.get(), scratch.c_str(), 0);
      throw;
    }
    ++stored_;
    evict(most_bytes());
  } catch (const Error& error) {
    warn(error);
  }
}

void FileCache::evict(uint64_t most_bytes) {
  const Descriptor folder(open_directory(directory_));
  if (!folder.valid()) return;
  std::vector<Entry> entries = entries_of(folder.get());
  uint64_t bytes = 0;
  for (const Entry& entry : entries) bytes += entry.bytes;
  if (bytes <= most_bytes) return;
  std::sort(entries.begin(), entries.end());
  for (const Entry& entry : entries) {
    if (bytes <= most_bytes) return;
    if (::unlinkat(folder.get(), entry.name.c_str(), 0) == 0) ++evicted_;
    bytes -= entry.bytes;
  }
}

void FileCache::set_most_bytes(uint64_t bytes) {
  most_bytes_.store(bytes, std::memory_order_relaxed);
  evict(bytes);
}

void FileCache::clear() { evict(0); }

FileCache::Stats FileCache::stats() const {
  Stats stats{hits_, misses_, stored_, evicted_, rejected_};
  try {
    const Descriptor folder(open_directory(directory_));
    if (!folder.valid()) return stats;
    for (const Entry& entry : entries_of(folder.get())) {
      ++stats.entries;
      stats.bytes += entry.bytes;
    }
  } catch (const Error&) {
    // It holds nothing that would be read.
  }
  return stats;
}

}  // namespace sluice
