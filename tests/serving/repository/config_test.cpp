// config.pbtxt: read, completed, refused by name.
#include "serving/repository/config.h"

#include <random>

#include "tests/serving/repository/fixture.h"

namespace sluice::serving::test {
namespace {

class ConfigTest : public RepositoryTest {
 protected:
  // The config as served, of a bundle y = w x, x: float32(1, 3).
  inference::ModelConfig served(const std::string& text) {
    put("m", 1, 2);
    if (!text.empty()) write("m/config.pbtxt", text);
    if (server_ == nullptr) serve();
    EXPECT_EQ(refused_load("m"), "");
    return server_->model_config("m", "");
  }
  std::string refused(const std::string& text) {
    if (!fs::exists(repository_ / "m" / "1")) put("m", 1, 2);
    write("m/config.pbtxt", text);
    if (server_ == nullptr) serve();
    return refused_load("m");
  }
};

constexpr const char* kWhole = R"(
name: "m"
backend: "sluice"
max_batch_size: 0
input [ { name: "INPUT_0" data_type: TYPE_FP32 dims: [ 1, 3 ] } ]
output [ { name: "OUTPUT_0" data_type: TYPE_FP32 dims: [ 1, 3 ] label_filename: "labels.txt" } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters { key: "xrt" value: { string_value: "openvino" } }
)";

TEST_F(ConfigTest, ABareFolderGetsAWholeConfig) {
  EXPECT_EQ(served("").ShortDebugString(),
            "name: \"m\" platform: \"sluice\" version_policy { latest { num_versions: 1 } } input { name: \"INPUT_0\" "
            "data_type: TYPE_FP32 dims: 1 dims: 3 } output { name: \"OUTPUT_0\" data_type: TYPE_FP32 dims: 1 dims: 3 } "
            "instance_group { name: \"m_0\" count: 1 kind: KIND_MODEL } backend: \"sluice\"");
}

TEST_F(ConfigTest, WhatOnlyTunesIsPassedOverWithAWarning) {
  const std::string log = dir_ / "log";
  set_log_settings({.info = false, .warning = true});
  set_log_file(log);
  const auto logged = [&] {
    std::ifstream in(log);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  EXPECT_EQ(served("max_batch_size: 0\noptimization { execution_accelerators { gpu_execution_accelerator : [ {\n"
                   "  name : \"tensorrt\" parameters { key: \"precision_mode\" value: \"FP16\" } } ] } }\n"
                   "instance_group { count: 2 host_policy: \"numa\" profile: [\"1\"] }")
                .instance_group(0)
                .count(),
            2);
  for (const char* field :
       {"config.pbtxt:2: 'optimization'", "config.pbtxt:4: 'host_policy'", "config.pbtxt:4: 'profile'"})
    EXPECT_NE(logged().find(std::string("model 'm': ") + field + ": it tunes what is not here, and changes nothing"),
              std::string::npos)
        << logged();
  LoadOverrides overrides;
  overrides.config =
      R"({"optimization": {"priority": "PRIORITY_MAX"}, "instance_group": [{"count": 3, "profile": ["1"]}]})";
  EXPECT_EQ(refused_load("m", overrides), "");
  EXPECT_EQ(server_->model_config("m", "").instance_group(0).count(), 3);
  set_log_file("");
  set_log_settings({});
  // Fields of other messages, and other fields, are refused as before.
  for (const char* text : {"profile: \"1\"", "instance_group { optimization { } }", "optimisation { }",
                           "input { optimization { } }", "optimization { } runtime: \"x\"", "optimization {"})
    EXPECT_NE(refused(text).find("config.pbtxt:"), std::string::npos) << text;
  for (const char* json :
       {R"({"profile": ["1"]})", R"({"instance_group": [{"optimization": {}}]})", R"({"optimization": )"}) {
    overrides.config = json;
    EXPECT_NE(refused_load("m", overrides).find("config of the load request"), std::string::npos) << json;
  }
}

TEST_F(ConfigTest, TheLogPrintsTheCompletedConfig) {
  const std::string log = dir_ / "log";
  LogSettings settings = log_settings();
  settings.info = true;
  set_log_settings(settings);
  set_log_file(log);
  served("");
  set_log_file("");
  set_log_settings({});
  std::ifstream in(log);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_NE(text.find("model 'm' version 1: ready after"), std::string::npos) << text;
  EXPECT_NE(text.find("data_type: TYPE_FP32 dims: 1 dims: 3"), std::string::npos) << text;
}

TEST_F(ConfigTest, AWholeConfigIsTakenAsItIs) {
  put("m", 1, 2);
  write("m/labels.txt", "a\nb\nc\n");
  const auto config = served(kWhole);
  EXPECT_EQ(config.output(0).label_filename(), "labels.txt");
  EXPECT_EQ(config.parameters().at("xrt").string_value(), "openvino");
  EXPECT_EQ(factor("m"), 2);
}

TEST_F(ConfigTest, APartialConfigIsCompleted) {
  const auto config = served("input { name: \"x\" } version_policy { all { } } backend: \"oneflow\"");
  EXPECT_EQ(config.input(0).ShortDebugString(), "name: \"x\" data_type: TYPE_FP32 dims: 1 dims: 3");
  EXPECT_EQ(config.output(0).name(), "OUTPUT_0");
  EXPECT_EQ(config.backend(), "sluice");
  EXPECT_TRUE(config.version_policy().has_all());
}

TEST_F(ConfigTest, SyntaxErrorsNameLineAndColumn) {
  EXPECT_EQ(refused("name: \"m\"\nbackend \"sluice\"\n"),
            "model 'm': config.pbtxt:2:9: Expected \":\", found \"\"sluice\"\".");
  EXPECT_EQ(refused("name: \"m\"\n  speed: 3\n"),
            "model 'm': config.pbtxt:2:8: Message type \"inference.ModelConfig\" has no field named \"speed\".");
  EXPECT_EQ(refused("input { data_type: TYPE_FLOAT }"),
            "model 'm': config.pbtxt:1:31: Unknown enumeration value of \"TYPE_FLOAT\" for field \"data_type\".");
}

TEST_F(ConfigTest, ContradictionsAreRefusedByName) {
  EXPECT_EQ(refused("name: \"other\""), "model 'm': name: 'other'; must be 'm', as the model is called");
  EXPECT_EQ(refused("input { name: \"INPUT_1\" data_type: TYPE_FP32 dims: [1, 3] }"),
            "model 'm': input 'INPUT_1': the bundle has none of this name; it has 'x', or 'INPUT_0'");
  EXPECT_EQ(refused("output { name: \"out\" data_type: TYPE_FP32 dims: [1, 3] }"),
            "model 'm': output 'out': the bundle has none of this name; it has 'y', or 'OUTPUT_0'");
  EXPECT_EQ(refused("input { name: \"INPUT_0\" data_type: TYPE_INT32 dims: [1, 3] }"),
            "model 'm': input 'INPUT_0': data_type INT32; the bundle has float32");
  EXPECT_NE(refused("input { name: \"INPUT_0\" data_type: TYPE_FP32 dims: [1, 4] }").find("model 'm': input 'INPUT_0'"),
            std::string::npos);
  EXPECT_NE(refused("max_batch_size: 8 input { name: \"INPUT_0\" data_type: TYPE_FP32 dims: [1, 3] }")
                .find("model 'm': input 'INPUT_0'"),
            std::string::npos);
  EXPECT_EQ(refused("max_batch_size: -1"), "model 'm': max_batch_size: -1; must be 0 or more");
  EXPECT_EQ(refused("backend: \"pytorch\""),
            "model 'm': backend: 'pytorch'; models here are bundles of sluice.save: 'sluice'");
  EXPECT_EQ(refused("platform: \"onnxruntime_onnx\""),
            "model 'm': platform: 'onnxruntime_onnx'; must be 'sluice' or left out");
  EXPECT_EQ(
      refused("parameters { key: \"xrt\" value { string_value: \"magic\" } }"),
      "model 'm': parameters.xrt: 'magic'; it may be 'none', 'xla', 'tensorrt' or 'openvino', and changes nothing "
      "here");
}

TEST_F(ConfigTest, RaggedBatchesThatContradictThemselvesAreRefusedByName) {
  const std::string ragged = R"(input { name: "INPUT_0" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true } )";
  const std::string good = "max_batch_size: 4 " + ragged;
  const auto made = [&](const std::string& more, const std::string& type = "TYPE_INT32") {
    return refused(good + "batch_input { kind: BATCH_ELEMENT_COUNT data_type: " + type + " " + more + " }");
  };
  EXPECT_EQ(refused(ragged),
            "model 'm': allow_ragged_batch: max_batch_size is 0; it must be how many requests a step takes at most");
  EXPECT_EQ(refused(good + "sequence_batching { }"),
            "model 'm': allow_ragged_batch: models with sequences, and ensembles, are batched otherwise; use "
            "dynamic_batching");
  EXPECT_EQ(
      refused(
          "max_batch_size: 4 input { name: \"INPUT_0\" data_type: TYPE_STRING dims: [1] allow_ragged_batch: true }"),
      "model 'm': allow_ragged_batch: input 'INPUT_0' is of texts; only numbers in their own shape are batched so");
  EXPECT_EQ(made(R"(target_name: "n")"),
            "model 'm': batch_input: 1 target_name and 0 source_input; each kind has one of both");
  EXPECT_EQ(made(R"(target_name: "n" source_input: "x")"),
            "model 'm': batch_input: source_input 'x'; it must be an input with allow_ragged_batch");
  EXPECT_EQ(made(R"(target_name: "INPUT_0" source_input: "INPUT_0")"),
            "model 'm': batch_input: target_name 'INPUT_0' is an input of clients, too");
  EXPECT_EQ(
      made(R"(target_name: "n" source_input: "INPUT_0")", "TYPE_FP64"),
      "model 'm': batch_input: target_name 'n': data_type TYPE_FP64; must be TYPE_INT32, TYPE_INT64 or TYPE_FP32");
  EXPECT_EQ(refused(good + R"(batch_output { target_name: "y" source_input: "y" })"),
            "model 'm': batch_output: source_input 'y'; it must be an input with allow_ragged_batch");
}

TEST_F(ConfigTest, VersionsAndLabelsAreChecked) {
  EXPECT_EQ(refused("version_policy { specific { } }"),
            "model 'm': version_policy: specific: no versions; name at least one");
  EXPECT_EQ(refused("version_policy { specific { versions: -3 } }"),
            "model 'm': version_policy: specific: -3; versions are 0 and more");
  const auto labels = [this](const std::string& text) {
    return refused("parameters { key: \"version_labels\" value { string_value: \"" + text + "\" } }");
  };
  EXPECT_EQ(labels("stable:1"), "");
  EXPECT_EQ(labels("stable"), "model 'm': parameters.version_labels: 'stable'; must be like 'stable:2,canary:3'");
  EXPECT_EQ(labels("a:1,a:2"), "model 'm': parameters.version_labels: 'a' is there twice");
  EXPECT_EQ(labels("7:1"),
            "model 'm': parameters.version_labels: label '7'; it must be of letters, digits, '.', '_' "
            "and '-', and no number");
}

TEST_F(ConfigTest, FilesThatAConfigNamesStayInTheModelsFolder) {
  for (const char* name : {"../../secret", "/etc/passwd", "a/../../b", "..", "a//b"}) {
    EXPECT_EQ(refused("output { name: \"OUTPUT_0\" label_filename: \"" + std::string(name) + "\" }"),
              "model 'm': label_filename: file name '" + std::string(name) +
                  "'; it must be of at most 8 parts with '/' between, each of 1 to 128 letters, digits, '.', '_' and "
                  "'-', beginning with a letter or digit");
    EXPECT_NE(refused("default_model_filename: \"" + std::string(name) + "\""), "");
  }
  EXPECT_EQ(refused("default_model_filename: \"net\""),
            "model 'm' version 1: default_model_filename 'net': there is no bundle of this name; it is a folder that "
            "sluice.save wrote");
}

TEST_F(ConfigTest, WithoutAutoConfigAConfigMustBeWhole) {
  options_.auto_config = false;
  put("m", 1, 2);
  serve();
  EXPECT_EQ(refused_load("m"), "model 'm': input: none in its config; configs must be complete here");
  EXPECT_EQ(refused("input { name: \"x\" } output { name: \"y\" data_type: TYPE_FP32 dims: [1, 3] }"),
            "model 'm': input 'x': data_type: none; configs must be complete here");
  write("m/labels.txt", "a\nb\nc\n");
  EXPECT_EQ(refused(kWhole), "");
}

TEST_F(ConfigTest, AnEnsembleMustBeOfOthers) {
  EXPECT_EQ(refused("ensemble_scheduling { }"),
            "model 'm': ensemble_scheduling: no step; an ensemble has at least one");
  EXPECT_EQ(refused("ensemble_scheduling { step { model_name: \"m\" } }"),
            "model 'm': ensemble_scheduling: a step is the ensemble itself");
  EXPECT_EQ(refused("ensemble_scheduling { step { model_name: \"a\" } }"),
            "model 'm': ensemble_scheduling: an ensemble's inputs and outputs must be in its config");
}

api::Port port(const std::string& name, std::vector<int64_t> shape, std::vector<std::string> dims = {},
               api::DType dtype = api::DType::kFloat32) {
  api::Port port;
  port.name = name;
  port.dtype = dtype;
  port.shape = std::move(shape);
  port.dims = std::move(dims);
  return port;
}

TEST(CompleteConfigTest, AFamilyOfBatchesHasAMaxBatchSize) {
  inference::ModelConfig config;
  config.set_name("m");
  complete_config(config, {port("a", {16, 4}, {"batch", ""}), port("b", {16}, {"batch"}, api::DType::kInt64)},
                  {port("y", {16, 2}, {"batch", ""})}, true);
  EXPECT_EQ(config.max_batch_size(), 16);
  EXPECT_EQ(config.input(0).ShortDebugString(), "name: \"INPUT_0\" data_type: TYPE_FP32 dims: 4");
  EXPECT_EQ(config.input(1).ShortDebugString(), "name: \"INPUT_1\" data_type: TYPE_INT64");
  EXPECT_EQ(config.output(0).ShortDebugString(), "name: \"OUTPUT_0\" data_type: TYPE_FP32 dims: 2");
}

TEST(CompleteConfigTest, OtherFamiliesHaveDimsOfAnySize) {
  inference::ModelConfig config;
  config.set_name("m");
  complete_config(config, {port("a", {16, 4}, {"batch", ""}), port("b", {4, 8}, {"", "length"})},
                  {port("y", {16, 2}, {"batch", ""})}, true);
  EXPECT_EQ(config.max_batch_size(), 0);
  EXPECT_EQ(config.input(0).ShortDebugString(), "name: \"INPUT_0\" data_type: TYPE_FP32 dims: -1 dims: 4");
  EXPECT_EQ(config.input(1).ShortDebugString(), "name: \"INPUT_1\" data_type: TYPE_FP32 dims: 4 dims: -1");
}

TEST(CompleteConfigTest, InputsThatTheServerMakesAreNotShown) {
  inference::ModelConfig config;
  config.set_name("m");
  config.mutable_sequence_batching()->add_control_input()->set_name("start");
  auto& state = *config.mutable_sequence_batching()->add_state();
  state.set_input_name("h");
  state.set_output_name("h_next");
  complete_config(config, {port("x", {1}), port("start", {1}), port("h", {1})}, {port("y", {1}), port("h_next", {1})},
                  true);
  EXPECT_EQ(config.input_size(), 1);
  EXPECT_EQ(config.output_size(), 1);
}

// Whatever bytes a config has: an Error, or a config.
TEST(CompleteConfigTest, NoMutationOfAConfigDoesHarm) {
  std::mt19937 random(17);
  const std::vector<api::Port> inputs = {port("x", {1, 3})}, outputs = {port("y", {1, 3})};
  const std::string more = std::string(kWhole) +
                           "version_policy { specific { versions: [1, 2] } }\ndynamic_batching { preferred_batch_size: "
                           "[4, 8] max_queue_delay_microseconds: 100 }\nmodel_warmup { name: \"w\" inputs { key: "
                           "\"INPUT_0\" value { data_type: TYPE_FP32 dims: 3 zero_data: true } } }\n";
  const std::string bytes =
      "{}[]:\"\\\n-9#,<>\x00\xff"
      "a";
  int good = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = more;
    for (uint32_t edits = 1 + random() % 4; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = bytes[random() % bytes.size()]; break;
        case 1: text.erase(at, 1 + random() % 20); break;
        case 2: text.insert(at, text.substr(random() % text.size(), random() % 60)); break;
        default: text.insert(at, std::string(1 + random() % 100, "{[\"-9"[random() % 5])); break;
      }
      if (text.empty()) text = "x";
    }
    try {
      inference::ModelConfig config = config_from_text("m", text);
      check_config("m", config);
      complete_config(config, inputs, outputs, true);
      ++good;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("model 'm'", 0), 0u) << error.what();
    }
  }
  EXPECT_GT(good, 0);
}

TEST(CompleteConfigTest, JsonOfClientsIsReadOrRefused) {
  EXPECT_EQ(config_from_json("m", R"({"max_batch_size": 4, "backend": "sluice"})").max_batch_size(), 4);
  EXPECT_EQ(config_from_json("m", R"({"versionPolicy": {"latest": {"num_versions": 2}}})")
                .version_policy()
                .latest()
                .num_versions(),
            2u);
  EXPECT_NE(refusal([] { config_from_json("m", "{"); }).find("model 'm': config of the load request: "),
            std::string::npos);
  EXPECT_NE(refusal([] { config_from_json("m", R"({"speed": 3})"); }).find("speed"), std::string::npos);
  std::string deep = "{\"input\":";
  for (int i = 0; i < 100000; ++i) deep += "[";
  EXPECT_NE(refusal([&] { config_from_json("m", deep); }), "");
  EXPECT_EQ(refusal([] { config_from_json("m", std::string(kLargestConfig + 1, ' ')); }),
            "model 'm': config of the load request: 1048577 bytes; at most 1048576");
}

}  // namespace
}  // namespace sluice::serving::test
