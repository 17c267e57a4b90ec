// The search for the fastest implementation of a kernel.
#include "kernels/trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "base/build_id.h"
#include "base/key.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/onednn/onednn.h"
#include "kernels/libraries.h"
#include "plan/query.h"
#include "streams/devices.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsSupersetOf;

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

// DL-12, JAX-05: what another build, processor, instruction set or version of a library has kept is under other keys.
TEST(KeysOnDisk, HoldBuildProcessorInstructionSetsAndVersions) {
  Key key;
  add_machine(key);
  const std::string bytes = key.take();
  std::vector<std::string> parts = {build_id(), processor_name()};
  for (const InstructionSet& set : cpu_instruction_sets()) parts.insert(parts.end(), {set.part, set.name});
  for (const LibraryVersion& library : kernel_libraries()) parts.insert(parts.end(), {library.name, library.version});
  EXPECT_GE(parts.size(), 14u);  // three parts of the kernels, and oneDNN, Highway and OpenMP
  for (const std::string& part : parts) {
    EXPECT_NE(part, "");
    EXPECT_THAT(bytes, HasSubstr(part));
  }
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

std::vector<float> filled(const TensorSpec& spec) {
  std::vector<float> data(static_cast<size_t>(numel(spec.shape)));
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>((i * 7919) % 64) / 64 - 0.5f;
  return data;
}

// Whatever may be chosen computes what the usual implementation does, in place too.
class ConvolutionTrials : public ::testing::Test {
 protected:
  ConvolutionTrials() { add_cpu_kernels(table_); }

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  static std::vector<Line> lines(uint64_t bytes) { return std::vector<Line>(bytes / sizeof(Line) + 1); }

  static void run(const PreparedKernel& kernel, const std::vector<const void*>& inputs, void* output) {
    std::vector<Line> workspace = lines(kernel.workspace_bytes());
    kernel.run({.inputs = inputs.data(), .outputs = &output, .workspace = workspace.data()});
  }
  // Weights that it takes packed are packed.
  void run(const plan::KernelQuery& q, std::vector<const void*> inputs, void* output, int threads = 2) const {
    const auto kernel = table_.get(q.op, DeviceKind::kCpu).prepare(q, {.threads = threads});
    EXPECT_EQ(kernel->packings().size(), q.packed.size());
    std::vector<std::vector<Line>> packed;
    for (const Packing& packing : kernel->packings()) {
      packed.push_back(lines(packing.bytes));
      run(*packing.kernel, {inputs[packing.input]}, packed.back().data());
      inputs[packing.input] = packed.back().data();
    }
    run(*kernel, inputs, output);
  }

  // Gives the names of all.
  std::vector<std::string> compare(const plan::KernelQuery& q, int in_place = -1) {
    const KernelDef& def = table_.get(q.op, DeviceKind::kCpu);
    std::vector<std::vector<float>> given;
    for (const TensorSpec& spec : q.inputs) given.push_back(filled(spec));
    const auto result = [&](const std::string& name) {
      plan::KernelQuery asked = q;
      if (!name.empty()) asked.attrs.emplace_back(plan::kImplementation, name);
      std::vector<float> made(static_cast<size_t>(numel(q.outputs[0].shape)), NAN);
      std::vector<const void*> inputs;
      for (const std::vector<float>& data : given) inputs.push_back(data.data());
      if (in_place >= 0) made = given[in_place];
      if (in_place >= 0) inputs[in_place] = made.data();
      run(asked, inputs, made.data());
      return made;
    };
    const std::vector<float> expected = result("");
    float largest = 0;
    for (const float value : expected) largest = std::max(largest, std::abs(value));
    const std::vector<std::string> names = def.implementations(q, {.threads = 2});
    std::vector<std::string> all = names;
    for (const char* const absent : {"blocked no such", "blocked no such wino"}) all.emplace_back(absent);
    for (const std::string& name : all) {
      const std::vector<float> made = result(name);
      for (size_t i = 0; i < made.size(); ++i) {
        EXPECT_NEAR(made[i], expected[i], 2e-5f * largest) << q.op << " " << name << " " << i;
        if (HasFailure()) return names;
      }
    }
    EXPECT_EQ(result("no such"), expected);  // of another machine
    return names;
  }

  KernelTable table_;
};

TensorSpec image(Shape shape) {
  const Strides strides = channels_last_strides(shape);
  return {DType::kFloat32, std::move(shape), strides};
}
TensorSpec plain(Shape shape) { return TensorSpec::contiguous({DType::kFloat32, std::move(shape)}); }

TEST_F(ConvolutionTrials, EveryImplementationComputesTheSame) {
  for (const int64_t out : {24, 32}) {  // 32 are blocks of 16
    const TensorSpec x = image({2, 32, 15, 13}), y = image({2, out, 15, 13}), w = plain({out, 32, 3, 3});
    const NamedAttrs attrs = {
        {"stride", Ints{1, 1}}, {"padding", Ints{1, 1}}, {"dilation", Ints{1, 1}}, {"groups", int64_t{1}}};
    for (const auto& [op, a, b, result] : {std::tuple{"conv", x, w, y}, std::tuple{"conv_input_grad", y, w, x},
                                           std::tuple{"conv_weight_grad", y, x, w}}) {
      plan::KernelQuery q{.op = op, .attrs = attrs, .inputs = {a, b}, .outputs = {result}, .device = {}, .cores = 2};
      if (q.op == "conv_input_grad") q.attrs.emplace_back("size", Ints{15, 13});
      if (q.op == "conv_weight_grad") q.attrs.emplace_back("size", Ints{3, 3});
      EXPECT_GE(compare(q).size(), 2u) << q.op;
    }
  }
}

// With all that a fused convolution does to its result: oneDNN does it, or a pass of ours where it cannot.
TEST_F(ConvolutionTrials, EveryImplementationFinishesTheSame) {
  std::set<std::string> blocked, ours;
  const TensorSpec x = image({2, 32, 15, 13}), w = plain({32, 32, 3, 3}), row = plain({32});
  for (const char* const activation : {"none", "relu"}) {
    for (const bool norm : {false, true}) {
      for (const bool residual : {false, true}) {
        for (const TensorSpec& y : {image({2, 32, 15, 13}), plain({2, 32, 15, 13})}) {
          const TensorSpec none, some = norm ? row : none;
          plan::KernelQuery q{.op = "fused_conv",
                              .attrs = {{"stride", Ints{1, 1}},
                                        {"padding", Ints{1, 1}},
                                        {"dilation", Ints{1, 1}},
                                        {"groups", int64_t{1}},
                                        {"eps", 1.0},
                                        {"activation", std::string(activation)}},
                              .inputs = {x, w, none, some, some, some, some, residual ? y : none},
                              .outputs = {y},
                              .device = {},
                              .cores = 2};
          for (const std::string& name : compare(q)) {
            EXPECT_EQ(name.find("ref"), std::string::npos);  // which takes a hundred times as long
            if (name.starts_with("winograd") || name == "panels") ours.insert(name);
            if (name.starts_with("blocked ") && name.find("wino") != std::string::npos) blocked.insert(name);
          }
          if (residual) compare(q, 7);
        }
      }
    }
  }
  EXPECT_THAT(ours, ElementsAre("panels", "winograd 2x2", "winograd 4x4"));
  // oneDNN has them for AVX-512, where it also computes in bfloat16; version 3 has none.
  EXPECT_EQ(!blocked.empty(), DNNL_VERSION_MAJOR < 3 && cpu::onednn::supports(DType::kBFloat16));
}

plan::KernelQuery windows(const std::string& op, const Shape& x, int64_t out, const Ints& size, const Ints& stride,
                          const Ints& padding) {
  const auto results = [&](int axis) { return (x[2 + axis] + 2 * padding[axis] - size[axis]) / stride[axis] + 1; };
  const TensorSpec given = image(x), y = image({x[0], out, results(0), results(1)});
  const TensorSpec w = plain({out, x[1], size[0], size[1]});
  plan::KernelQuery q{
      .op = op,
      .attrs = {{"stride", stride}, {"padding", padding}, {"dilation", Ints{1, 1}}, {"groups", int64_t{1}}},
      .inputs = {op == "conv" ? given : y, op == "conv_weight_grad" ? given : w},
      .outputs = {op == "conv"              ? y
                  : op == "conv_input_grad" ? given
                                            : w},
      .device = {},
      .cores = 2};
  if (op == "conv_input_grad") q.attrs.emplace_back("size", Ints{x[2], x[3]});
  if (op == "conv_weight_grad") q.attrs.emplace_back("size", size);
  return q;
}
plan::KernelQuery window_3x3(const std::string& op, const Shape& x, int64_t out, const Ints& padding) {
  return windows(op, x, out, {3, 3}, {1, 1}, padding);
}

TEST_F(ConvolutionTrials, PanelsTakeAnyWindowAndStride) {
  for (const int64_t channels : {3, 130}) {
    for (const Ints& size : {Ints{1, 1}, Ints{3, 3}, Ints{7, 7}, Ints{1, 5}, Ints{4, 2}}) {
      for (const Ints& stride : {Ints{1, 1}, Ints{2, 2}, Ints{3, 1}, Ints{1, 4}}) {
        for (const Ints& padding : {Ints{0, 0}, Ints{1, 1}, Ints{0, 3}, Ints{2, 0}}) {
          if (padding[0] >= size[0] || padding[1] >= size[1]) continue;
          for (const int64_t width : {9, 111}) {
            const auto names = compare(windows("conv", {2, channels, 8, width}, 32, size, stride, padding));
            EXPECT_THAT(names, Contains("panels"));
          }
        }
      }
    }
  }
}

// Tiles that end within the image, at its end and beyond it, behind 0 to 2 zeros.
TEST_F(ConvolutionTrials, WinogradsTilesEndAnywhere) {
  for (const char* const op : {"conv", "conv_input_grad", "conv_weight_grad"}) {
    for (const int64_t height : {1, 2, 3, 4, 7, 9}) {
      for (const int64_t width : {1, 5, 8}) {
        for (const Ints& padding : {Ints{1, 1}, Ints{0, 2}, Ints{2, 0}}) {
          if (height + 2 * padding[0] < 3 || width + 2 * padding[1] < 3) continue;
          const std::vector<std::string> names = compare(window_3x3(op, {2, 16, height, width}, 48, padding));
          EXPECT_THAT(names, IsSupersetOf({"winograd 2x2", "winograd 4x4"}));
        }
      }
    }
    compare(window_3x3(op, {1, 272, 9, 9}, 288, {1, 1}));
    compare(window_3x3(op, {3, 32, 41, 37}, 64, {1, 1}));  // more tiles than are transformed at once
  }
}

TEST_F(ConvolutionTrials, WinogradIsForDense3x3WindowsOfWholePanelsThatFit) {
  const auto offered = [&](const plan::KernelQuery& q) {
    const std::vector<std::string> names = table_.get(q.op, DeviceKind::kCpu).implementations(q, {.threads = 2});
    return std::find(names.begin(), names.end(), "winograd 4x4") != names.end();
  };
  const plan::KernelQuery good = window_3x3("conv", {1, 16, 8, 8}, 32, {1, 1});
  EXPECT_TRUE(offered(good));
  EXPECT_FALSE(offered(window_3x3("conv", {1, 24, 8, 8}, 32, {1, 1})));
  EXPECT_FALSE(offered(window_3x3("conv", {1, 16, 8, 8}, 24, {1, 1})));
  EXPECT_FALSE(offered(window_3x3("conv", {1, 16, 8, 8}, 32, {3, 1})));
  plan::KernelQuery contiguous = good;
  contiguous.inputs[0] = plain({1, 16, 8, 8});
  EXPECT_FALSE(offered(contiguous));
  plan::KernelQuery wide = good;  // each second element: a window of 5
  wide.attrs[1].second = Ints{2, 2}, wide.attrs[2].second = Ints{2, 2};
  EXPECT_FALSE(offered(wide));
  plan::KernelQuery small = good;
  small.attrs.emplace_back(plan::kWorkspaceLimit, int64_t{1000});
  EXPECT_FALSE(offered(small));
}

// Against sums of doubles, by the largest result.
TEST_F(ConvolutionTrials, OurMethodsAreAsExactAsToldInTheDocs) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  for (const char* const op : {"conv", "conv_input_grad", "conv_weight_grad"}) {
    const plan::KernelQuery q = window_3x3(op, {2, 64, 28, 28}, 64, {1, 1});
    plan::KernelQuery exact = q;
    std::vector<std::vector<double>> wide;
    std::vector<std::vector<float>> narrow;
    for (TensorSpec& spec : exact.inputs) {
      spec.dtype = DType::kFloat64;
      std::vector<float>& numbers = narrow.emplace_back(static_cast<size_t>(numel(spec.shape)));
      for (float& number : numbers) number = static_cast<float>(normal(random));
      wide.emplace_back(numbers.begin(), numbers.end());
    }
    exact.outputs[0].dtype = DType::kFloat64;
    std::vector<double> expected(static_cast<size_t>(numel(q.outputs[0].shape)));
    run(exact, {wide[0].data(), wide[1].data()}, expected.data());
    double largest = 0;
    for (const double number : expected) largest = std::max(largest, std::abs(number));
    for (const auto& [name, error] : {std::pair{"panels", 2e-6}, {"winograd 2x2", 2e-6}, {"winograd 4x4", 1e-5}}) {
      if (q.op != "conv" && std::string(name) == "panels") continue;
      EXPECT_THAT(table_.get(q.op, DeviceKind::kCpu).implementations(q, {.threads = 2}), Contains(name));
      plan::KernelQuery asked = q;
      asked.attrs.emplace_back(plan::kImplementation, name);
      std::vector<float> made(expected.size(), NAN);
      run(asked, {narrow[0].data(), narrow[1].data()}, made.data());
      double worst = 0;
      for (size_t i = 0; i < made.size(); ++i) worst = std::max(worst, std::abs(made[i] - expected[i]));
      EXPECT_LE(worst, error * largest) << op << " " << name;
    }
  }
}

// Neither other images, nor threads, nor where the weights were transformed changes a bit.
TEST_F(ConvolutionTrials, BitsOfOurMethodsAreThoseOfAnImageAlone) {
  const auto bits = [&](const std::string& op, const char* name, int64_t images, int threads, bool packed) {
    plan::KernelQuery q = window_3x3(op, {images, 32, 41, 37}, 64, {1, 1});
    q.attrs.emplace_back(plan::kImplementation, name);
    if (packed) q.packed = {1};
    const std::vector<float> a = filled(q.inputs[0]), b = filled(q.inputs[1]);
    std::vector<float> made(static_cast<size_t>(numel(q.outputs[0].shape)));
    run(q, {a.data(), b.data()}, made.data(), threads);
    if (op != "conv_weight_grad") made.resize(made.size() / static_cast<size_t>(images));
    return made;
  };
  for (const auto& [op, name] : {std::pair{"conv", "panels"},
                                 {"conv", "winograd 2x2"},
                                 {"conv", "winograd 4x4"},
                                 {"conv_input_grad", "winograd 2x2"},
                                 {"conv_input_grad", "winograd 4x4"}}) {
    const std::vector<float> alone = bits(op, name, 1, 1, false);
    EXPECT_EQ(bits(op, name, 1, 2, false), alone);
    EXPECT_EQ(bits(op, name, 5, 2, false), alone);
    EXPECT_EQ(bits(op, name, 1, 2, true), alone);
  }
  for (const char* const name : {"winograd 2x2", "winograd 4x4"})
    EXPECT_EQ(bits("conv_weight_grad", name, 5, 2, false), bits("conv_weight_grad", name, 5, 1, false));
}

}  // namespace
}  // namespace sluice
