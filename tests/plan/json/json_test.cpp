#include "plan/json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "support/two_stage_plan.h"

namespace sluice::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string reading_error(const std::string& text) {
  try {
    from_json(text, "plan.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kValue);
    return e.what();
  }
  return "no error";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Json, RoundTripsToTheSameBytes) {
  const std::string text = to_json(two_stage_plan());
  EXPECT_EQ(to_json(from_json(text, "plan.json")), text);
  EXPECT_EQ(to_json(two_stage_plan()), text);
}

TEST(Json, TheOrderOfAnOutputsAxesIsKept) {
  Plan plan = two_stage_plan();
  plan.outputs[0].axes = {2, 0, 1};
  const std::string text = to_json(plan);
  EXPECT_THAT(from_json(text, "plan.json").outputs[0].axes, ElementsAre(2, 0, 1));
  EXPECT_EQ(to_json(from_json(text, "plan.json")), text);
}

TEST(Json, ProvenanceIsKeptAndMayBeLeftOut) {
  Plan plan = two_stage_plan();
  EXPECT_EQ(to_json(plan).find("\"role\": \"forward\""), std::string::npos);  // as files say that have no roles
  static_cast<Provenance&>(plan.kernels[0]) = {{"net.py", 7}, "model.fc", Role::kBackward};
  const std::string text = to_json(plan);
  const Plan read = from_json(text, "plan.json");
  EXPECT_EQ(to_json(read), text);
  EXPECT_EQ(read.kernels[0].prefix() + read.kernels[0].module, "net.py:7, backward, model.fc");
  EXPECT_EQ(reading_error(replaced(text, "\"backward\"", "\"sideways\"")),
            "plan.json: kernels[0].role: unknown name: 'sideways'; must be one of forward, backward, update, data, "
            "recompute");
}

TEST(Json, AttributesKeepTheirExactType) {
  Plan plan;
  plan.options = {
      {"none", NoAttr{}},
      {"yes", true},
      {"int", int64_t{3}},
      {"big", std::numeric_limits<int64_t>::min()},
      {"whole", 3.0},
      {"tenth", 0.1},
      {"tiny", 5e-324},
      {"inf", std::numeric_limits<double>::infinity()},
      {"minus zero", -0.0},
      {"text", std::string("a \"b\"\n\\ \x01 \xc3\xa4")},
      {"list", Ints{1, -2}},
      {"empty", Ints{}},
      {"dtype", DType::kBFloat16},
      {"bools", Bools{true, false}},
      {"doubles", Doubles{0.1, -0.0, std::numeric_limits<double>::infinity()}},
      {"strings", Strings{"a", "\"", ""}},
      {"no strings", Strings{}},
      {"dtypes", DTypes{DType::kInt8, DType::kBool}},
      {"type", TensorType{DType::kFloat32, {4, 3}}},
      {"types", TensorTypes{{DType::kFloat32, {}}, {DType::kInt64, {8}}}},
      {"graph", AttrGraph{2,
                          {{"mul", {}, {0, 1}},
                           {"cast", {{"dtype", DType::kFloat16}}, {2}},
                           {"scan", {{"body", AttrGraph{1, {{"exp", {}, {0}}}, {1}}}}, {3}}},
                          {4, 2}}},
      {"typed graph", AttrGraph{1,
                                {{"f",
                                  {},
                                  {0, kNoOperand},
                                  {TensorSpec::contiguous({DType::kInt8, {3}}), {DType::kFloat32, {2, 3}, {1, 2}}}}},
                                {2}}}};
  plan.target = "t";
  const Plan back = from_json(to_json(plan), "plan.json");
  EXPECT_EQ(back.options, plan.options);
  EXPECT_TRUE(std::signbit(std::get<double>(back.options[8].second)));
  plan.options = {{"nan", std::nan("")}};
  EXPECT_TRUE(std::isnan(std::get<double>(from_json(to_json(plan), "p").options[0].second)));
}

// Files written when these were text (base/old_attrs.h).
TEST(Json, OldAttributesAreRead) {
  Plan plan = two_stage_plan();
  plan.kernels[0].op = "fused";
  plan.kernels[0].attrs = {{"steps", std::string("exp 0; cast:float16 1")}};
  plan.kernels[1].op = "host_function";
  plan.kernels[1].attrs = {{"name", std::string("f")}, {"outputs", std::string("float32(4, 3), int64(8,)")}};
  const Plan read = from_json(to_json(plan), "plan.json");
  EXPECT_EQ(read.kernels[0].attrs,
            (NamedAttrs{{"body", AttrGraph{1, {{"exp", {}, {0}}, {"cast", {{"dtype", DType::kFloat16}}, {1}}}, {2}}}}));
  EXPECT_EQ(read.kernels[1].attrs,
            (NamedAttrs{{"name", std::string("f")},
                        {"outputs", TensorTypes{{DType::kFloat32, {4, 3}}, {DType::kInt64, {8}}}}}));
  EXPECT_EQ(to_json(from_json(to_json(read), "plan.json")), to_json(read));
  plan.kernels[0].attrs = {{"steps", std::string("exp 7")}};
  EXPECT_EQ(reading_error(to_json(plan)),
            "plan.json: kernels[0].attrs: fused: steps: '7' in \"exp 7\"; must be the number of an input or of a step "
            "before, "
            "below 1");
}

TEST(Json, GraphsNestAsDeepAsInText) {
  Plan plan = two_stage_plan();
  AttrGraph graph{1, {{"exp", {}, {0}}}, {1}};
  for (int i = 0; i < kMostNested; ++i) graph = {1, {{"scan", {{"body", graph}}, {0}}}, {1}};
  plan.kernels[0].attrs = {{"body", graph}};
  EXPECT_EQ(from_json(to_json(plan), "plan.json").kernels[0].attrs, plan.kernels[0].attrs);
}

TEST(Json, ErrorsOfAttributesNameTheField) {
  Plan plan = two_stage_plan();
  plan.kernels[0].attrs = {{"body", AttrGraph{1, {{"exp", {}, {0}}}, {1}}}, {"kept", Bools{true}}};
  const std::string good = to_json(plan);
  EXPECT_EQ(reading_error(replaced(good, "\"operands\": [0]", "\"operands\": [\"0\"]")),
            "plan.json: kernels[0].attrs.body.graph.calls[0].operands[0]: wrong type: \"0\"; must be a whole number");
  EXPECT_EQ(reading_error(replaced(good, "\"inputs\": 1, \"calls\"", "\"calls\"")),
            "plan.json: kernels[0].attrs.body.graph.inputs: missing; every field must be given");
  EXPECT_EQ(reading_error(replaced(good, "{\"bools\": [true]}", "{\"bools\": [1]}")),
            "plan.json: kernels[0].attrs.kept.bools[0]: wrong type: 1; must be true or false");
  EXPECT_EQ(reading_error(replaced(good, "{\"bools\": [true]}", "{\"colours\": [1]}")),
            "plan.json: kernels[0].attrs.kept: wrong type: {\"colours\":[1]}; must be null, a bool, a whole number, a "
            "string, a list, or an object of one key: double, dtype, type, graph, bools, doubles, strings, dtypes or "
            "types");
}

TEST(Json, CostsComeBackBitForBit) {
  Plan plan = two_stage_plan();
  for (const double cost : {0.1, 1234.5678, 1e17, 3.0, 1.0 / 3}) {
    plan.kernels[0].cost_ns = cost;
    EXPECT_EQ(from_json(to_json(plan), "p").kernels[0].cost_ns, cost);
  }
}

TEST(Json, AbsentInputsRoundTrip) {
  Plan plan = two_stage_plan();
  plan.kernels[0].inputs.push_back({BaseKind::kBuffer, -1, 0, 0, {}});
  const Plan back = from_json(to_json(plan), "p");
  EXPECT_TRUE(is_absent(back.kernels[0].inputs[1]));
  EXPECT_TRUE(verify(back).ok());
}

TEST(Json, ErrorsNameTheField) {
  const std::string good = to_json(two_stage_plan());
  EXPECT_EQ(reading_error(replaced(good, "\"schema_version\": 1", "\"schema_version\": 7")),
            "plan.json: version 7: newer than this build, which reads version 1; upgrade Sluice, or compile graph.txt "
            "with this release");
  EXPECT_EQ(reading_error(replaced(good, "\"schema_version\": 1", "\"schema_version\": 0")),
            "plan.json: version 0: older than this build, which reads version 1; versions begin with 1");
  // As plans of old say it, of every feed and source.
  EXPECT_EQ(to_json(from_json(replaced(good, "\"spaces\"", "\"micro_batches\": 2, \"spaces\""), "plan.json")),
            replaced(good, R"("role": "feed", "program": [["emit", 0]])",
                     R"("role": "feed", "program": [["emit", 0]], "starts": 2)"));
  EXPECT_EQ(reading_error(replaced(good, "\"spaces\"", "\"micro_batches\": 0, \"spaces\"")),
            "plan.json: micro_batches: out of range: 0; must be in 1 to 2147483647");
  EXPECT_EQ(reading_error(replaced(good, "\"quota\": 2", "\"quota\": \"2\"")),
            "plan.json: registers[0].quota: wrong type: \"2\"; must be a whole number");
  EXPECT_EQ(reading_error(replaced(good, "\"quota\": 2", "\"quota\": -2")),
            "plan.json: registers[0].quota: out of range: -2; must be in 0 to 2147483647");
  EXPECT_EQ(reading_error(replaced(good, "\"quota\": 2", "\"quota\": 99999999999")),
            "plan.json: registers[0].quota: out of range: 99999999999; must be in 0 to 2147483647");
  EXPECT_EQ(reading_error(replaced(good, "\"quota\": 2, ", "")),
            "plan.json: registers[0].quota: missing; every field must be given");
  EXPECT_EQ(reading_error(replaced(good, "\"take\"", "\"took\"")),
            "plan.json: edges[0].take: missing; every field must be given");
  EXPECT_EQ(reading_error(replaced(good, "{\"reg\": 0", "{\"colour\": 3, \"reg\": 0")),
            "plan.json: edges[0].colour: unknown field; this build does not know it");
  EXPECT_EQ(reading_error(replaced(good, "\"role\": \"feed\"", "\"role\": \"food\"")),
            "plan.json: actors[0].role: unknown name: 'food'; must be one of normal, source, feed, sink");
  EXPECT_EQ(reading_error(replaced(good, "\"shape\": [16]", "\"shape\": [-16]")),
            "plan.json: variables[0].shape[0]: out of range: -16; must be in 0 to 9223372036854775807");
  EXPECT_EQ(reading_error(replaced(good, "\"shape\": [16]", "\"shape\": [1,1,1,1,1,1,1,1,1]")),
            "plan.json: variables[0].shape: too long: 9 dims; at most 8");
  EXPECT_THAT(reading_error(replaced(good, "\"dtype\": \"float32\"", "\"dtype\": \"float31\"")),
              HasSubstr("plan.json: variables[0].dtype: "));
  EXPECT_THAT(reading_error(replaced(good, "\"device\": \"cpu:0\"", "\"device\": \"Toaster\"")),
              HasSubstr("plan.json: spaces[0].device: "));
  EXPECT_THAT(reading_error(replaced(good, "[\"emit\", 0]", "[\"emit\"]")),
              HasSubstr("plan.json: actors[0].program[0]: wrong type"));
  EXPECT_THAT(reading_error(replaced(good, "{\"base\": \"register\"", "{\"base\": 4")),
              HasSubstr("kernels[0].inputs[0].base: wrong type: 4"));
  EXPECT_EQ(reading_error(replaced(good, "\"bytes\": 64", "\"bytes\": 99999999999999999999")).substr(0, 39),
            "plan.json: buffers[0].bytes: wrong type");
}

TEST(Json, EveryTruncationIsAnError) {
  const std::string good = to_json(two_stage_plan());
  for (size_t n = 0; n + 2 < good.size(); n += 7) {
    EXPECT_THAT(reading_error(good.substr(0, n)), HasSubstr("the file is truncated or damaged")) << n;
  }
  EXPECT_THAT(reading_error(good + "x"), HasSubstr("plan.json: "));
  EXPECT_EQ(reading_error("[]"), "plan.json: : wrong type: []; must be an object");
}

TEST(Json, DamagedBytesNeverCrash) {
  const std::string good = to_json(two_stage_plan());
  for (size_t at = 0; at < good.size(); at += 3) {
    for (const char c : {'0', '-', '"', '{', ']', ','}) {
      std::string bad = good;
      bad[at] = c;
      try {
        verify(from_json(bad, "plan.json"));
      } catch (const Error&) {
      }
    }
  }
}

TEST(Json, LoadsAFileOrABundleDirectory) {
  const std::filesystem::path dir =
      std::filesystem::path(::testing::TempDir()) / ("json_test_bundle_" + std::to_string(getpid()));
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "plan.json") << to_json(two_stage_plan());
  EXPECT_EQ(load_plan(dir).name, "two_stage");
  EXPECT_EQ(load_plan(dir / "plan.json").name, "two_stage");
  try {
    load_plan(dir / "absent.json");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kIo);
    EXPECT_THAT(e.what(), HasSubstr("absent.json: cannot be read"));
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace sluice::plan
