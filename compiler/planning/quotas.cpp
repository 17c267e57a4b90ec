#include "base/fix.h"
#include "base/log.h"
#include "compiler/planning/planning.h"
#include "plan/time/fast_quotas.h"
#include "plan/verify/quota.h"

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
    fix.back().second = int64_t{quota < 1 ? 1 : plan::kMaxQuota};
    if (quota < 1 || quota > plan::kMaxQuota) {
      throw FixableError(ErrorKind::kValue,
                         fmt::format("quota of register '{}': {}; must be from 1 to {}", name, quota, plan::kMaxQuota),
                         fix);
    }
  }
}

}  // namespace

std::vector<int> choose_quotas(const plan::Plan& plan, const Lowered& lowered, const std::vector<bool>& fixed,
                               const CompileOptions& options, uint64_t spare_bytes) {
  check_names(plan, options.quotas);
  if (!options.fast_quotas) return plan::minimal_quotas(plan, fixed);
  plan::Plan timed = plan;
  const std::vector<int> groups = meeting_groups(lowered);
  for (size_t t = 0; t < lowered.tasks.size(); ++t) {
    plan::Kernel& kernel = timed.kernels.emplace_back();
    kernel.name = lowered.tasks[t].name;
    kernel.op = lowered.tasks[t].op;
    kernel.cost_ns = lowered.tasks[t].cost_ns;
    kernel.collective = groups[t];
  }
  constexpr int64_t kMostWork = 500'000;  // some 50 ms
  const plan::QuotaChoice choice = plan::fast_quotas(
      timed, {.fixed = fixed, .cores = lowered.host_cores, .spare = spare_bytes, .most_work = kMostWork});
  log(LogLevel::kInfo, LogArea::kCompiler, "plan '{}': slots of {}", options.name, choice.str(timed));
  return choice.quotas;
}

}  // namespace sluice::compiler
