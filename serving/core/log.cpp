#include "serving/core/log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <mutex>

#include "serving/core/error.h"

namespace sluice::serving {

namespace {

// One word: the verbose level in the upper 32 bits, switches in the lower.
constexpr uint64_t kWarningBit = 1, kErrorBit = 2, kInfoBit = 4, kIsoBit = 8;

uint64_t packed(const LogSettings& settings) {
  return uint64_t{settings.verbose_level} << 32 | (settings.warning ? kWarningBit : 0) |
         (settings.error ? kErrorBit : 0) | (settings.info ? kInfoBit : 0) | (settings.iso8601 ? kIsoBit : 0);
}

struct Log {
  std::atomic<uint64_t> settings{packed(LogSettings{})};
  std::mutex mutex;  // of what follows
  int fd = STDERR_FILENO;
  std::string file;
};

Log& the_log() {
  static Log& log = *new Log;  // lines may be written while the process ends
  return log;
}

std::string head_of(LogKind kind, bool iso8601) {
  const char letter = "VIWE"[static_cast<int>(kind)];
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const std::tm time = fmt::gmtime(static_cast<std::time_t>(us / 1000000));
  return iso8601 ? fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z {} ", time, us % 1000000, letter)
                 : fmt::format("{}{:%m%d %H:%M:%S}.{:06} ", letter, time, us % 1000000);
}

void append_escaped(std::string& line, std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      line += c;
  }
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // a full disk or a closed pipe must not stop the server
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

LogSettings log_settings() {
  const uint64_t word = the_log().settings.load(std::memory_order_relaxed);
  LogSettings settings;
  settings.info = (word & kInfoBit) != 0;
  settings.warning = (word & kWarningBit) != 0;
  settings.error = (word & kErrorBit) != 0;
  settings.iso8601 = (word & kIsoBit) != 0;
  settings.verbose_level = static_cast<uint32_t>(word >> 32);
  return settings;
}

void set_log_settings(const LogSettings& settings) {
  the_log().settings.store(packed(settings), std::memory_order_relaxed);
}

void set_log_file(const std::string& path) {
  int fd = STDERR_FILENO;
  if (!path.empty()) {
    fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (fd < 0)
      throw Error(Code::kInvalidArgument,
                  fmt::format("log file '{}': cannot be written: {}", path, std::strerror(errno)));
  }
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  if (log.fd != STDERR_FILENO) ::close(log.fd);
  log.fd = fd;
  log.file = path;
}

std::string log_file() {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  return log.file;
}

bool logs(LogKind kind, uint32_t verbose_level) {
  const uint64_t word = the_log().settings.load(std::memory_order_relaxed);
  switch (kind) {
    case LogKind::kVerbose: return (word >> 32) >= verbose_level;
    case LogKind::kInfo: return (word & kInfoBit) != 0;
    case LogKind::kWarning: return (word & kWarningBit) != 0;
    case LogKind::kError: return (word & kErrorBit) != 0;
  }
  return false;
}

void log_line(LogKind kind, std::string_view text, uint32_t verbose_level) noexcept try {
  if (!logs(kind, verbose_level)) return;
  Log& log = the_log();
  std::string line = head_of(kind, (log.settings.load(std::memory_order_relaxed) & kIsoBit) != 0);
  append_escaped(line, text);
  line += '\n';
  const std::lock_guard lock(log.mutex);
  write_all(log.fd, line);
} catch (...) {  // a line for which there is no memory is lost
}

}  // namespace sluice::serving
