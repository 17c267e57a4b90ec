#include <cmath>

#include "plan/json.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

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
  if (!sim.critical.empty()) s += "  critical cycle: " + critical_str(plan, sim.critical) + "\n";

  s += "\n" + paint("streams", Color::kBold, options) + "\n";
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  const auto letter = [&](int actor) { return kLetters[static_cast<size_t>(actor) % kLetters.size()]; };
  size_t name_width = 6;
  for (const Stream& stream : plan.streams) name_width = std::max(name_width, columns(stream.name));
  const size_t cells = static_cast<size_t>(std::max(20, options.width - static_cast<int>(name_width) - 14));
  std::vector<std::string> lanes(plan.streams.size(), std::string(cells, '.'));
  if (sim.total_ns > 0) {
    for (const SimFiring& f : sim.firings) {
      const auto cell = [&](double t) {
        return std::min(cells - 1, static_cast<size_t>(t / sim.total_ns * static_cast<double>(cells)));
      };
      std::string& lane = lanes[plan.actors[f.actor].stream];
      const size_t first = cell(f.begin_ns), last = cell(std::nextafter(f.end_ns, 0.0));
      if (f.end_ns == f.begin_ns) {
        if (lane[first] == '.') lane[first] = letter(f.actor);
        continue;
      }
      for (size_t c = first; c <= last; ++c) lane[c] = letter(f.actor);
    }
  }
  for (size_t i = 0; i < plan.streams.size(); ++i) {
    const double busy = sim.total_ns > 0 ? 100 * sim.stream_busy_ns[i] / sim.total_ns : 0;
    s += "  " + padded(plan.streams[i].name, name_width) + fmt::format(" {:>4.0f}%  ", busy) + lanes[i] + "\n";
  }
  std::string legend = "  ";
  constexpr int kNamed = 24;
  for (int a = 0; a < static_cast<int>(plan.actors.size()) && a < kNamed; ++a)
    legend += fmt::format("{}{}={}", a ? " " : "", letter(a), plan.actors[a].name);
  if (plan.actors.size() > kNamed) legend += " …";
  s += cut(legend, static_cast<size_t>(options.width)) + "\n";

  s += "\n" + paint("registers, most slots in use at once", Color::kBold, options) + "\n";
  std::vector<std::vector<std::string>> rows;
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    if (plan.registers[r].bytes == 0) continue;
    rows.push_back({plan.registers[r].name, fmt::format("{} of {}", sim.peak_slots[r], plan.registers[r].quota),
                    short_bytes(plan.registers[r].bytes)});
  }
  return s + table(rows, {false, true, true}, options.width);
}

std::string simulate_json(const Plan& plan, const SimulateOptions& simulate_options) {
  const Simulation sim = simulate(plan, simulate_options);
  std::string s = fmt::format(
      "{{\"name\": {}, \"steps\": {}, \"period_ns\": {}, \"total_ns\": {}, \"deadlocked\": {}, \"blocked\": {}, "
      "\"critical\": {}, \"firings\": [",
      quoted_json(plan.name), simulate_options.steps, sim.period_ns, sim.total_ns, sim.deadlocked,
      quoted_json(sim.blocked), quoted_json(critical_str(plan, sim.critical)));
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
