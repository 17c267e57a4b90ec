#pragma once
// Runs kernels of the network families: several outputs, absent operands, threads, layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/kernel_runner.h"
#include "tests/support/error_of.h"

namespace sluice {

inline const KernelTable& cpu_table() {
  static const KernelTable table = [] {
    KernelTable t;
    add_cpu_kernels(t);
    return t;
  }();
  return table;
}

struct KernelCall {
  std::string op;
  std::vector<std::optional<TestTensor>> inputs;  // nullopt: absent
  std::vector<TensorSpec> outputs;
  NamedAttrs attrs = {};
  int threads = 1;
};

inline plan::KernelQuery query_of(const KernelCall& call) {
  plan::KernelQuery q{
      .op = call.op, .attrs = call.attrs, .inputs = {}, .outputs = call.outputs, .device = {}, .cores = call.threads};
  for (const auto& in : call.inputs) q.inputs.push_back(in ? in->spec() : TensorSpec{});
  return q;
}
inline std::unique_ptr<PreparedKernel> prepare_call(const KernelCall& call) {
  return cpu_table().get(call.op, DeviceKind::kCpu).prepare(query_of(call), {.threads = call.threads});
}

// Runs with a workspace of exactly the bytes asked for, and checks that nothing beyond it or the outputs is written.
inline std::vector<TestTensor> run_prepared(const PreparedKernel& kernel, const KernelCall& call) {
  std::vector<const void*> inputs;
  for (const auto& in : call.inputs) inputs.push_back(in ? in->data() : nullptr);
  std::vector<TestTensor> results;
  for (const auto& spec : call.outputs) results.emplace_back(spec);
  std::vector<void*> outputs;
  for (auto& r : results) outputs.push_back(r.data());
  constexpr size_t kBehind = 64 << 10;
  std::vector<unsigned char> memory(kernel.workspace_bytes() + 64 + kBehind, 0x5a);
  auto* aligned = reinterpret_cast<unsigned char*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) & ~uintptr_t{63});
  kernel.run({.inputs = inputs.data(), .outputs = outputs.data(), .workspace = aligned});
  const unsigned char* const behind = aligned + kernel.workspace_bytes();
  EXPECT_TRUE(std::all_of(behind, behind + kBehind, [](unsigned char c) { return c == 0x5a; }))
      << call.op << ": wrote past its workspace";
  for (const auto& r : results) EXPECT_TRUE(r.intact()) << call.op << ": wrote past an output";
  return results;
}
inline std::vector<TestTensor> run_call(const KernelCall& call) { return run_prepared(*prepare_call(call), call); }

inline TensorSpec channels_last(Shape shape, DType dtype = DType::kFloat32) {
  return {dtype, shape, channels_last_strides(shape)};
}

// Values in [-1, 1), a function of the seed; exactly representable in bfloat16.
inline std::vector<double> noise(int64_t n, uint32_t seed) {
  std::vector<double> v(static_cast<size_t>(n));
  for (auto& x : v) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<double>(seed >> 24) / 128 - 1;
  }
  return v;
}
inline TestTensor random_tensor(TensorSpec spec, uint32_t seed) {
  const int64_t n = numel(spec.shape);
  return TestTensor(std::move(spec), noise(n, seed));
}

inline void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance,
                        const std::string& what = "") {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << what << ", element " << i;
}

}  // namespace sluice
