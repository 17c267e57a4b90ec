#pragma once
// The server's own log: lines on stderr or in a file, switched while it runs (LogSettings; the logging extension).
// It belongs to the process, as stderr does.
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::serving {

enum class LogKind : uint8_t { kVerbose, kInfo, kWarning, kError };

struct LogSettings {
  bool info = false;  // sluice-serve switches it on; as a library the server tells of trouble only
  bool warning = true, error = true;
  uint32_t verbose_level = 0;  // lines about every request from 1 on
  bool iso8601 = false;        // "2026-01-31T23:59:59.123456Z I text" instead of "I0131 23:59:59.123456 text"
};

LogSettings log_settings();
void set_log_settings(const LogSettings& settings);
// Appends lines to a file from now on; "": stderr. Throws Error(kInvalidArgument) when it cannot be written.
void set_log_file(const std::string& path);
std::string log_file();

// Cheap: one relaxed load.
bool logs(LogKind kind, uint32_t verbose_level = 1);
// Writes the line if it is wanted. Control characters in it, which may come from clients, are escaped. Never throws.
void log_line(LogKind kind, std::string_view text, uint32_t verbose_level = 1) noexcept;
inline void log_info(std::string_view text) noexcept { log_line(LogKind::kInfo, text); }
inline void log_warning(std::string_view text) noexcept { log_line(LogKind::kWarning, text); }
inline void log_error(std::string_view text) noexcept { log_line(LogKind::kError, text); }

}  // namespace sluice::serving
