// Views of recorded runs, and those that compare and explain plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "plan/json/json.h"
#include "plan_viz/run_plan_viz.h"
#include "support/error_of.h"
#include "support/simulated_recording.h"
#include "support/two_stage_plan.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {
namespace {

using plan::BlameBy;
using plan::two_stage_plan;
using ::testing::HasSubstr;
using ::testing::Not;

// 'prepare' takes three times as long as 'net', so that 'net' waits for it.
plan::Recording input_bound() {
  return plan::simulated_recording(two_stage_plan({.host_ns = 3e6, .compute_ns = 1e6}), {.steps = 10});
}

TEST(RecordingViews, BlameSaysWhoWasWaitedFor) {
  const std::string text = blame_text(input_bound(), BlameBy::kActor, {.width = 100});
  EXPECT_THAT(text, HasSubstr("31 ms recorded; 'net' ran 32.3 % of it and waited 67.7 % for input and slots: "
                              "'prepare' ran 67.7 %\n"));
  EXPECT_THAT(text, HasSubstr("'images' of 'prepare' 67.7%"));
  EXPECT_THAT(text, Not(HasSubstr("device")));  // columns that say nothing are left out
}

TEST(RecordingViews, BlameByLineNamesLinesOfTheProgram) {
  const std::string text = blame_text(input_bound(), BlameBy::kLine, {.width = 100});
  EXPECT_THAT(text, HasSubstr("train.py:12"));
  EXPECT_THAT(text, HasSubstr("train.py:20"));
  const boost::json::value json = boost::json::parse(blame_json(input_bound(), BlameBy::kRole));
  EXPECT_EQ(json.at("by").as_string(), "role");
  EXPECT_EQ(json.at("last").as_string(), "net");
  EXPECT_EQ(json.at("roots").at(0).at("actor").as_string(), "prepare");
}

TEST(RecordingViews, MissingEventsAreSaid) {
  plan::Recording recording = input_bound();
  EXPECT_THAT(trace_text(recording, {}), Not(HasSubstr("missing")));
  recording.trace.lost = 17;
  for (const std::string& text :
       {trace_text(recording, {}), blame_text(recording, BlameBy::kActor, {}), latency_text(recording, 1, {})})
    EXPECT_THAT(text, HasSubstr("17 events are missing: they came too fast"));
}

TEST(RecordingViews, LatencyAndTraceCount) {
  EXPECT_THAT(latency_text(input_bound(), 1, {.width = 100}), ::testing::ContainsRegex("feed +sink +10 "));
  EXPECT_THAT(trace_text(input_bound(), {.width = 100}), ::testing::ContainsRegex("cpu:0/compute0 +10 +20 "));
  const boost::json::value json = boost::json::parse(trace_json(input_bound()));
  EXPECT_EQ(json.at("recorded_ns").as_int64(), 31'000'000);
  EXPECT_THAT(chrome_text(input_bound()), HasSubstr("\"cause\":\"data 'images'\""));
  EXPECT_THAT(csv_text(input_bound()),
              ::testing::StartsWith("kind,stream,actor,kernel,kernels,step,begin_ns,end_ns\n"));
  EXPECT_THAT(csv_text(input_bound()),
              ::testing::ContainsRegex("\nkernel,cpu:0/host0,prepare,prepare/shift,1,[0-9]+,[0-9]+,[0-9]+\n"));
}

TEST(RecordingViews, ABoundStandsBesideWhatStepsTook) {
  const boost::json::value json = boost::json::parse(latency_json(input_bound(), 1));
  const boost::json::value& path = json.at("paths").at(0);
  EXPECT_GE(path.at("bound_ns").to_number<double>(), path.at("max_ns").to_number<double>());
  EXPECT_EQ(path.at("why").as_string(), "");
  const std::string text = latency_text(input_bound(), 0.5, {.width = 100});
  EXPECT_THAT(text, HasSubstr("if no firing takes longer than 50 % of those recorded of its actor"));
  EXPECT_THAT(text, HasSubstr("feed to sink: at most "));
  EXPECT_THAT(text, HasSubstr("what cpu:0/host0 can do meanwhile "));
}

TEST(RecordingViews, AnEmptyRecordingIsShown) {
  const plan::Recording empty{two_stage_plan(), {}, -1};
  EXPECT_THAT(blame_text(empty, BlameBy::kActor, {}), HasSubstr("0 ms recorded; no kernel ran next to a sink"));
  EXPECT_THAT(latency_text(empty, 1, {}), ::testing::ContainsRegex("feed +sink +0"));
  boost::json::parse(blame_json(empty, BlameBy::kModule));
}

TEST(RecordingViews, AMeasuredPlanCostsWhatItTook) {
  plan::Recording recording = plan::simulated_recording(two_stage_plan({.host_ns = 3e6}), {.steps = 10});
  for (plan::Kernel& kernel : recording.plan.kernels) kernel.cost_ns = 1;
  EXPECT_DOUBLE_EQ(measured_plan(recording).kernels[0].cost_ns, 3e6);
}

TEST(DiffView, NamesWhatDiffers) {
  EXPECT_EQ(diff_text(diff_plans(two_stage_plan(), two_stage_plan()), {}), "no difference\n");
  const plan::Plan a = two_stage_plan(), b = two_stage_plan({.quota = 1});
  EXPECT_EQ(diff_text(diff_plans(a, b), {}), R"(2 differences
~ register images  quota: 2 -> 1
~ arena host  bytes: 448 -> 384
)");
  plan::Plan renamed = a;
  renamed.kernels[1].name = "net/times";
  renamed.options.emplace_back("cores", int64_t{2});
  const std::string text = diff_text(diff_plans(a, renamed), {});
  EXPECT_THAT(text, HasSubstr("\n- kernel net/mul\n"));
  EXPECT_THAT(text, HasSubstr("\n+ kernel net/times\n"));
  EXPECT_THAT(text, HasSubstr("\n+ option cores\n"));
  EXPECT_THAT(text, HasSubstr("~ actor net  program: run net/mul, "));
  const boost::json::value json = boost::json::parse(diff_json(diff_plans(a, renamed)));
  EXPECT_FALSE(json.at("equal").as_bool());
  EXPECT_EQ(json.at("differences").as_array().size(), diff_plans(a, renamed).rows.size());
}

// What is put in front of all others moves every index, and is one difference of its kind all the same.
TEST(DiffView, LooksAtNamesAndNotAtPlaces) {
  const plan::Plan a = two_stage_plan();
  plan::Plan b = a;
  b.streams.insert(b.streams.begin(), b.streams[0]);
  b.streams[0].name = "cpu:0/host7";
  for (plan::Actor& actor : b.actors) ++actor.stream;
  for (plan::Arena& arena : b.arenas) arena.stream += arena.stream >= 0;
  EXPECT_EQ(diff_text(diff_plans(a, b), {}), "1 difference\n+ stream cpu:0/host7\n");
}

TEST(DiffView, ComparesTextsByLines) {
  EXPECT_TRUE(diff_texts("graph", "a\nb\n", "a\nb\n").rows.empty());
  EXPECT_EQ(diff_text(diff_texts("graph", "a\nb\nc\n", "a\nx\nc\nd\n"), {}),
            "3 differences\n- graph line 2  b\n+ graph line 2  x\n+ graph line 4  d\n");
  EXPECT_EQ(diff_texts("graph", "", "a\n").rows.size(), 1u);
  std::string many, others;
  for (int i = 0; i < 5000; ++i) many += "a" + std::to_string(i) + "\n", others += "b" + std::to_string(i) + "\n";
  EXPECT_EQ(diff_texts("graph", many, others).rows.size(), 10'000u);  // too many to look for common ones
}

TEST(WhyView, TellsOfKernelsActorsAndRegisters) {
  const plan::Plan plan = two_stage_plan();
  const std::string kernel = why_text(plan, "net/mul", {});
  for (const char* fact :
       {"kernel 'net/mul'\n", "train.py:20", "model", "forward", "cpu:0/compute0", "500 ns, predicted"})
    EXPECT_THAT(kernel, HasSubstr(fact));
  const std::string actor = why_text(plan, "net", {});
  EXPECT_THAT(actor, HasSubstr("data 'images' of 'prepare'"));
  EXPECT_THAT(actor, HasSubstr("one of 2 slots of 'loss', which 'sink' gives back"));
  EXPECT_THAT(actor, HasSubstr("in the cycle that limits the plan"));
  const std::string reg = why_text(plan, "images", {});
  EXPECT_THAT(reg, HasSubstr("with one slot less  1.5 us a step instead of 1 us"));
  EXPECT_THAT(reg, HasSubstr("with one slot more  1 us a step instead of 1 us"));
  EXPECT_EQ(boost::json::parse(why_json(plan, "images")).at(0).at("what").as_string(), "register");
}

TEST(WhyView, AnUnknownNameIsAnErrorThatNamesWhatIsAlike) {
  EXPECT_EQ(test::message_of([] { why_text(two_stage_plan(), "mu", {}); }),
            "why: 'mu': no actor, kernel or register of plan 'two_stage' is called so; alike are net/mul");
  EXPECT_THAT(test::message_of([] { why_text(two_stage_plan(), "<script>", {}); }),
              HasSubstr("`plan-viz show` lists their names"));
}

TEST(LanesSvg, DrawsEachKernelAndEscapesNames) {
  plan::Plan plan = two_stage_plan();
  plan.actors[2].name = "<script>";
  const std::string svg = lanes_svg(plan, {.steps = 4});
  EXPECT_THAT(svg, HasSubstr("<title>net/mul of &lt;script>, 500 ns</title>"));
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_THAT(test::message_of([] { lanes_svg(two_stage_plan({.host_ns = 0, .compute_ns = 0}), {}); }),
              HasSubstr("its kernels have no predicted costs"));
}

TEST(DiffProgram, ItsStatusSaysWhetherSomethingDiffers) {
  const auto dir = std::filesystem::path(::testing::TempDir()) / "plan_viz_diff";
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "a.json") << plan::to_json(two_stage_plan());
  std::ofstream(dir / "b.json") << plan::to_json(two_stage_plan({.quota = 1}));
  std::ofstream(dir / "run.slt", std::ios::binary) << plan::recording_of(input_bound());
  const auto run = [&](const std::string& arguments) {
    return run_command("cd '" + dir.string() + "' && '" PLAN_VIZ "' " + arguments);
  };
  EXPECT_EQ(run("diff a.json a.json").status, 0);
  EXPECT_EQ(run("diff a.json b.json").status, 1);
  EXPECT_EQ(run("diff a.json none.json").status, 2);
  EXPECT_EQ(run("blame a.json").text,
            "plan-viz: a.json: this is no recording; `blame` reads what SLUICE_TRACE or record_trace(\"run.slt\") has "
            "written\n");
  EXPECT_THAT(run("simulate run.slt --steps 20").text, HasSubstr("3 ms  per step, steady"));
  EXPECT_EQ(run("blame run.slt --by colour").status != 0, true);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace sluice::plan_viz
