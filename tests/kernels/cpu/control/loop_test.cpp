// Kernel "loop" against the same program run value by value: whatever lies where, results are the same bits.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "kernels/kernel_runner.h"
#include "plan/loop_program.h"

namespace sluice {
namespace {

using Matrix = std::array<float, 9>;
const TensorType kMatrix{DType::kFloat32, {3, 3}};

const KernelTable& loop_kernels() {
  static const KernelTable table = [] {
    KernelTable t(test_kernels());
    cpu::add_loop_kernel(t);
    return t;
  }();
  return table;
}

struct LoopCase {
  AttrGraph program;
  int states = 0, rows = 0, length = 0;
  bool reverse = false;

  int inputs() const { return program.inputs; }
  int stacked() const { return static_cast<int>(program.outputs.size()) - states; }
  bool row(int input) const { return input >= states && input < states + rows; }
};

plan::KernelQuery query_of(const LoopCase& c) {
  plan::KernelQuery q{.op = "loop",
                      .attrs = {{"program", c.program},
                                {"states", int64_t{c.states}},
                                {"rows", int64_t{c.rows}},
                                {"length", int64_t{c.length}},
                                {"reverse", c.reverse}},
                      .inputs = {},
                      .outputs = {},
                      .device = {}};
  const TensorSpec one = TensorSpec::contiguous(kMatrix);
  const TensorSpec all = TensorSpec::contiguous({DType::kFloat32, {c.length, 3, 3}});
  for (int i = 0; i < c.inputs(); ++i) q.inputs.push_back(c.row(i) ? all : one);
  for (int o = 0; o < c.states + c.stacked(); ++o) q.outputs.push_back(o < c.states ? one : all);
  return q;
}

using Memory = std::vector<std::vector<float>>;

std::unique_ptr<PreparedKernel> prepared(const LoopCase& c) {
  return loop_kernels()
      .get("loop", DeviceKind::kCpu)
      .prepare(query_of(c), {.threads = 1, .functions = nullptr, .kernels = &loop_kernels()});
}

Memory run_kernel(const LoopCase& c, const Memory& inputs) {
  const auto kernel = prepared(c);
  std::vector<float> workspace(kernel->workspace_bytes() / 4 + 16, 12345.f);
  void* aligned = workspace.data();
  size_t space = workspace.size() * 4;
  std::align(64, kernel->workspace_bytes(), aligned, space);
  Memory outputs;
  for (const TensorSpec& out : query_of(c).outputs) outputs.emplace_back(numel(out.shape) + 1, -7.f);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const auto& memory : inputs) in.push_back(memory.data());
  for (auto& memory : outputs) out.push_back(memory.data());
  kernel->run({.inputs = in.data(), .outputs = out.data(), .workspace = aligned});
  for (auto& memory : outputs) {
    EXPECT_EQ(memory.back(), -7.f) << "written beyond the end";
    memory.pop_back();
  }
  return outputs;
}

// Every value in memory of its own.
Memory run_by_value(const LoopCase& c, const Memory& inputs) {
  Memory outputs;
  for (const TensorSpec& out : query_of(c).outputs) outputs.emplace_back(numel(out.shape));
  std::vector<Matrix> states(c.states);
  for (int i = 0; i < c.states; ++i) std::copy_n(inputs[i].begin(), 9, states[i].begin());
  for (int turn = 0; turn < c.length; ++turn) {
    const int row = c.reverse ? c.length - 1 - turn : turn;
    std::vector<Matrix> values(states);
    for (int i = c.states; i < c.inputs(); ++i) {
      values.emplace_back();
      std::copy_n(inputs[i].begin() + (c.row(i) ? 9 * row : 0), 9, values.back().begin());
    }
    for (const AttrCall& call : c.program.calls) {
      Matrix made{};
      for (int k = 0; k < 9; ++k) {
        const Matrix& a = values[call.operands[0]];
        const Matrix& b = values[call.operands.back()];
        made[k] = call.op == plan::kWindow ? a[(k % 3) * 3 + k / 3]  // transposed
                  : call.op == "add"       ? a[k] + b[k]
                  : call.op == "sub"       ? a[k] - b[k]
                                           : -a[k];
      }
      values.push_back(made);
    }
    for (int o = 0; o < c.states + c.stacked(); ++o) {
      const Matrix& value = values[c.program.outputs[o]];
      if (o < c.states) states[o] = value;
      std::copy_n(value.begin(), 9, outputs[o].begin() + (o < c.states ? 0 : 9 * row));
    }
  }
  if (c.length == 0)
    for (int i = 0; i < c.states; ++i) outputs[i] = inputs[i];
  return outputs;
}

LoopCase random_case(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  LoopCase c{.program = {}, .states = below(4), .rows = below(3), .length = below(5), .reverse = below(2) == 1};
  c.program.inputs = c.states + c.rows + 1 + below(2);
  std::vector<int> roots(c.program.inputs);
  std::iota(roots.begin(), roots.end(), 0);
  int next = c.program.inputs;
  TensorSpec transposed = TensorSpec::contiguous(kMatrix);
  transposed.strides = {1, 3};
  for (int calls = below(9); calls > 0; --calls) {
    if (below(4) == 0) {
      c.program.calls.push_back(
          {plan::kWindow, {{"offset", int64_t{0}}}, {roots[below(static_cast<int>(roots.size()))]}, {transposed}});
    } else {
      const char* const ops[] = {"add", "sub", "neg"};
      AttrCall call{ops[below(3)], {}, {below(next)}, {TensorSpec::contiguous(kMatrix)}};
      if (call.op != "neg") call.operands.push_back(below(next));
      c.program.calls.push_back(call);
      roots.push_back(next);
    }
    ++next;
  }
  for (int o = c.states + below(4); o > 0; --o) c.program.outputs.push_back(below(next));
  return c;
}

TEST(Loop, GivesWhatItsProgramGivesValueByValue) {
  std::mt19937 random(7);
  int in_place = 0;
  for (int i = 0; i < 3000; ++i) {
    const LoopCase c = random_case(random);
    if (c.program.outputs.empty()) continue;
    Memory inputs;
    for (const TensorSpec& in : query_of(c).inputs) {
      inputs.emplace_back(numel(in.shape));
      for (float& value : inputs.back()) value = static_cast<float>(random() % 17) - 8;
    }
    const Memory before = inputs;
    ASSERT_EQ(run_kernel(c, inputs), run_by_value(c, inputs)) << attr_str(c.program) << " states " << c.states;
    ASSERT_EQ(inputs, before);
    in_place += prepared(c)->workspace_bytes() == 0;
  }
  EXPECT_GT(in_place, 0);
}

AttrCall call_of(const char* op, std::vector<int> operands, NamedAttrs attrs = {}) {
  return {op, std::move(attrs), std::move(operands), {TensorSpec::contiguous(kMatrix)}};
}

TEST(Loop, StatesAreWrittenInPlace) {
  // s + s, then minus a constant: one buffer, the state's; the table of pointers is all the workspace there is.
  LoopCase c{
      .program = {2, {call_of("add", {0, 0}), call_of("sub", {2, 1})}, {3}}, .states = 1, .rows = 0, .length = 4};
  EXPECT_LE(prepared(c)->workspace_bytes(), 64u + 64u);
  // Two states that change places need one of them kept.
  LoopCase swap{.program = {2, {}, {1, 0}}, .states = 2, .rows = 0, .length = 3};
  EXPECT_GE(prepared(swap)->workspace_bytes(), 64u);
}

TEST(Loop, ErrorsNameTheStep) {
  const TensorSpec index = TensorSpec::contiguous({DType::kInt64, {1}});
  const TensorSpec row = TensorSpec::contiguous({DType::kFloat32, {1}});
  LoopCase c{.program = {2, {{"index_select", {{"dim", int64_t{0}}}, {1, 0}, {row}}}, {0, 2}},
             .states = 1,
             .rows = 0,
             .length = 2};
  c.program.calls.push_back({"add", {}, {0, 0}, {index}});
  c.program.outputs = {3, 2};
  plan::KernelQuery q = query_of(c);
  q.inputs = {index, TensorSpec::contiguous({DType::kFloat32, {3}})};
  q.outputs = {index, TensorSpec::contiguous({DType::kFloat32, {2, 1}})};
  const auto kernel = loop_kernels()
                          .get("loop", DeviceKind::kCpu)
                          .prepare(q, {.threads = 1, .functions = nullptr, .kernels = &loop_kernels()});
  const int64_t at = 2;
  const float table[] = {1, 2, 3};
  int64_t state = 0;
  float rows[2];
  std::vector<std::byte> workspace(kernel->workspace_bytes() + 64);
  void* aligned = workspace.data();
  size_t space = workspace.size();
  std::align(64, kernel->workspace_bytes(), aligned, space);
  const void* in[] = {&at, table};
  void* out[] = {&state, rows};
  try {
    kernel->run({.inputs = in, .outputs = out, .workspace = aligned});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIndex);
    EXPECT_TRUE(std::string(error.what()).starts_with("turn 1 of a loop: index_select")) << error.what();
  }
}

}  // namespace
}  // namespace sluice
