#pragma once
// Logging: what happens, by area of the source tree, to stderr or SLUICE_LOG_FILE.
//
//   SLUICE_LOG=warn                        the default: warnings and errors of all areas
//   SLUICE_LOG=warn,plan=debug,actors=off  a level for all, then levels of areas; later entries win
//   SLUICE_LOG=info,json                   each line a JSON object: time, level, area, thread, text
//
// Levels: trace debug info warn error off. Areas: the folders of LogArea. A part that is none of these is named in one
// warning and ignored. A call below the level costs one relaxed load.
//
// Thread safety: everything, from any thread.
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <string_view>

namespace sluice {

enum class LogLevel : uint8_t { kTrace, kDebug, kInfo, kWarn, kError, kOff };
enum class LogArea : uint8_t {
  kBase,
  kPlan,
  kGraph,
  kCompiler,
  kStreams,
  kMemory,
  kKernels,
  kActors,
  kRuntime,
  kTensor,
  kPython
};
inline constexpr int kLogAreas = 11;

const char* log_level_name(LogLevel level);
const char* log_area_name(LogArea area);

// Sets all levels and the form from a text as in SLUICE_LOG. Throws kValue naming the first part that is wrong, and
// then changes nothing.
void set_log(std::string_view spec);
// The levels in force, in the form that set_log() takes.
std::string log_spec();
// Sets the function that takes finished lines, without their newlines; null: stderr or SLUICE_LOG_FILE again. Called by
// one thread at a time.
void set_log_sink(std::function<void(std::string_view line)> sink);

// Least level logged, by area. Starts as "read SLUICE_LOG first", which is below every level.
extern std::array<std::atomic<uint8_t>, kLogAreas> log_levels;

inline bool log_enabled(LogLevel level, LogArea area) {
  return static_cast<uint8_t>(level) >= log_levels[static_cast<size_t>(area)].load(std::memory_order_relaxed);
}
void log_message(LogLevel level, LogArea area, const std::string& text);

// Never throws: a line for which there is no memory is lost.
template <class... Args>
void log(LogLevel level, LogArea area, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (!log_enabled(level, area)) [[likely]]
    return;
  try {
    log_message(level, area, fmt::format(format, std::forward<Args>(args)...));
  } catch (...) {
  }
}

}  // namespace sluice
