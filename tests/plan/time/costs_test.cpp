// Histories of kernels: what runs are counted, what is made of them, and the files they are kept in.
#include "plan/time/costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "plan/query.h"
#include "support/error_of.h"
#include "support/plan_builder.h"
#include "support/two_stage_plan.h"

namespace sluice::plan {
namespace {

using test::error_of;

TraceEvent run_of(const Plan& plan, int kernel, int64_t ns) {
  return {
      .stream = streams_of_kernels(plan)[kernel], .actor = 0, .kernel = kernel, .begin_ns = 100, .end_ns = 100 + ns};
}

KernelHistory history_of(const std::vector<double>& times, const std::string& op = "mul") {
  KernelHistory h{.kernel = {.op = op, .attrs = "", .operands = "", .device = "cpu:0"},
                  .runs = static_cast<int64_t>(times.size())};
  for (const double ns : times) h.mean_ns += ns / static_cast<double>(times.size());
  for (const double ns : times) h.squares += (ns - h.mean_ns) * (ns - h.mean_ns);
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  h.min_ns = *least, h.max_ns = *most;
  return h;
}

void expect_near(const KernelHistory& a, const KernelHistory& b) {
  EXPECT_EQ(a.kernel, b.kernel);
  EXPECT_EQ(a.runs, b.runs);
  EXPECT_NEAR(a.mean_ns, b.mean_ns, 1e-9 * b.mean_ns);
  EXPECT_NEAR(a.std_ns(), b.std_ns(), 1e-9 * b.std_ns());
  EXPECT_EQ(a.min_ns, b.min_ns);
  EXPECT_EQ(a.max_ns, b.max_ns);
}

TEST(Costs, ASignatureIsWhatTheTimeDependsOn) {
  const Plan plan = two_stage_plan();
  const KernelSignature shift = signature_of(query_of(plan, plan.kernels[0], plan.streams[0]));
  EXPECT_EQ(shift.op, "shift");
  EXPECT_EQ(shift.attrs, "pad = 2");
  EXPECT_EQ(shift.operands, "float32(16,) -> float32(16,)");
  EXPECT_EQ(shift.device, "cpu:0");
  EXPECT_EQ(shift.cores, 1);
  Plan other = two_stage_plan();
  other.kernels[0].name = "another";
  other.streams[0].device.rank = 3;
  EXPECT_EQ(signature_of(query_of(other, other.kernels[0], other.streams[0])), shift);
  const auto differs = [&](auto change) {
    Plan changed = two_stage_plan();
    change(changed);
    EXPECT_NE(signature_of(query_of(changed, changed.kernels[0], changed.streams[0])), shift);
  };
  differs([](Plan& p) { p.kernels[0].op = "mul"; });
  differs([](Plan& p) { p.kernels[0].attrs[0].second = int64_t{3}; });
  differs([](Plan& p) { p.kernels[0].inputs[0].spec.dtype = DType::kFloat64; });
  differs([](Plan& p) { p.kernels[0].inputs[0].spec.strides = {2}; });
  differs([](Plan& p) { p.kernels[0].inputs.push_back(p.kernels[0].inputs[0]); });
  differs([](Plan& p) { p.kernels[0].outputs[0].spec = PlanBuilder::f32({8}); });
  differs([](Plan& p) { p.streams[0].device = parse_device("sim:0"); });
  differs([](Plan& p) { p.streams[0].device.index = 1; });
  differs([](Plan& p) { p.streams[0].cores = 2; });
}

TEST(Costs, RunsAreCountedButThoseFarFromTheMedian) {
  const Plan plan = two_stage_plan();
  std::vector<TraceEvent> events;
  for (const int64_t ns : {90'000, 1000, 1010, 990, 1020, 980, 5000}) events.push_back(run_of(plan, 0, ns));
  const std::vector<KernelHistory> measured = measured_runs(plan, events);
  ASSERT_EQ(measured.size(), 1u);
  KernelHistory expected = history_of({1000, 1010, 990, 1020, 980});
  expected.kernel = signature_of(query_of(plan, plan.kernels[0], plan.streams[0]));
  expect_near(measured[0], expected);
  // Times that differ for good are no disturbance.
  events.clear();
  for (const int64_t ns : {1000, 2000, 1000, 2000, 1000, 2000}) events.push_back(run_of(plan, 0, ns));
  EXPECT_EQ(measured_runs(plan, events)[0].runs, 6);
  EXPECT_DOUBLE_EQ(measured_runs(plan, events)[0].mean_ns, 1500);
}

TEST(Costs, KernelsOfEqualSignaturesAreOneHistory) {
  PlanBuilder b;
  const int compute = b.stream();
  const int feed = b.feed("feed", compute), net = b.actor("net", compute);
  const int x = b.reg("x", feed, {net}, {.bytes = 64});
  const int scratch = b.buffer("scratch", 64);
  b.input("x", x, b.f32({16}));
  for (int i = 0; i < 3; ++i) b.run(net, "relu", {b.of_reg(x, {16})}, {b.of_buffer(scratch, {16})});
  const Plan plan = b.build();
  const std::vector<KernelHistory> measured =
      measured_runs(plan, std::vector{run_of(plan, 0, 100), run_of(plan, 1, 101), run_of(plan, 2, 102)});
  ASSERT_EQ(measured.size(), 1u);
  EXPECT_EQ(measured[0].runs, 3);
  EXPECT_TRUE(has_all(measured, plan));
  EXPECT_FALSE(has_all({}, plan));
}

TEST(Costs, WhatTellsNothingOfAKernelAloneIsLeftOut) {
  Plan plan = two_stage_plan();
  TraceEvent wait = run_of(plan, 0, 10), together = run_of(plan, 0, 10), firing = run_of(plan, 0, 10),
             left_out = run_of(plan, 0, 10);
  wait.wait = true;
  together.kernels = 2;
  firing.kernel = -1;
  left_out.left_out = true;
  EXPECT_TRUE(measured_runs(plan, std::vector{wait, together, firing, left_out}).empty());
  const std::vector<TraceEvent> events{run_of(plan, 0, 10), run_of(plan, 1, 10), run_of(plan, 2, 10)};
  EXPECT_EQ(measured_runs(plan, events).size(), 3u);
  EXPECT_TRUE(has_all(measured_runs(plan, events), plan));
  plan.kernels[0].collective = 0;
  plan.streams[1].device = parse_device("sim:0");
  EXPECT_TRUE(measured_runs(plan, events).empty());
  EXPECT_TRUE(has_all({}, plan));  // nothing can be measured
}

TEST(Costs, PartsPutTogetherAreTheWhole) {
  std::mt19937 random(1);
  std::normal_distribution<double> ns(1e6, 1e4);
  std::vector<double> all(1000);
  for (double& t : all) t = ns(random);
  for (const size_t cut : {size_t{1}, size_t{17}, size_t{500}, size_t{999}}) {
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(cut);
    std::vector<KernelHistory> history{history_of({all.begin(), at})};
    merge(history, std::vector{history_of({at, all.end()}), history_of({3.0}, "add")});
    ASSERT_EQ(history.size(), 2u);
    EXPECT_EQ(history[0].kernel.op, "add");  // in order
    EXPECT_EQ(history[0].std_ns(), 0);
    expect_near(history[1], history_of(all));
  }
  std::vector<KernelHistory> many{history_of({1, 2})};
  many[0].runs = kMostRuns;
  merge(many, std::vector{many[0]});
  EXPECT_EQ(many[0].runs, kMostRuns);
}

TEST(Costs, FilesComeBackAsTheyWere) {
  Machine machine;
  machine.links.push_back({"0/*", "1/\"*", 0.1, 1e9 / 3});
  machine.kernels.push_back({"*/mul", 2.0 / 3});
  merge(machine.measured, std::vector{history_of({1.0 / 3, 2, 3}), history_of({7}, "add")});
  const std::string text = to_json(machine);
  const Machine read = machine_from_json(text, "costs.json");
  EXPECT_EQ(to_json(read), text);
  EXPECT_EQ(read.links[0].other, "1/\"*");
  ASSERT_EQ(read.measured.size(), 2u);
  expect_near(read.measured[1], history_of({1.0 / 3, 2, 3}));
}

TEST(Costs, FilesOfBeforeAreReadAndNewerOnesRefused) {
  const Machine old =
      machine_from_json(R"({"links": [], "kernels": [{"name": "*mul*", "cost_ns": "12.5"}]})", "costs.json");
  EXPECT_EQ(old.kernels.at(0).cost_ns, 12.5);
  EXPECT_TRUE(old.measured.empty());
  EXPECT_EQ(error_of([] { machine_from_json(R"({"version": 2, "who": "knows"})", "costs.json"); }),
            "value: costs.json: version 2: newer than this build, which reads version 1; upgrade Sluice");
}

constexpr const char* kEntry =
    R"({"op": "mul", "attrs": "", "operands": "", "device": "cpu:0", "cores": 1, "n": 2, "mean_ns": 15, "std_ns": 7, )"
    R"("min_ns": 10, "max_ns": 20})";

std::string file_with(const std::string& entries) {
  return R"({"version": 1, "links": [], "measured": [)" + entries + "]}";
}

TEST(Costs, FilesPutTogetherByHandAreOneHistory) {
  const Machine machine = machine_from_json(file_with(std::string(kEntry) + "," + kEntry), "costs.json");
  ASSERT_EQ(machine.measured.size(), 1u);
  EXPECT_EQ(machine.measured[0].runs, 4);
  EXPECT_DOUBLE_EQ(machine.measured[0].mean_ns, 15);
}

TEST(Costs, WrongHistoriesAreErrorsThatNameTheField) {
  const auto refused = [](const std::string& from, const std::string& to) {
    std::string entry = kEntry;
    entry.replace(entry.find(from), from.size(), to);
    return error_of([&] { machine_from_json(file_with(entry), "costs.json"); });
  };
  EXPECT_EQ(refused(R"("n": 2)", R"("n": 0)"),
            "value: costs.json: measured[0].n: out of range: 0; must be in 1 to 1000000000000");
  EXPECT_EQ(refused(R"("mean_ns": 15)", R"("mean_ns": 25)"),
            "value: costs.json: measured[0].mean_ns: out of range: 25; must be between min_ns, 10, and max_ns, 20");
  EXPECT_EQ(refused(R"("std_ns": 7)", R"("std_ns": -7)"),
            "value: costs.json: measured[0].std_ns: out of range: -7; must be a non-negative number up to 1e18");
  EXPECT_EQ(refused(R"("cores": 1)", R"("cores": 0)"),
            "value: costs.json: measured[0].cores: out of range: 0; must be in 1 to 2147483647");
  EXPECT_EQ(refused(R"("op": "mul", )", ""), "value: costs.json: measured[0].op: missing; every field must be given");
}

TEST(Costs, NamesComeBeforeHistoriesAndHistoriesServeOtherPlans) {
  const Plan plan = two_stage_plan();
  Machine machine;
  machine.measured = measured_runs(plan, std::vector{run_of(plan, 0, 700), run_of(plan, 1, 300)});
  Plan other = two_stage_plan({.quota = 3, .host_ns = 5, .compute_ns = 5});
  for (Kernel& k : other.kernels) k.name = "other/" + k.name;
  const Plan known = on_machine(other, machine);
  EXPECT_EQ(known.kernels[0].cost_ns, 700);
  EXPECT_EQ(known.kernels[1].cost_ns, 300);
  EXPECT_EQ(known.kernels[2].cost_ns, 2.5);  // as it was
  machine.kernels.push_back({"other/*shift", 1});
  EXPECT_EQ(on_machine(other, machine).kernels[0].cost_ns, 1);
  EXPECT_EQ(on_machine(other, machine).kernels[1].cost_ns, 300);
}

}  // namespace
}  // namespace sluice::plan
