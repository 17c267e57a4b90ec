// Every load is admitted by the bytes of all that is loaded.
#include "sluice/plan.h"
#include "tests/serving/repository/fixture.h"

namespace sluice::serving::test {
namespace {

// Each version needs as many bytes as its number says, by hundreds.
class MemoryTest : public RepositoryTest {
 protected:
  MemoryTest() {
    executors_.ledger = [](const ExecutorSpec& spec) { return 100 * static_cast<uint64_t>(std::stoi(spec.version)); };
    executors_.make = [this](const Machine& machine, ExecutorSpec spec) {
      const uint64_t bytes = executors_.ledger(spec);
      struct Counted {
        std::shared_ptr<Executor> executor;
        std::atomic<uint64_t>& used;
        uint64_t bytes;
        ~Counted() {
          executor = nullptr;
          used -= bytes;
        }
      };
      const uint64_t now = used_ += bytes;
      uint64_t most = most_;
      while (now > most && !most_.compare_exchange_weak(most, now)) {
      }
      if (spec.version == broken_) {
        used_ -= bytes;
        throw Error(Code::kInternal, "it breaks");
      }
      const auto counted = std::make_shared<Counted>(make_executor(machine, std::move(spec)), used_, bytes);
      return std::shared_ptr<Executor>(counted, counted->executor.get());
    };
  }
  ~MemoryTest() override {
    server_ = nullptr;
    EXPECT_EQ(used_, 0u);
  }
  std::atomic<uint64_t> used_{0}, most_{0};
  std::string broken_;
};

TEST_F(MemoryTest, WhatDoesNotFitIsRefusedWithTheBytes) {
  put("a", 3, 1);
  put("b", 4, 1);
  options_.memory_limit = 600;
  serve();
  server_->load("a", {});
  EXPECT_EQ(
      refused_load("b"),
      "model 'b' version 4: it needs 400 bytes; of the memory limit of 600 bytes, 300 are free: unload a model, or "
      "raise the limit");
  EXPECT_EQ(factor("a"), 1);
  server_->unload("a", false);
  EXPECT_EQ(refused_load("b"), "");
  EXPECT_EQ(most_, 400u);
}

TEST_F(MemoryTest, TheNewComesBeforeTheOldGoesWhereBothFit) {
  put("m", 1, 1);
  options_.memory_limit = 300;
  serve_all();
  put("m", 2, 2);
  server_->load("m", {});
  EXPECT_EQ(factor("m"), 2);
  EXPECT_EQ(most_, 300u);
}

TEST_F(MemoryTest, TheOldGoesFirstWhereTheyDoNotFit) {
  put("m", 1, 1);
  options_.memory_limit = 299;
  serve_all();
  put("m", 2, 2);
  server_->load("m", {});
  EXPECT_EQ(factor("m"), 2);
  EXPECT_EQ(most_, 200u);
}

TEST_F(MemoryTest, TheOldGoesFirstWhereMemoryIsSaved) {
  put("m", 1, 1);
  options_.availability = Availability::kSaveMemory;
  serve_all();
  put("m", 2, 2);
  server_->load("m", {});
  EXPECT_EQ(factor("m"), 2);
  EXPECT_EQ(most_, 200u);
}

// Whether a version is right is known before the old one goes, as far as that can be known.
TEST_F(MemoryTest, WhatIsBrokenMakesNobodyGo) {
  put("m", 1, 1);
  options_.availability = Availability::kSaveMemory;
  serve_all();
  break_version("m", 2);
  EXPECT_NE(refused_load("m"), "");
  EXPECT_EQ(factor("m"), 1);
  EXPECT_EQ(most_, 100u);
}

TEST_F(MemoryTest, TheOldComesBackWhenTheNewFailsAfterAll) {
  put("m", 1, 1);
  options_.availability = Availability::kSaveMemory;
  serve_all();
  put("m", 2, 2);
  broken_ = "2";
  EXPECT_EQ(refused_load("m"), "it breaks");
  EXPECT_EQ(factor("m"), 1);
  EXPECT_EQ(index(), "m 1 READY; m 2 UNAVAILABLE: it breaks");
}

TEST_F(MemoryTest, AVersionThatNeedsMoreThanAllLeavesTheOldOne) {
  put("m", 1, 1);
  options_.memory_limit = 250;
  serve_all();
  put("m", 3, 2);
  EXPECT_EQ(
      refused_load("m"),
      "model 'm' version 3: it needs 300 bytes; of the memory limit of 250 bytes, 150 are free: unload a model, or "
      "raise the limit");
  EXPECT_EQ(factor("m"), 1);
  EXPECT_EQ(most_, 100u);
}

// A model that did not fit is loaded when there is room.
TEST_F(MemoryTest, PollingTriesAgainWhatDidNotFit) {
  put("a", 3, 1);
  options_.memory_limit = 500;
  options_.control = ModelControl::kPoll;
  options_.poll = std::chrono::milliseconds(5);
  serve();
  started();
  put("b", 4, 2);
  eventually(
      [&] { return index().find("b 4 UNAVAILABLE: model 'b' version 4: it needs 400 bytes") != std::string::npos; },
      index());
  fs::remove_all(repository_ / "a");
  eventually([&] { return index() == "b 4 READY"; }, index());
}

// Memory that they share counts once: here the weights, mapped from the bundle, and their packed copy.
TEST_F(MemoryTest, InstancesThatShareFitExactly) {
  const fs::path bundle = repository_ / "m" / "1" / "model";
  fs::create_directories(bundle.parent_path());
  constexpr uint64_t kWeight = 64 * 64 * 3 * 3 * sizeof(float);
  api::compile(engine(), R"(graph "convolution" {
  %0 = input "x" : float32(1, 64, 2, 2)
  %1 = variable "w" : float32(64, 64, 3, 3)
  %2 = conv(%0, %1) {stride = [1, 1], padding = [1, 1], dilation = [1, 1], groups = 1} : float32(1, 64, 2, 2)
  output "y" = %2
}
)",
               {{"w", api::Tensor::from<float>(Floats(kWeight / sizeof(float), 1), {64, 64, 3, 3})}}, bundle);
  write("m/config.pbtxt", "instance_group { count: 2 }");
  const api::Plan plan = api::Plan::load(bundle);
  const uint64_t bytes = plan.memory_bytes(2);
  ASSERT_GT(plan.memory_bytes(), 2 * kWeight);
  ASSERT_LT(bytes, 3 * kWeight);
  executors_ = {};
  options_.memory_limit = bytes - 1;
  serve();
  EXPECT_EQ(refused_load("m"), "model 'm' version 1: it needs " + std::to_string(bytes) +
                                   " bytes; of the memory limit of " + std::to_string(bytes - 1) + " bytes, " +
                                   std::to_string(bytes - 1) + " are free: unload a model, or raise the limit");
  server_ = nullptr;
  options_.memory_limit = bytes;
  serve();
  EXPECT_EQ(refused_load("m"), "");
  EXPECT_EQ(index(), "m 1 READY");
}

TEST_F(MemoryTest, TheLedgerOfBundlesIsWhatTheirPlansNeed) {
  put("m", 1, 1);
  executors_ = {};
  options_.memory_limit = 1;
  serve();
  const std::string text = refused_load("m");
  const uint64_t bytes = api::Plan::load(repository_ / "m" / "1" / "model").memory_bytes();
  EXPECT_NE(text.find("needs " + std::to_string(bytes) + " bytes; of the memory limit of 1 bytes"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace sluice::serving::test
