// Tables of kernels: those of some ops alone.
#include <gmock/gmock.h>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/kernel.h"
#include "kernels/sim/sim_kernels.h"

namespace sluice {
namespace {

std::string error_of_get(const KernelTable& table, const char* op, DeviceKind kind) {
  try {
    table.get(op, kind);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(KernelTable, KeepsTheKernelsOfSomeOpsAndNamesTheOptionForOthers) {
  KernelTable table;
  add_cpu_kernels(table);
  const uint64_t before = table.version();
  table.keep_only(DeviceKind::kCpu, {"add", "softmax"}, "SOME_OPTION");
  EXPECT_THAT(table.ops(DeviceKind::kCpu), testing::ElementsAre("add", "softmax"));
  EXPECT_NE(table.version(), before);
  EXPECT_EQ(table.get("add", DeviceKind::kCpu).op, "add");
  EXPECT_EQ(
      error_of_get(table, "mul", DeviceKind::kCpu),
      "mul: no kernel on cpu: this build has those of the models in SOME_OPTION alone; build it with this one there");
  add_sim_kernels(table);
  EXPECT_EQ(KernelTable(table).ops(DeviceKind::kSim), table.ops(DeviceKind::kCpu));
  EXPECT_EQ(
      error_of_get(KernelTable(table), "mul", DeviceKind::kSim),
      "mul: no kernel on sim: this build has those of the models in SOME_OPTION alone; build it with this one there");
}

TEST(KernelTable, OthersSayWhereAKernelIs) {
  KernelTable table;
  table.add(DeviceKind::kCpu, {.op = "mine", .prepare = nullptr});
  EXPECT_EQ(error_of_get(table, "mine", DeviceKind::kSim), "mine: no kernel on sim; place it on cpu");
  EXPECT_EQ(error_of_get(table, "other", DeviceKind::kSim), "other: no kernel on sim; no device has one");
}

TEST(KernelTable, KernelsSeeCanonicalStrides) {
  std::string seen;
  const auto see = [&](const plan::KernelQuery& query) {
    for (const TensorSpec& spec : query.inputs) seen += spec.strides.str();
    for (const TensorSpec& spec : query.outputs) seen += spec.strides.str();
    seen += ";";
  };
  KernelTable table;
  const auto def = [&] {
    return KernelDef{
        .op = "mine",
        .prepare = [&](const plan::KernelQuery& query, const PrepareContext&) -> std::unique_ptr<PreparedKernel> {
          return see(query), nullptr;
        },
        .layouts = [&](const plan::KernelQuery& query) { return see(query), plan::LayoutPreference(); }};
  };
  table.add(DeviceKind::kCpu, def());
  // A batch of one, channels-last; nothing at all; and what is as it should be.
  const TensorSpec tokens{DType::kFloat32, {1, 8, 10, 10}, {8, 1, 80, 8}};
  const TensorSpec nothing{DType::kFloat32, {2, 0}, {7, 7}}, matrix{DType::kFloat32, {2, 3}, {1, 2}};
  const plan::KernelQuery query{"mine", {}, {tokens, matrix}, {nothing}, {}, 1};
  for (int i = 0; i < 2; ++i) {
    table.get("mine", DeviceKind::kCpu).prepare(query, {});
    table.get("mine", DeviceKind::kCpu).layouts(query);
    EXPECT_EQ(seen, "(800, 1, 80, 8)(1, 2)(1, 1);(800, 1, 80, 8)(1, 2)(1, 1);");
    seen.clear();
    table.replace(DeviceKind::kCpu, def());
  }
}

// A list of kernels to keep has those that others are made of.
TEST(KernelTable, KernelsSayWhatTheyAreMadeOf) {
  KernelTable table;
  add_cpu_kernels(table);
  EXPECT_THAT(table.get("accumulate", DeviceKind::kCpu).made_of, testing::ElementsAre("copy", "add"));
  EXPECT_THAT(table.get("sum_parts", DeviceKind::kCpu).made_of, testing::ElementsAre("add"));
}

}  // namespace
}  // namespace sluice
