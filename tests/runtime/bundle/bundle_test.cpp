// Bundles and the public C++ API; files are read strictly.
#include "runtime/bundle/bundle.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "include/sluice/sluice.hpp"
#include "plan/json/json.h"
#include "runtime/bundle/safetensors.h"
#include "runtime/bundle_fixture.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

class BundleTest : public ::testing::Test {
 protected:
  BundleTest() : dir_(fs::path(::testing::TempDir()) / ("sluice_bundle_" + std::to_string(getpid()))) {}
  ~BundleTest() override { fs::remove_all(dir_); }
  void save() { save_plain(dir_.string()); }
  void write(const std::string& file, const std::string& text) { std::ofstream(dir_ / file, std::ios::binary) << text; }
  std::string read(const std::string& file) {
    std::ifstream in(dir_ / file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string load_error() {
    return error_of([&] { load_bundle(dir_.string()); });
  }
  // A weights file with this header and so many bytes of data.
  void weights(const std::string& header, size_t data) {
    std::string file(8, '\0');
    const uint64_t length = header.size();
    std::memcpy(file.data(), &length, 8);
    write("weights.safetensors", file + header + std::string(data, '\0'));
  }
  fs::path dir_;
};

TEST_F(BundleTest, RoundTripsAndRuns) {
  save();
  save();  // replaces
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 4);
  const Bundle bundle = load_bundle(dir_.string());
  EXPECT_EQ(to_json(bundle.plan), to_json(plain_plan()));
  EXPECT_EQ(bundle.graph_text, "graph text\n");
  EXPECT_EQ(bundle.meta.at("by"), "test");
  Engine engine;
  Session session = load_session(engine, dir_.string());
  StepHandle step = submit(session, filled(5));
  EXPECT_EQ(values(step.outputs()[0]), filled(5));
  EXPECT_EQ(values(step.outputs()[1]), (Floats{1, 2, 3, 4}));
}

// The weights of a graph over devices are whole, and the plan's variables parts of them.
TEST_F(BundleTest, ShardsAreCutFromTheWeights) {
  Bundle bundle{plain_plan(), "graph text\n", {{"whole", tensor({0, 1, 2, 3, 4, 5})}}, {}};
  bundle.shards.variables["w"] = {"w", "whole", {1, DeviceKind::kSim, 0}, {DType::kFloat32, {kN}}, {{0, 2}}};
  save_bundle(dir_.string(), bundle);
  EXPECT_EQ(load_bundle(dir_.string()).shards.variables, bundle.shards.variables);
  Engine engine;
  Session session = load_session(engine, dir_.string());
  EXPECT_EQ(values(submit(session, filled(5)).outputs()[1]), (Floats{2, 3, 4, 5}));
  bundle.shards.variables["w"].cuts[0].start = 3;
  save_bundle(dir_.string(), bundle);
  EXPECT_THAT(error_of([&] { load_session(engine, dir_.string()); }),
              HasSubstr("shard 'w', [3, 7) of dimension 0 of 'whole': it is float32(4,), of float32(6,); it must lie "
                        "within"));
}

TEST_F(BundleTest, RefusesMalformedShards) {
  const auto error = [&](const std::string& shards) {
    save_bundle(dir_.string(), {plain_plan(), "", {{"w", tensor({1, 2, 3, 4})}}, {{"shards", shards}}});
    return load_error();
  };
  const std::string head = R"({"inputs": {}, "outputs": {}, "variables": {)";
  EXPECT_THAT(error("[]"), HasSubstr("meta.json: shards: not an object of inputs, outputs and variables"));
  EXPECT_THAT(error(R"({"inputs": {}, "outputs": {}, "others": {}})"), HasSubstr("no object 'variables'"));
  EXPECT_THAT(error(head + R"("v": {}}})"), HasSubstr("'v' is none of the variables of the plan; all must be"));
  for (const char* wrong :
       {"1", R"({"of": "w", "device": "cpu:0", "axis": 1, "start": 0})",
        R"({"of": "w", "device": "cpu:0", "axis": 0, "start": -1})", R"({"of": "w", "axis": 0, "start": 0})"})
    EXPECT_THAT(error(head + R"("w": )" + wrong + "}}"), HasSubstr("must have of, device, axis (-1 to 0) and start"));
  EXPECT_THAT(error(head + R"("w": {"of": "w", "device": "2pu", "axis": 0, "start": 0}}})"), HasSubstr("2pu"));
}

TEST_F(BundleTest, RunsThroughThePublicApi) {
  save();
  EXPECT_STREQ(api::version(), "0.1.0");
  const api::Plan plan = api::Plan::load((dir_ / "plan.json").string());
  EXPECT_EQ(plan.name(), "plain");
  EXPECT_EQ(plan.verify(), "");
  EXPECT_EQ(plan.actors(), (std::vector<std::string>{"feed", "net", "sink"}));
  api::Engine engine;
  std::atomic<int> called{0};
  api::SessionOptions options;
  options.on_output = [&](uint64_t, const std::vector<api::Tensor>& outputs, const std::string& error) {
    called += outputs.size() == 2 && error.empty();
  };
  api::Session session = api::Session::load(engine, dir_.string(), options);
  EXPECT_EQ(session.inputs()[0].str(), "x: float32(4,)");
  EXPECT_EQ(session.outputs()[1].name, "w");
  const api::Tensor x = api::Tensor::from<float>({1, 2, 3, 4}, {4});
  EXPECT_EQ(session.run({x})[0].data<float>()[3], 4);
  api::Result result = session.submit({x});
  EXPECT_EQ(result.get()[1].data<float>()[0], 1);
  EXPECT_TRUE(result.ready());
  EXPECT_TRUE(session.try_submit({x}).has_value());
  session.wait_all();
  session.stop();
  EXPECT_EQ(called, 3);
  EXPECT_EQ(session.firings()[1].firings, 3u);
  try {
    session.run({x});
    FAIL();
  } catch (const api::Error& error) {
    EXPECT_EQ(error.kind(), api::ErrorKind::kRuntime);
  }
  const std::string file = (dir_ / "t.safetensors").string();
  api::save_tensors(file, {{"t", x}});
  EXPECT_EQ(api::load_tensors(file)[0].tensor.data<float>()[2], 3);
  EXPECT_THROW(x.data<double>(), api::Error);
}

// Push, poll, wait with a timeout, and be called back. The first callback holds up the engine until the gate opens.
TEST_F(BundleTest, PublicApiPushesPollsAndCallsBack) {
  save();
  api::Engine engine;
  Gate gate;
  std::vector<uint64_t> called;
  api::SessionOptions options;
  options.max_in_flight = 2;
  options.submit_timeout = options.wait_timeout = std::chrono::milliseconds(20);
  options.on_output = [&](uint64_t step, const std::vector<api::Tensor>& outputs, const std::string& error) {
    gate.pass();
    EXPECT_EQ(error, "");
    EXPECT_EQ(outputs[0].data<float>()[0], static_cast<float>(step));
    called.push_back(step);
  };
  const auto input = [](int step) {
    return std::vector<api::Tensor>{api::Tensor::from<float>(filled(static_cast<float>(step)), {4})};
  };
  api::Session session = api::Session::load(engine, dir_.string(), options);
  api::Result first = session.submit(input(0));
  gate.wait_arrived(1);
  std::optional<api::Result> second = session.try_submit(input(1));
  while (second.has_value() && session.try_submit(input(2)).has_value()) FAIL() << "more than two steps in flight";
  ASSERT_TRUE(second.has_value());
  EXPECT_FALSE(second->ready());
  const auto timeout = [](auto&& f) {
    try {
      f();
    } catch (const api::Error& error) {
      EXPECT_EQ(error.kind(), api::ErrorKind::kTimeout);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(timeout([&] { second->get(std::chrono::milliseconds(5)); }), HasSubstr("step 1 is not finished after 5"));
  EXPECT_THAT(timeout([&] { second->get(); }), HasSubstr("step 1 is not finished after 20"));
  EXPECT_THAT(timeout([&] { session.submit(input(2)); }), HasSubstr("no room for another step, with 2 in flight"));
  gate.open();
  EXPECT_EQ(second->get(std::chrono::seconds(10))[0].data<float>()[3], 1);
  while (!first.ready()) std::this_thread::yield();
  EXPECT_EQ(session.submit(input(2)).get(std::chrono::seconds(10))[0].data<float>()[0], 2);
  session.stop();
  EXPECT_EQ(called, (std::vector<uint64_t>{0, 1, 2}));
}

TEST_F(BundleTest, NamesWhatIsMissing) {
  EXPECT_THAT(load_error(), HasSubstr("not a directory; a bundle holds plan.json"));
  save();
  fs::remove(dir_ / "graph.txt");
  EXPECT_THAT(load_error(), HasSubstr("graph.txt: cannot be read: No such file"));
  fs::remove_all(dir_);  // which is no bundle any more
  save();
  write("meta.json", "[1]");
  EXPECT_THAT(load_error(), HasSubstr("meta.json: not a JSON object"));
  save();
  write("plan.json", read("plan.json").substr(0, 200));
  EXPECT_THAT(load_error(), HasSubstr("plan.json"));
  Engine engine;
  EXPECT_THAT(error_of([&] { bind_weights(engine, plain_plan(), {}); }), HasSubstr("needs variable 'w' (float32(4,))"));
  EXPECT_THAT(error_of([&] {
                bind_weights(engine, plain_plan(), {{"w", tensor({1})}});
              }),
              HasSubstr("variable 'w' is float32(1,) in the weights; the plan needs float32(4,)"));
}

TEST_F(BundleTest, RefusesMalformedWeightsBeforeAllocating) {
  save();
  const std::string good = read("weights.safetensors");
  write("weights.safetensors", good.substr(0, 5));
  EXPECT_THAT(load_error(), HasSubstr("5 bytes; a safetensors file has at least 8"));
  write("weights.safetensors", good.substr(0, good.size() - 1));
  EXPECT_THAT(load_error(), HasSubstr("data_offsets [0, 16) of 15 bytes of data"));
  write("weights.safetensors", std::string(8, '\xff') + good.substr(8));
  EXPECT_THAT(load_error(), HasSubstr("the file is truncated or not safetensors"));
  weights("{", 0);
  EXPECT_THAT(load_error(), HasSubstr("the header is not a JSON object"));
  weights(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,8]}})", 16);
  EXPECT_THAT(load_error(), HasSubstr("data_offsets [0, 8) of 16 bytes of data; float32(4,) needs 16 bytes"));
  weights(R"({"w":{"dtype":"Q4","shape":[4],"data_offsets":[0,16]}})", 16);
  EXPECT_THAT(load_error(), HasSubstr("dtype 'Q4' is not supported"));
  weights(R"({"w":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})", 16);
  EXPECT_THAT(load_error(), HasSubstr("whole number"));
  weights(R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]}})", 16);
  EXPECT_THAT(load_error(), HasSubstr("value: "));
  weights(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8);
  EXPECT_THAT(load_error(), HasSubstr("no holes or overlaps"));
  weights(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8);
  EXPECT_THAT(load_error(), HasSubstr("8 bytes of data; the header accounts for 4"));
  write("weights.safetensors", good);
  EXPECT_EQ(load_error(), "no error");
}

}  // namespace
}  // namespace sluice::test
