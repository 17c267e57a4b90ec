// Tests the text for bug reports.
#include "runtime/report/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>

#include "base/log.h"
#include "include/sluice/sluice.hpp"
#include "plan/plan.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(Describe, HasItsSectionsAsText) {
  const std::string text = describe();
  EXPECT_THAT(text,
              AllOf(ContainsRegex("^sluice\n  version  +[0-9]+\\.[0-9]+\\.[0-9]+\n  plan_schema +[0-9]+\n\nbuild\n"),
                    ContainsRegex("\n  compiler +(g\\+\\+|clang) [0-9]"), ContainsRegex("\n  CAF +0\\.1[0-9]"),
                    ContainsRegex("\n  cores_allowed +[1-9]"), ContainsRegex("\n  Highway +[A-Z]"),
                    ContainsRegex("\n  cpu:0 +[1-9][0-9]* cores, [0-9]+ bytes, host memory, synchronous\n"),
                    ContainsRegex("\n  cuda:0 +the (backend of cuda|NVIDIA driver) could not be loaded\n")));
}

TEST(Describe, SaysTheSameAsJson) {
  const boost::json::object all = boost::json::parse(describe(true)).as_object();
  std::vector<std::string> sections;
  for (const auto& section : all) sections.emplace_back(section.key());
  EXPECT_THAT(sections, testing::ElementsAre("sluice", "build", "libraries", "machine", "instructions", "devices",
                                             "environment"));
  EXPECT_EQ(all.at("sluice").at("version").as_string(), api::version());
  EXPECT_EQ(all.at("sluice").at("plan_schema").as_int64(), plan::kSchemaVersion);
  for (const char* library : {"CAF", "oneDNN", "Gloo", "Highway", "OpenMP", "Boost", "fmt", "spdlog"}) {
    EXPECT_THAT(std::string(all.at("libraries").at(library).as_string()), testing::MatchesRegex("[0-9][0-9.]+"));
  }
  // Every value of the text is one of the object, and the other way round.
  const std::string text = describe();
  for (const auto& section : all) {
    for (const auto& field : section.value().as_object()) {
      if (field.key() == "memory_available") continue;  // changes
      EXPECT_THAT(text, HasSubstr("  " + std::string(field.key()) + " "));
      if (!field.value().is_string()) continue;
      EXPECT_THAT(text, HasSubstr(std::string(field.value().as_string()) + "\n"));
    }
  }
}

TEST(Describe, NamesWhatTheCallerAdds) {
  EXPECT_THAT(describe(false, {{"Python", "3.11.2"}}), ContainsRegex("\n  Python +3.11.2\n"));
  EXPECT_THAT(describe(true, {{"a \"b\"", "1"}}), HasSubstr(R"("a \"b\"": "1")"));
}

TEST(Describe, ShowsSettingsButNothingPrivate) {
  setenv("SLUICE_TEST_PLAIN", "warn,plan=debug", 1);
  setenv("SLUICE_TEST_PATH", "/home/somebody/log.txt", 1);
  setenv("SLUICE_TEST_SECRET", "user:pass@host", 1);
  setenv("OMP_TEST_LONG", std::string(100, '1').c_str(), 1);
  setenv("SECRET_TOKEN", "hunter2", 1);
  const std::string text = describe();
  for (const char* name :
       {"SLUICE_TEST_PLAIN", "SLUICE_TEST_PATH", "SLUICE_TEST_SECRET", "OMP_TEST_LONG", "SECRET_TOKEN"}) {
    unsetenv(name);
  }
  EXPECT_THAT(text, ContainsRegex("\n  SLUICE_TEST_PLAIN +warn,plan=debug\n"));
  for (const char* name : {"SLUICE_TEST_PATH", "SLUICE_TEST_SECRET", "OMP_TEST_LONG"}) {
    EXPECT_THAT(text, ContainsRegex(std::string("\n  ") + name + " +\\(set\\)\n"));
  }
  for (const char* secret : {"somebody", "hunter2", "pass", "SECRET_TOKEN", SLUICE_SOURCE_DIR}) {
    EXPECT_THAT(text, Not(HasSubstr(secret)));
  }
  EXPECT_EQ(shown_value("a\nb"), "(set)");
}

TEST(Describe, ToldOfABadSettingItAnswersAllTheSame) {
  const char* before = std::getenv("SLUICE_CORES");
  const std::string kept = before != nullptr ? before : "";
  setenv("SLUICE_CORES", "many", 1);
  const std::string text = describe();
  before != nullptr ? setenv("SLUICE_CORES", kept.c_str(), 1) : unsetenv("SLUICE_CORES");
  EXPECT_THAT(text, ContainsRegex("cores_used +error: .*SLUICE_CORES: bad number of cores: 'many'"));
}

TEST(Diagnostics, OfThePublicApi) {
  EXPECT_EQ(api::describe(true).substr(0, 16), describe(true).substr(0, 16));
  const std::string before = api::log_spec();
  api::set_log("error,plan=debug");
  EXPECT_EQ(api::log_spec(), "error,plan=debug");
  EXPECT_EQ(log_spec(), "error,plan=debug");
  api::set_log(before);
  try {
    api::set_log("loud");
    FAIL();
  } catch (const api::Error& error) {
    EXPECT_EQ(error.kind(), api::ErrorKind::kValue);
    EXPECT_THAT(error.what(), HasSubstr("log: bad part 'loud'"));
  }
}

}  // namespace
}  // namespace sluice
