#include "base/files/spill_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace sluice {
namespace {

const char* system_reason(int error) { return std::strerror(error); }

// The system calls a file without a name after its number, and so do errors here.
std::string spill_name_of(int descriptor, const std::string& folder) {
  struct stat status {};
  fstat(descriptor, &status);
  return fmt::format("{}/#{}", folder, status.st_ino);
}

// A file that has no name from the start, where the disk's system of files can do that.
int open_unnamed(const std::string& folder) {
  const int made = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (made >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return made;
  std::string path = folder + "/sluice-spill-XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

}  // namespace

std::string spill_folder() {
  for (const char* name : {"SLUICE_SPILL_DIR", "TMPDIR"})
    if (const char* folder = std::getenv(name); folder != nullptr && *folder != '\0') return folder;
  return "/tmp";
}

SpillFile::SpillFile(const std::string& folder, uint64_t bytes) : bytes_(bytes), descriptor_(open_unnamed(folder)) {
  SLUICE_CHECK_KIND(kIo, descriptor_ >= 0,
                    "spill file in {}: cannot be made: {}; SLUICE_SPILL_DIR must name a folder that can be written to",
                    folder, system_reason(errno));
  path_ = spill_name_of(descriptor_, folder);
  const int error = bytes == 0 ? 0 : posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
  if (error == 0) return;
  close(descriptor_);
  fail(ErrorKind::kIo,
       "spill file {}: {} bytes cannot be reserved: {}; SLUICE_SPILL_DIR must name a folder with so much room", path_,
       bytes, system_reason(error));
}

SpillFile::~SpillFile() { close(descriptor_); }

void SpillFile::write(uint64_t offset, const void* data, uint64_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t wrote = pwrite(descriptor_, at + done, bytes - done, static_cast<off_t>(offset + done));
    if (wrote < 0 && errno == EINTR) continue;
    SLUICE_CHECK_KIND(kIo, wrote > 0, "spill file {}: {} bytes at {} cannot be written: {}", path_, bytes, offset,
                      system_reason(wrote < 0 ? errno : ENOSPC));
    done += static_cast<uint64_t>(wrote);
  }
  written_.fetch_add(bytes, std::memory_order_relaxed);
}

void SpillFile::read(uint64_t offset, void* data, uint64_t bytes) {
  auto* at = static_cast<std::byte*>(data);
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got = pread(descriptor_, at + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    SLUICE_CHECK_KIND(kIo, got > 0, "spill file {}: {} bytes at {} cannot be read: {}", path_, bytes, offset,
                      got < 0 ? system_reason(errno) : "the file ends before them");
    done += static_cast<uint64_t>(got);
  }
  read_.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace sluice
