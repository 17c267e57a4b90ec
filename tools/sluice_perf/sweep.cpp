#include "tools/sluice_perf/sweep.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>
#include <stdexcept>

namespace sluice::perf {

namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

double number_of(const std::string& text, const std::string& whole) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0) || value > 1e7)
    throw std::runtime_error(
        fmt::format("levels '{}': '{}' is no number above 0; write them as 4, 1:8, 1:8:2 or 1,2,4", whole, text));
  return value;
}

}  // namespace

std::vector<SweepValue> parse_sweep(const std::string& text) {
  std::vector<SweepValue> values;
  for (const std::string& part : split(text, ',')) {
    if (part.ends_with('%')) {
      values.push_back({number_of(part.substr(0, part.size() - 1), text), true});
      continue;
    }
    const std::vector<std::string> ends = split(part, ':');
    if (ends.empty() || ends.size() > 3 || part.ends_with(':')) number_of(part, text);  // which throws
    const double first = number_of(ends[0], text), last = ends.size() > 1 ? number_of(ends[1], text) : first;
    const double step = ends.size() > 2 ? number_of(ends[2], text) : 1;
    if (last < first || (last - first) / step > 1000)
      throw std::runtime_error(fmt::format("levels '{}': '{}' must go up, in at most 1000 steps", text, part));
    for (int i = 0; first + i * step <= last * (1 + 1e-9); ++i) values.push_back({first + i * step, false});
  }
  if (values.empty()) throw std::runtime_error("levels: none are given");
  return values;
}

}  // namespace sluice::perf
