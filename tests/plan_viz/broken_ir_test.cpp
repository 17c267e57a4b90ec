// Every broken graph of tests/graph/malformed through the program: a failure with file, line and rule, in one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "plan_viz/run_plan_viz.h"
#include "support/soak.h"

namespace sluice::plan_viz {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Result ir(const fs::path& bundle) { return run_command("'" PLAN_VIZ "' ir '" + bundle.string() + "'"); }

class BrokenIr : public ::testing::Test {
 protected:
  BrokenIr() : dir_(fs::path(::testing::TempDir()) / ("broken_ir_" + std::to_string(getpid()))) {
    fs::create_directories(dir_);
  }
  ~BrokenIr() override { fs::remove_all(dir_); }
  fs::path dir_;
};

TEST_F(BrokenIr, EveryFileFailsWithItsLineAndRule) {
  const fs::path graph = dir_ / "graph.txt";
  int files = 0;
  for (const auto& entry : fs::directory_iterator(SLUICE_SOURCE_DIR "/tests/graph/malformed")) {
    SCOPED_TRACE(entry.path().filename().string());
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    // "# error <line>: <what the message says>"
    const std::string rule = text.substr(8, text.find('\n') - 8);
    const size_t colon = rule.find(':');
    std::ofstream(graph, std::ios::binary | std::ios::trunc) << text;
    const Result result = ir(dir_);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.text, StartsWith("plan-viz: " + graph.string() + ":" + rule.substr(0, colon) + ": "));
    EXPECT_THAT(result.text, HasSubstr(rule.substr(colon + 2)));
    EXPECT_EQ(std::count(result.text.begin(), result.text.end(), '\n'), 1) << result.text;
    ++files;
  }
  EXPECT_GE(files, 30);
  test::report_count("broken IR files refused by plan-viz ir", files, "files");
}

TEST_F(BrokenIr, AGoodFileIsPrintedAgain) {
  const std::string text = "graph \"g\" {\n  %0 = input \"x\" : float32(2,)\n  output \"y\" = %0\n}\n";
  std::ofstream(dir_ / "graph.txt") << text;
  const Result result = ir(dir_);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.text, text);
}

TEST_F(BrokenIr, ATextNestedAMillionTimesIsAnError) {
  for (const char c : {'[', '(', '{', '"', '%'}) {
    std::ofstream(dir_ / "graph.txt") << "graph \"g\" {\n  %0 = full() {shape = " << std::string(1'000'000, c)
                                      << "\n}\n";
    const Result result = ir(dir_);
    EXPECT_EQ(result.status, 2) << c;
    EXPECT_THAT(result.text, StartsWith("plan-viz: " + (dir_ / "graph.txt").string() + ":2: ")) << c;
    EXPECT_LT(result.text.size(), 400u) << c;
  }
}

}  // namespace
}  // namespace sluice::plan_viz
