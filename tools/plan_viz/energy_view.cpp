// energy: what a step of a running process costs, by the counters of energy that the processor has (RAPL).
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <thread>
#include <utility>

#include "plan/json/json.h"
#include "tools/plan_viz/live.h"
#include "tools/plan_viz/live_client.h"
#include "tools/plan_viz/text.h"

namespace sluice::plan_viz {

namespace {

namespace fs = std::filesystem;

// A counter of a package with all that is in it. It begins anew behind `range`.
struct EnergyCounter {
  fs::path file;
  std::string name;
  uint64_t range = 0, begin = 0;  // microjoules
};

std::optional<uint64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  uint64_t number = 0;
  if (in >> number) return number;
  return std::nullopt;
}

// The packages that can be read, or why none can.
std::vector<EnergyCounter> counters_in(const fs::path& folder, std::string& fault) {
  std::vector<EnergyCounter> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("intel-rapl:") || std::ranges::count(name, ':') != 1) continue;
    EnergyCounter counter{entry.path() / "energy_uj", name};
    std::ifstream(entry.path() / "name") >> counter.name;
    counter.range = number_in(entry.path() / "max_energy_range_uj").value_or(0);
    if (const std::optional<uint64_t> now = number_in(counter.file)) {
      counter.begin = *now;
      found.push_back(counter);
    } else {
      fault =
          fmt::format("{}: cannot be read; the system lets only its administrator, or nobody", counter.file.string());
    }
  }
  std::ranges::sort(found, {}, &EnergyCounter::file);
  if (found.empty() && fault.empty())
    fault =
        fmt::format("{}: has no intel-rapl; the processor, or the virtual machine, counts no energy", folder.string());
  return found;
}

uint64_t finished_in(const plan::LiveProcess& process, const std::string& only) {
  uint64_t finished = 0;
  for (const plan::LiveSession& session : process.sessions)
    if (only.empty() || session.name == only) finished += session.finished;
  return finished;
}

struct Spending {
  std::string fault;  // why there is none
  uint64_t steps = 0;
  double seconds = 0;
  std::vector<std::pair<std::string, double>> joules;  // by package
  double all = 0;
};

Spending spending_of(LiveClient& client, const LiveOptions& options, const std::string& folder) {
  Spending spent;
  plan::LiveProcess process;
  std::vector<EnergyCounter> counters = counters_in(folder, spent.fault);
  if (counters.empty()) return spent;
  spent.fault.clear();
  if (!client.ask_state(process)) return {.fault = "the process has ended", .joules = {}};
  const uint64_t before = finished_in(process, options.session);
  const int64_t begin_ns = process.clock_ns;
  std::this_thread::sleep_for(std::chrono::duration<double>(options.interval));
  if (!client.ask_state(process)) return {.fault = "the process has ended", .joules = {}};
  for (const EnergyCounter& counter : counters) {
    const uint64_t now = number_in(counter.file).value_or(counter.begin);
    const uint64_t used = now >= counter.begin ? now - counter.begin : now + counter.range - counter.begin;
    spent.joules.emplace_back(counter.name, static_cast<double>(used) / 1e6);
    spent.all += spent.joules.back().second;
  }
  spent.steps = finished_in(process, options.session) - before;
  spent.seconds = static_cast<double>(process.clock_ns - begin_ns) / 1e9;
  return spent;
}

}  // namespace

int show_energy(const LiveOptions& options, const std::string& folder) {
  LiveClient client(options.pid);
  const Spending spent = spending_of(client, options, folder);
  const double a_step = spent.steps > 0 ? spent.all / static_cast<double>(spent.steps) : 0;
  if (options.json) {
    std::string packages;
    for (const auto& [name, joules] : spent.joules)
      packages += fmt::format("{}{}: {}", packages.empty() ? "" : ", ", plan::quoted_json(name), joules);
    std::cout << fmt::format(
        "{{\"pid\": {}, \"available\": {}, \"why\": {}, \"steps\": {}, \"seconds\": {}, \"joules\": {{{}}}, "
        "\"joules_per_step\": {}}}\n",
        options.pid, spent.fault.empty(), plan::quoted_json(spent.fault), spent.steps, spent.seconds, packages, a_step);
  } else if (!spent.fault.empty()) {
    std::cout << "not available: " << spent.fault << "\n";
  } else {
    std::cout << (spent.steps > 0 ? fmt::format("{:.4g} J a step", a_step) : std::string("no step has ended"))
              << fmt::format(": {} in {:.3g} s", count_str(spent.steps, "step"), spent.seconds);
    for (const auto& [name, joules] : spent.joules)
      std::cout << fmt::format(", {} {:.4g} J ({:.3g} W)", name, joules, joules / std::max(1e-9, spent.seconds));
    std::cout << "\nwhatever else the machine does is in it\n";
  }
  return 0;
}

}  // namespace sluice::plan_viz
