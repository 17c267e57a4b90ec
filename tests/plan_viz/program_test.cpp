// The program itself: exit status, one line of error, help, files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "plan/json/json.h"
#include "plan/time/machine.h"
#include "plan_viz/run_plan_viz.h"
#include "support/forecast_plan.h"
#include "support/two_stage_plan.h"

namespace sluice::plan_viz {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Program : public ::testing::Test {
 protected:
  Program() : dir_(std::filesystem::path(::testing::TempDir()) / ("plan_viz_program_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(dir_);
    std::ofstream(dir_ / "plan.json") << plan::to_json(plan::two_stage_plan());
  }
  ~Program() override { std::filesystem::remove_all(dir_); }

  Result run(const std::string& arguments) const {
    return run_command("cd '" + dir_.string() + "' && '" PLAN_VIZ "' " + arguments);
  }
  std::filesystem::path dir_;
};

TEST_F(Program, EveryViewOfAFileOrABundle) {
  for (const char* view :
       {"show", "stats", "mem", "verify", "prove", "dot", "json", "simulate", "bottleneck", "pareto"}) {
    for (const char* arguments : {" plan.json", " .", " plan.json --json", " . --width 60"}) {
      const Result result = run(std::string(view) + arguments);
      EXPECT_EQ(result.status, 0) << view << arguments << "\n" << result.text;
      EXPECT_EQ(result.text.find('\x1b'), std::string::npos) << view;
      EXPECT_THAT(result.text, HasSubstr(std::string(view) == "json" ? "schema_version" : "two_stage"));
    }
  }
  EXPECT_EQ(run("json .").text, plan::to_json(plan::two_stage_plan()));
}

TEST_F(Program, BadFilesAreOneLineAndAFailure) {
  std::ofstream(dir_ / "cut.json") << plan::to_json(plan::two_stage_plan()).substr(0, 700);
  plan::Plan bad = plan::two_stage_plan();
  bad.edges[0].consumer = 1000;
  std::ofstream(dir_ / "bad.json") << plan::to_json(bad);
  for (const char* view : {"show", "stats", "mem", "dot", "simulate", "html"}) {
    for (const char* file : {"absent.json", "cut.json", "bad.json"}) {
      const Result result = run(std::string(view) + " " + file);
      EXPECT_EQ(result.status, 2) << view << " " << file;
      EXPECT_THAT(result.text, StartsWith("plan-viz: "));
      EXPECT_EQ(std::count(result.text.begin(), result.text.end(), '\n'), 1) << result.text;
    }
  }
  const Result refused = run("verify bad.json");
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.text, HasSubstr("edge 0: consumer out of range: 1000"));
  EXPECT_EQ(run("ir .").status, 2);
  EXPECT_THAT(run("ir .").text, HasSubstr("graph.txt: no such file"));
}

TEST_F(Program, HelpTeachesAndUnknownWordsFail) {
  const Result help = run("--help");
  EXPECT_EQ(help.status, 0);
  for (const char* view : {"show", "stats", "mem", "verify", "dot", "json", "simulate", "cost", "ir", "html"})
    EXPECT_THAT(help.text, HasSubstr(view));
  EXPECT_NE(run("draw plan.json").status, 0);
  EXPECT_NE(run("").status, 0);
}

TEST_F(Program, ForecastsTakeACostFile) {
  std::ofstream(dir_ / "ranks.json") << plan::to_json(plan::forecast_plan({.stages = 2, .micro = 2}));
  std::ofstream(dir_ / "links.json")
      << R"({"links": [{"between": ["*", "*"], "latency_ns": 500, "bytes_per_s": 1e9}]})";
  std::ofstream(dir_ / "few.json") << R"({"links": [{"between": ["1/*", "1/*"], "latency_ns": 5, "bytes_per_s": 1}]})";
  EXPECT_THAT(run("simulate ranks.json").text, HasSubstr(" 9.5 us  per step"));
  const Result slow = run("simulate ranks.json --links links.json --all");
  EXPECT_EQ(slow.status, 0) << slow.text;
  EXPECT_THAT(slow.text, HasSubstr(" 10.5 us  per step"));
  EXPECT_EQ(run("html ranks.json --links links.json").status, 0);
  const Result none = run("simulate ranks.json --links few.json");
  EXPECT_EQ(none.status, 2);
  EXPECT_EQ(none.text, "plan-viz: plan 'forecast': no link between 0/cpu:0 and 1/cpu:0; name one in \"links\"\n");
}

TEST_F(Program, ParetoDrawsAPicture) {
  const Result result = run("pareto plan.json -o curve.svg");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.text, "curve.svg\n");
  EXPECT_GT(std::filesystem::file_size(dir_ / "curve.svg"), 1000u);
  EXPECT_EQ(run("pareto plan.json -o absent/curve.svg").status, 2);
}

TEST_F(Program, CostTakesACostFileAndAPlan) {
  std::ofstream(dir_ / "costs.json") << plan::to_json(plan::Machine{});
  EXPECT_THAT(run("cost costs.json").text, StartsWith("0 kernels\n"));
  EXPECT_THAT(run("cost costs.json --plan plan.json").text,
              StartsWith("plan 'two_stage', 3 different kernels, 0 of them measured\n"));
  EXPECT_EQ(run("cost costs.json --plan . --json").status, 0);
  for (const char* arguments : {"plan.json", "absent.json", "costs.json --plan absent.json"}) {
    const Result result = run(std::string("cost ") + arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_EQ(std::count(result.text.begin(), result.text.end(), '\n'), 1) << result.text;
  }
}

TEST_F(Program, ShellsCompleteCommandsAndOptions) {
  const auto completed = [&](const std::string& words, int at) {
    return run_command("cd '" + dir_.string() + "' && bash -c 'eval \"$(" PLAN_VIZ " completion bash)\"; COMP_WORDS=(" +
                       words + "); COMP_CWORD=" + std::to_string(at) + "; _plan_viz; echo \"${COMPREPLY[*]}\"'")
        .text;
  };
  EXPECT_EQ(completed("plan-viz sim", 1), "simulate\n");
  EXPECT_EQ(completed("plan-viz html --be", 2), "--beside\n");
  EXPECT_EQ(completed("plan-viz html pl", 2), "plan.json\n");
  EXPECT_THAT(run("completion fish").text,
              HasSubstr("complete -c plan-viz -n '__fish_seen_subcommand_from simulate' -l steps\n"));
  const Result zsh = run_command("'" PLAN_VIZ "' completion zsh | zsh -n");
  EXPECT_EQ(zsh.status, 0) << zsh.text;
  EXPECT_NE(run("completion csh").status, 0);
}

TEST_F(Program, HtmlHasItsDataAsJsonAndAnotherPlanBeside) {
  EXPECT_THAT(run("html plan.json --json").text, StartsWith("{\"name\":\"two_stage\""));
  EXPECT_EQ(run("html plan.json --beside . -o both.html").status, 0);
  EXPECT_GT(std::filesystem::file_size(dir_ / "both.html"), 10'000u);
  EXPECT_EQ(run("html plan.json --beside absent.json").status, 2);
}

TEST_F(Program, HtmlWritesTheFileItNames) {
  const Result result = run("html plan.json -o page.html");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.text, "page.html\n");
  EXPECT_GT(std::filesystem::file_size(dir_ / "page.html"), 10'000u);
  EXPECT_EQ(run("html plan.json -o absent/page.html").status, 2);
}

}  // namespace
}  // namespace sluice::plan_viz
