#pragma once
// Compares what plan::verify() says about a plan with what the explorer sees.
#include <string>

#include "explorer/story.h"
#include "plan/verify.h"
#include "support/soak.h"

namespace sluice::explorer {

struct Tally {
  int64_t plans = 0, accepted = 0, refused = 0, other = 0;
  int64_t walks = 0, whole = 0, reduced = 0, sampled = 0;
  int64_t states = 0, moves = 0;
  double orders = 0;

  void report(const std::string& what) const {
    test::report_count(what, plans, "plans");
    test::report_count(what + ", accepted and never blocked", accepted, "plans");
    test::report_count(what + ", refused and blocked", refused, "plans");
    test::report_count(what + ", walked in every order", whole, "runs");
    test::report_count(what + ", walked in every order, reduced", reduced, "runs");
    test::report_count(what + ", walked in random orders", sampled, "runs");
    test::report_count(what, states, "states");
    test::report_count(what, moves, "moves");
    std::printf("%s: %.3g orders\n", what.c_str(), orders);
  }
};

struct Budget {
  size_t states = 20'000;  // of one exploration; beyond it is reduced, beyond that again sampled
  int walks = 10;
  bool split_starts = false;
};

// Every order if they are few enough, otherwise every one that differs after reduction, otherwise some.
template <class Rule>
Outcome walk(World<Rule>& world, const Budget& budget, Tally& tally, uint64_t seed) {
  ++tally.walks;
  Outcome o = Search(world, SearchOptions{.max_states = budget.states, .shortest = world.options().stop}).all();
  tally.states += static_cast<int64_t>(o.states);
  tally.moves += static_cast<int64_t>(o.moves);
  if (o.whole || !o.ok()) {
    ++tally.whole;
    tally.orders += o.orders;
    return o;
  }
  if (world.options().hosting == Hosting::kFree) {
    o = Search(world, SearchOptions{.max_states = budget.states, .reduced = true, .shortest = world.options().stop})
            .all();
    tally.states += static_cast<int64_t>(o.states);
    tally.moves += static_cast<int64_t>(o.moves);
    if (o.whole || !o.ok()) {
      ++tally.reduced;
      return o;
    }
  }
  o = Search(world, SearchOptions{}).some(budget.walks, seed);
  ++tally.sampled;
  tally.moves += static_cast<int64_t>(o.moves);
  return o;
}

inline int period_steps(const plan::Plan& plan, const std::vector<int>& repetitions) {
  return std::any_of(plan.actors.begin(), plan.actors.end(), plan::is_started) ? steps_of_period(plan, repetitions) : 0;
}

// The report of verify() about the protocol: how callers count steps is their business.
inline plan::VerifyReport verified(const plan::Plan& plan) {
  plan::VerifyReport report = plan::verify(plan);
  std::erase_if(report.problems, [](const plan::Problem& p) { return p.concern == "steps"; });
  return report;
}

// "" when the explorer and verify() agree about `plan`; else the story of where they do not.
template <class Rule = plan::FiringRule>
std::string disagreement(const plan::Plan& plan, const Budget& budget, Tally& tally, uint64_t seed = 0) {
  ++tally.plans;
  const plan::VerifyReport report = verified(plan);
  const std::string text = report.ok() ? "" : report.problems[0].concern + ": " + report.problems[0].text;
  const bool too_few_slots = text.starts_with("rates: register");
  if (!report.ok() && !text.starts_with("liveness: ") && !too_few_slots) {
    ++tally.other;
    return text.starts_with("rates: ") ? ""
                                       : "the generator makes plans that are wrong: " + text + "\n" + plan_str(plan);
  }
  const int period = period_steps(plan, report.repetitions);
  if (!report.ok()) {
    ++tally.refused;
    World<Rule> world(plan, {.steps = period, .stop = false, .owed = report.repetitions});
    const Outcome o = walk(world, budget, tally, seed);
    if (o.broken.starts_with("blocked: ")) return "";
    return "refused, but " + (o.ok() ? "it never blocks" : o.broken) + ": " + text + "\n" + plan_str(plan);
  }
  ++tally.accepted;
  const auto run = [&](Hosting hosting, int steps) -> std::string {
    std::vector<int> owed;
    if (steps % period == 0) {
      for (const int n : report.repetitions) owed.push_back(n * (steps / period));
    }
    World<Rule> world(plan, {.hosting = hosting, .steps = steps, .split_starts = budget.split_starts, .owed = owed});
    const Outcome o = walk(world, budget, tally, seed);
    return o.ok() ? "" : fmt::format("accepted, but with {} steps:\n", steps) + story(world, o);
  };
  std::string fault = run(Hosting::kFree, period);
  if (fault.empty()) fault = run(Hosting::kFree, period + 1);
  if (fault.empty()) fault = run(Hosting::kStreams, 2 * period);
  return fault;
}

}  // namespace sluice::explorer
