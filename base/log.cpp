#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

namespace sluice {
namespace {

LogLevel level_from_environment() {
  const char* env = std::getenv("SLUICE_LOG");
  const std::string_view name = env ? env : "warn";
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "error") return LogLevel::kError;
  if (name == "off") return LogLevel::kOff;
  return LogLevel::kWarn;
}

std::atomic<LogLevel>& current_level() {
  static std::atomic<LogLevel> level{level_from_environment()};
  return level;
}

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger l("sluice", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    l.set_pattern("%H:%M:%S.%e %^%l%$ %v");
    l.set_level(spdlog::level::debug);
    return l;
  }();
  return instance;
}

}  // namespace

bool log_enabled(LogLevel level) { return level >= current_level().load(std::memory_order_relaxed); }
void set_log_level(LogLevel level) { current_level().store(level, std::memory_order_relaxed); }

void log_message(LogLevel level, const char* area, const std::string& text) {
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                          spdlog::level::warn, spdlog::level::err, spdlog::level::off};
  logger().log(kLevels[static_cast<int>(level)], "{}: {}", area, text);
}

}  // namespace sluice
