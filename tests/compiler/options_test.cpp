// What the table compiler/options.inc promises of every option of the compiler.
#include "compiler/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

namespace sluice {
namespace {

// Another value than the default.
void change(bool& value) { value = !value; }
void change(int& value) { ++value; }
void change(uint64_t& value) { ++value; }
void change(double& value) { value += 1; }
void change(std::string& value) { value += "x"; }
void change(Granularity& value) { value = Granularity::kOp; }
void change(DeviceId& value) { value = {0, DeviceKind::kSim, 1}; }
void change(plan::Machine& value) { value.kernels.push_back({"a", 1}); }
void change(NumberByName& value) { value["a"] = 1; }
void change(PlacementByName& value) { value["a"] = {DeviceMesh({DeviceId{0, DeviceKind::kSim, 0}}), Sbp::split(0)}; }
template <class T>
void change(std::vector<T>& value) {
  value.emplace_back();
}

template <class Check>
void with_each_changed(Check check) {
  int options = 0;
  each_compile_option([&](const OptionFacts& facts, auto option) {
    CompileOptions changed;
    change(changed.*option);
    SCOPED_TRACE(std::string(facts.name));
    check(facts, changed);
    ++options;
  });
  std::printf("count: %d options of the compiler\n", options);
}

std::string key_of(const CompileOptions& options) {
  Key key;
  add_options(key, options);
  return key.take();
}

std::string refusal(const CompileOptions& options, Fix* fix) {
  try {
    check_options(options);
  } catch (const Error& error) {
    *fix = fix_of(error);
    return error.what();
  }
  return "";
}

TEST(CompileOptions, EachIsAPartOfThePlanKey) {
  std::set<std::string> keys = {key_of({})};
  with_each_changed(
      [&](const OptionFacts&, const CompileOptions& changed) { EXPECT_TRUE(keys.insert(key_of(changed)).second); });
}

TEST(CompileOptions, ThePlanRecordsWhatDiffersAndNoMore) {
  EXPECT_EQ(recorded_options({}), NamedAttrs());
  with_each_changed([&](const OptionFacts& facts, const CompileOptions& changed) {
    const NamedAttrs record = recorded_options(changed);
    ASSERT_EQ(record.size(), facts.recorded ? 1u : 0u);
    const std::string name(facts.entry.empty() ? facts.name : facts.entry);
    for (const auto& [recorded, value] : record) EXPECT_EQ(recorded.substr(0, name.size()), name);
  });
}

TEST(CompileOptions, AreRecordedInTheOrderOfTheTable) {
  CompileOptions all;
  std::vector<std::string> expected, got;
  each_compile_option([&](const OptionFacts& facts, auto option) {
    change(all.*option);
    if (facts.recorded) expected.emplace_back(facts.entry.empty() ? facts.name : facts.entry);
  });
  for (const auto& [name, value] : recorded_options(all)) got.push_back(name.substr(0, name.find('.')));
  EXPECT_EQ(got, expected);
}

TEST(CompileOptions, ATextThatIsNoneOfThoseAcceptedIsRefusedWithTheFix) {
  int refused = 0;
  with_each_changed([&](const OptionFacts& facts, const CompileOptions& changed) {
    const std::vector<std::string> texts = accepted_texts(facts);
    if (texts.empty() || facts.name == "granularity") return;  // no other granularity can be said
    Fix fix;
    const std::string text = refusal(changed, &fix);
    EXPECT_TRUE(text.ends_with("; must be " + std::string(facts.accepts))) << text;
    EXPECT_EQ(fix.size(), 2u);
    EXPECT_TRUE(facts.on.empty() || std::find(texts.begin(), texts.end(), facts.on) != texts.end());
    ++refused;
  });
  EXPECT_GE(refused, 7);
}

TEST(CompileOptions, ANumberBelowTheLeastIsRefusedWithTheFix) {
  CompileOptions no_steps, no_cores;
  no_steps.outputs_buffer_size = 0;
  no_cores.cores = -1;
  Fix fix;
  EXPECT_EQ(refusal(no_steps, &fix), "outputs_buffer_size: 0; must be at least 1");
  EXPECT_EQ(fix_str(fix), "option outputs_buffer_size, value 1");
  EXPECT_EQ(refusal(no_cores, &fix), "cores: -1; must be at least 0 (0 = what the target has)");
  EXPECT_EQ(fix_str(fix), "option cores, value 0");
}

TEST(CompileOptions, DefaultsAreAccepted) {
  Fix fix;
  EXPECT_EQ(refusal({}, &fix), "");
}

}  // namespace
}  // namespace sluice
