#include <gtest/gtest.h>

#include "tests/kernels/kernel_runner.h"

namespace sluice {
namespace {

const DType kIndex = DType::kInt64;

TEST(Indexing, GatherAlongEitherAxis) {
  const TestTensor x(scrambled({3, 2}), {1, 2, 3, 4, 5, 6}), index(dense({2, 2}, kIndex), {2, 0, 1, 1});
  EXPECT_EQ(run_kernel("gather", {x, index}, dense({2, 2}), {{"dim", int64_t{0}}}), (std::vector<double>{5, 2, 3, 4}));
  const TestTensor columns(scrambled({3, 3}, DType::kInt32), {0, 1, 0, 1, 1, 1, 0, 0, 1});
  EXPECT_EQ(run_kernel("gather", {x, columns}, scrambled({3, 3}), {{"dim", int64_t{1}}}),
            (std::vector<double>{1, 2, 1, 4, 4, 4, 5, 5, 6}));
}

TEST(Indexing, ScatterKeepsTheLastAndScatterAddSums) {
  const TestTensor x(dense({4}), {10, 20, 30, 40}), index(dense({3}, kIndex), {1, 3, 1}), src(dense({3}), {1, 2, 3});
  EXPECT_EQ(run_kernel("scatter", {x, index, src}, dense({4}), {{"dim", int64_t{0}}}),
            (std::vector<double>{10, 3, 30, 2}));
  EXPECT_EQ(run_kernel("scatter_add", {x, index, src}, dense({4}), {{"dim", int64_t{0}}}),
            (std::vector<double>{10, 24, 30, 42}));
}

TEST(Indexing, SelectAndAddSlices) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt32}) {
    const TestTensor x(scrambled({3, 2}, dtype), {1, 2, 3, 4, 5, 6}), index(dense({3}, kIndex), {2, 2, 0});
    EXPECT_EQ(run_kernel("index_select", {x, index}, dense({3, 2}, dtype), {{"dim", int64_t{0}}}),
              (std::vector<double>{5, 6, 5, 6, 1, 2}));
    const TestTensor src(dense({3, 2}, dtype), {10, 20, 30, 40, 50, 60});
    EXPECT_EQ(run_kernel("index_add", {x, index, src}, dense({3, 2}, dtype), {{"dim", int64_t{0}}}),
              (std::vector<double>{51, 62, 3, 4, 45, 66}));
  }
  const TestTensor x(dense({2, 3}), {1, 2, 3, 4, 5, 6}), index(dense({2}, kIndex), {2, 0});
  EXPECT_EQ(run_kernel("index_select", {x, index}, dense({2, 2}), {{"dim", int64_t{1}}}),
            (std::vector<double>{3, 1, 6, 4}));
}

TEST(Indexing, TheLastAxisGivesTheSameInAnyLayout) {
  constexpr int64_t kEntries = 1200;  // more than a tile
  std::vector<double> entries, addends;
  for (int64_t i = 0; i < kEntries; ++i) entries.push_back(static_cast<double>(i * 7 % 5));
  for (int64_t i = 0; i < 2 * kEntries; ++i) addends.push_back(static_cast<double>(i % 3));
  const std::vector<double> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kInt32, DType::kUInt8}) {
    const TestTensor index(dense({kEntries}, kIndex), entries), src(dense({2, kEntries}, dtype), addends);
    const NamedAttrs dim = {{"dim", int64_t{1}}};
    const TestTensor rows(dense({2, 5}, dtype), values), other(scrambled({2, 5}, dtype), values);
    EXPECT_EQ(run_kernel("index_select", {rows, index}, dense({2, kEntries}, dtype), dim),
              run_kernel("index_select", {other, index}, dense({2, kEntries}, dtype), dim));
    EXPECT_EQ(run_kernel("index_add", {rows, index, src}, dense({2, 5}, dtype), dim),
              run_kernel("index_add", {other, index, src}, scrambled({2, 5}, dtype), dim));
  }
}

TEST(Indexing, AnIndexOutOfRangeIsNamed) {
  const TestTensor x(dense({3, 2}), {1, 2, 3, 4, 5, 6}), index(dense({2}, kIndex), {0, 3});
  try {
    run_kernel("index_select", {x, index}, dense({2, 2}), {{"dim", int64_t{0}}});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kIndex);
    EXPECT_STREQ(e.what(), "index_select: index out of range: 3 at axis 0 of size 3; must be in [0, 2]");
  }
}

TEST(HostFunction, RunsByNameAndRefusesUnknownNames) {
  const HostFunctions functions = {{"twice", [](const KernelArgs& args, const auto& inputs, const auto&) {
                                      for (int64_t i = 0; i < numel(inputs[0].shape); ++i)
                                        static_cast<float*>(args.outputs[0])[i] =
                                            2 * static_cast<const float*>(args.inputs[0])[i];
                                    }}};
  plan::KernelQuery q{.op = "host_function",
                      .attrs = {{"name", std::string("twice")}},
                      .inputs = {dense({2})},
                      .outputs = {dense({2})},
                      .device = {},
                      .cores = 1};
  const KernelDef& def = test_kernels().get("host_function", DeviceKind::kCpu);
  const float in[] = {1, 2};
  float out[2];
  const void* inputs[] = {in};
  void* outputs[] = {out};
  def.prepare(q, {.threads = 1, .functions = &functions})->run({.inputs = inputs, .outputs = outputs});
  EXPECT_EQ(out[1], 4);
  try {
    def.prepare(q, {});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "host_function: 'twice' is not registered with this engine; register it before loading the "
                 "plan (a runtime without Python cannot run Python actor 'twice')");
  }
}

}  // namespace
}  // namespace sluice
