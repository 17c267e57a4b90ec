#include "base/log.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/details/os.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/json_text.h"

namespace sluice {

std::array<std::atomic<uint8_t>, kLogAreas> log_levels{};

namespace {

constexpr const char* kLevels[] = {"trace", "debug", "info", "warn", "error", "off"};
constexpr const char* kAreas[kLogAreas] = {"base",    "plan",   "graph",   "compiler", "streams", "memory",
                                           "kernels", "actors", "runtime", "tensor",   "python"};
constexpr const char* kTextPattern = "%H:%M:%S.%e %^%l%$ %v";
constexpr const char* kJsonPattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%f%z",%v})";

template <size_t n>
int index_of(const char* const (&names)[n], std::string_view name) {
  const auto it = std::find(std::begin(names), std::end(names), name);
  return it == std::end(names) ? -1 : static_cast<int>(it - std::begin(names));
}

struct Settings {
  std::array<LogLevel, kLogAreas> levels;
  bool json = false;
  Settings() { levels.fill(LogLevel::kWarn); }
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Reads what it can; appends a description of every part it cannot.
Settings parse(std::string_view spec, std::vector<std::string>& problems) {
  Settings settings;
  while (!spec.empty()) {
    const size_t comma = spec.find(',');
    const std::string_view part = trimmed(spec.substr(0, comma));
    spec = comma == std::string_view::npos ? std::string_view() : spec.substr(comma + 1);
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      const int level = index_of(kLevels, part);
      if (part == "json") {
        settings.json = true;
      } else if (level >= 0) {
        settings.levels.fill(static_cast<LogLevel>(level));
      } else {
        problems.push_back(
            fmt::format("'{}'; must be a level ({}), area=level or json", part, fmt::join(kLevels, ", ")));
      }
      continue;
    }
    const std::string_view area_name = trimmed(part.substr(0, equals)), level_name = trimmed(part.substr(equals + 1));
    const int area = index_of(kAreas, area_name), level = index_of(kLevels, level_name);
    if (area < 0) {
      problems.push_back(fmt::format("'{}': no area '{}'; the areas are {}", part, area_name, fmt::join(kAreas, ", ")));
    } else if (level < 0) {
      problems.push_back(
          fmt::format("'{}': no level '{}'; the levels are {}", part, level_name, fmt::join(kLevels, ", ")));
    } else {
      settings.levels[static_cast<size_t>(area)] = static_cast<LogLevel>(level);
    }
  }
  return settings;
}

// Hands lines to a function.
class FunctionSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit FunctionSink(std::function<void(std::string_view)> take) : take_(std::move(take)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string_view text(line.data(), line.size());
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
    take_(text);
  }
  void flush_() override {}

  std::function<void(std::string_view)> take_;
};

class Log {
 public:
  // Lives as long as the process: threads may log while it ends.
  static Log& instance() {
    static Log* log = new Log();
    return *log;
  }

  void set(const Settings& settings) {
    std::lock_guard lock(mutex_);
    apply(settings);
  }
  std::string spec() {
    std::lock_guard lock(mutex_);
    std::array<int, std::size(kLevels)> uses{};
    for (const LogLevel level : settings_.levels) ++uses[static_cast<size_t>(level)];
    const auto common = static_cast<size_t>(std::max_element(uses.begin(), uses.end()) - uses.begin());
    std::string spec = kLevels[common];
    for (size_t a = 0; a < kLogAreas; ++a) {
      const auto level = static_cast<size_t>(settings_.levels[a]);
      if (level != common) spec += fmt::format(",{}={}", kAreas[a], kLevels[level]);
    }
    return settings_.json ? spec + ",json" : spec;
  }
  void set_sink(std::function<void(std::string_view)> take) {
    std::lock_guard lock(mutex_);
    if (take) {
      use(std::make_unique<FunctionSink>(std::move(take)));
    } else {
      use_default();
    }
  }
  void write(LogLevel level, LogArea area, const std::string& text) {
    std::lock_guard lock(mutex_);
    if (level >= settings_.levels[static_cast<size_t>(area)]) put(level, area, text);
  }

 private:
  Log() {
    std::lock_guard lock(mutex_);
    const char* spec = std::getenv("SLUICE_LOG");
    std::vector<std::string> problems;
    apply(parse(spec != nullptr ? spec : "", problems));
    use_default();
    for (const std::string& problem : problems) put(LogLevel::kWarn, LogArea::kBase, "SLUICE_LOG: ignored: " + problem);
  }

  void apply(const Settings& settings) {
    settings_ = settings;
    for (size_t a = 0; a < kLogAreas; ++a) {
      log_levels[a].store(static_cast<uint8_t>(settings.levels[a]), std::memory_order_relaxed);
    }
    if (sink_ != nullptr) sink_->set_pattern(settings.json ? kJsonPattern : kTextPattern);
  }
  void use(std::unique_ptr<spdlog::sinks::sink> sink) {
    sink_ = std::move(sink);
    sink_->set_pattern(settings_.json ? kJsonPattern : kTextPattern);
  }
  void use_default() {
    const char* file = std::getenv("SLUICE_LOG_FILE");
    if (file != nullptr && *file != '\0') {
      try {
        use(std::make_unique<spdlog::sinks::basic_file_sink_st>(file));
        return;
      } catch (const std::exception& e) {
        use(std::make_unique<spdlog::sinks::stderr_color_sink_st>());
        put(LogLevel::kWarn, LogArea::kBase,
            fmt::format("SLUICE_LOG_FILE: cannot be written: {}; using stderr", e.what()));
        return;
      }
    }
    use(std::make_unique<spdlog::sinks::stderr_color_sink_st>());
  }
  void put(LogLevel level, LogArea area, const std::string& text) {
    static constexpr spdlog::level::level_enum kSpdlogLevels[] = {spdlog::level::trace, spdlog::level::debug,
                                                                  spdlog::level::info,  spdlog::level::warn,
                                                                  spdlog::level::err,   spdlog::level::off};
    const std::string body =
        settings_.json ? fmt::format(R"("level":"{}","area":"{}","thread":{},"text":{})", log_level_name(level),
                                     log_area_name(area), spdlog::details::os::thread_id(), quoted_json(text))
                       : fmt::format("{}: {}", log_area_name(area), text);
    sink_->log(spdlog::details::log_msg("sluice", kSpdlogLevels[static_cast<size_t>(level)], body));
    sink_->flush();
  }

  std::mutex mutex_;
  Settings settings_;
  std::unique_ptr<spdlog::sinks::sink> sink_;
};

}  // namespace

const char* log_level_name(LogLevel level) { return kLevels[static_cast<size_t>(level)]; }
const char* log_area_name(LogArea area) { return kAreas[static_cast<size_t>(area)]; }

void set_log(std::string_view spec) {
  std::vector<std::string> problems;
  const Settings settings = parse(spec, problems);
  if (!problems.empty()) fail(ErrorKind::kValue, "log: bad part {}", problems.front());
  Log::instance().set(settings);
}
std::string log_spec() { return Log::instance().spec(); }
void set_log_sink(std::function<void(std::string_view line)> sink) { Log::instance().set_sink(std::move(sink)); }

void log_message(LogLevel level, LogArea area, const std::string& text) { Log::instance().write(level, area, text); }

}  // namespace sluice
