// Plans of several ranks in virtual time: collectives are meetings, registers between ranks travel, links cost.
#include "plan/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/files/file.h"
#include "plan/pack/ledger.h"
#include "plan/time/machine.h"
#include "plan/time/simulator.h"
#include "plan/transfers.h"
#include "support/error_of.h"
#include "support/forecast_plan.h"
#include "support/soak.h"

namespace sluice::plan {
namespace {

using test::error_of;
using ::testing::HasSubstr;

Machine links(double latency_ns, double bytes_per_s) { return {{{"*", "*", latency_ns, bytes_per_s}}, {}}; }

// Every rank: step -> compute (costs[rank]) -> collective -> sink.
Plan meeting(const std::string& op, const std::vector<double>& costs, int64_t in, int64_t out, NamedAttrs attrs = {}) {
  PlanBuilder b("meeting");
  for (size_t r = 0; r < costs.size(); ++r) {
    const std::string n = std::to_string(r), on = n + "/cpu:0";
    const int host = b.stream(on, StreamKind::kHost), compute = b.stream(on);
    const int wire = b.stream(on, StreamKind::kCollective);
    const int source = b.source("step" + n, host), net = b.actor("net" + n, compute), meet = b.actor("meet" + n, wire),
              sink = b.sink("sink" + n, host);
    b.reg("x" + n, source, {net}, {.quota = 2});
    const int y = b.reg("y" + n, net, {meet}, {.quota = 2, .bytes = static_cast<uint64_t>(in) * 4});
    const int z = b.reg("z" + n, meet, {sink}, {.quota = 2, .bytes = static_cast<uint64_t>(out) * 4});
    b.run(net, "net", {}, {b.of_reg(y, {in})}, costs[r]);
    b.plan.kernels[b.run(meet, op, {b.of_reg(y, {in})}, {b.of_reg(z, {out})}, 0, attrs)].collective = 0;
  }
  return b.build();
}

double collective_ns(const std::string& op, size_t ranks, int64_t in, int64_t out, NamedAttrs attrs = {}) {
  return on_machine(meeting(op, std::vector<double>(ranks), in, out, std::move(attrs)), links(100, 1e9))
      .kernels[1]
      .cost_ns;
}

TEST(Machine, CollectivesCostWhatTheirAlgorithmMoves) {
  // 4000 bytes, 100 ns, a byte a nanosecond.
  EXPECT_DOUBLE_EQ(collective_ns("all_reduce", 4, 1000, 1000), 2 * 3 * (100 + 1000));  // a ring, twice round
  EXPECT_DOUBLE_EQ(collective_ns("all_gather", 4, 1000, 4000), 3 * (100 + 4000));      // a ring, once
  EXPECT_DOUBLE_EQ(collective_ns("reduce_scatter", 4, 1000, 250), 100 + 3 * 1000);     // parts, all at once
  EXPECT_DOUBLE_EQ(collective_ns("all_to_all", 4, 1000, 1000), 100 + 3 * 1000);
  EXPECT_DOUBLE_EQ(collective_ns("broadcast", 4, 1000, 1000, {{"root", int64_t{3}}}), 2 * (100 + 4000));  // a tree
  EXPECT_DOUBLE_EQ(collective_ns("broadcast", 5, 1000, 1000, {{"root", int64_t{0}}}), 3 * (100 + 4000));
  EXPECT_DOUBLE_EQ(collective_ns("all_reduce", 1, 1000, 1000), 0);
}

TEST(Machine, TheSlowestLinkSetsThePaceAndTheFirstThatFitsCounts) {
  const Plan plan = meeting("all_gather", {0, 0, 0}, 1000, 3000);
  const Machine machine = machine_from_json(R"({"links": [
      {"between": ["2/cpu:0", "0/*"], "latency_ns": 500, "bytes_per_s": 1e8},
      {"between": ["*/cpu:*", "*"], "latency_ns": 0, "bytes_per_s": 1000000000}],
    "kernels": [{"name": "net*", "cost_ns": 70}, {"name": "meet1/*", "cost_ns": 5}]})",
                                            "costs.json");
  const Plan costed = on_machine(plan, machine);
  EXPECT_DOUBLE_EQ(costed.kernels[0].cost_ns, 70);
  EXPECT_DOUBLE_EQ(costed.kernels[1].cost_ns, 2 * (500 + 40000));
  EXPECT_DOUBLE_EQ(costed.kernels[3].cost_ns, 5);
}

TEST(Machine, CopiesBetweenMemoriesTakeTheLink) {
  PlanBuilder b("copies");
  const int device = b.space(SpaceKind::kDevice, "cuda:1");
  const int in = b.stream("cuda:1", StreamKind::kCopyIn);
  const int source = b.source("step", in), up = b.actor("up", in), sink = b.sink("sink", in);
  const int x = b.reg("x", source, {up}, {.bytes = 400}), y = b.reg("y", up, {sink}, {.bytes = 400, .space = device});
  b.run(up, "copy", {b.of_reg(x, {100})}, {b.of_reg(y, {100})}, 3);
  const Plan plan = b.build();
  EXPECT_DOUBLE_EQ(on_machine(plan, {{{"0/cpu:0", "0/cuda:*", 10, 4e9}}, {}}).kernels[0].cost_ns, 110);
  EXPECT_EQ(error_of([&] {
              on_machine(plan, {{{"0/cpu:0", "0/cuda:0", 10, 4e9}}, {}});
            }),
            "value: plan 'copies': no link between 0/cpu:0 and 0/cuda:1; name one in \"links\"");
}

TEST(Machine, TheFileOfTheDocsIsRead) {
  const std::string page = read_file(SLUICE_SOURCE_DIR "/docs/ranks.md");
  const size_t begin = page.find("```json\n") + 8;
  const Machine machine = machine_from_json(page.substr(begin, page.find("```", begin) - begin), "ranks.md");
  ASSERT_EQ(machine.links.size(), 3u);
  EXPECT_EQ(machine.links[1].other, "*/cuda:*");
  EXPECT_EQ(machine.links[2].bytes_per_s, 12e9);
  EXPECT_EQ(machine.kernels[0].cost_ns, 150000);
}

TEST(Machine, WrongFilesAreRefusedByTheField) {
  const auto refused = [](const std::string& text) { return error_of([&] { machine_from_json(text, "costs.json"); }); };
  EXPECT_EQ(refused("{}"), "value: costs.json: links: missing; every field must be given");
  EXPECT_THAT(refused(R"({"links": [{"between": ["*"], "latency_ns": 1, "bytes_per_s": 1}]})"),
              HasSubstr("costs.json: links[0].between: 1 names; must be two"));
  EXPECT_THAT(refused(R"({"links": [{"between": ["*", "*"], "latency_ns": 1, "bytes_per_s": 0}]})"),
              HasSubstr("costs.json: links[0].bytes_per_s: out of range: 0; must be a positive number up to 1e18"));
  EXPECT_THAT(refused(R"({"links": [{"between": ["*", "*"], "latency_ns": -1, "bytes_per_s": 1}]})"),
              HasSubstr("costs.json: links[0].latency_ns: out of range: -1; must be a non-negative number"));
  EXPECT_THAT(refused(R"({"links": [], "kernel": []})"), HasSubstr("costs.json: kernel: unknown field"));
  EXPECT_THAT(refused("[1"), HasSubstr("costs.json: not a complete JSON document"));
}

TEST(SimulatedRanks, LeaveACollectiveTogetherWhenTheLastHasCome) {
  const Plan plan = on_machine(meeting("all_reduce", {100, 700, 400}, 3, 3), links(10, 1e12));
  const Simulation sim = simulate(plan, {.steps = 20});
  EXPECT_FALSE(sim.deadlocked);
  const double all_reduce = plan.kernels[1].cost_ns;
  ASSERT_EQ(sim.kernels.size(), 120u);
  for (const SimKernel& k : sim.kernels) {
    if (plan.kernels[k.kernel].collective < 0) continue;
    EXPECT_NEAR(k.end_ns - k.met_ns, all_reduce, 1e-6);
    EXPECT_LE(k.begin_ns, k.met_ns);
    // Rank 1, the slowest, comes last.
    if (sim.firings[k.firing].actor == 6) {
      EXPECT_DOUBLE_EQ(k.begin_ns, k.met_ns);
    }
  }
  EXPECT_NEAR(sim.period_ns, 700, 1e-6);
  EXPECT_EQ(critical_str(plan, sim.critical), "'net1' -(stream 1/cpu:0/compute0)-> 'net1'");
  const std::vector<DeviceUse> use = device_use(plan, sim);
  ASSERT_EQ(use.size(), 3u);
  EXPECT_NEAR(use[0].compute, 1.0 / 7, 1e-9);
  EXPECT_NEAR(use[1].compute, 1, 1e-9);
  EXPECT_NEAR(use[1].communication, all_reduce / 700, 1e-9);
  EXPECT_NEAR(use[1].exposed, 0, 1e-9);
  EXPECT_NEAR(use[0].compute + use[0].exposed + use[0].bubble, 1, 1e-9);
  EXPECT_EQ(use[2].bytes, 4 * kAlignment);
}

// Rank 0 is late for the first meeting of a step, rank 1 for the second, and the next step waits for that.
TEST(SimulatedRanks, TheCriticalCycleGoesThroughTheRanksThatAreLate) {
  PlanBuilder b("late");
  for (int r = 0; r < 2; ++r) {
    const std::string n = std::to_string(r), on = n + "/cpu:0";
    const int host = b.stream(on, StreamKind::kHost), compute = b.stream(on);
    const int wire = b.stream(on, StreamKind::kCollective);
    const int source = b.source("step" + n, host), one = b.actor("one" + n, compute), all = b.actor("all" + n, wire),
              two = b.actor("two" + n, compute), end = b.actor("end" + n, wire), sink = b.sink("sink" + n, host);
    b.reg("x" + n, source, {one}, {.quota = 2});
    const int y = b.reg("y" + n, one, {all}, {.bytes = 64}), z = b.reg("z" + n, all, {two}, {.bytes = 64});
    const int v = b.reg("v" + n, two, {end}, {.bytes = 64}), w = b.reg("w" + n, end, {sink}, {.bytes = 64});
    b.reg("next" + n, end, {one}, {.initial_tokens = 1});
    b.run(one, "net", {}, {b.of_reg(y, {16})}, r == 0 ? 900 : 100);
    b.plan.kernels[b.run(all, "all_reduce", {b.of_reg(y, {16})}, {b.of_reg(z, {16})}, 10)].collective = 0;
    b.run(two, "net", {b.of_reg(z, {16})}, {b.of_reg(v, {16})}, r == 0 ? 100 : 700);
    b.plan.kernels[b.run(end, "all_reduce", {b.of_reg(v, {16})}, {b.of_reg(w, {16})}, 10)].collective = 1;
  }
  const Plan plan = b.build();
  const Simulation sim = simulate(plan, {.steps = 20});
  EXPECT_DOUBLE_EQ(sim.period_ns, 900 + 10 + 700 + 10);
  const std::string cycle = critical_str(plan, sim.critical);
  for (const char* hop : {"'one0' -(data 'y0')-> 'all0'", "-(ranks of group 0)-> 'all1' -(data 'z1')-> 'two1'",
                          "-(ranks of group 1)-> 'end0'", "-(data 'next0')-> 'one0'"})
    EXPECT_THAT(cycle, HasSubstr(hop));
}

TEST(SimulatedRanks, RegistersBetweenRanksTravelAndTheirSlotsBoundWhoIsAhead) {
  for (const int micro : {2, 4, 8}) {
    const Plan given =
        forecast_plan({.stages = 2, .micro = micro, .forward_ns = 1000, .backward_ns = 1000, .update_ns = 0});
    const Plan plan = on_machine(side_by_side(given), links(100, 1e9));
    EXPECT_FALSE(crosses_ranks(plan));
    const Simulation sim = simulate(plan, {.steps = 16});
    EXPECT_FALSE(sim.deadlocked) << sim.blocked;
    // Two micro-batches are under way, each for four units of 1000 and a transfer of 16 bytes either way; and in every
    // step the pipeline fills and drains.
    EXPECT_NEAR(sim.period_ns, (4000 + 2 * 116) / 2 * micro + 2000, 1) << micro;
    const std::vector<DeviceUse> use = device_use(plan, sim);
    ASSERT_EQ(use.size(), 2u);
    EXPECT_NEAR(use[0].compute, 2000 * micro / sim.period_ns, 1e-6);
    EXPECT_EQ(use[0].bytes, ledger(part_of(given, 0).plan).total);
  }
}

TEST(SimulatedRanks, WhoWaitsForWhomIsSaidWhenARankNeverComes) {
  Plan plan = meeting("all_reduce", {1, 1}, 1, 1);
  plan.actors[6].program.insert(plan.actors[6].program.begin(), {InstrKind::kRun, 3});  // two calls to rank 0's one
  const Simulation sim = simulate(plan, {.steps = 4});
  EXPECT_TRUE(sim.deadlocked);
  EXPECT_EQ(sim.blocked, "'meet1' is in collective 'meet1/all_reduce' of group 0 and waits for rank 0");
}

// C-07: eight stages of a GPT on eight replicas each, 32 micro-batches.
TEST(SimulatedRanks, SixtyFourDevicesAreForecastInSeconds) {
  const Plan given = forecast_plan({.stages = 8,
                                    .replicas = 8,
                                    .micro = 32,
                                    .layers = 36,
                                    .forward_ns = 50'000,
                                    .backward_ns = 100'000,
                                    .update_ns = 1'000'000,
                                    .activation = 1 << 20,
                                    .gradient = 20 << 20});
  const auto begin = std::chrono::steady_clock::now();
  const Plan plan = on_machine(side_by_side(given), links(5000, 50e9));
  const Simulation sim = simulate(plan, {.steps = 6});
  const std::vector<DeviceUse> use = device_use(plan, sim);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, test::kSlowdown * std::chrono::seconds(10));
  EXPECT_FALSE(sim.deadlocked) << sim.blocked;
  ASSERT_EQ(use.size(), 64u);
  // 5.4 ms a micro-batch and stage; filling and draining takes 7 more of them and the transfers.
  const double busy = 32 * 36 * 150'000.0, exact = 39 * 36 * 150'000.0;
  EXPECT_GT(sim.period_ns, exact);
  EXPECT_LT(sim.period_ns, 1.1 * exact);
  for (const DeviceUse& u : use) EXPECT_NEAR(u.compute, (busy + 1e6) / sim.period_ns, 1e-3) << u.device.str();
}

}  // namespace
}  // namespace sluice::plan
