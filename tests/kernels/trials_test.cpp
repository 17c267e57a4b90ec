// The search for the fastest implementation of a kernel.
#include "kernels/trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/key.h"
#include "kernels/cpu/cpu_kernels.h"
#include "plan/query.h"
#include "streams/devices.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class Waits final : public PreparedKernel {
 public:
  explicit Waits(std::chrono::microseconds time) : time_(time) {}
  void run(const KernelArgs&) const override {
    const auto end = std::chrono::steady_clock::now() + time_;
    while (std::chrono::steady_clock::now() < end) {
    }
  }

 private:
  const std::chrono::microseconds time_;
};

// "slow", the usual one, takes 400 times as long as "fast".
KernelTable table_of_two(int* searched = nullptr) {
  KernelTable table;
  table.add(DeviceKind::kCpu, {.op = "two",
                               .prepare =
                                   [](const plan::KernelQuery& q, const PrepareContext&) {
                                     const bool fast = get_attr<std::string>(q.attrs, plan::kImplementation) == "fast";
                                     return std::make_unique<Waits>(std::chrono::microseconds(fast ? 5 : 2000));
                                   },
                               .implementations =
                                   [searched](const plan::KernelQuery&, const PrepareContext&) {
                                     if (searched != nullptr) ++*searched;
                                     return std::vector<std::string>{"slow", "fast"};
                                   }});
  return table;
}

plan::KernelQuery query(const std::string& op, int64_t size) {
  const TensorSpec spec = TensorSpec::contiguous({DType::kFloat32, {size}});
  return {.op = op, .attrs = {}, .inputs = {spec}, .outputs = {spec}, .device = {}, .cores = 1};
}

class KernelTrialsTest : public ::testing::Test {
 protected:
  KernelTrialsTest() : directory_(fs::temp_directory_path() / fmt::format("kernel_trials_{}", getpid())) {
    fs::remove_all(directory_);
  }
  ~KernelTrialsTest() override { fs::remove_all(directory_); }
  const fs::path directory_;
  CoreLeases leases_{2};
  const std::unique_ptr<Device> cpu_ = make_device(DeviceId{}, {.cores = 2});
  const std::function<Device&(const DeviceId&)> devices_ = [this](const DeviceId&) -> Device& { return *cpu_; };
};

TEST_F(KernelTrialsTest, TheFastestIsFoundOnce) {
  const KernelTable table = table_of_two();
  KernelTrials trials(table, leases_, devices_, 100, "");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(trials.fastest(query("two", 4)), "fast");
  EXPECT_EQ(trials.fastest(query("two", 5)), "fast");
  EXPECT_EQ(trials.stats().searches, 2u);
  EXPECT_EQ(trials.stats().hits, 2u);
  ASSERT_EQ(trials.trials().size(), 2u);
  EXPECT_EQ(trials.trials()[0].candidates[0].name, "slow");
  EXPECT_GT(trials.trials()[0].candidates[0].ns, trials.trials()[0].candidates[1].ns);
  EXPECT_EQ(trials.trials(trials.used()).size(), 0u);
  EXPECT_EQ(trials.fastest(query("none", 4)), "");
}

TEST_F(KernelTrialsTest, OfSeveralThreadsOneSearches) {
  int searched = 0;
  const KernelTable table = table_of_two(&searched);
  KernelTrials trials(table, leases_, devices_, 100, "");
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) threads.emplace_back([&] { EXPECT_EQ(trials.fastest(query("two", 4)), "fast"); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(searched, 1);
  EXPECT_EQ(trials.stats().hits, 5u);
}

TEST_F(KernelTrialsTest, ChoicesOutliveTheProcess) {
  const KernelTable table = table_of_two();
  KernelTrials first(table, leases_, devices_, 100, directory_);
  EXPECT_EQ(first.fastest(query("two", 4)), "fast");
  KernelTrials second(table, leases_, devices_, 100, directory_);
  EXPECT_EQ(second.fastest(query("two", 4)), "fast");
  EXPECT_EQ(second.stats().searches, 0u);
  EXPECT_EQ(second.stats().read, 1u);
  ASSERT_EQ(second.trials().size(), 1u);
  EXPECT_EQ(second.trials()[0].candidates.size(), 2u);
  EXPECT_EQ(second.trials()[0].kernel, first.trials()[0].kernel);
}

// DL-13: ten thousand shapes leave no more than the limit.
TEST_F(KernelTrialsTest, TenThousandShapesAreBounded) {
  KernelTable table;
  table.add(DeviceKind::kCpu,
            {.op = "quick",
             .prepare = [](const plan::KernelQuery&,
                           const PrepareContext&) { return std::make_unique<Waits>(std::chrono::microseconds(0)); },
             .implementations =
                 [](const plan::KernelQuery& q, const PrepareContext&) {
                   return std::vector<std::string>(q.inputs[0].shape[0] % 100 == 0 ? 2 : 1, "only");
                 }});
  KernelTrials trials(table, leases_, devices_, 64, directory_);
  for (int64_t size = 1; size <= 10'000; ++size) trials.fastest(query("quick", size));
  EXPECT_EQ(trials.stats().searches, 100u);
  EXPECT_EQ(trials.stats().entries, 64u);
  trials.fastest(query("quick", 10'000));  // the last is still known, the first is read from disk
  EXPECT_EQ(trials.stats().hits, 1u);
  trials.fastest(query("quick", 100));
  EXPECT_EQ(trials.stats().read, 1u);
}

// A device without room for the operands: the usual one is taken, and nothing stays behind.
TEST_F(KernelTrialsTest, WhatDoesNotFitIsNotRun) {
  KernelTable table;
  KernelDef def = *table_of_two().find("two", DeviceKind::kCpu);
  table.add(DeviceKind::kSim, def);
  const auto small = make_device(parse_device("sim:0"), {.cores = 1, .memory_bytes = 1 << 20});
  const std::function<Device&(const DeviceId&)> devices = [&](const DeviceId&) -> Device& { return *small; };
  KernelTrials trials(table, leases_, devices, 100, "");
  plan::KernelQuery q = query("two", 200'000);  // the input fits, and the output does not
  q.device = parse_device("sim:0");
  EXPECT_EQ(trials.fastest(q), "");
  EXPECT_EQ(trials.stats().searches, 0u);
  const plan::Space space{plan::SpaceKind::kDevice, q.device};
  void* const all = small->allocate(space, 1 << 20);
  small->deallocate(space, all, 1 << 20);
  q = query("two", 1000);
  q.device = parse_device("sim:0");
  trials.fastest(q);
  EXPECT_EQ(trials.stats().searches, 1u);  // this one was run
}

// Whatever may be chosen computes what the usual implementation does.
TEST(ConvolutionTrials, EveryImplementationComputesTheSame) {
  KernelTable table;
  add_cpu_kernels(table);
  const TensorSpec x = {DType::kFloat32, {2, 16, 12, 10}, channels_last_strides({2, 16, 12, 10})};
  const TensorSpec y = {DType::kFloat32, {2, 24, 10, 8}, channels_last_strides({2, 24, 10, 8})};
  const TensorSpec w = TensorSpec::contiguous({DType::kFloat32, {24, 16, 3, 3}});
  const NamedAttrs attrs = {
      {"stride", Ints{1, 1}}, {"padding", Ints{0, 0}}, {"dilation", Ints{1, 1}}, {"groups", int64_t{1}}};
  const auto filled = [](const TensorSpec& spec) {
    std::vector<float> data(static_cast<size_t>(numel(spec.shape)));
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>((i * 7919) % 64) / 64 - 0.5f;
    return data;
  };
  int compared = 0;
  for (const auto& [op, a, b, out] :
       {std::tuple{"conv", x, w, y}, std::tuple{"conv_input_grad", y, w, x}, std::tuple{"conv_weight_grad", y, x, w}}) {
    plan::KernelQuery q{.op = op, .attrs = attrs, .inputs = {a, b}, .outputs = {out}, .device = {}, .cores = 2};
    if (q.op == "conv_input_grad") q.attrs.emplace_back("size", Ints{12, 10});
    if (q.op == "conv_weight_grad") q.attrs.emplace_back("size", Ints{3, 3});
    const KernelDef& def = table.get(op, DeviceKind::kCpu);
    const std::vector<float> left = filled(a), right = filled(b);
    const auto result = [&](const std::string& name) {
      plan::KernelQuery asked = q;
      if (!name.empty()) asked.attrs.emplace_back(plan::kImplementation, name);
      const auto kernel = def.prepare(asked, {.threads = 2});
      std::vector<float> made(static_cast<size_t>(numel(out.shape)), NAN);
      std::vector<std::byte> space(kernel->workspace_bytes() + 64);
      void* const workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(space.data()) + 63) / 64 * 64);
      const void* const inputs[] = {left.data(), right.data()};
      void* const outputs[] = {made.data()};
      kernel->run({.inputs = inputs, .outputs = outputs, .workspace = workspace});
      return made;
    };
    const std::vector<float> expected = result("");
    const std::vector<std::string> names = def.implementations(q, {.threads = 2});
    EXPECT_GE(names.size(), 2u) << op;
    for (const std::string& name : names) {
      const std::vector<float> made = result(name);
      for (size_t i = 0; i < made.size(); ++i) ASSERT_NEAR(made[i], expected[i], 1e-3) << op << " " << name << " " << i;
      ++compared;
    }
    EXPECT_EQ(result("no such"), expected);  // of another machine
  }
  EXPECT_GE(compared, 6);
}

}  // namespace
}  // namespace sluice
