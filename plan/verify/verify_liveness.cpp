// Rates and liveness: a period exists, its certificate holds.
#include "plan/firing/network.h"
#include "plan/verify.h"
#include "plan/verify/quota.h"

namespace sluice::plan {
namespace {

std::string without_prefix(const std::string& text, const std::string& prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

// Fires the given sequence step by step. "" when it is admissible, covers every actor and returns to the start.
std::string certificate_fault(const Plan& plan) {
  Network network(plan);
  std::vector<uint64_t> count(plan.actors.size());
  for (const int a : plan.certificate) ++count[a];
  for (size_t a = 0; a < count.size(); ++a) {
    if (count[a] == 0) return fmt::format("actor '{}' never fires; every actor must", plan.actors[a].name);
  }
  // Start credits come from outside: both states are compared without any.
  const std::vector<int> before = network.state();
  for (size_t a = 0; a < count.size(); ++a) network.rules[a].on_start(count[a]);
  std::vector<int> touched;
  for (size_t i = 0; i < plan.certificate.size(); ++i) {
    const int a = plan.certificate[i];
    if (!network.rules[a].can_fire()) {
      return fmt::format("step {}: '{}' cannot fire, it waits for {}", i, plan.actors[a].name,
                         network.rules[a].waits().front().str(plan));
    }
    touched.clear();
    network.fire(a, touched);
  }
  if (network.state() != before) return "its end is not its beginning; one period must return to the initial state";
  return "";
}

}  // namespace

void verify_rates(const Plan& plan, VerifyReport& report) {
  try {
    report.repetitions = repetition_vector(plan);
  } catch (const Error& e) {
    report.problems.push_back({"rates", without_prefix(e.what(), "rates: ")});
    return;
  }
  const Adjacency adjacency(plan);
  for (int r = 0; r < static_cast<int>(plan.registers.size()); ++r) {
    const int least = least_quota(plan, adjacency, r);
    if (plan.registers[r].quota < least) {
      report.problems.push_back(
          {"rates", fmt::format("register '{}': quota {}; its rates and initial tokens need at least {}",
                                plan.registers[r].name, plan.registers[r].quota, least)});
    }
  }
}

// A certificate that holds is proof enough; only without one is a schedule searched.
void verify_liveness(const Plan& plan, VerifyReport& report) {
  const std::string fault = plan.certificate.empty() ? "" : certificate_fault(plan);
  if (!plan.certificate.empty() && fault.empty()) {
    report.certificate = plan.certificate;
    return;
  }
  try {
    report.certificate = find_schedule(plan);
  } catch (const Error& e) {
    report.problems.push_back({"liveness", without_prefix(e.what(), "liveness: ")});
    return;
  }
  if (!fault.empty()) report.problems.push_back({"liveness", "certificate: " + fault});
}

}  // namespace sluice::plan
