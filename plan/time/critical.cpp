#include <fmt/format.h>

#include "plan/time/simulator.h"

namespace sluice::plan {

std::string critical_str(const Plan& plan, const std::vector<CriticalHop>& critical) {
  if (critical.empty()) return "";
  // Each hop says what its actor waited for; the actor before it in the loop is the one waited for.
  std::string text = fmt::format("'{}'", plan.actors[critical.back().actor].name);
  for (const CriticalHop& hop : critical) {
    std::string reason;
    switch (hop.reason) {
      case CriticalHop::Reason::kData:
        reason = hop.reg < 0 ? "next step" : fmt::format("data '{}'", plan.registers[hop.reg].name);
        break;
      case CriticalHop::Reason::kCredit: reason = fmt::format("slot of '{}'", plan.registers[hop.reg].name); break;
      case CriticalHop::Reason::kStream:
        reason = fmt::format("stream {}", plan.streams[plan.actors[hop.actor].stream].name);
        break;
      case CriticalHop::Reason::kCores: reason = "cores"; break;
      case CriticalHop::Reason::kRanks: reason = fmt::format("ranks of group {}", hop.reg); break;
      case CriticalHop::Reason::kStart: reason = "start"; break;
    }
    text += fmt::format(" -({})-> '{}'", reason, plan.actors[hop.actor].name);
  }
  return text;
}

}  // namespace sluice::plan
