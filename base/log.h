#pragma once
// Logging: one spdlog logger per area, level from SLUICE_LOG ("warn" by default).
#include <fmt/format.h>

#include <string>

namespace sluice {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

bool log_enabled(LogLevel level);
void log_message(LogLevel level, const char* area, const std::string& text);
void set_log_level(LogLevel level);

template <class... Args>
void log(LogLevel level, const char* area, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_message(level, area, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sluice
