// Ops and kernels cover each other.
#include <gtest/gtest.h>

#include <cstring>

#include "compiler/lowering/lowering.h"
#include "kernels/kernel.h"
#include "ops/op_cases.h"
#include "runtime/session/engine.h"

namespace sluice::test {
namespace {

TEST(Completeness, EveryOpCanRun) {
  const KernelTable& kernels = test_eager().engine().kernels();
  for (const OpDef* op : all_ops())
    EXPECT_TRUE(op->view || op->decompose || kernels.find(op->name, DeviceKind::kCpu))
        << op->name << " has neither a kernel on cpu nor a decomposition";
}

TEST(Completeness, EveryKernelHasAnOp) {
  for (const std::string& name : test_eager().engine().kernels().ops(DeviceKind::kCpu))
    EXPECT_NE(compiler::lowering_ops().find(name), nullptr) << "kernel '" << name << "' on cpu has no op";
}

TEST(Completeness, EveryOpIsDescribedAndSampled) {
  for (const OpDef* op : all_ops()) {
    EXPECT_TRUE(op->infer) << op->name;
    EXPECT_TRUE(op->sbp) << op->name;
    EXPECT_GT(std::strlen(op->doc), 10u) << op->name;
    EXPECT_TRUE(op->effectful || !op->samples.empty()) << op->name << " has no samples";
    EXPECT_TRUE(!op->random || op->find_param("salt") >= 0) << op->name << " is random and has no salt";
  }
}

}  // namespace
}  // namespace sluice::test
