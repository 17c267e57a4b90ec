#include "tools/sluice_bench/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <stdexcept>

#include "base/json_text.h"

namespace sluice::bench {
namespace {

struct Unit {
  const char* name;
  double ns;
};
constexpr std::array<Unit, 4> kUnits = {{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};

const Unit& of(TimeUnit unit) { return kUnits[static_cast<size_t>(unit)]; }

std::string full_name(const Measured& row) { return row.name + (row.aggregate.empty() ? "" : "_" + row.aggregate); }

// A share of the mean has no unit.
double in_unit(const Measured& row, double ns, TimeUnit unit) { return row.aggregate == "cv" ? ns : ns / of(unit).ns; }

std::string shortened(double value) {
  if (value >= 1e9) return fmt::format("{:.4g}G", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

size_t name_width(const std::vector<std::string>& names) {
  constexpr size_t kAggregate = 7;  // "_median", "_stddev"
  size_t width = 10;
  for (const std::string& name : names) width = std::max(width, name.size() + kAggregate);
  return width;
}

std::string time_text(const Measured& row, double ns, TimeUnit unit) {
  if (row.aggregate == "cv") return fmt::format("{:>11.2f} %", ns * 100);
  const double value = ns / of(unit).ns;
  return fmt::format("{:>10.{}f} {}", value, value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0, of(unit).name);
}

}  // namespace

TimeUnit parse_time_unit(std::string_view text) {
  for (size_t i = 0; i < kUnits.size(); ++i)
    if (text == kUnits[i].name) return static_cast<TimeUnit>(i);
  throw std::invalid_argument(fmt::format("time unit '{}'; it must be ns, us, ms or s", text));
}

Context context_here(const std::string& executable) {
  Context context;
  context.executable = executable;
  context.cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 40> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S%z", &local);
  context.date = text.data();
  if (context.date.size() > 2) context.date.insert(context.date.size() - 2, ":");
  std::array<double, 3> load{};
  const int known = getloadavg(load.data(), static_cast<int>(load.size()));
  context.load.assign(load.begin(), load.begin() + std::max(known, 0));
  return context;
}

std::string console_head(const std::vector<std::string>& names) {
  const size_t width = name_width(names);
  const std::string head =
      fmt::format("{:<{}} {:>13} {:>13} {:>10} UserCounters...", "Benchmark", width, "Time", "CPU", "Iterations");
  return std::string(head.size(), '-') + "\n" + head + "\n" + std::string(head.size(), '-') + "\n";
}

std::string console_row(const Measured& row, TimeUnit unit, const std::vector<std::string>& names) {
  const std::string items = row.aggregate == "cv" ? fmt::format("{:.2f}%", row.items_per_second * 100)
                                                  : shortened(row.items_per_second) + "/s";
  return fmt::format("{:<{}} {} {} {:>10} items_per_second={}\n", full_name(row), name_width(names),
                     time_text(row, row.real_ns, unit), time_text(row, row.cpu_ns, unit), row.iterations, items);
}

std::string json_text(const Context& context, const std::vector<Measured>& rows, TimeUnit unit) {
  std::string load;
  for (const double value : context.load) load += fmt::format("{}{:g}", load.empty() ? "" : ",", value);
  std::string text = fmt::format(
      "{{\n  \"context\": {{\n    \"date\": {},\n    \"executable\": {},\n    \"num_cpus\": {},\n"
      "    \"load_avg\": [{}],\n    \"library_build_type\": \"release\"\n  }},\n  \"benchmarks\": [",
      quoted_json(context.date), quoted_json(context.executable), context.cpus, load);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Measured& row = rows[i];
    const std::string kind =
        row.aggregate.empty()
            ? fmt::format("\"run_type\": \"iteration\",\n      \"repetitions\": {},\n      \"repetition_index\": {}",
                          row.repetitions, row.repetition)
            : fmt::format(
                  "\"run_type\": \"aggregate\",\n      \"repetitions\": {},\n      \"aggregate_name\": {},\n"
                  "      \"aggregate_unit\": {}",
                  row.repetitions, quoted_json(row.aggregate), row.aggregate == "cv" ? "\"percentage\"" : "\"time\"");
    text += fmt::format(
        "{}\n    {{\n      \"name\": {},\n      \"run_name\": {},\n      {},\n      \"threads\": 1,\n"
        "      \"iterations\": {},\n      \"real_time\": {:.6e},\n      \"cpu_time\": {:.6e},\n"
        "      \"time_unit\": \"{}\",\n      \"items_per_second\": {:.6e}\n    }}",
        i > 0 ? "," : "", quoted_json(full_name(row)), quoted_json(row.name), kind, row.iterations,
        in_unit(row, row.real_ns, unit), in_unit(row, row.cpu_ns, unit), of(unit).name, row.items_per_second);
  }
  return text + "\n  ]\n}\n";
}

std::string csv_text(const std::vector<Measured>& rows, TimeUnit unit) {
  std::string text =
      "name,iterations,real_time,cpu_time,time_unit,bytes_per_second,items_per_second,label,error_occurred,"
      "error_message\n";
  for (const Measured& row : rows)
    text += fmt::format("{},{},{:g},{:g},{},,{:g},,,\n", quoted_json(full_name(row)), row.iterations,
                        in_unit(row, row.real_ns, unit), in_unit(row, row.cpu_ns, unit),
                        row.aggregate == "cv" ? "" : of(unit).name, row.items_per_second);
  return text;
}

}  // namespace sluice::bench
