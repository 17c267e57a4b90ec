#include "serving/program/arguments.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <sstream>
#include <stdexcept>

namespace sluice::serving {

namespace {

template <class... Args>
[[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) {
  throw std::runtime_error(fmt::format(format, std::forward<Args>(args)...));
}

template <class T>
T number_of(const std::string& option, const std::string& text, T least) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least)
    wrong("{}: '{}'; it must be a whole number of at least {}", option, text, least);
  return value;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

void set_trace(TraceOptions& trace, const std::string& key, const std::string& value) {
  const std::string option = "--trace-config " + key;
  if (key == "file") {
    trace.file = value;
  } else if (key == "level") {
    if (value != "OFF" && value != "TIMESTAMPS" && value != "TENSORS")
      wrong("{}: '{}'; it must be TIMESTAMPS, TENSORS or OFF", option, value);
    if (value == "OFF")
      trace.level.clear();
    else
      trace.level.push_back(value);
  } else if (key == "rate") {
    trace.rate = number_of<uint32_t>(option, value, 1);
  } else if (key == "count") {
    trace.count = number_of<int64_t>(option, value, -1);
  } else if (key == "log-frequency") {
    trace.log_frequency = number_of<uint32_t>(option, value, 0);
  } else if (key == "mode") {
    if (value != "triton" && value != "opentelemetry")
      wrong("{}: '{}'; it must be triton or opentelemetry", option, value);
    trace.mode = value == "triton" ? TraceMode::kTriton : TraceMode::kOpenTelemetry;
  } else if (key == "url") {
    wrong("{}: traces are written to a file only; give file=PATH, and let a collector read that file", option);
  } else {
    wrong("--trace-config: '{}' is no setting; there are file, level, rate, count, mode and log-frequency", key);
  }
}

}  // namespace

uint64_t parse_bytes(const std::string& option, const std::string& text) {
  constexpr std::array<const char*, 5> kUnits = {"", "k", "m", "g", "t"};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit = lower(std::string(end, text.data() + text.size()));
  while (!unit.empty() && unit.front() == ' ') unit.erase(0, 1);
  for (const char* tail : {"ib", "b"})
    if (unit.ends_with(tail)) {
      unit.resize(unit.size() - std::strlen(tail));
      break;
    }
  const auto* const found = std::find(kUnits.begin(), kUnits.end(), unit);
  const double bytes = value * std::pow(1024.0, static_cast<double>(found - kUnits.begin()));
  if (error != std::errc() || found == kUnits.end() || !(value >= 0) || !(bytes < 1ull << 60u) ||
      bytes != std::floor(bytes))
    wrong("{}: '{}'; it must be a number of bytes, as in 1048576, 512MiB or 2GiB", option, text);
  return static_cast<uint64_t>(bytes);
}

void parse_rate_limit(const std::string& text, std::map<std::string, uint32_t>& resources) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0)
    wrong("--rate-limit-resource: '{}'; it must be NAME:COUNT, as in disk:2", text);
  if (text.find(':', colon + 1) != std::string::npos)
    wrong("--rate-limit-resource: '{}'; resources are of the whole server, not of a device: write {}", text,
          text.substr(0, text.rfind(':')));
  resources[text.substr(0, colon)] = number_of<uint32_t>("--rate-limit-resource", text.substr(colon + 1), 1);
}

void parse_trace(const std::string& text, TraceOptions& trace) {
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    if (part == "triton" || part == "opentelemetry") continue;
    const size_t equals = part.find('=');
    if (equals == std::string::npos) wrong("--trace-config: '{}'; it must be KEY=VALUE, as in file=trace.json", part);
    set_trace(trace, part.substr(0, equals), part.substr(equals + 1));
  }
}

void parse_metrics(const std::string& text, MetricsOptions& metrics) {
  const size_t equals = text.find('=');
  const std::string key = text.substr(0, equals), value = equals == std::string::npos ? "" : text.substr(equals + 1);
  const auto flag = [&] {
    if (value != "true" && value != "false") wrong("--metrics-config {}: '{}'; it must be true or false", key, value);
    return value == "true";
  };
  if (key == "counter_latencies") {
    metrics.counters = flag();
  } else if (key == "summary_latencies") {
    metrics.summaries = flag();
  } else if (key == "histogram_latencies") {
    metrics.histograms = flag();
  } else if (key == "summary_quantiles") {
    metrics.quantiles.clear();
    std::istringstream parts(value);
    for (std::string part; std::getline(parts, part, ',');) {
      double quantile = -1;  // an error behind ':' says how exact Triton is to be; ours are to 3 %
      const std::string number = part.substr(0, part.find(':'));
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), quantile);
      if (error != std::errc() || end != number.data() + number.size() || !(quantile >= 0 && quantile <= 1))
        wrong("--metrics-config {}: '{}'; it must be like 0.5:0.05,0.99:0.001", key, part);
      metrics.quantiles.push_back(quantile);
    }
    if (metrics.quantiles.empty()) wrong("--metrics-config {}: none; it must be like 0.5:0.05,0.99:0.001", key);
  } else {
    wrong(
        "--metrics-config: '{}' is no setting; there are counter_latencies, summary_latencies, summary_quantiles and "
        "histogram_latencies",
        key);
  }
}

void parse_request_log(const std::string& file, double share, const std::string& max_bytes, RequestLogOptions& log) {
  if (!(share > 0 && share <= 1)) wrong("--request-log-share: {}; it must be above 0 and at most 1", share);
  log.file = file;
  log.share = share;
  log.max_bytes = parse_bytes("--request-log-max", max_bytes);
}

std::string read_token(const std::string& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    wrong("--management-token-file '{}': {}", file, std::strerror(error));
  }
  std::string text(4097, '\0');
  const ssize_t n = ::read(fd, text.data(), text.size());
  ::close(fd);
  text.resize(n < 0 ? 0 : static_cast<size_t>(n));
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
  if ((info.st_mode & (S_IRGRP | S_IROTH)) != 0)
    wrong("--management-token-file '{}': others can read it; run chmod 600 on it first", file);
  const bool printable = std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (text.size() < 16 || text.size() > 4096 || !printable)
    wrong("--management-token-file '{}': it must hold one line of 16 to 4096 letters, digits or signs", file);
  return text;
}

}  // namespace sluice::serving
