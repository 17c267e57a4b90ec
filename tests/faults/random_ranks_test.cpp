// Random plans, their streams spread over two ranks: the bits of the sequential reading.
#include "collective/ranks.h"
#include "faults/machine.h"
#include "plan/ranks.h"
#include "plan/time/simulator.h"
#include "support/soak.h"

namespace sluice::test {
namespace {

constexpr uint64_t kRankSteps = 6;

// A random plan whose streams are on ranks at random, both of them used. No actor has state that another rank reads.
Plan on_two_ranks(uint64_t seed) {
  RandomPlanOptions options;
  options.max_actors = 20;
  options.variables = false;
  options.dangling = seed % 3 == 0;
  Plan plan = random_plan(seed, options);
  std::mt19937_64 random(seed);
  for (plan::Stream& stream : plan.streams) stream.device.rank = static_cast<int>(random() % 2);
  plan.streams.front().device.rank = 1 - plan.streams.back().device.rank;
  return plan;
}

bool has_two_ranks(const Plan& plan) {
  std::set<int> ranks;
  for (const plan::Actor& a : plan.actors) ranks.insert(plan.streams[a.stream].device.rank);
  return ranks.size() == 2;
}

TEST(SoakRandomRanks, TwoRanksGiveTheSequentialBits) {
  const int64_t plans = repetitions(100, 3000);
  const int port = free_port();
  int64_t done = 0, refused = 0, transfers = 0;
  const auto errors = on_ranks(2, [&](int rank) {
    EngineOptions options;
    options.cores = 1;
    WorldOptions world = world_options(rank, 2, port);
    world.timeout = world.heartbeat = std::chrono::minutes(5);  // nothing here is lost, however busy the machine is
    options.world = std::make_shared<World>(world);
    Engine engine(options);
    for (uint64_t seed = 1; seed <= static_cast<uint64_t>(plans); ++seed) {
      const Plan plan = on_two_ranks(seed);
      if (plan.streams.size() < 2 || !has_two_ranks(plan)) continue;
      plan::Plan part;
      try {
        part = plan::part_of(plan, rank).plan;
      } catch (const Error& error) {  // rates that receive too late for the plan's quotas, in both ranks alike
        ASSERT_EQ(error.kind(), ErrorKind::kValue) << "plan " << seed << ": " << error.what();
        if (rank == 0) ++refused;
        continue;
      }
      ASSERT_EQ(plan::verify(part).str(), "") << "plan " << seed << ", rank " << rank;
      const uint64_t period = period_of(plan);
      const Inputs inputs = random_inputs(plan, (kRankSteps + period - 1) / period * period, seed);
      const Expected expected = expected_of(plan, mixes(), inputs);
      const RunResult got = run_on(engine, plan, mixes(), part.inputs.empty() ? Inputs(inputs.size()) : inputs, &part);
      ASSERT_EQ(got.error, "") << "plan " << seed << ", rank " << rank;
      ASSERT_EQ(got.steps.size(), inputs.size());
      for (size_t i = 0; i < got.steps.size(); ++i) {
        ASSERT_EQ(got.steps[i].error, "") << "plan " << seed << ", rank " << rank << ", step " << i;
        if (part.outputs.empty()) continue;
        ASSERT_EQ(got.steps[i].outputs, expected.run.steps[i].outputs) << "plan " << seed << ", step " << i;
      }
      if (rank != 0) continue;
      ++done;
      const int steps = static_cast<int>(inputs.size());  // in virtual time they finish too
      for (const int in_flight : {0, static_cast<int>(3 * period)}) {
        const plan::Simulation sim = plan::simulate(plan::side_by_side(plan), {.steps = steps, .in_flight = in_flight});
        ASSERT_FALSE(sim.deadlocked) << "plan " << seed << ", " << in_flight << " in flight: " << sim.blocked;
      }
      for (const plan::Kernel& k : part.kernels) transfers += k.op == "send" || k.op == "receive";
    }
  });
  EXPECT_THAT(errors, ::testing::Each("no error"));
  EXPECT_GT(done, plans / 3);
  report_count("random plans", done, "plans on two ranks");
  report_count("random plans", transfers, "registers between ranks");
  report_count("random plans", refused, "plans whose rates two ranks cannot keep");
}

}  // namespace
}  // namespace sluice::test
