#include <cmath>

#include "plan/json/json.h"
#include "plan/ranks.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

constexpr size_t kLanes = 40;  // of devices and of streams, without --all

std::string heading(const std::string& text, const TextOptions& options) {
  return "\n" + paint(text, Color::kBold, options) + "\n";
}

std::string devices_section(const Plan& plan, const Simulation& sim, const TextOptions& options) {
  std::vector<std::vector<std::string>> rows = {{"", "compute", "communication", "of it exposed", "bubble", "memory"}};
  const auto percent = [](double share) { return fmt::format("{:.1f}%", 100 * share); };
  const auto row = [&](const std::string& name, const DeviceUse& use) {
    rows.push_back({name, percent(use.compute), percent(use.communication), percent(use.exposed), percent(use.bubble),
                    short_bytes(use.bytes)});
  };
  const std::vector<DeviceUse> uses = device_use(plan, sim);
  DeviceUse mean;
  for (const DeviceUse& use : uses) {
    const double share = 1 / static_cast<double>(uses.size());
    mean.compute += use.compute * share, mean.communication += use.communication * share;
    mean.exposed += use.exposed * share, mean.bubble += use.bubble * share;
    mean.bytes = std::max(mean.bytes, use.bytes);
  }
  for (size_t i = 0; i < uses.size() && (options.all || i < kLanes); ++i) row(uses[i].device.str(), uses[i]);
  if (!options.all && uses.size() > kLanes) rows.push_back({fmt::format("… {} more (--all)", uses.size() - kLanes)});
  if (uses.size() > 1) row("mean; most memory", mean);
  return heading("devices, in the steady state", options) +
         table(rows, {false, true, true, true, true, true}, options.width);
}

char letter_of(int actor) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  return kLetters[static_cast<size_t>(actor) % kLetters.size()];
}

// A line of so many cells for each stream: the letter of the actor that fires, '-' where it waits for other ranks, '.'
// where nothing does.
std::vector<std::string> lanes_of(const Plan& plan, const Simulation& sim, size_t cells) {
  std::vector<std::string> lanes(plan.streams.size(), std::string(cells, '.'));
  if (sim.total_ns <= 0) return lanes;
  const auto cell = [&](double t) {
    return std::min(cells - 1, static_cast<size_t>(t / sim.total_ns * static_cast<double>(cells)));
  };
  for (const SimFiring& f : sim.firings) {
    std::string& lane = lanes[plan.actors[f.actor].stream];
    const size_t first = cell(f.begin_ns), last = cell(std::nextafter(f.end_ns, 0.0));
    if (f.end_ns == f.begin_ns) {
      if (lane[first] == '.') lane[first] = letter_of(f.actor);
      continue;
    }
    for (size_t c = first; c <= last; ++c) lane[c] = letter_of(f.actor);
  }
  for (const bool waits : {true, false}) {  // what moves is drawn over what waits
    for (const SimKernel& k : sim.kernels) {
      if (k.met_ns == k.begin_ns) continue;
      const int actor = sim.firings[k.firing].actor;
      std::string& lane = lanes[plan.actors[actor].stream];
      const size_t first = cell(waits ? k.begin_ns : k.met_ns), last = cell(waits ? k.met_ns : k.end_ns);
      std::fill(lane.begin() + first, lane.begin() + last + 1, waits ? '-' : letter_of(actor));
    }
  }
  return lanes;
}

// The lanes of streams, and which actor each letter is.
std::string streams_section(const Plan& plan, const Simulation& sim, const TextOptions& options) {
  std::string s = heading("streams", options);
  const std::vector<int> order = streams_by_device(plan);
  const size_t shown = options.all ? order.size() : std::min(order.size(), kLanes);
  size_t name_width = 6;
  for (size_t i = 0; i < shown; ++i) name_width = std::max(name_width, columns(stream_label(plan, order[i])));
  const std::vector<std::string> lanes =
      lanes_of(plan, sim, static_cast<size_t>(std::max(20, options.width - static_cast<int>(name_width) - 14)));
  for (size_t i = 0; i < shown; ++i) {
    const double busy = sim.total_ns > 0 ? 100 * sim.stream_busy_ns[order[i]] / sim.total_ns : 0;
    s += "  " + padded(stream_label(plan, order[i]), name_width) + fmt::format(" {:>4.0f}%  ", busy) + lanes[order[i]] +
         "\n";
  }
  if (shown < order.size()) s += fmt::format("  … {} more (--all)\n", order.size() - shown);
  std::string legend = "  ";
  constexpr int kNamed = 24;
  for (int a = 0; a < static_cast<int>(plan.actors.size()) && a < kNamed; ++a)
    legend += fmt::format("{}{}={}", a ? " " : "", letter_of(a), plan.actors[a].name);
  if (plan.actors.size() > kNamed) legend += " …";
  s += cut(legend, static_cast<size_t>(options.width)) + "\n";
  return together(plan) ? s + "  - waits for other ranks\n" : s;
}

std::string registers_section(const Plan& plan, const Simulation& sim, const TextOptions& options) {
  std::vector<std::vector<std::string>> rows;
  constexpr size_t kRegisters = 100;
  size_t hidden = 0;
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    if (plan.registers[r].bytes == 0) continue;
    if (!options.all && rows.size() == kRegisters) {
      ++hidden;
      continue;
    }
    rows.push_back({plan.registers[r].name, fmt::format("{} of {}", sim.peak_slots[r], plan.registers[r].quota),
                    short_bytes(plan.registers[r].bytes)});
  }
  const std::string s =
      heading("registers, most slots in use at once", options) + table(rows, {false, true, true}, options.width);
  return hidden ? s + fmt::format("  … {} more (--all)\n", hidden) : s;
}

}  // namespace

std::string simulate_text(const Plan& plan, const SimulateOptions& simulate_options, const TextOptions& options) {
  const Simulation sim = simulate(plan, simulate_options);
  std::string s =
      paint(fmt::format("plan '{}', {} in virtual time", plan.name, count_str(simulate_options.steps, "step")),
            Color::kBold, options) +
      "\n";
  if (sim.deadlocked) {
    return s + paint("  it blocks: ", Color::kRed, options) +
           (sim.blocked.empty() ? "too few start credits for one period" : sim.blocked) + "\n";
  }
  if (sim.total_ns == 0) s += "  the plan's kernels have no predicted costs: all times are zero\n";
  s += table({{"period", time_str(sim.period_ns), "per step, steady"}, {"all steps", time_str(sim.total_ns), ""}},
             {false, true, false}, options.width);
  if (!sim.critical.empty()) s += wrapped("  critical cycle: " + critical_str(plan, sim.critical), options.width);
  return s + devices_section(plan, sim, options) + streams_section(plan, sim, options) +
         registers_section(plan, sim, options);
}

std::string simulate_json(const Plan& plan, const SimulateOptions& simulate_options) {
  const Simulation sim = simulate(plan, simulate_options);
  std::string s = fmt::format(
      "{{\"name\": {}, \"steps\": {}, \"period_ns\": {}, \"total_ns\": {}, \"deadlocked\": {}, \"blocked\": {}, "
      "\"critical\": {}, \"devices\": [",
      quoted_json(plan.name), simulate_options.steps, sim.period_ns, sim.total_ns, sim.deadlocked,
      quoted_json(sim.blocked), quoted_json(critical_str(plan, sim.critical)));
  const char* comma = "";
  for (const DeviceUse& use : device_use(plan, sim)) {
    s += fmt::format(
        "{}\n  {{\"device\": \"{}\", \"compute\": {}, \"communication\": {}, \"exposed\": {}, \"bubble\": {}, "
        "\"bytes\": {}}}",
        comma, use.device.str(), use.compute, use.communication, use.exposed, use.bubble, use.bytes);
    comma = ",";
  }
  s += "],\n\"firings\": [";
  for (size_t i = 0; i < sim.firings.size(); ++i) {
    const SimFiring& f = sim.firings[i];
    s += fmt::format("{}\n  {{\"actor\": {}, \"firing\": {}, \"begin_ns\": {}, \"end_ns\": {}}}", i ? "," : "",
                     quoted_json(plan.actors[f.actor].name), f.firing, f.begin_ns, f.end_ns);
  }
  s += "],\n\"peak_slots\": {";
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    s += fmt::format("{}{}: {}", r ? ", " : "", quoted_json(plan.registers[r].name), sim.peak_slots[r]);
  }
  return s + "}}\n";
}

}  // namespace sluice::plan_viz
