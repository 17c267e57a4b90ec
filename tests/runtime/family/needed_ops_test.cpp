// Which kernels plans need.
#include "runtime/family/needed_ops.h"

#include <gmock/gmock.h>

#include "plan/loop_program.h"

namespace sluice {
namespace {

TEST(NeededOps, AreThoseOfKernelsAndOfProgramsWithinThem) {
  AttrCall fused{.op = "fused", .operands = {0}};
  fused.attrs = {{"body", AttrGraph{1, {{.op = "exp", .operands = {0}}}, {1}}}};
  const AttrGraph program{
      1, {fused, {.op = plan::kWindow, .operands = {0}}, {.op = "matmul", .operands = {0, 1}}}, {1}};
  plan::Plan plan;
  plan.kernels.resize(2);
  plan.kernels[0].op = "add";
  plan.kernels[1].op = "loop";
  plan.kernels[1].attrs = {{"turns", int64_t{3}}, {"program", program}};
  EXPECT_THAT(needed_ops(plan), testing::ElementsAre("add", "exp", "fused", "loop", "matmul"));
}

}  // namespace
}  // namespace sluice
