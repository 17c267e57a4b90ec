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

TEST(KernelTarget, CostGrowsWithBytes) {
  const KernelTarget target = make_target();
  const auto cost = [&](int64_t n) {
    return target.cost_ns(
        {.op = "exp", .attrs = {}, .inputs = {dense({n})}, .outputs = {dense({n})}, .device = {}, .cores = 1});
  };
  EXPECT_GT(cost(1 << 20), 10 * cost(1 << 10));
  EXPECT_GT(cost(1), 0);
}

}  // namespace
}  // namespace sluice
