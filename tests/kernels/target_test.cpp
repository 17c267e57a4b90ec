#include "kernels/target.h"

#include <gtest/gtest.h>

#include "tests/kernels/kernel_runner.h"

namespace sluice {
namespace {

using plan::Layout;

KernelTarget make_target() { return KernelTarget(test_kernels(), {{.device = {}, .cores = 2}}); }

TEST(KernelTable, ErrorsNameTheOpAndTheDevices) {
  try {
    test_kernels().get("exp", DeviceKind::kCuda);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUnsupported);
    EXPECT_STREQ(e.what(), "exp: no kernel on cuda; place it on cpu");
  }
  KernelTable table = test_kernels();
  EXPECT_THROW(table.add(DeviceKind::kCpu, {.op = "exp", .prepare = nullptr}), Error);
}

TEST(KernelTarget, AnswersFromTheTable) {
  const KernelTarget target = make_target();
  EXPECT_TRUE(target.has_kernel("add", DeviceKind::kCpu));
  EXPECT_FALSE(target.has_kernel("add", DeviceKind::kCuda));
  plan::KernelQuery q{.op = "add",
                      .attrs = {},
                      .inputs = {dense({4, 3}), dense({3})},
                      .outputs = {dense({4, 3})},
                      .device = {},
                      .cores = 2};
  EXPECT_EQ(target.layouts(q).inputs, (std::vector<Layout>{Layout::kAny, Layout::kAny}));
  ASSERT_EQ(target.in_place(q).size(), 1u);  // the broadcast operand is too small to be overwritten
  EXPECT_EQ(target.in_place(q)[0].input, 0);
  EXPECT_EQ(target.workspace_bytes(q), 0u);
  EXPECT_EQ(target.fingerprint(), make_target().fingerprint());
}

// Only inputs that do not change, that the kernel can read packed, and that lie otherwise than it wants them.
TEST(KernelTarget, SaysWhichInputsAreReadPacked) {
  const KernelTarget target = make_target();
  plan::KernelQuery q{
      .op = "conv",
      .attrs = {{"stride", Ints{1, 1}}, {"padding", Ints{1, 1}}, {"dilation", Ints{1, 1}}, {"groups", int64_t{1}}},
      .inputs = {dense({2, 32, 8, 8}), dense({32, 32, 3, 3}), TensorSpec{}},
      .outputs = {dense({2, 32, 8, 8})},
      .device = {},
      .cores = 2};
  EXPECT_TRUE(target.packings(q).empty());
  q.packed = {0, 1};
  const std::vector<plan::PackedInput> packings = target.packings(q);
  ASSERT_EQ(packings.size(), 1u);
  EXPECT_EQ(packings[0].input, 1);
  EXPECT_EQ(packings[0].bytes, 32u * 32 * 9 * 4);
  EXPECT_EQ(packings[0].format.find("32x32x3x3 elements, strides "), 0u) << packings[0].format;
  EXPECT_EQ(target.packings(q)[0].format, packings[0].format);
  q.packed = {0};
  EXPECT_TRUE(target.packings(q).empty());
  q.packed = {0, 1};
  q.op = "add";
  EXPECT_TRUE(target.packings(q).empty());
}

// Its code is there only where the plan runs.
TEST(KernelTarget, FunctionsOfTheProgramAreNotPreparedForTheirWorkspace) {
  KernelTable table = test_kernels();
  const auto prepare = [](const plan::KernelQuery&, const PrepareContext&) -> std::unique_ptr<PreparedKernel> {
    fail(ErrorKind::kUnsupported, "prepared");
  };
  table.add(DeviceKind::kCpu, {.op = "ask", .prepare = prepare, .function = "callee"});
  table.add(DeviceKind::kCpu, {.op = "own", .prepare = prepare});
  const KernelTarget target(table, {{.device = {}, .cores = 2}});
  plan::KernelQuery q{.op = "ask", .attrs = {{"callee", std::string("f")}}, .inputs = {}, .outputs = {}, .device = {}};
  EXPECT_EQ(target.workspace_bytes(q), 0u);
  q.op = "own";
  EXPECT_THROW(target.workspace_bytes(q), Error);
}

// With a vendor's library come other workspaces: plans are made for one of the two.
TEST(KernelTarget, TheFingerprintHasLibraries) {
  const KernelTable plain = test_kernels();
  KernelTable with_library = test_kernels();
  KernelDef def = plain.get("add", DeviceKind::kCpu);
  with_library.replace(DeviceKind::kCpu, def);
  EXPECT_EQ(KernelTarget(plain, {}).fingerprint(), KernelTarget(with_library, {}).fingerprint());
  def.library = "BLAS";
  with_library.replace(DeviceKind::kCpu, def);
  EXPECT_NE(KernelTarget(plain, {}).fingerprint(), KernelTarget(with_library, {}).fingerprint());
}

// A kind without layouts, in-place pairs and steps of its own has none, whatever the cpu's kernels say.
TEST(KernelTarget, NoKindInheritsFromTheCpu) {
  KernelTable table = test_kernels();
  const DeviceKind npu = DeviceKind::named("npu");
  KernelDef def{.op = "add", .prepare = table.get("add", DeviceKind::kCpu).prepare};
  table.add(npu, def);
  EXPECT_EQ(table.ops(npu), std::vector<std::string>{"add"});
  const KernelTarget target(table, {{.device = {}}, {.device = {.kind = npu}}});
  plan::KernelQuery q;
  q.op = "add";
  q.inputs = {dense({4}), dense({4})};
  q.outputs = {dense({4})};
  q.device.kind = npu;
  EXPECT_EQ(target.layouts(q).inputs, (std::vector<Layout>{Layout::kContiguous, Layout::kContiguous}));
  EXPECT_EQ(target.layouts(q).outputs, std::vector<Layout>{Layout::kContiguous});
  EXPECT_TRUE(target.in_place(q).empty());
  EXPECT_FALSE(target.can_fuse(q));
  EXPECT_FALSE(target.has_kernel("mul", npu));
  q.op = "mul";
  EXPECT_THROW(target.layouts(q), Error);
}

TEST(KernelTarget, CostGrowsWithWhicheverIsTheLimit) {
  const KernelTarget target = make_target();
  const auto cost = [&](Cost work) {
    plan::KernelQuery q;
    q.cost = work;
    return target.cost_ns(q);
  };
  EXPECT_GT(cost({}), 0);
  EXPECT_GT(cost({0, 1e7}), 10 * cost({0, 1e4}));
  EXPECT_GT(cost({1e10, 1e4}), 10 * cost({1e5, 1e4}));
  EXPECT_EQ(cost({1e5, 1e7}), cost({0, 1e7}));
}

}  // namespace
}  // namespace sluice
