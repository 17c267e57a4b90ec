#include "runtime/session/live_quotas.h"

#include <algorithm>

#include "base/error.h"
#include "plan/verify.h"
#include "plan/verify/quota.h"
#include "runtime/session/session_core.h"

namespace sluice {

int changeable_register(const plan::Plan& plan, const std::string& name) {
  const auto at = std::find_if(plan.registers.begin(), plan.registers.end(),
                               [&](const plan::Register& reg) { return reg.name == name; });
  SLUICE_CHECK(at != plan.registers.end(),
               "session '{}': set_quota: there is no register '{}'; `plan-viz show` lists them", plan.name, name);
  const auto reg = static_cast<int>(at - plan.registers.begin());
  SLUICE_CHECK_KIND(
      kUnsupported, plan.actors[at->producer].role != plan::ActorRole::kFeed,
      "session '{}': set_quota: register '{}' is an input, whose slots callers write; submit fewer steps at "
      "a time instead",
      plan.name, name);
  const bool lends = std::any_of(plan.registers.begin(), plan.registers.end(), [&](const plan::Register& other) {
    return other.in_place_of >= 0 && plan.edges[other.in_place_of].reg == reg;
  });
  SLUICE_CHECK_KIND(kUnsupported, at->in_place_of < 0 && !lends,
                    "session '{}': set_quota: register '{}' shares its slots with another one, in place; only one that "
                    "has its own can have more or fewer",
                    plan.name, name);
  return reg;
}

void check_quotas(const plan::Plan& plan, const std::vector<int>& quotas, int changed) {
  const plan::Register& reg = plan.registers[changed];
  const int slots = quotas[changed], least = plan::least_quota(plan, plan::Adjacency(plan), changed);
  SLUICE_CHECK(
      slots <= reg.quota,
      "session '{}': set_quota: register '{}': {} slots; it has memory for {}, which set_quota() of the graph's "
      "config can raise",
      plan.name, reg.name, slots, reg.quota);
  SLUICE_CHECK(slots >= least, "session '{}': set_quota: register '{}': {} slots; its rates need at least {}",
               plan.name, reg.name, slots, least);
  plan::Plan with = plan;
  with.certificate.clear();  // it was found for other quotas
  for (size_t r = 0; r < quotas.size(); ++r) {
    with.registers[r].quota = quotas[r];
    if (!with.registers[r].slots.empty()) with.registers[r].slots.resize(static_cast<size_t>(quotas[r]));
  }
  plan::VerifyReport report;
  plan::verify_rates(with, report);
  if (report.ok()) plan::verify_liveness(with, report);
  SLUICE_CHECK(report.ok(), "session '{}': set_quota: register '{}': {} slots: {}", plan.name, reg.name, slots,
               report.problems[0].text);
}

void SessionCore::set_quota(const std::string& reg, int slots) {
  state_.check_process();
  SLUICE_CHECK_KIND(kRuntime, !on_own_thread() && !state_.engine.on_stream_thread(),
                    "session '{}': set_quota: called on a stream's own thread, which may be what it waits for; call it "
                    "from another thread",
                    plan().name);
  const int index = changeable_register(plan(), reg);
  const MutexLock lock(quotas_mutex_);
  std::vector<int> quotas = quotas_;
  for (size_t r = quotas.size(); r < plan().registers.size(); ++r) quotas.push_back(plan().registers[r].quota);
  quotas[index] = slots;
  check_quotas(plan(), quotas, index);
  const RunnerUse runner = state_.use_runner();
  SLUICE_CHECK_KIND(kRuntime, static_cast<bool>(runner), "session '{}': set_quota: it has ended; load it again",
                    plan().name);
  if (!runner->set_quota(index, slots, wait_timeout()))
    state_.fail_timeout(fmt::format("set_quota: the stream that writes '{}' is busy", reg), wait_timeout());
  quotas_ = std::move(quotas);
}

}  // namespace sluice
