#pragma once
// Medians, spreads, one JSON line per result, and the main() that prints them.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace sluice::bench {

inline double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}
inline double median(const std::vector<double>& values) { return quantile(values, 0.5); }
// Half the interquartile range over the median.
inline double spread(const std::vector<double>& values) {
  return (quantile(values, 0.75) - quantile(values, 0.25)) / 2 / median(values);
}

struct Line {
  std::string name;
  double ours = 0;
  double peer = 0;  // 0: none
  std::string peer_name, unit;
  size_t n = 0;
  double spread = 0;
  std::vector<std::pair<std::string, double>> also;  // further figures of the same unit, for information
};

// A ratio above 1 means ours is better; both figures are costs.
inline void print(const Line& line) {
  const auto number = [](double value) {
    char text[32] = "null";
    if (value != 0) std::snprintf(text, sizeof(text), "%.5g", value);
    return std::string(text);
  };
  std::string also;
  for (const auto& [name, value] : line.also) {
    also += (also.empty() ? ", \"also\": {\"" : ", \"") + name + "\": " + number(value);
  }
  if (!also.empty()) also += "}";
  std::printf(
      "{\"name\": \"%s\", \"ours\": %s, \"peer\": %s, \"peer_name\": \"%s\", \"unit\": \"%s\", "
      "\"ratio\": %s, \"n\": %zu, \"spread\": %.3g, \"command\": \"make bench ONLY=%s\"%s}\n",
      line.name.c_str(), number(line.ours).c_str(), number(line.peer).c_str(), line.peer_name.c_str(),
      line.unit.c_str(), number(line.peer / line.ours).c_str(), line.n, line.spread, line.name.c_str(), also.c_str());
  std::fflush(stdout);
}

// The measurements of a program, and the start of its results' names.
struct Benchmark {
  const char* name;
  void (*run)();
};

// main() of a program `program [PREFIX]`: runs those whose names start with the prefix.
inline int run_benchmarks(const char* program, std::initializer_list<Benchmark> benchmarks, int argc, char** argv) {
  const std::string prefix = argc > 1 ? argv[1] : "";
  try {
    for (const Benchmark& benchmark : benchmarks)
      if (std::string(benchmark.name).starts_with(prefix)) benchmark.run();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", program, e.what());
    return 1;
  }
}

}  // namespace sluice::bench
