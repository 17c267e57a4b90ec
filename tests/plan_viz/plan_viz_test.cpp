#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "plan/ranks.h"
#include "plan/time/costs.h"
#include "support/forecast_plan.h"
#include "support/pipeline_plan.h"
#include "support/simulated_recording.h"
#include "support/two_stage_plan.h"
#include "tools/plan_viz/page.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {
namespace {

using plan::two_stage_plan;
using ::testing::HasSubstr;

TEST(PlanViz, ShowIsAsGolden) {
  EXPECT_THAT(show_text(two_stage_plan(), {.width = 100}),
              ::testing::StartsWith(R"(plan 'two_stage'  4 actors, 3 kernels, 3 registers, 2 streams, 512 B
cpu:0
├─ stream cpu:0/host0  1 core, 3 actors
│  ├─ 1. feed (feed)
│  │  └─ ▶ raw  quota 2 × 64 B → prepare
│  ├─ 2. prepare  1 kernel, 1 us
│  │  ├─ ◀ raw
│  │  ├─ run prepare/shift  1 us  train.py:12 → images float32(16,)
│  │  ├─ ▶ images  quota 2 × 64 B → net
│  │  └─ release raw
│  └─ 3. sink (sink)
│     ├─ ◀ loss
│     └─ release loss
└─ stream cpu:0/compute0  2 cores, 1 actor
   └─ 1. net  2 kernels, 1 us
      ├─ ◀ images
      ├─ run net/mul  500 ns  train.py:20 → hidden float32(16,)
      ├─ release images
      ├─ run net/sum  500 ns → loss float32()
      └─ ▶ loss  quota 2 × 4 B → sink

input  x: float32(16,)
output loss: float32()
)"));
}

TEST(PlanViz, LinesFitTheWidthAndColourIsOptional) {
  const std::string narrow = show_text(two_stage_plan(), {.width = 40});
  for (size_t at = 0; at < narrow.size();) {
    const size_t end = narrow.find('\n', at);
    size_t columns = 0;
    for (size_t i = at; i < end; ++i) columns += (static_cast<unsigned char>(narrow[i]) & 0xC0) != 0x80;
    EXPECT_LE(columns, 40u) << narrow.substr(at, end - at);
    at = end + 1;
  }
  EXPECT_THAT(narrow, HasSubstr("…"));
  EXPECT_EQ(narrow.find('\x1b'), std::string::npos);
  EXPECT_NE(show_text(two_stage_plan(), {.color = true}).find('\x1b'), std::string::npos);
}

TEST(PlanViz, ShowNamesWhatLimitsAPlanAndWhatOneMoreSlotGains) {
  const std::string waits = show_text(two_stage_plan({.quota = 1}), {.width = 200});
  EXPECT_THAT(
      waits,
      HasSubstr("\nlimited by 'prepare' -(data 'images')-> 'net' -(slot of 'images')-> 'prepare': 1.5 us a step"));
  EXPECT_THAT(waits, HasSubstr("\n  one more slot of 'images', 64 B more: 1 us a step\n"));
  const std::string busy = show_text(two_stage_plan({.quota = 2, .host_ns = 200}), {.width = 200});
  EXPECT_THAT(busy, HasSubstr("\nlimited by 'net' -(stream cpu:0/compute0)-> 'net': 1 us a step, predicted\n"
                              "  nothing waits for a slot: more of them gain nothing\n"));
  EXPECT_THAT(show_text(two_stage_plan({.host_ns = 0, .compute_ns = 0}), {}), ::testing::Not(HasSubstr("limited by")));
}

TEST(PlanViz, MemMapsArenasOverAPeriod) {
  const std::string text = mem_text(two_stage_plan(), {.width = 100});
  EXPECT_THAT(text, HasSubstr("plan 'two_stage' needs 512 bytes"));
  EXPECT_THAT(text, HasSubstr("arena 'host'  host, disjoint, 448 bytes; lower bound 448 B"));
  EXPECT_THAT(text, HasSubstr("        64       64 B  raw.0                             █████"));
}

TEST(PlanViz, VerifyPrintsTheProofOrTheFault) {
  plan::Plan plan = two_stage_plan();
  EXPECT_THAT(verify_text(plan, {}), HasSubstr("feed prepare net sink"));
  plan.certificate.clear();
  EXPECT_THAT(verify_text(plan, {}), HasSubstr("found by greedy execution"));
  plan.registers[1].initial_tokens = 9;
  EXPECT_THAT(verify_text(plan, {}), HasSubstr("refused\n  structure: register 'images': initial_tokens is 9"));
}

TEST(PlanViz, SimulateNamesTheCriticalCycle) {
  const std::string text = simulate_text(two_stage_plan({.quota = 2, .host_ns = 200}), {.steps = 20}, {.width = 80});
  EXPECT_THAT(text, HasSubstr("period        1 us  per step, steady"));
  EXPECT_THAT(text, HasSubstr("critical cycle: 'net' -(stream cpu:0/compute0)-> 'net'"));
  EXPECT_THAT(text, HasSubstr("images  2 of 2  64 B"));
}

// The times of the kernels of two_stage_plan().
plan::Machine measured_machine() {
  const plan::Plan plan = two_stage_plan();
  std::vector<TraceEvent> events;
  for (const auto& [kernel, ns] : {std::pair{0, 1000}, {0, 1100}, {0, 1200}, {1, 800}})
    events.push_back({.stream = kernel == 0 ? 0 : 1, .kernel = kernel, .end_ns = ns});
  return {.links = {}, .kernels = {}, .measured = plan::measured_runs(plan, events)};
}

TEST(PlanViz, CostIsAsGolden) {
  const plan::Machine machine = measured_machine();
  EXPECT_EQ(cost_text(machine, nullptr, {}), R"(2 kernels
  n    mean     std     min     max  device  cores  kernel
  1  800 ns    0 ns  800 ns  800 ns  cpu:0       2  mul  float32(16,), float32(16,) -> float32(16,)
  3  1.1 us  100 ns    1 us  1.2 us  cpu:0       1  shift  float32(16,) -> float32(16,)  {pad = 2}
)");
  const plan::Plan plan = two_stage_plan();
  EXPECT_EQ(cost_text(machine, &plan, {.width = 120}), R"(plan 'two_stage', 3 different kernels, 2 of them measured
  calls  in the plan  n    mean     std     min     max  device  cores  kernel
      1       500 ns  1  800 ns    0 ns  800 ns  800 ns  cpu:0       2  mul  float32(16,), float32(16,) -> float32(16,)
      1         1 us  3  1.1 us  100 ns    1 us  1.2 us  cpu:0       1  shift  float32(16,) -> float32(16,)  {pad = 2}
      1       500 ns  0       -       -       -       -  cpu:0       2  sum  float32(16,) -> float32()
)");
}

TEST(PlanViz, ParetoIsAsGolden) {
  const plan::Plan plan = two_stage_plan({.quota = 3});
  EXPECT_EQ(pareto_text(plan, {}), R"(plan 'two_stage', bytes of slots against steps per second
            slots  period    steps/s  of the fastest  slots of
            320 B  1.5 us  6.667e+05           66.7%  the fewest
            384 B    1 us      1e+06          100.0%  images 2
  as it is  448 B    1 us      1e+06          100.0%
)");
  const std::string picture = pareto_svg(plan);
  EXPECT_THAT(picture, ::testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(picture, ::testing::EndsWith("</svg>\n"));
  EXPECT_THAT(picture, HasSubstr("images 2</title>"));
  EXPECT_EQ(picture.find("nan"), std::string::npos);
  EXPECT_THAT(pareto_text(two_stage_plan({.host_ns = 0, .compute_ns = 0}), {}), HasSubstr("nothing says how fast"));
  EXPECT_EQ(pareto_svg(two_stage_plan({.host_ns = 0, .compute_ns = 0})).find("nan"), std::string::npos);
  const boost::json::value json = boost::json::parse(pareto_json(plan));
  EXPECT_EQ(json.at("points").as_array().size(), 2u);
  EXPECT_EQ(json.at("points").at(1).at("quotas").at("images").as_int64(), 2);
}

TEST(PlanViz, BottleneckIsAsGolden) {
  EXPECT_EQ(bottleneck_text(two_stage_plan({.quota = 1}), {.steps = 16}, {}),
            R"(plan 'two_stage', 1.5 us a step, predicted
  critical cycle: 'prepare' -(data 'images')-> 'net' -(slot of 'images')-> 'prepare'

one more slot
  of register  bytes more  a step then     which is
  images             64 B         1 us  33.3 % less

kernels twice as fast
  kernel                   takes now  a step then     which is
  shift ('prepare/shift')       1 us         1 us  33.3 % less
  mul ('net/mul')             500 ns      1.25 us  16.7 % less
  sum ('net/sum')             500 ns       1.5 us   0.0 % less
)");
  const std::string busy = bottleneck_text(two_stage_plan({.host_ns = 200}), {.steps = 16}, {});
  EXPECT_THAT(busy, HasSubstr("nothing in the cycle waits for a slot: more of them gain nothing"));
  EXPECT_THAT(bottleneck_text(two_stage_plan({.host_ns = 0, .compute_ns = 0}), {}, {}),
              HasSubstr("nothing is known to limit it"));
  EXPECT_THAT(bottleneck_text(two_stage_plan(), {.steps = 2}, {}), HasSubstr("give --steps a larger number"));
  const boost::json::value json = boost::json::parse(bottleneck_json(two_stage_plan({.quota = 1}), {.steps = 16}));
  EXPECT_EQ(json.at("slots").at(0).at("register"), "images");
  EXPECT_EQ(json.at("kernels").at(0).at("names").at(0), "prepare/shift");
}

TEST(PlanViz, DotHasAClusterPerDeviceAndStream) {
  const std::string dot = dot_text(two_stage_plan());
  EXPECT_THAT(dot, HasSubstr("label=\"cpu:0/compute0\""));
  EXPECT_THAT(dot, HasSubstr("a1 -> a2 [label=\"images ×2 64 B\"]"));
}

TEST(PlanViz, EveryViewHasValidJson) {
  const plan::Plan plan = two_stage_plan();
  for (const std::string& text :
       {show_json(plan), stats_json(plan), mem_json(plan), verify_json(plan), simulate_json(plan, {}),
        cost_json(measured_machine(), &plan), pareto_json(plan), bottleneck_json(plan, {})}) {
    boost::json::error_code error;
    const boost::json::value v = boost::json::parse(text, error);
    ASSERT_FALSE(error) << error.message() << "\n" << text;
    EXPECT_EQ(v.at("name"), "two_stage");
  }
  EXPECT_EQ(boost::json::parse(simulate_json(plan, {.steps = 20})).at("firings").as_array().size(), 80u);
  EXPECT_EQ(boost::json::parse(mem_json(plan)).at("total").as_int64(), 512);
  const boost::json::value all = boost::json::parse(cost_json(measured_machine(), nullptr));
  EXPECT_TRUE(all.at("name").is_null());
  EXPECT_EQ(all.at("measured").as_array().size(), 2u);
  EXPECT_EQ(all.at("measured").at(1).at("n").as_int64(), 3);
  EXPECT_EQ(boost::json::parse(cost_json({}, &plan)).at("measured").at(0).at("n").as_int64(), 0);
}

// Two stages on two replicas each.
const plan::ForecastOptions kRanks{.stages = 2, .replicas = 2, .micro = 2};

TEST(PlanVizRanks, ShowGroupsByRankAndEndsWithWhatRanksHaveInCommon) {
  const std::string text = show_text(plan::forecast_plan(kRanks), {.width = 100});
  for (const char* part : {"\n\nrank 0\ncpu:0\n├─ stream cpu:0/host0  1 core, 2 actors\n",
                           "\n\nrank 3\n3/cpu:0\n├─ stream 3/cpu:0/host0  1 core, 2 actors\n",
                           "▶ activation0  quota 2 × 16 B → forward2 on rank 2\n", "◀ activation0 from rank 0\n"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_EQ(text.substr(text.find("between ranks")), R"(between ranks
  activation0  0 → 2  2 × 16 B
  activation1  1 → 3  2 × 16 B
  gradient2    2 → 0  2 × 16 B
  gradient3    3 → 1  2 × 16 B

group 0  ranks 0, 1; 1 call a period
  1. all_reduce  16 B  reduce0/all_reduce, reduce1/all_reduce

group 1  ranks 2, 3; 1 call a period
  1. all_reduce  16 B  reduce2/all_reduce, reduce3/all_reduce
)");
  const boost::json::value v = boost::json::parse(show_json(plan::forecast_plan(kRanks)));
  EXPECT_EQ(boost::json::serialize(v.at("between_ranks").at(3)),
            R"({"register":"gradient3","from":3,"to":[1],"bytes":16,"quota":2})");
  EXPECT_EQ(boost::json::serialize(v.at("groups").at(1)),
            R"({"group":1,"ranks":[2,3],"calls":[{"op":"all_reduce","bytes":16,)"
            R"("kernels":["reduce2/all_reduce","reduce3/all_reduce"]}]})");
}

// DDP-04: the order in which all ranks make a group's calls; RAY-11: what crosses is told.
TEST(PlanVizRanks, TheOrderOfAGroupsCallsIsThatInWhichTheyAreMet) {
  plan::Plan plan = plan::forecast_plan({.replicas = 2});
  for (int k = 0, kernels = static_cast<int>(plan.kernels.size()); k < kernels; ++k) {  // each calls once more
    if (plan.kernels[k].op != "all_reduce") continue;
    for (plan::Actor& actor : plan.actors) {
      if (plan.kernels[k].name == actor.name + "/all_reduce")
        actor.program.insert(actor.program.begin() + 1, {plan::InstrKind::kRun, static_cast<int>(plan.kernels.size())});
    }
    plan.kernels.push_back(plan.kernels[k]);
    plan.kernels.back().name += "_again";
  }
  const std::string text = show_text(plan, {.width = 100});
  EXPECT_THAT(text, HasSubstr("group 0  ranks 0, 1; 2 calls a period\n"
                              "  1. all_reduce  16 B  reduce0/all_reduce, reduce1/all_reduce\n"
                              "  2. all_reduce  16 B  reduce0/all_reduce_again, reduce1/all_reduce_again\n"));
  const std::string crossing =
      show_text(plan::pipeline_plan({.buffer_on_forward_stream = false, .crossing_collectives = true}), {});
  EXPECT_THAT(crossing, HasSubstr("not all calls are met: deadlock: "));
}

TEST(PlanVizRanks, SimulateTellsTheUseOfEachDeviceAndWhoWaits) {
  const plan::Plan plan =
      plan::on_machine(plan::side_by_side(plan::forecast_plan(kRanks)), {{{"*", "*", 84, 1e9}}, {}});
  const std::string text = simulate_text(plan, {.steps = 20}, {.width = 100});
  EXPECT_THAT(text, HasSubstr("  - waits for other ranks\n"));
  EXPECT_THAT(text, HasSubstr("cpu:0/receive gradient2@0  "));
  const boost::json::value v = boost::json::parse(simulate_json(plan, {.steps = 20}));
  ASSERT_EQ(v.at("devices").as_array().size(), 4u);
  for (const boost::json::value& d : v.at("devices").as_array()) {
    const double shares = d.at("compute").as_double() + d.at("exposed").as_double() + d.at("bubble").as_double();
    EXPECT_NEAR(shares, 1, 1e-9);
    EXPECT_NEAR(d.at("compute").as_double() * v.at("period_ns").to_number<double>(), 2 * 3000 + 500, 1);
    EXPECT_THAT(text, HasSubstr(fmt::format("{:.1f}%", 100 * d.at("compute").as_double())));
  }
}

// Three requests to two_stage: two in one step, one alone in another instance.
const char* const kServed = R"([
{"id":1,"model_name":"two","model_version":"1","request_id":"first"},
{"id":1,"timestamps":[{"name":"REQUEST_START","ns":1000},{"name":"QUEUE_START","ns":1100},{"name":"COMPUTE_START","ns":1200},{"name":"COMPUTE_END","ns":5000},{"name":"REQUEST_END","ns":6000}]},
{"id":1,"instance":0,"step":4},
{"id":2,"model_name":"two","model_version":"1","request_id":""},
{"id":2,"timestamps":[{"name":"REQUEST_START","ns":1050},{"name":"QUEUE_START","ns":1150},{"name":"COMPUTE_START","ns":1200},{"name":"COMPUTE_END","ns":5000},{"name":"REQUEST_END","ns":6100}]},
{"id":1,"ids":[1,2],"instance":0,"number":4,"plans":1,"events":[
{"kind":"firing","plan":0,"stream":"cpu:0/host0","actor":"prepare","begin_ns":1300,"end_ns":2500},
{"kind":"kernel","plan":0,"stream":"cpu:0/host0","actor":"prepare","kernel":"prepare/shift","kernels":1,"begin_ns":1400,"end_ns":2400},
{"kind":"firing","plan":0,"stream":"cpu:0/compute0","actor":"net","begin_ns":2600,"end_ns":4900},
{"kind":"kernel","plan":0,"stream":"cpu:0/compute0","actor":"net","kernel":"net/mul","kernels":2,"begin_ns":2700,"end_ns":4800}]},
{"id":3,"model_name":"two","model_version":"1","request_id":"third"},
{"id":3,"timestamps":[{"name":"REQUEST_START","ns":7000},{"name":"REQUEST_END","ns":9000}]},
{"id":3,"ids":[3],"instance":1,"number":0,"plans":1,"events":[
{"kind":"firing","plan":0,"stream":"cpu:0/compute0","actor":"net","begin_ns":7500,"end_ns":8500}]},
{"id":4,"model_name":"other","model_version":"1","request_id":"elsewhere"},
{"id":4,"ids":[4],"instance":0,"number":0,"plans":1,"events":[
{"kind":"firing","plan":0,"stream":"cpu:0/compute0","actor":"of another plan","begin_ns":7500,"end_ns":8500}]}
])";

TEST(PlanVizRequests, AreJoinedToWhatFiredForThem) {
  const plan::Plan plan = two_stage_plan();
  const ServedTrace trace = served_trace(kServed, "trace.json", plan, {});
  EXPECT_EQ(requests_text(plan, trace, {}),
            "plan 'two_stage', 3 requests, 2 steps; 1 of other plans\n"
            "  id  instance  step   queue  compute  in kernels  firings  kernels  with  request\n"
            "   1         0     4  100 ns   3.8 us      3.1 us        2        2  2     first\n"
            "   2         0     4   50 ns   3.8 us      3.1 us        2        2  1\n"
            "   3         1     0       -        -        0 ns        1        0        third\n");
  const boost::json::value json = boost::json::parse(requests_json(plan, trace));
  const boost::json::array& requests = json.at("requests").as_array();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].at("steps"), requests[1].at("steps"));
  EXPECT_EQ(requests[0].at("stamps").at("COMPUTE_END").as_int64(), 4000) << "times count from the first";
  const boost::json::value& step = json.at("steps").at(0);
  EXPECT_EQ(step.at("ids"), (boost::json::array{1, 2}));
  EXPECT_EQ(step.at("events").at(3).at("name"), "net/mul and 1 more");
  EXPECT_EQ(step.at("events").at(3).at("stream"), "cpu:0/compute0");
}

TEST(PlanVizRequests, WhatIsNoTraceOfThePlanIsRefused) {
  const auto refusal = [](const std::string& text, const ServedOptions& options = {}) {
    try {
      served_trace(text, "trace.json", two_stage_plan(), options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(refusal(kServed, {.model = "three"}),
              HasSubstr("trace.json: none of its 4 requests ran plan 'two_stage' as model 'three'; give a file that "
                        "sluice-serve --trace-config file=PATH has written"));
  EXPECT_THAT(refusal("[]"), HasSubstr("none of its 0 requests"));
  EXPECT_THAT(refusal("{}"), HasSubstr("a record has not the form"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("a record has not the form"));
  EXPECT_THAT(refusal(R"([{"id":-1}])"), HasSubstr("a record has not the form"));
  EXPECT_THAT(refusal(R"([{"id":1,"ids":[1],"instance":4000000000,"number":0,"plans":1,"events":[]}])"),
              HasSubstr("a step of instance 4000000000"));
  EXPECT_THAT(refusal("[{"), HasSubstr("trace.json"));
}

TEST(PlanVizRanks, DotAndPageHaveThemToo) {
  const plan::Plan plan = plan::forecast_plan(kRanks);
  const std::string dot = dot_text(plan);
  for (int r = 0; r < 4; ++r) EXPECT_THAT(dot, HasSubstr(fmt::format("label=\"rank {}\"", r)));
  EXPECT_THAT(dot, HasSubstr("label=\"activation0 ×2 16 B\", color="));
  EXPECT_THAT(dot, HasSubstr("[label=\"group 1\", dir=none"));
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), std::count(dot.begin(), dot.end(), '}'));
  const plan::Plan ranks = plan::side_by_side(plan);
  const std::string page = page_json({.plan = &plan, .simulated = &ranks, .source_roots = {"."}});
  EXPECT_THAT(page, HasSubstr("[0,\"0, 1\",1,\"all_reduce\",16,\"reduce0/all_reduce, reduce1/all_reduce\"]"));
  EXPECT_THAT(page, HasSubstr("\"receive gradient2@0\""));
  EXPECT_THAT(page, HasSubstr("\"ok\":true"));
}

boost::json::value data_of(const plan::Plan& plan, const Page& more = {}) {
  Page page = more;
  page.plan = page.simulated = &plan;
  return boost::json::parse(page_json(page));
}

TEST(PlanVizPage, IsOneFileWithTheSourceLines) {
  const std::filesystem::path dir =
      std::filesystem::path(::testing::TempDir()) / ("plan_viz_page_" + std::to_string(getpid()));
  std::filesystem::create_directories(dir);
  std::ofstream source(dir / "train.py");
  for (int i = 1; i <= 30; ++i) source << "line_" << i << " = \"</script><b>\"\n";
  source.close();
  const plan::Plan plan = two_stage_plan();
  const std::string page = html_page({{.plan = &plan, .simulated = &plan, .source_roots = {dir.string(), "."}}});
  std::filesystem::remove_all(dir);
  EXPECT_THAT(page, HasSubstr(R"("train.py:20":{"line":20,"first":18,"lines":["line_18)"));
  // Nothing is loaded from elsewhere, and the data cannot end its script element.
  EXPECT_THAT(page, HasSubstr("content=\"default-src 'none'; script-src 'nonce-"));
  EXPECT_FALSE(std::regex_search(page.substr(0, page.find("<style")), std::regex("(src|href)=|https?:")));
  size_t closings = 0;
  for (size_t at = page.find("</script>"); at != std::string::npos; at = page.find("</script>", at + 1)) ++closings;
  EXPECT_EQ(closings, 2u);
}

// wire.ts expands them.
TEST(PlanVizPage, ColumnsAreWrittenInTheirShortestForm) {
  EXPECT_EQ(column({7, 7, 7}), "7");
  EXPECT_EQ(column({7}), "[7]");
  EXPECT_EQ(column({}), "[]");
  EXPECT_EQ(column({3, 9, 1}), "[3,9,1]");
  EXPECT_EQ(counted({1007, 1007, 1007, 1007, 1007, 1007, 1007, 1007}), R"({"first":1007,"count":8,"more":0})");
  EXPECT_EQ(column({1000, 1064, 1128, 1192, 1256, 1320, 1384, 1448}), R"({"first":1000,"count":8,"more":64})");
  EXPECT_EQ(column({100001, 100003, 100002, 100005, 100007, 100006, 100009, 100011}),
            R"({"first":100001,"count":8,"more":[2,-1,3,2,-1,3,2]})");
  const int64_t huge = INT64_MAX;
  EXPECT_EQ(column({huge, -huge, huge, huge, huge, huge}), plain({huge, -huge, huge, huge, huge, huge}));
}

TEST(PlanVizPage, HasWhatWasForecastAndWhatWasRecorded) {
  const plan::Plan plan = two_stage_plan({.host_ns = 200});
  const plan::Recording recording = plan::simulated_recording(plan, {.steps = 5});
  const boost::json::value page = data_of(plan, {.recording = &recording});
  const boost::json::array& runs = page.at("runs").as_array();
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].at("name"), "predicted");
  EXPECT_EQ(runs[0].at("firings"), 4 * 4) << "four steps of four actors";
  EXPECT_EQ(runs[0].at("count"), 0) << "each firing has the kernels of its actor's program";
  EXPECT_EQ(runs[1].at("name"), "measured");
  EXPECT_EQ(runs[1].at("firings"), 5 * 4);
  EXPECT_EQ(runs[1].at("spans"), 5 * 3);
  EXPECT_EQ(runs[1].at("blame").as_array().size(), 4u);
  EXPECT_EQ(page.at("cycle").as_array().size(), 1u) << "one stream limits it";
  EXPECT_EQ(page.at("kernels").at("n").at(1), "net/mul");
}

TEST(PlanVizPage, HasTheRequestsOfAServer) {
  const plan::Plan plan = two_stage_plan();
  const ServedTrace trace = served_trace(kServed, "trace.json", plan, {});
  const boost::json::value page = data_of(plan, {.served = &trace});
  const boost::json::value& run = page.at("runs").at(1);
  EXPECT_EQ(run.at("instances"), 2);
  EXPECT_EQ(boost::json::serialize(run.at("steps").at(0)), "[[1,2],0,4]");
  EXPECT_EQ(boost::json::serialize(run.at("lane")), "[0,1,3]") << "each instance has two streams";
  EXPECT_EQ(run.at("requests").at(0).at("id"), "first");
}

TEST(PlanVizPage, ARefusedPlanStillHasAPage) {
  plan::Plan plan = two_stage_plan();
  plan.certificate = {0};
  EXPECT_EQ(data_of(plan).at("ok"), false);
  plan = plan::forecast_plan(kRanks);
  plan.edges[0].take = 2;  // rates that do not fit
  EXPECT_EQ(data_of(plan).at("ok"), false);
}

}  // namespace
}  // namespace sluice::plan_viz
