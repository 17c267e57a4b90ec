// Every mistake planted in a copy of the rule is found, with and without reduction, and told by a shortest story.
#include <gtest/gtest.h>

#include "explorer/faulty_rules.h"
#include "explorer/generator.h"
#include "explorer/judge.h"

namespace sluice::explorer {
namespace {

constexpr int64_t kStride = 4'099;

// Explores accepted small plans under Rule until one breaks; "" when none of `plans` does.
template <class Rule>
std::string first_story(int64_t plans, bool reduced) {
  for (int64_t i = 0; i < plans; ++i) {
    const plan::Plan plan = Systematic::plan(i * kStride % Systematic::count());
    const plan::VerifyReport report = verified(plan);
    if (!report.ok()) continue;
    const int period = period_steps(plan, report.repetitions);
    for (int periods = 1; periods <= 2; ++periods) {
      std::vector<int> owed = report.repetitions;
      for (int& n : owed) n *= periods;
      World<Rule> world(plan, {.steps = period * periods, .owed = owed});
      const Outcome o =
          Search(world, SearchOptions{.max_states = 5'000, .reduced = reduced, .shortest = !reduced}).all();
      if (!o.ok()) return story(world, o);
    }
  }
  return "";
}

TEST(PlantedBugs, EachIsFoundAndTold) {
  for_each_bug([]<Bug kBug>() {
    const std::string told = first_story<Faulty<kBug>>(400, false);
    EXPECT_NE(told, "") << bug_name(kBug);
    EXPECT_NE(first_story<Faulty<kBug>>(400, true), "") << bug_name(kBug) << ", reduced";
    std::printf("%s\n%s\n", bug_name(kBug), told.c_str());
  });
}

TEST(PlantedBugs, TheTrueRuleHasNone) {
  EXPECT_EQ(first_story<plan::FiringRule>(40, false), "");
  EXPECT_EQ(first_story<plan::FiringRule>(400, true), "");
}

// Reduction leaves out orders, never a verdict.
TEST(PlantedBugs, ReductionFindsWhatAllOrdersFind) {
  int64_t broken = 0, compared = 0;
  for_each_bug([&]<Bug kBug>() {
    for (int64_t i = 0; i < 60; ++i) {
      const plan::Plan plan = Systematic::plan(i * kStride % Systematic::count());
      const plan::VerifyReport report = verified(plan);
      if (!report.ok()) continue;
      World<Faulty<kBug>> world(plan, {.steps = period_steps(plan, report.repetitions), .owed = report.repetitions});
      const Outcome all = Search(world, SearchOptions{.max_states = 5'000}).all();
      world.forget();
      const Outcome fewer = Search(world, SearchOptions{.max_states = 5'000, .reduced = true}).all();
      if (all.ok() && !all.whole) continue;
      ++compared;
      broken += !all.ok();
      ASSERT_EQ(all.ok(), fewer.ok()) << bug_name(kBug) << " plan " << i << "\n" << all.broken << "\n" << fewer.broken;
    }
  });
  EXPECT_GT(broken, 100);
  EXPECT_GT(compared - broken, 100);
}

}  // namespace
}  // namespace sluice::explorer
