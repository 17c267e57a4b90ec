#include "serving/core/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "serving/core/error.h"

namespace sluice::serving {

namespace {

bool write_at(int fd, std::string_view text, uint64_t offset) {
  while (!text.empty()) {
    const ssize_t n = ::pwrite(fd, text.data(), text.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return true;
}

}  // namespace

RecordFile::RecordFile(const std::string& path, Format format, uint64_t max_bytes)
    : format_(std::move(format)), max_bytes_(max_bytes) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
  if (fd_ < 0 || !write_at(fd_, format_.head + format_.tail, 0)) {
    const int error = errno;
    if (fd_ >= 0) ::close(fd_);
    throw Error(Code::kInvalidArgument, fmt::format("file '{}': cannot be written: {}", path, std::strerror(error)));
  }
  end_ = format_.head.size();
  thread_ = std::thread([this] { run(); });
}

RecordFile::~RecordFile() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  ::close(fd_);
}

void RecordFile::add(std::string record) noexcept try {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= kWaiting) {
      ++lost_;
      return;
    }
    waiting_.push_back(std::move(record));
  }
  changed_.notify_all();
} catch (...) {  // no memory for a record: it is lost
}

void RecordFile::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !busy_; });
}

uint64_t RecordFile::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void RecordFile::append(const std::string& record) {
  const std::string text = (any_ ? format_.separator : std::string()) + record + format_.tail;
  const bool fits = end_ + text.size() <= max_bytes_;
  if (!fits || !write_at(fd_, text, end_)) {
    const std::lock_guard lock(mutex_);
    ++lost_;
    return;
  }
  end_ += text.size() - format_.tail.size();
  any_ = true;
}

void RecordFile::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::string record = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    append(record);
    lock.lock();
    busy_ = false;
    if (waiting_.empty()) changed_.notify_all();
  }
}

}  // namespace sluice::serving
