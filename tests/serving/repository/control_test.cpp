// Loading and unloading: by clients, by looking at folders, by a list; what is broken takes nothing down.
#include <sys/resource.h>

#include "tests/serving/repository/fixture.h"

namespace sluice::serving::test {
namespace {

// Requests of a thread without end, which counts those that failed.
class Traffic {
 public:
  Traffic(Server& server, std::string model) {
    thread_ = std::thread([this, &server, model = std::move(model)] {
      while (!over_) {
        const Answer answer = ask(server, model, {1, 2, 3}).get();
        ++asked_;
        if (!answer.error.empty() && failed_++ < 3) ADD_FAILURE() << answer.error;
      }
    });
  }
  ~Traffic() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Until as many more requests have been answered.
  void go_on(int requests) const {
    const int until = asked_ + requests;
    eventually([&] { return asked_ >= until; }, "requests");
  }
  int failed() const { return failed_; }

 private:
  std::atomic<bool> over_{false};
  std::atomic<int> asked_{0}, failed_{0};
  std::thread thread_;
};

class ControlTest : public RepositoryTest {
 protected:
  Server& poll() {
    options_.control = ModelControl::kPoll;
    options_.poll = std::chrono::milliseconds(5);
    serve();
    started();
    return *server_;
  }
  void until_index(const std::string& text) {
    eventually([&] { return index() == text; }, "index: " + text + "\nbut: " + index());
  }
  void labels(const std::string& model, const std::string& text) {
    write(model + "/config.pbtxt",
          "version_policy { all { } } parameters { key: \"version_labels\" value { string_value: \"" + text + "\" } }");
  }
};

TEST_F(ControlTest, ClientsLoadAndUnload) {
  put("a", 1, 2);
  put("b", 1, 3);
  options_.startup_models = {"b"};
  serve();
  started();
  EXPECT_EQ(index(), "a UNAVAILABLE: not loaded; b 1 READY");
  EXPECT_EQ(index(true), "b 1 READY");
  EXPECT_EQ(error("a"), "Request for unknown model: 'a' is not found");
  server_->load("a", {});
  EXPECT_EQ(factor("a"), 2);
  server_->unload("a", false);
  EXPECT_EQ(index(), "a 1 UNAVAILABLE: unloaded; b 1 READY");
  EXPECT_EQ(error("a"), "Request for unknown model: 'a' has no available versions");
  EXPECT_EQ(error("a", "1"), "model 'a' version 1: it is not served: unloaded");
  EXPECT_TRUE(server_->ready());
  server_->unload("b", false);
  EXPECT_TRUE(server_->ready());
  put("a", 1, 20);
  server_->load("a", {});
  EXPECT_EQ(factor("a"), 20);
  EXPECT_EQ(refusal([&] { server_->unload("x", false); }), "unload: model 'x': it is not loaded");
}

// This holds for ten thousands of models, too: what a start and an end cost grows as their number does, and not as its
// square.
TEST_F(ControlTest, AStartThatIsEndedAtOnceCostsAsMuchAsItHasModels) {
  set_log_settings({.info = false, .warning = false, .error = false});
  const auto cost = [&](int models) {
    options_.startup_models.clear();  // none of which there is
    for (int m = 0; m < models; ++m) options_.startup_models.push_back("m" + std::to_string(m));
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    serve();
    server_ = nullptr;
    getrusage(RUSAGE_SELF, &after);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(after.ru_utime) - seconds(before.ru_utime);
  };
  cost(100);
  const double few = cost(1500), many = cost(6000);
  set_log_settings({});
  EXPECT_LT(many, 8 * few + 0.2) << few;  // as the square it would be 16 times as much
}

TEST_F(ControlTest, OnlyExplicitServersTakeOrders) {
  put("m", 1, 2);
  options_.control = ModelControl::kNone;
  serve();
  started();
  EXPECT_EQ(refused_load("m"),
            "load: model control is 'none'; clients load and unload models of a server with 'explicit'");
  EXPECT_EQ(refusal([&] { server_->unload("m", false); }),
            "unload: model control is 'none'; clients load and unload models of a server with 'explicit'");
  EXPECT_EQ(factor("m"), 2);
}

TEST_F(ControlTest, ALoadTakesTheLatestFiles) {
  put("m", 1, 2);
  serve_all();
  put("m", 2, 3);
  EXPECT_EQ(factor("m"), 2);
  server_->load("m", {});
  EXPECT_EQ(factor("m"), 3);
  until_index("m 2 READY");  // when version 1 has answered what it was asked
  EXPECT_EQ(error("m", "1"), "Request for unknown model: 'm' version 1 is not found");
  fs::remove_all(repository_ / "m" / "2");
  server_->load("m", {});
  EXPECT_EQ(factor("m"), 2);
}

TEST_F(ControlTest, VersionPolicies) {
  for (int v = 1; v <= 4; ++v) put("m", v, static_cast<float>(v));
  fs::create_directories(repository_ / "m" / "notes");
  fs::create_directories(repository_ / "m" / "007");
  serve();
  write("m/config.pbtxt", "version_policy { latest { num_versions: 2 } }");
  server_->load("m", {});
  EXPECT_EQ(index(), "m 3 READY; m 4 READY");
  EXPECT_EQ(factor("m"), 4);
  EXPECT_EQ(factor("m", "3"), 3);
  write("m/config.pbtxt", "version_policy { all { } }");
  server_->load("m", {});
  EXPECT_EQ(index(), "m 1 READY; m 2 READY; m 3 READY; m 4 READY");
  const auto metadata = server_->model_metadata("m", "");
  EXPECT_EQ(std::vector<std::string>(metadata.versions().begin(), metadata.versions().end()),
            (std::vector<std::string>{"1", "2", "3", "4"}));
  EXPECT_EQ(server_->statistics("m", "").model_stats_size(), 4);
  write("m/config.pbtxt", "version_policy { specific { versions: [1, 3] } }");
  server_->load("m", {});
  until_index("m 1 READY; m 3 READY");
  EXPECT_EQ(factor("m"), 3);
  write("m/config.pbtxt", "version_policy { specific { versions: [2, 9] } }");
  EXPECT_EQ(refused_load("m"), "model 'm' version 9: the model has no folder of this name");
  EXPECT_EQ(factor("m"), 2);
}

TEST_F(ControlTest, VersionsOfDifferentSignaturesAnswerByTheirOwnUrls) {
  put("m", 1, 2, 3);
  put("m", 2, 4, 5);
  write("m/config.pbtxt", "version_policy { all { } }");
  serve_all();
  EXPECT_EQ(values("m", "1", {1, 2, 3}), (Floats{2, 4, 6}));
  EXPECT_EQ(values("m", "2", {1, 1, 1, 1, 1}), (Floats{4, 4, 4, 4, 4}));
  EXPECT_NE(error("m", "2"), "");
  EXPECT_EQ(server_->model_metadata("m", "1").inputs(0).shape(1), 3);
  EXPECT_EQ(server_->model_metadata("m", "2").inputs(0).shape(1), 5);
}

// A config that says what version 1 takes keeps out a version 2 that takes something else.
TEST_F(ControlTest, AConfigRefusesAVersionWithAnotherSignature) {
  put("m", 1, 2, 3);
  write("m/config.pbtxt", "input { name: \"INPUT_0\" data_type: TYPE_FP32 dims: [1, 3] }");
  serve_all();
  put("m", 2, 4, 5);
  EXPECT_NE(refused_load("m").find("input 'INPUT_0': dims [1,3]; the bundle has x: float32(1, 5)"), std::string::npos);
  EXPECT_EQ(factor("m"), 2);
}

TEST_F(ControlTest, LabelsNameVersions) {
  for (int v = 1; v <= 3; ++v) put("m", v, static_cast<float>(v));
  labels("m", "stable:2, canary:3, old:7");
  serve_all();
  EXPECT_EQ(factor("m", "stable"), 2);
  EXPECT_EQ(factor("m", "canary"), 3);
  EXPECT_EQ(ask(*server_, "m", {1, 2, 3}, "stable").get().version, "2");
  EXPECT_TRUE(server_->model_ready("m", "stable"));
  EXPECT_EQ(error("m", "old"), "model 'm': the label 'old' is of version 7, which is not served");
  labels("m", "stable:3");
  server_->load("m", {});
  EXPECT_EQ(factor("m", "stable"), 3);
}

// TRI-07: the old version goes on, the index tells why the new one does not.
TEST_F(ControlTest, ABrokenNewVersionTakesNothingDown) {
  put("m", 1, 2);
  serve_all();
  break_version("m", 2);
  const std::string why = refused_load("m");
  EXPECT_EQ(why.rfind("model 'm' version 2: ", 0), 0u) << why;
  EXPECT_EQ(index(), "m 1 READY; m 2 UNAVAILABLE: " + why);
  EXPECT_EQ(factor("m"), 2);
  EXPECT_TRUE(server_->ready());
  EXPECT_EQ(why.find(dir_.string()), std::string::npos);
  EXPECT_EQ(why.find("/proc"), std::string::npos);
  put("m", 2, 3);
  server_->load("m", {});
  until_index("m 2 READY");
}

TEST_F(ControlTest, ABrokenNewestVersionAtTheStartLeavesTheOneBefore) {
  put("m", 1, 2);
  break_version("m", 2);
  serve_all();
  EXPECT_EQ(factor("m"), 2);
}

TEST_F(ControlTest, ABrokenReloadOfTheSameVersionKeepsWhatRuns) {
  put("m", 1, 2);
  serve_all();
  break_version("m", 1);
  const std::string why = refused_load("m");
  EXPECT_EQ(index(), "m 1 READY: kept as it was: " + why);
  EXPECT_EQ(factor("m"), 2);
  write("m/config.pbtxt", "nonsense");
  const std::string config = refused_load("m");
  EXPECT_NE(config.find("config.pbtxt:1:"), std::string::npos) << config;
  EXPECT_EQ(factor("m"), 2);
}

TEST_F(ControlTest, AServerIsNotReadyForAModelThatCannotBeLoaded) {
  break_version("m", 1);
  options_.startup_models = {"m", "n"};
  serve();
  eventually([&] { return index().find("m 1 UNAVAILABLE") == 0 && index().find("LOADING") == std::string::npos; },
             index());
  EXPECT_FALSE(server_->ready());
  EXPECT_NE(index().find("n UNAVAILABLE: model 'n': it is in no model repository"), std::string::npos) << index();
}

// A load of this model alone, with its traffic: TRI-06, TRI-07, C-15.
TEST_F(ControlTest, PollingPicksUpVersionsWithoutAFailedRequest) {
  put("m", 1, 1);
  poll();
  {
    const Traffic traffic(*server_, "m");
    for (int v = 2; v <= 11; ++v) {
      put("m", v, static_cast<float>(v));
      eventually([&] { return factor("m") == static_cast<float>(v); }, "version " + std::to_string(v));
      until_index("m " + std::to_string(v) + " READY");
      traffic.go_on(20);
    }
    EXPECT_EQ(traffic.failed(), 0);
  }
  EXPECT_EQ(factor("m"), 11);
}

TEST_F(ControlTest, PollingSeesWhatChangesAppearsAndGoes) {
  put("a", 1, 1);
  poll();
  put("b", 1, 2);
  until_index("a 1 READY; b 1 READY");
  put("a", 1, 5);  // the same version of other files
  eventually([&] { return factor("a") == 5; }, "changed files");
  break_version("b", 2);
  eventually([&] { return index().find("b 2 UNAVAILABLE: model 'b' version 2: ") != std::string::npos; }, index());
  EXPECT_EQ(factor("b"), 2);
  write("a/config.pbtxt", "input {");
  eventually([&] { return index().find("a 1 READY: kept as it was: model 'a': config.pbtxt:1:") == 0; }, index());
  write("a/config.pbtxt", "");
  fs::remove_all(repository_ / "b");
  until_index("a 1 READY");
  EXPECT_EQ(error("b"), "Request for unknown model: 'b' is not found");
}

// A version that has failed is not tried again before its files change.
TEST_F(ControlTest, PollingTriesABrokenVersionOnce) {
  put("m", 1, 1);
  const auto loads = std::make_shared<std::atomic<int>>(0);
  executors_.make = [loads](const Machine& machine, ExecutorSpec spec) -> std::shared_ptr<Executor> {
    if (spec.version == "2" && ++*loads > 0) throw Error(Code::kInternal, "it breaks");
    return make_executor(machine, std::move(spec));
  };
  poll();
  put("m", 2, 2);
  until_index("m 1 READY; m 2 UNAVAILABLE: it breaks");
  put("other", 1, 1);
  eventually([&] { return index().find("other 1 READY") != std::string::npos; }, index());
  put("third", 1, 1);
  eventually([&] { return index().find("third 1 READY") != std::string::npos; }, index());
  EXPECT_EQ(*loads, 1);
}

TEST_F(ControlTest, AListOfModelsIsPolled) {
  const fs::path base = dir_ / "elsewhere";
  for (int v = 1; v <= 3; ++v) compile(base / "net" / std::to_string(v) / "model", static_cast<float>(v));
  const auto list = [&](const std::string& models) {
    const fs::path part = dir_ / "list.part";
    std::ofstream(part) << "model_config_list {" << models << "}";
    fs::rename(part, dir_ / "list");
  };
  const std::string first = "config { name: \"first\" base_path: \"" + (base / "net").string() + "\" ";
  list(first + "}");
  options_.repositories.clear();
  options_.model_config_file = dir_ / "list";
  poll();
  EXPECT_EQ(index(), "first 3 READY");
  {
    const Traffic traffic(*server_, "first");
    list(first +
         "model_version_policy { specific { versions: 1 versions: 2 } } version_labels { key: \"stable\" value: "
         "1 } } config { name: \"second\" base_path: \"" +
         (base / "net").string() + "\" model_platform: \"sluice\" }");
    until_index("first 1 READY; first 2 READY; second 3 READY");
    traffic.go_on(20);
    EXPECT_EQ(traffic.failed(), 0);
  }
  EXPECT_EQ(factor("first", "stable"), 1);
  list(first + "} nonsense");
  list(first + "}");
  until_index("first 3 READY");
}

TEST_F(ControlTest, AListThatIsWrongIsRefused) {
  const auto refused = [&](const std::string& text) {
    std::ofstream(dir_ / "list") << text;
    options_.model_config_file = dir_ / "list";
    return refusal([&] { serve(); });
  };
  EXPECT_EQ(refused("model_config_list {\n  config { nam: \"a\" } }"),
            "model config file:2:15: Message type \"inference.ListedModelConfig\" has no field named \"nam\".");
  EXPECT_EQ(refused("model_config_list { config { name: \"a\" base_path: \"rel\" } }"),
            "model config file: model 'a': base_path 'rel'; must be an absolute path");
  EXPECT_EQ(refused("model_config_list { config { name: \"a\" base_path: \"/x\" model_platform: \"tensorflow\" } }"),
            "model config file: model 'a': model_platform 'tensorflow'; must be 'sluice' or left out");
  EXPECT_EQ(refused("model_config_list { config { name: \"a\" base_path: \"/x\" } config { name: \"a\" base_path: "
                    "\"/y\" } }"),
            "model config file: model 'a': it is there twice");
  EXPECT_NE(refused("model_config_list { config { name: \"../a\" base_path: \"/x\" } }").find("model name '../a'"),
            std::string::npos);
  options_.model_config_file = dir_ / "no_list";
  EXPECT_NE(refusal([&] { serve(); }).find("model config file '"), std::string::npos);
}

// SERVING.md's V3: others do not notice, and all memory comes back.
TEST_F(ControlTest, FiveHundredLoadsAndUnloadsBesideTraffic) {
  put("steady", 1, 1);
  put("m", 1, 2);
  options_.startup_models = {"steady"};
  options_.memory_limit = uint64_t{1} << 30;
  serve();
  started();
  const Traffic traffic(*server_, "steady");
  for (int i = 0; i < 500; ++i) {
    server_->load("m", {});
    if (i % 5 == 0) server_->load("m", {});
    if (i % 10 == 0) {
      EXPECT_EQ(factor("m"), 2);
    }
    server_->unload("m", false);
  }
  traffic.go_on(10);
  EXPECT_EQ(traffic.failed(), 0);
  EXPECT_EQ(index(), "m 1 UNAVAILABLE: unloaded; steady 1 READY");
}

TEST_F(ControlTest, LoadsOfDifferentModelsGoInParallelAndOfOneInOrder) {
  put("a", 1, 1);
  put("b", 1, 2);
  std::promise<void> open;
  std::atomic<int> inside{0};
  executors_.make = [&, gate = open.get_future().share()](const Machine& machine, ExecutorSpec spec) {
    ++inside;
    gate.wait();
    return make_executor(machine, std::move(spec));
  };
  serve();
  std::vector<std::thread> threads;
  for (const char* name : {"a", "b", "a"}) threads.emplace_back([this, name] { server_->load(name, {}); });
  eventually([&] { return inside == 2; }, "two loads at a time");
  EXPECT_EQ(index(), "a 1 LOADING; b 1 LOADING");  // and the tree answers
  open.set_value();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(inside, 3);
}

TEST_F(ControlTest, UnloadWaitsForRequestsUnderWay) {
  put("m", 1, 2);
  serve_all();
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 50; ++i) answers.push_back(ask(*server_, "m", {1, 2, 3}));
  server_->unload("m", false);
  for (auto& answer : answers) {
    ASSERT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    EXPECT_EQ(answer.get().error, "");
  }
}

// An executor throws where nothing should: the model's actor hears of it, and goes on.
TEST_F(ControlTest, AnExecutorThatThrowsAnythingIsAFailedLoad) {
  put("m", 1, 2);
  executors_.make = [](const Machine&, const ExecutorSpec&) -> std::shared_ptr<Executor> { throw std::bad_alloc(); };
  serve();
  EXPECT_EQ(refused_load("m"), "model 'm' version 1: std::bad_alloc");
  EXPECT_EQ(index(), "m 1 UNAVAILABLE: model 'm' version 1: std::bad_alloc");
}

TEST_F(ControlTest, WhatIsNoExceptionIsAFailedLoadToo) {
  put("m", 1, 2);
  executors_.make = [](const Machine&, const ExecutorSpec&) -> std::shared_ptr<Executor> { throw 7; };
  serve();
  EXPECT_EQ(refused_load("m"), "model 'm' version 1: it threw something that is no std::exception");
}

// Its folder is gone, so the server does not wait for it.
TEST_F(ControlTest, AServerIsReadyWithoutAModelThatWasTakenAway) {
  put("a", 1, 1);
  put("b", 1, 2);
  poll();
  fs::remove_all(repository_ / "a");
  until_index("b 1 READY");
  EXPECT_TRUE(server_->ready());
}

// The end waits for the load under way.
TEST_F(ControlTest, AServerEndsWhileItLoads) {
  for (int v = 1; v <= 5; ++v) put("m", v, 1);
  write("m/config.pbtxt", "version_policy { all { } }");
  std::promise<void> open;
  std::atomic<int> inside{0};
  executors_.make = [&, gate = open.get_future().share()](const Machine& machine, ExecutorSpec spec) {
    ++inside;
    gate.wait();
    return make_executor(machine, std::move(spec));
  };
  options_.control = ModelControl::kNone;
  serve();
  eventually([&] { return inside == 1; }, "a load");
  EXPECT_TRUE(server_->drain(std::chrono::milliseconds(0)));
  std::thread opener([&] { open.set_value(); });
  server_ = nullptr;
  opener.join();
  EXPECT_LE(inside, 5);
}

TEST_F(ControlTest, EnsemblesFollowTheirSteps) {
  put("step", 1, 2);
  write("pair/config.pbtxt", R"(
platform: "ensemble"
input { name: "in" data_type: TYPE_FP32 dims: [1, 3] }
output { name: "out" data_type: TYPE_FP32 dims: [1, 3] }
ensemble_scheduling {
  step { model_name: "step" model_version: -1 input_map { key: "INPUT_0" value: "in" } output_map { key: "OUTPUT_0" value: "mid" } }
  step { model_name: "step" model_version: -1 input_map { key: "INPUT_0" value: "mid" } output_map { key: "OUTPUT_0" value: "out" } }
})");
  fs::create_directories(repository_ / "pair" / "1");
  serve();
  server_->load("pair", {});  // its steps with it
  EXPECT_EQ(index(), "pair 1 READY; step 1 READY");
  const auto through = [&] { return ask(*server_, "pair", {1, 2, 3}, "", "in").get(); };
  EXPECT_EQ(through().values, (Floats{4, 8, 12})) << through().error;
  put("step", 2, 3);
  server_->load("step", {});
  eventually([&] { return through().values == Floats{9, 18, 27}; }, "the ensemble of the new step");
  EXPECT_EQ(refusal([&] { server_->unload("step", false); }),
            "unload: model 'step': the ensemble 'pair' uses it; unload that too, with unload_dependents");
  server_->unload("step", true);
  EXPECT_EQ(index(), "pair 1 UNAVAILABLE: unloaded; step 2 UNAVAILABLE: unloaded");
  server_->load("pair", {});
  server_->unload("pair", true);
  EXPECT_EQ(index(), "pair 1 UNAVAILABLE: unloaded; step 2 UNAVAILABLE: unloaded");
}

TEST_F(ControlTest, EnsemblesOfEachOtherOrOfNothingAreRefused) {
  const auto ensemble = [&](const std::string& name, const std::string& step) {
    write(name + "/config.pbtxt",
          "input { name: \"in\" data_type: TYPE_FP32 dims: 1 } output { name: \"out\" data_type: "
          "TYPE_FP32 dims: 1 } ensemble_scheduling { step { model_name: \"" +
              step + "\" } }");
    fs::create_directories(repository_ / name / "1");
  };
  ensemble("a", "b");
  ensemble("b", "a");
  ensemble("c", "nowhere");
  options_.control = ModelControl::kNone;
  serve();
  eventually(
      [&] {
        return index().find("LOADING") == std::string::npos && index().find("c UNAVAILABLE") != std::string::npos;
      },
      index());
  EXPECT_NE(index().find("with this one in it"), std::string::npos) << index();
  EXPECT_NE(index().find("c UNAVAILABLE: model 'c': ensemble_scheduling: step 'nowhere': there is no such model"),
            std::string::npos)
      << index();
}

}  // namespace
}  // namespace sluice::serving::test
