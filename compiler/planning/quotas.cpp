#include "base/fix.h"
#include "compiler/planning/planning.h"
#include "plan/quota.h"

namespace sluice::compiler {
namespace {

void check_names(const plan::Plan& plan, const std::map<std::string, int>& named) {
  for (const auto& [name, quota] : named) {
    std::string known;
    bool found = false;
    for (const plan::Register& r : plan.registers) {
      if (r.bytes == 0) continue;
      found = found || r.name == name;
      if (known.size() < 400) known += (known.empty() ? "" : ", ") + r.name;
    }
    Fix fix = {{"option", std::string("quotas")}, {"key", name}, {"value", Attr()}};
    if (!found) {
      throw FixableError(ErrorKind::kValue,
                         fmt::format("quota of register '{}': there is no such register; the plan has {}", name, known),
                         fix);
    }
    fix.back().second = int64_t{1};
    if (quota < 1) {
      throw FixableError(ErrorKind::kValue, fmt::format("quota of register '{}': {}; must be at least 1", name, quota),
                         fix);
    }
  }
}

}  // namespace

std::vector<int> choose_quotas(const plan::Plan& plan, const std::vector<bool>& fixed,
                               const std::map<std::string, int>& named) {
  check_names(plan, named);
  return plan::minimal_quotas(plan, fixed);
}

}  // namespace sluice::compiler
