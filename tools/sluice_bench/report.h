#pragma once
// Measurements as Google Benchmark prints them, so that its compare.py and dashboards read them.
#include <string>
#include <string_view>
#include <vector>

#include "tools/sluice_bench/measure.h"

namespace sluice::bench {

enum class TimeUnit { kNs, kUs, kMs, kS };
TimeUnit parse_time_unit(std::string_view text);  // throws std::invalid_argument

// The machine, as "context" tells of it.
struct Context {
  std::string date, executable;
  int cpus = 0;
  std::vector<double> load;
};
Context context_here(const std::string& executable);

// A table for people, whose columns fit `names`.
std::string console_head(const std::vector<std::string>& names);
std::string console_row(const Measured& row, TimeUnit unit, const std::vector<std::string>& names);
std::string json_text(const Context& context, const std::vector<Measured>& rows, TimeUnit unit);
std::string csv_text(const std::vector<Measured>& rows, TimeUnit unit);

}  // namespace sluice::bench
