// From a folder to an answer: layout, versions, what the server tells of itself.
#include "tests/serving/repository/fixture.h"

namespace sluice::serving::test {
namespace {

class ServingTest : public RepositoryTest {};

TEST_F(ServingTest, ServesTheNewestVersionOfABareFolder) {
  put("m", 1, 10);
  put("m", 2, 20);
  serve_all();
  EXPECT_EQ(values("m"), (Floats{20, 40, 60}));
  EXPECT_EQ(index(), "m 2 READY");
  const Answer answer = ask(*server_, "m", {1, 2, 3}).get();
  EXPECT_EQ(answer.version, "2");
  EXPECT_EQ(answer.output, "OUTPUT_0");
}

TEST_F(ServingTest, ABundleMayLieInTheVersionItselfOrWhereTheConfigSays) {
  compile(repository_ / "direct" / "1", 3);
  compile(repository_ / "named" / "1" / "net", 4);
  write("named/config.pbtxt", "default_model_filename: \"net\"");
  serve_all();
  EXPECT_EQ(factor("direct"), 3);
  EXPECT_EQ(factor("named"), 4);
}

TEST_F(ServingTest, SeveralRepositories) {
  put("a", 1, 2);
  options_.repositories.push_back(dir_ / "more");
  compile(dir_ / "more" / "b" / "1" / "model", 5);
  serve_all();
  EXPECT_EQ(index(), "a 1 READY; b 1 READY");
  EXPECT_EQ(factor("b"), 5);
}

TEST_F(ServingTest, TwoModelsOfOneNameAreRefusedByName) {
  put("m", 1, 2);
  options_.repositories.push_back(dir_ / "more");
  compile(dir_ / "more" / "m" / "1" / "model", 5);
  serve();
  EXPECT_EQ(refused_load("m"), "model 'm': 2 folders have this name; it must be in one repository");
  EXPECT_EQ(index(), "m UNAVAILABLE: model 'm': 2 folders have this name; it must be in one repository");
}

TEST_F(ServingTest, ARepositoryThatIsNoneIsRefused) {
  options_.repositories = {dir_ / "nothing"};
  const std::string text = refusal([&] { serve(); });
  EXPECT_EQ(text.rfind("model repository '", 0), 0u) << text;
  EXPECT_NE(text.find("No such file or directory; it must be a folder"), std::string::npos) << text;
}

TEST_F(ServingTest, AVersionWithoutABundleSaysWhatIsMissing) {
  write("m/1/readme.txt", "nothing");
  write("n/readme.txt", "nothing");
  serve();
  EXPECT_EQ(refused_load("m"), "model 'm' version 1: no bundle in its folder; save one there, as '1/model'");
  EXPECT_EQ(refused_load("n"),
            "model 'n': no version; a version is a folder called by a number, such as '1', with the bundle in it");
  EXPECT_EQ(refused_load("o"), "model 'o': it is in no model repository");
}

TEST_F(ServingTest, TellsOfItself) {
  put("m", 1, 10);
  serve_all();
  EXPECT_TRUE(server_->live());
  EXPECT_TRUE(server_->model_ready("m", ""));
  EXPECT_TRUE(server_->model_ready("m", "1"));
  EXPECT_EQ(refusal([&] { server_->model_ready("x", ""); }), "Request for unknown model: 'x' is not found");
  EXPECT_EQ(refusal([&] { server_->model_ready("m", "7"); }), "Request for unknown model: 'm' version 7 is not found");
  const auto server = server_->metadata();
  EXPECT_EQ(server.name(), "sluice");
  EXPECT_FALSE(server.version().empty());
  const std::set<std::string> extensions(server.extensions().begin(), server.extensions().end());
  for (const char* name : {"classification", "model_repository", "model_configuration", "statistics"})
    EXPECT_EQ(extensions.count(name), 1u) << name;
  EXPECT_EQ(extensions.count("system_shared_memory") + extensions.count("trace"), 0u);
  const auto model = server_->model_metadata("m", "");
  EXPECT_EQ(model.ShortDebugString(),
            "name: \"m\" versions: \"1\" platform: \"sluice\" inputs { name: \"INPUT_0\" datatype: \"FP32\" shape: 1 "
            "shape: 3 } outputs { name: \"OUTPUT_0\" datatype: \"FP32\" shape: 1 shape: 3 }");
}

TEST_F(ServingTest, CountsRequests) {
  put("m", 1, 10);
  serve_all();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(factor("m"), 10);
  const auto statistics = server_->statistics("m", "1");
  ASSERT_EQ(statistics.model_stats_size(), 1);
  EXPECT_EQ(statistics.model_stats(0).inference_count(), 5u);
  EXPECT_EQ(server_->statistics("", "").model_stats_size(), 1);
  EXPECT_EQ(refusal([&] { static_cast<void>(server_->statistics("x", "")); }),
            "Request for unknown model: 'x' is not found");
  EXPECT_NE(server_->metrics().find("nv_inference_request_success{model=\"m\",version=\"1\"} 5"), std::string::npos);
}

TEST_F(ServingTest, ARequestForWhatIsNotThereIsRefusedByName) {
  put("m", 1, 10);
  serve_all();
  EXPECT_EQ(error("x"), "Request for unknown model: 'x' is not found");
  EXPECT_EQ(error("m", "3"), "Request for unknown model: 'm' version 3 is not found");
  EXPECT_EQ(error("m", "stable"), "Request for unknown model: 'm' version stable is not found");
}

TEST_F(ServingTest, PortsAnswerToTheirOwnNamesToo) {
  put("m", 1, 10);
  serve_all();
  EXPECT_EQ(ask(*server_, "m", {1, 2, 3}, "", "x").get().values, (Floats{10, 20, 30}));
  EXPECT_NE(ask(*server_, "m", {1, 2, 3}, "", "z").get().error, "");
}

TEST_F(ServingTest, InputsAreKnownByTheirNumberWhateverTheirOrder) {
  const std::string type = " : float32(1, 2)\n";
  fs::create_directories(repository_ / "m" / "1");
  api::compile(engine(),
               "graph \"difference\" {\n  %0 = input \"left\"" + type + "  %1 = input \"right\"" + type +
                   "  %2 = sub(%0, %1)" + type + "  output \"y\" = %2\n}\n",
               {}, repository_ / "m" / "1" / "model");
  serve_all();
  InferRequest request;
  request.model = "m";
  request.inputs.push_back(floats("INPUT_1", {1, 2}, {1, 2}));
  request.inputs.push_back(floats("INPUT_0", {1, 2}, {30, 50}));
  EXPECT_EQ(ask(*server_, std::move(request)).get().values, (Floats{29, 48}));
}

// A family of plans for 1 and for up to 4 rows, as sluice.save writes it for a graph with a Dim.
TEST_F(ServingTest, AFamilyOfBatchesIsServedInBatches) {
  const fs::path family = repository_ / "m" / "1" / "model";
  for (const int rows : {1, 4}) {
    const std::string type = " : float32(" + std::to_string(rows) + ", 3)\n";
    const fs::path member = dir_ / ("member" + std::to_string(rows));
    api::compile(
        engine(),
        "graph \"double\" {\n  %0 = input \"x\"" + type + "  %1 = add(%0, %0)" + type + "  output \"y\" = %1\n}\n", {},
        member);
    const fs::path to = family / "members" / (rows == 1 ? "0" : "1");
    fs::create_directories(to);
    for (const char* file : {"plan.json", "graph.txt"}) fs::copy(member / file, to / file);
    if (rows > 1) continue;
    fs::copy(member / "weights.safetensors", family / "weights.safetensors");
  }
  const std::string port = R"("dtype": "float32", "shape": ["batch", 3]}])";
  std::ofstream(family / "meta.json") << "{}";
  std::ofstream(family / "family.json")
      << R"({"schema_version": 1, "name": "f", "dims": [{"name": "batch", "min": 1, "max": 4, "fit": "pad"}], )"
      << R"("inputs": [{"name": "x", )" << port << R"(, "outputs": [{"name": "y", )" << port
      << R"(, "members": [[1], [4]]})";
  serve_all();
  EXPECT_EQ(server_->model_config("m", "").max_batch_size(), 4);
  EXPECT_EQ(server_->model_metadata("m", "").inputs(0).ShortDebugString(),
            "name: \"INPUT_0\" datatype: \"FP32\" shape: -1 shape: 3");
  for (const int64_t rows : {1, 2, 3, 4}) {
    InferRequest request;
    request.model = "m";
    request.inputs.push_back(floats("INPUT_0", {rows, 3}, Floats(static_cast<size_t>(rows) * 3, 5)));
    const Answer answer = ask(*server_, std::move(request)).get();
    EXPECT_EQ(answer.error, "");
    EXPECT_EQ(answer.values, Floats(static_cast<size_t>(rows) * 3, 10));
  }
}

// A server that starts with a model that takes its time is live at once, and ready when the model is there.
TEST_F(ServingTest, IsLiveAndNotReadyWhileItLoads) {
  put("m", 1, 10);
  std::promise<void> open;
  executors_.make = [gate = open.get_future().share()](const Machine& machine, ExecutorSpec spec) {
    gate.wait();
    return make_executor(machine, std::move(spec));
  };
  options_.startup_models = {"*"};
  serve();
  EXPECT_TRUE(server_->live());
  EXPECT_FALSE(server_->ready());
  eventually([&] { return index() == "m 1 LOADING"; }, index());
  EXPECT_EQ(error("m"), "model 'm': it is being loaded");
  EXPECT_FALSE(server_->ready());
  open.set_value();
  started();
  EXPECT_EQ(factor("m"), 10);
}

TEST_F(ServingTest, StrictReadinessWaitsForAllModels) {
  put("good", 1, 10);
  break_version("bad", 1);
  options_.control = ModelControl::kNone;
  serve();
  eventually(
      [&] {
        return index().find("LOADING") == std::string::npos && index().find("good 1 READY") != std::string::npos &&
               index().find("bad 1 UNAVAILABLE") != std::string::npos;
      },
      index());
  EXPECT_FALSE(server_->ready());
  EXPECT_EQ(factor("good"), 10);
  EXPECT_EQ(error("bad"), "Request for unknown model: 'bad' has no available versions");
  options_.strict_readiness = false;
  serve();
  started();
}

TEST_F(ServingTest, DrainAnswersWhatIsUnderWayAndNothingMore) {
  put("m", 1, 10);
  serve_all();
  std::vector<std::future<Answer>> under_way;
  for (int i = 0; i < 100; ++i) under_way.push_back(ask(*server_, "m", {1, 2, 3}));
  EXPECT_TRUE(server_->drain(std::chrono::minutes(1)));
  for (auto& answer : under_way) EXPECT_EQ(answer.get().error, "");
  EXPECT_EQ(error("m"), "infer: the server is shutting down");
  EXPECT_FALSE(server_->live());
  EXPECT_FALSE(server_->ready());
}

// By request: the cost of finding the model, its version, and starting the request.
TEST_F(ServingTest, ManyThreadsAskManyModels) {
  for (int i = 0; i < 4; ++i) put("m" + std::to_string(i), 1, static_cast<float>(i + 1));
  serve_all();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const int m = (t + i) % 4;
        Answer answer = ask(*server_, "m" + std::to_string(m), {1, 2, 3}).get();
        if (answer.error.empty() && answer.values[0] == static_cast<float>(m + 1)) continue;
        ++wrong;
        ADD_FAILURE() << answer.error;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace sluice::serving::test
