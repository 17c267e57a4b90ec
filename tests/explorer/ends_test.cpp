// Sources whose data ends after any number of firings: all actors end, every slot comes back, and what could be made of
// the data was made, in every order of messages.
#include <gtest/gtest.h>

#include "explorer/generator.h"
#include "explorer/judge.h"

namespace sluice::explorer {
namespace {

// "" when nothing breaks, wherever `plan`'s sources end.
std::string ended_story(const Plan& plan, Tally& tally, uint64_t seed) {
  const plan::VerifyReport report = verified(plan);
  if (!report.ok()) return "";
  ++tally.plans;
  const int steps = period_steps(plan, report.repetitions) + 1;
  const Budget budget{.states = 4'000, .walks = 5};
  for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
    if (!is_started(plan.actors[a])) continue;
    for (int after = 0; after < steps * plan.actors[a].starts; ++after) {
      for (const Hosting hosting : {Hosting::kFree, Hosting::kStreams}) {
        World<plan::FiringRule> world(plan, {.hosting = hosting, .steps = steps, .ends = a, .ends_after = after});
        const Outcome o = walk(world, budget, tally, seed);
        if (!o.ok()) return fmt::format("'{}' ends after {}:\n", plan.actors[a].name, after) + story(world, o);
      }
    }
  }
  return "";
}

TEST(SoakExplorer, SourcesEndInEveryOrder) {
  const int64_t n = test::repetitions(150, 20'000);
  constexpr int64_t kStride = 4'099;
  Tally tally;
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_EQ(ended_story(Systematic::plan(i * kStride % Systematic::count()), tally, static_cast<uint64_t>(i)), "")
        << "plan " << i;
    ASSERT_EQ(ended_story(random_plan(static_cast<uint64_t>(i)), tally, static_cast<uint64_t>(i)), "") << "seed " << i;
  }
  tally.report("sources that end");
  EXPECT_GT(tally.plans, n / 4);
}

}  // namespace
}  // namespace sluice::explorer
