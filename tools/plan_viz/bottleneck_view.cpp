// bottleneck: what limits a plan, and what one change would gain.
#include "plan/json/json.h"
#include "plan/time/bottleneck.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

std::string kernels_str(const Plan& plan, const KernelGain& gain) {
  const Kernel& first = plan.kernels[gain.kernels.front()];
  const size_t more = gain.kernels.size() - 1;
  return fmt::format("{} ('{}'{})", first.op, first.name, more == 0 ? "" : fmt::format(" and {} like it", more));
}

}  // namespace

std::string bottleneck_text(const Plan& plan, const SimulateOptions& simulate, const TextOptions& options) {
  const Bottleneck found = find_bottleneck(plan, simulate);
  std::string s = paint(fmt::format("plan '{}', {} a step, predicted", plan.name, time_str(found.now.period_ns)),
                        Color::kBold, options) +
                  "\n";
  if (found.now.deadlocked) return s + paint("  it blocks: ", Color::kRed, options) + found.now.blocked + "\n";
  if (found.now.total_ns == 0)
    return s + "  the plan's kernels have no predicted costs: nothing is known to limit it\n";
  if (found.now.critical.empty()) return s + "  too few steps to see what limits it: give --steps a larger number\n";
  s += wrapped("  critical cycle: " + critical_str(plan, found.now.critical), options.width);
  const auto less = [&](double period_ns) {
    return fmt::format("{:.1f} % less", 100 * (1 - period_ns / found.now.period_ns));
  };
  const std::vector<bool> right = {false, true, true, true};
  s += "\n" + paint("one more slot", Color::kBold, options) + "\n";
  std::vector<std::vector<std::string>> rows = {{"of register", "bytes more", "a step then", "which is"}};
  for (const SlotGain& gain : found.slots) {
    rows.push_back(
        {plan.registers[gain.reg].name, short_bytes(gain.bytes), time_str(gain.period_ns), less(gain.period_ns)});
  }
  s += found.slots.empty() ? "  nothing in the cycle waits for a slot: more of them gain nothing\n"
                           : table(rows, right, options.width);
  if (found.core_period_ns > 0) {
    s += "\n" + paint("one more core", Color::kBold, options) + "\n" +
         table({{"cores now", "a step then", "which is"},
                {std::to_string(simulate.cores), time_str(found.core_period_ns), less(found.core_period_ns)}},
               {true, true, true}, options.width);
  }
  s += "\n" + paint("kernels twice as fast", Color::kBold, options) + "\n";
  rows = {{"kernel", "takes now", "a step then", "which is"}};
  for (const KernelGain& gain : found.kernels) {
    rows.push_back({kernels_str(plan, gain), time_str(gain.cost_ns), time_str(gain.period_ns), less(gain.period_ns)});
  }
  return s + (found.kernels.empty() ? "  no kernel in the cycle takes time\n" : table(rows, right, options.width));
}

std::string bottleneck_json(const Plan& plan, const SimulateOptions& simulate) {
  const Bottleneck found = find_bottleneck(plan, simulate);
  std::string s = fmt::format(
      "{{\"name\": {}, \"period_ns\": {}, \"deadlocked\": {}, \"blocked\": {}, \"critical\": {},\n\"slots\": [",
      quoted_json(plan.name), found.now.period_ns, found.now.deadlocked, quoted_json(found.now.blocked),
      quoted_json(critical_str(plan, found.now.critical)));
  const char* comma = "";
  for (const SlotGain& gain : found.slots) {
    s += fmt::format("{}\n  {{\"register\": {}, \"bytes\": {}, \"period_ns\": {}}}", comma,
                     quoted_json(plan.registers[gain.reg].name), gain.bytes, gain.period_ns);
    comma = ",";
  }
  s += fmt::format("],\n\"cores\": {}, \"core_period_ns\": {},\n\"kernels\": [", simulate.cores, found.core_period_ns);
  comma = "";
  for (const KernelGain& gain : found.kernels) {
    std::string names;
    for (const int kernel : gain.kernels) names += (names.empty() ? "" : ", ") + quoted_json(plan.kernels[kernel].name);
    s += fmt::format("{}\n  {{\"op\": {}, \"names\": [{}], \"cost_ns\": {}, \"period_ns\": {}}}", comma,
                     quoted_json(plan.kernels[gain.kernels.front()].op), names, gain.cost_ns, gain.period_ns);
    comma = ",";
  }
  return s + "]}\n";
}

}  // namespace sluice::plan_viz
