#include "base/log.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

#include "base/error.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

// Collects lines; puts the settings back.
class LogTest : public testing::Test {
 protected:
  LogTest() : before_(log_spec()) {
    set_log_sink([this](std::string_view line) { lines_.emplace_back(line); });
  }
  ~LogTest() override {
    set_log_sink(nullptr);
    set_log(before_);
  }
  std::string before_;
  std::vector<std::string> lines_;
};

std::string spec_error(const std::string& spec) {
  try {
    set_log(spec);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kValue);
    return error.what();
  }
  return "";
}

TEST_F(LogTest, ALevelIsForAllAreasAndLaterPartsWin) {
  set_log("error,plan=debug,actors=off");
  EXPECT_TRUE(log_enabled(LogLevel::kDebug, LogArea::kPlan));
  EXPECT_FALSE(log_enabled(LogLevel::kTrace, LogArea::kPlan));
  EXPECT_FALSE(log_enabled(LogLevel::kError, LogArea::kActors));
  EXPECT_TRUE(log_enabled(LogLevel::kError, LogArea::kRuntime));
  EXPECT_FALSE(log_enabled(LogLevel::kWarn, LogArea::kRuntime));
  EXPECT_EQ(log_spec(), "error,plan=debug,actors=off");
  set_log("plan=debug,info");
  EXPECT_EQ(log_spec(), "info");
  set_log("");
  EXPECT_EQ(log_spec(), "warn");
  set_log(" trace , memory = warn ,, json");
  EXPECT_EQ(log_spec(), "trace,memory=warn,json");
}

TEST_F(LogTest, WritesLevelAreaAndText) {
  set_log("info");
  log(LogLevel::kInfo, LogArea::kRuntime, "session '{}': {} actors", "digits", 3);
  log(LogLevel::kDebug, LogArea::kRuntime, "not this");
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], MatchesRegex("[0-9:.]+ info runtime: session 'digits': 3 actors"));
}

TEST_F(LogTest, WritesJsonLines) {
  set_log("info,json");
  log(LogLevel::kWarn, LogArea::kCompiler, "a \"quoted\"\nline with \\ and \x01");
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], StartsWith("{\"time\":\"2"));
  EXPECT_THAT(lines_[0], HasSubstr("\"level\":\"warn\",\"area\":\"compiler\",\"thread\":"));
  EXPECT_THAT(lines_[0], EndsWith(R"("text":"a \"quoted\"\nline with \\ and \u0001"})"));
  EXPECT_THAT(lines_[0], Not(HasSubstr("\n")));
}

TEST_F(LogTest, ABadPartIsNamedAndChangesNothing) {
  set_log("error");
  EXPECT_EQ(spec_error("loud"),
            "log: bad part 'loud'; must be a level (trace, debug, info, warn, error, off), area=level or json");
  EXPECT_EQ(spec_error("info,plam=debug"),
            "log: bad part 'plam=debug': no area 'plam'; the areas are base, plan, graph, compiler, streams, memory, "
            "kernels, actors, runtime, tensor, python");
  EXPECT_EQ(spec_error("plan=verbose"),
            "log: bad part 'plan=verbose': no level 'verbose'; the levels are trace, debug, info, warn, error, off");
  EXPECT_EQ(log_spec(), "error");
}

TEST_F(LogTest, EveryAreaAndLevelIsReadBackByItsName) {
  for (int a = 0; a < kLogAreas; ++a) {
    for (const LogLevel level : {LogLevel::kTrace, LogLevel::kDebug, LogLevel::kError, LogLevel::kOff}) {
      const auto area = static_cast<LogArea>(a);
      const std::string spec = fmt::format("warn,{}={}", log_area_name(area), log_level_name(level));
      set_log(spec);
      EXPECT_EQ(log_spec(), spec);
      EXPECT_EQ(log_enabled(LogLevel::kError, area), level != LogLevel::kOff) << spec;
    }
  }
}

TEST_F(LogTest, LinesOfManyThreadsStayWhole) {
  set_log("info");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 200; ++i) log(LogLevel::kInfo, LogArea::kActors, "0123456789");
    });
  }
  for (int i = 0; i < 100; ++i) set_log(i % 2 == 0 ? "info" : "warn,actors=info");
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(lines_.size(), 800u);
  for (const std::string& line : lines_) EXPECT_THAT(line, EndsWith(" info actors: 0123456789"));
}

// Tests how a new process reads its environment. Runs in a child, since the environment is read once.
class LogEnvironmentTest : public testing::Test {
 protected:
  LogEnvironmentTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  static void speak(const char* spec, const char* file) {
    setenv("SLUICE_LOG", spec, 1);
    setenv("SLUICE_LOG_FILE", file, 1);
    log(LogLevel::kInfo, LogArea::kPlan, "of plans");
    log(LogLevel::kInfo, LogArea::kActors, "of actors");
    std::exit(0);
  }
};

TEST_F(LogEnvironmentTest, IsReadAtTheFirstLine) {
  EXPECT_EXIT(speak("warn,plan=debug", ""), testing::ExitedWithCode(0), "^[0-9:.]+ info plan: of plans\n$");
  EXPECT_EXIT(speak("warn", ""), testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(speak("info,json", ""), testing::ExitedWithCode(0), "\"area\":\"plan\".*\n.*\"area\":\"actors\"");
}

TEST_F(LogEnvironmentTest, BadPartsAreNamedOnceAndIgnored) {
  EXPECT_EXIT(speak("plan=debug,loud,actors", ""), testing::ExitedWithCode(0),
              "base: SLUICE_LOG: ignored: 'loud'; must be .*\n.*ignored: 'actors'; must be .*\n.*plan: of plans\n$");
}

TEST_F(LogEnvironmentTest, LinesGoToAFile) {
  const std::string path = testing::TempDir() + "sluice_log_test.txt";
  std::remove(path.c_str());
  EXPECT_EXIT(speak("info", path.c_str()), testing::ExitedWithCode(0), "^$");
  std::ifstream in(path);
  std::string first, second;
  std::getline(in, first);
  std::getline(in, second);
  EXPECT_THAT(first, EndsWith("info plan: of plans"));
  EXPECT_THAT(second, EndsWith("info actors: of actors"));
  EXPECT_EXIT(speak("info", "/dev/null/log.txt"), testing::ExitedWithCode(0),
              "SLUICE_LOG_FILE: cannot be written: .*; using stderr\n.*plan: of plans");
}

}  // namespace
}  // namespace sluice
