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
