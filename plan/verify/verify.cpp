#include "plan/verify.h"

#include "base/fix.h"
#include "base/log.h"
#include "plan/classes.h"
#include "plan/verify/quota.h"

namespace sluice::plan {

std::string VerifyReport::str() const {
  std::string text;
  for (const Problem& problem : problems) text += problem.concern + ": " + problem.text + "\n";
  return text;
}

VerifyReport verify(const Plan& plan) {
  VerifyReport report;
  report.certificate_given = !plan.certificate.empty();
  using Concern = void (*)(const Plan&, VerifyReport&);
  constexpr Concern kConcerns[] = {verify_structure, verify_sizes,       verify_rates, verify_liveness,
                                   verify_arenas,    verify_collectives, verify_steps, verify_classes};
  for (const Concern concern : kConcerns) {
    concern(plan, report);
    // Sizes rest on structure, rates do not rest on sizes; but a plan with a wrong size is not run further either.
    if (!report.ok()) break;
  }
  return report;
}

namespace {

// Suggests how to mend a plan that can block, or whose rates need more slots. Problems travel as text, so the search is
// done again.
Fix fix_for(const Plan& plan, const VerifyReport& report) {
  const Problem& first = report.problems[0];
  if (first.concern == "rates" && first.text.starts_with("register")) {
    const Adjacency adjacency(plan);
    for (int r = 0; r < static_cast<int>(plan.registers.size()); ++r) {
      const int least = least_quota(plan, adjacency, r);
      if (plan.registers[r].quota < least) return {{"register", plan.registers[r].name}, {"quota", int64_t{least}}};
    }
  }
  if (first.concern != "liveness" || first.text.starts_with("certificate")) return {};
  try {
    find_schedule(plan);
  } catch (const Error& error) {
    return fix_of(error);
  }
  return {};
}

}  // namespace

void check(const Plan& plan) {
  const VerifyReport report = verify(plan);
  if (report.ok()) {
    log(LogLevel::kDebug, LogArea::kPlan, "plan '{}': verified: {} actors, {} registers, {} firings a period",
        plan.name, plan.actors.size(), plan.registers.size(), report.certificate.size());
    return;
  }
  log(LogLevel::kDebug, LogArea::kPlan, "plan '{}': refused: {} problems", plan.name, report.problems.size());
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < report.problems.size() && i < kShown; ++i) {
    text += (i ? "\n  " : "") + report.problems[i].concern + ": " + report.problems[i].text;
  }
  if (report.problems.size() > kShown) text += fmt::format("\n  and {} more", report.problems.size() - kShown);
  throw FixableError(ErrorKind::kValue, fmt::format("plan '{}': {}", plan.name, text), fix_for(plan, report));
}

}  // namespace sluice::plan
