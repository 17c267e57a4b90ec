#include "base/files/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxText = uint64_t{1} << 30;

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

InputFile::InputFile(std::string path, Links links) : path_(std::move(path)) { open(AT_FDCWD, path_, links); }

InputFile::InputFile(std::string path, int folder, const std::string& name, Links links) : path_(std::move(path)) {
  open(folder, name, links);
}

InputFile::InputFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {
  SLUICE_CHECK_KIND(kIo, descriptor_ >= 0, "{}: cannot be read: {}", path_, std::strerror(errno));
  check_kind();
}

void InputFile::open(int folder, const std::string& name, Links links) {
  SLUICE_CHECK_KIND(kIo, path_.find('\0') == std::string::npos, "{}: cannot be read: a path holds no zero byte",
                    path_.c_str());
  // Without waiting: opening a pipe would otherwise block until someone writes to it.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (links == Links::kRefuse ? O_NOFOLLOW : 0);
  descriptor_ = ::openat(folder, name.c_str(), flags);
  const int error = errno;
  if (descriptor_ < 0 && error == ELOOP && links == Links::kRefuse) {
    fail(ErrorKind::kIo, "{}: cannot be read: it is a symbolic link; it must be a file in its directory", path_);
  }
  SLUICE_CHECK_KIND(kIo, descriptor_ >= 0, "{}: cannot be read: {}", path_, std::strerror(error));
  check_kind();
}

void InputFile::check_kind() {
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (known && S_ISREG(status.st_mode)) {
    size_ = static_cast<uint64_t>(status.st_size);
    return;
  }
  ::close(descriptor_);
  fail(ErrorKind::kIo, "{}: cannot be read: it is {}; it must be a regular file", path_,
       known ? kind_of(status.st_mode) : "unknown");
}

InputFile::InputFile(std::string path, std::span<const std::byte> bytes)
    : path_(std::move(path)), memory_(bytes.data()), size_(bytes.size()) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(void* data, uint64_t bytes) {
  read_at(position_, data, bytes);
  position_ += bytes;
}

void InputFile::read_at(uint64_t offset, void* data, uint64_t bytes) {
  auto* to = static_cast<char*>(data);
  uint64_t left = bytes;
  if (descriptor_ < 0) {
    SLUICE_CHECK_KIND(kIo, offset <= size_ && bytes <= size_ - offset,
                      "{}: cannot be read: {} bytes at {}; it has {} in all", path_, bytes, offset, size_);
    if (bytes > 0) std::memcpy(data, memory_ + offset, bytes);
    return;
  }
  while (left > 0) {
    const auto at = static_cast<off_t>(offset + (bytes - left));
    const ssize_t n = ::pread(descriptor_, to, std::min<uint64_t>(left, uint64_t{1} << 30), at);
    if (n < 0 && errno == EINTR) continue;
    SLUICE_CHECK_KIND(kIo, n >= 0, "{}: cannot be read: {}", path_, std::strerror(errno));
    SLUICE_CHECK_KIND(kIo, n > 0, "{}: cannot be read: it ends {} bytes too early; it had {} when it was opened", path_,
                      left, size_);
    to += n;
    left -= static_cast<uint64_t>(n);
  }
}

std::string InputFile::read_all() {
  SLUICE_CHECK_KIND(kIo, size_ <= kMaxText, "{}: cannot be read: {} bytes; at most {} of text are read", path_, size_,
                    kMaxText);
  std::string text(size_, '\0');
  read_at(0, text.data(), text.size());
  return text;
}

std::string read_file(const std::string& path, Links links) { return InputFile(path, links).read_all(); }

size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  size_t at = 0;
  while (at < text.size()) {
    const unsigned char first = byte(at);
    const size_t length = first < 0x80   ? 1
                          : first < 0xC2 ? 0
                          : first < 0xE0 ? 2
                          : first < 0xF0 ? 3
                          : first < 0xF5 ? 4
                                         : 0;
    if (length == 0 || text.size() - at < length) break;
    bool whole = true;
    for (size_t i = 1; i < length; ++i) whole &= (byte(at + i) & 0xC0) == 0x80;
    // Overlong forms, surrogates, and what lies beyond U+10FFFF.
    if (first == 0xE0) whole &= byte(at + 1) >= 0xA0;
    if (first == 0xED) whole &= byte(at + 1) < 0xA0;
    if (first == 0xF0) whole &= byte(at + 1) >= 0x90;
    if (first == 0xF4) whole &= byte(at + 1) < 0x90;
    if (!whole) break;
    at += length;
  }
  return at;
}

}  // namespace sluice
