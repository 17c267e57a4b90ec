// Rows through random bodies, held against the kernels of their steps one by one: the same bits, however many threads.
#include <cmath>
#include <random>

#include "base/scalar_ops.h"
#include "kernels/cpu/generated/host_compiler.h"
#include "kernels/kernel_runner.h"
#include "kernels/network_kernels.h"
#include "plan/query.h"

namespace sluice {
namespace {

struct RowOperand {
  TensorSpec spec;
  std::vector<double> values;
};

NamedAttrs over_last(int axes) {
  Ints dim;
  for (int i = axes; i > 0; --i) dim.push_back(-i);
  return {{"dim", dim}, {"keepdim", true}};
}

Shape row_shape(Shape whole, int axes) {
  for (int i = whole.rank() - axes; i < whole.rank(); ++i) whole[i] = 1;
  return whole;
}

class RandomRows {
 public:
  RandomRows(unsigned seed, Shape whole, int axes, DType dtype)
      : random_(seed), whole_(whole), row_(row_shape(whole, axes)), axes_(axes), dtype_(dtype) {
    Shape line;
    for (int i = whole.rank() - axes; i < whole.rank(); ++i) line.push_back(whole[i]);
    for (const Shape& shape : {whole, whole, line, row_, Shape{}}) add_input(shape);
    body.inputs = static_cast<int>(values.size());
    const int steps = 3 + draw(10);
    for (int i = 0; i < steps; ++i) add_step();
    if (std::none_of(body.calls.begin(), body.calls.end(), [](const AttrCall& c) { return !c.attrs.empty(); }))
      reduce(0);
    // Takes the last value of each extent, and one more.
    for (int v = static_cast<int>(values.size()) - 1; v >= body.inputs && body.outputs.size() < 3; --v) {
      const Shape& shape = values[static_cast<size_t>(v)].spec.shape;
      if ((shape == whole_ || shape == row_) && (body.outputs.size() < 2 || draw(2) == 0)) body.outputs.push_back(v);
    }
  }

  std::vector<RowOperand> values;  // inputs, and what the steps give one by one
  AttrGraph body;

 private:
  int draw(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  void add_input(const Shape& shape) {
    const int64_t n = numel(shape);
    std::vector<double> x = noise(std::max<int64_t>(n, 1), static_cast<uint32_t>(random_()));
    if (draw(4) == 0) x[x.size() / 2] = draw(2) == 0 ? HUGE_VAL : std::nan("");
    values.push_back({dense(shape, dtype_), x});
  }

  std::vector<TestTensor> tensors(const std::vector<int>& operands) {
    std::vector<TestTensor> result;
    for (const int v : operands)
      result.emplace_back(values[static_cast<size_t>(v)].spec, values[static_cast<size_t>(v)].values);
    return result;
  }

  void call(const std::string& op, NamedAttrs attrs, std::vector<int> operands, const Shape& shape) {
    const TensorSpec out = dense(shape, dtype_);
    values.push_back({out, run_kernel(op, tensors(operands), out, attrs)});
    body.calls.push_back({op, std::move(attrs), std::move(operands)});
  }

  void reduce(int v) {
    static const char* const kOps[] = {"sum", "mean", "amax", "amin", "prod"};
    call(kOps[draw(5)], over_last(axes_), {v}, row_);
  }

  void add_step() {
    static const char* const kUnary[] = {"neg", "abs", "exp", "tanh", "relu", "sigmoid"};
    static const char* const kBinary[] = {"add", "sub", "mul", "maximum", "div"};
    const int count = static_cast<int>(values.size());
    const int a = draw(3) == 0 ? draw(count) : count - 1 - draw(std::min(count, 3)), b = draw(count);
    const auto shape = [&](int v) { return values[static_cast<size_t>(v)].spec.shape; };
    const bool wide = shape(a) == whole_;
    if (draw(3) == 0 && wide && numel(row_) > 0) return reduce(a);
    if (draw(8) == 0 && wide) return call("mul", {}, {a, a}, whole_);
    if (draw(2) == 0 && (wide || shape(a) == row_)) return call(kUnary[draw(6)], {}, {a}, shape(a));
    const Shape both = broadcast_shapes(shape(a), shape(b), "test");
    if (both != whole_ && both != row_) return call("add", {}, {a, 0}, whole_);
    call(kBinary[draw(5)], {}, {a, b}, both);
  }

  std::mt19937 random_;
  const Shape whole_, row_;
  const int axes_;
  const DType dtype_;
};

std::vector<std::vector<double>> run_query(const plan::KernelQuery& q, const std::vector<TestTensor>& inputs) {
  const auto kernel = test_kernels().get(q.op, DeviceKind::kCpu).prepare(q, {.threads = q.cores});
  std::vector<TestTensor> results;
  for (const TensorSpec& out : q.outputs) results.emplace_back(out);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const TestTensor& t : inputs) in.push_back(t.data());
  for (TestTensor& t : results) out.push_back(t.data());
  std::vector<unsigned char> workspace(kernel->workspace_bytes() + 128, 0x5d);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) & ~uintptr_t{63});
  kernel->run({.inputs = in.data(), .outputs = out.data(), .workspace = aligned});
  std::vector<std::vector<double>> read;
  for (const TestTensor& t : results) {
    EXPECT_TRUE(t.intact());
    read.push_back(t.read());
  }
  const auto* const end = static_cast<unsigned char*>(aligned) + kernel->workspace_bytes();
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(end[i], 0x5d) << "wrote past its workspace";
  return read;
}

plan::KernelQuery query_of(const AttrGraph& body, const std::vector<TestTensor>& inputs,
                           const std::vector<TensorSpec>& outputs, int threads, bool generated) {
  plan::KernelQuery q{
      .op = "fused_rows", .attrs = {{"body", body}}, .inputs = {}, .outputs = outputs, .device = {}, .cores = threads};
  for (const TestTensor& in : inputs) q.inputs.push_back(in.spec());
  if (generated) q.attrs.emplace_back(plan::kImplementation, plan::kGenerated);
  EXPECT_EQ(test_kernels().get("fused_rows", DeviceKind::kCpu).source(q).empty(), !generated) << attr_str(body);
  return q;
}

std::vector<std::vector<double>> run_rows(const RandomRows& rows, const std::vector<TestTensor>& inputs, int threads,
                                          bool generated = false) {
  std::vector<TensorSpec> outputs;
  for (const int v : rows.body.outputs) outputs.push_back(rows.values[static_cast<size_t>(v)].spec);
  return run_query(query_of(rows.body, inputs, outputs, threads, generated), inputs);
}

// A NaN is a NaN, whatever its bits.
void expect_equal(const std::vector<double>& got, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
    ASSERT_TRUE(got[i] == expected[i] && std::signbit(got[i]) == std::signbit(expected[i]))
        << what << ", element " << i << ": " << got[i] << ", not " << expected[i];
  }
}

struct RowCase {
  Shape whole;
  int axes;
  int programs;
};
const RowCase kRowCases[] = {
    {{5, 7}, 1, 40},       {{64, 64}, 1, 10},  {{300, 2}, 1, 10},   {{3, 129}, 1, 10},   {{9, 1000}, 1, 10},
    {{7, 4096}, 1, 5},     {{6, 4097}, 1, 5},  {{2, 3, 40}, 1, 10}, {{3, 4, 6}, 2, 20},  {{40}, 1, 10},
    {{2, 3, 1, 50}, 1, 5}, {{20, 5000}, 1, 3}, {{3, 140000}, 1, 2}, {{1, 300001}, 1, 2}, {{0, 6}, 1, 5},
    {{16, 20000}, 1, 1},   {{11, 193}, 1, 20}, {{7, 1023}, 1, 10},  {{7, 1025}, 1, 10},  {{3, 2, 500}, 1, 10},
};

TEST(FusedRows, GiveTheBitsOfTheirSteps) {
  unsigned seed = 0;
  for (const RowCase& c : kRowCases)
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16})
      for (int i = 0; i < c.programs; ++i, ++seed) {
        if (numel(c.whole) > 100000 && is_floating(dtype) && (i + static_cast<int>(dtype)) % 2 != 0) continue;
        RandomRows rows(seed, c.whole, c.axes, dtype);
        std::vector<TestTensor> inputs;
        for (int v = 0; v < rows.body.inputs; ++v)
          inputs.emplace_back(rows.values[static_cast<size_t>(v)].spec, rows.values[static_cast<size_t>(v)].values);
        for (const int threads : {1, 2, 5}) {
          const auto got = run_rows(rows, inputs, threads);
          for (size_t k = 0; k < got.size(); ++k)
            expect_equal(got[k], rows.values[static_cast<size_t>(rows.body.outputs[k])].values,
                         fmt::format("seed {}, {} of {}, {} threads, output {}, {}", seed, dtype_name(dtype),
                                     c.whole.str(), threads, k, attr_str(rows.body)));
          if (testing::Test::HasFatalFailure()) return;
        }
      }
}

TEST(FusedRows, AsGeneratedCodeGiveTheBitsOfTheirSteps) {
  if (generated::host_compiler().empty()) GTEST_SKIP() << "no g++";
  unsigned seed = 1000;
  for (const Shape& whole : {Shape{3, 129}, Shape{9, 1000}, Shape{5, 4096}, Shape{11, 193}, Shape{3, 2, 500}})
    for (int i = 0; i < 2; ++i, ++seed) {
      RandomRows rows(seed, whole, 1, DType::kFloat32);
      std::vector<TestTensor> inputs;
      for (int v = 0; v < rows.body.inputs; ++v) {
        const RowOperand& operand = rows.values[static_cast<size_t>(v)];
        TensorSpec spec = operand.spec;
        if (i == 1 && v % 2 == 0 && spec.shape == Shape{3, 2, 500}) spec.strides = {500, 1500, 1};
        inputs.emplace_back(spec, operand.values);
      }
      for (const int threads : {1, 3}) {
        const auto got = run_rows(rows, inputs, threads, true);
        for (size_t k = 0; k < got.size(); ++k)
          expect_equal(got[k], rows.values[static_cast<size_t>(rows.body.outputs[k])].values,
                       fmt::format("seed {}, {}, {} threads, output {}, {}", seed, whole.str(), threads, k,
                                   attr_str(rows.body)));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
}

// Each entry of base/scalar that has text: its loop, and the text compiled.
TEST(FusedRows, AsGeneratedCodeHaveTheBitsOfEachOp) {
  if (generated::host_compiler().empty()) GTEST_SKIP() << "no g++";
  const Shape whole{2, 300}, row{2, 1};
  const std::vector<TestTensor> inputs = {random_tensor(dense(whole), 7), random_tensor(dense(whole), 8)};
  const AttrGraph begun{2, {{"amax", over_last(1), {0}}}, {2}};
  AttrGraph body = begun;
  std::vector<std::vector<double>> expected;
  const auto check = [&] {
    std::vector<TensorSpec> outputs(body.outputs.size(), dense(whole));
    outputs[0] = dense(row);
    const auto got = run_query(query_of(body, inputs, outputs, 1, true), inputs);
    for (size_t k = 0; k < expected.size(); ++k) expect_equal(got[k + 1], expected[k], attr_str(body));
    body = begun;
    expected.clear();
  };
  for (const ScalarOp& op : scalar_ops()) {
    if (op.floating == nullptr || op.gives_bool || op.bad != nullptr || *op.mode != '\0') continue;
    expected.push_back(run_kernel(op.name, std::vector(inputs.begin(), inputs.begin() + op.inputs), dense(whole)));
    body.outputs.push_back(2 + static_cast<int>(body.calls.size()));
    body.calls.push_back({op.name, {}, op.inputs == 2 ? std::vector{0, 1} : std::vector{0}});
    if (body.outputs.size() == kMostFusedOutputs) check();
  }
  if (!expected.empty()) check();
}

// The names in a plan's ops are no text for a compiler: there are names of tables in it, and numbers.
TEST(FusedRows, AsGeneratedCodeHaveNoTextOfAPlan) {
  for (const std::string op : {"exp_step(v0); } //", "exp\n#include \"/etc/passwd\"", "kZero", ""}) {
    const AttrGraph body{1, {{op, {}, {0}}, {"amax", over_last(1), {1}}}, {2}};
    const plan::KernelQuery q{.op = "fused_rows",
                              .attrs = {{"body", body}, {plan::kImplementation, std::string(plan::kGenerated)}},
                              .inputs = {dense({2, 300})},
                              .outputs = {dense({2, 1})},
                              .device = {}};
    EXPECT_THROW(test_kernels().get("fused_rows", DeviceKind::kCpu).source(q), Error) << op;
  }
}

// Rows may lie apart, and so may their elements.
TEST(FusedRows, ReadTheirOperandsAsTheyLie) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    for (const Shape& whole : {Shape{6, 9}, Shape{3, 4, 21}, Shape{2, 5000}, Shape{2, 3, 300}, Shape{4, 1025}}) {
      RandomRows rows(seed, whole, 1, DType::kFloat32);
      std::vector<TestTensor> inputs;
      for (int v = 0; v < rows.body.inputs; ++v) {
        const RowOperand& operand = rows.values[static_cast<size_t>(v)];
        inputs.emplace_back(v % 2 == 0 ? scrambled(operand.spec.shape) : operand.spec, operand.values);
      }
      for (const int threads : {1, 3}) {
        const auto got = run_rows(rows, inputs, threads);
        for (size_t k = 0; k < got.size(); ++k)
          expect_equal(got[k], rows.values[static_cast<size_t>(rows.body.outputs[k])].values,
                       fmt::format("seed {}, {}, {}", seed, whole.str(), attr_str(rows.body)));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

std::string refusal_of_rows(const AttrGraph& body, const std::vector<TensorSpec>& inputs, const TensorSpec& out) {
  plan::KernelQuery q{.op = "fused_rows", .attrs = {{"body", body}}, .inputs = inputs, .outputs = {out}, .device = {}};
  try {
    test_kernels().get("fused_rows", DeviceKind::kCpu).prepare(q, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FusedRows, SayWhatTheyDoNotTake) {
  const AttrGraph sums{1, {{"sum", over_last(1), {0}}, {"exp", {}, {1}}}, {2}};
  EXPECT_EQ(refusal_of_rows({1, {{"exp", {}, {0}}}, {1}}, {dense({4, 3})}, dense({4, 3})),
            "fused_rows: a body without a reduction of rows; must have one");
  EXPECT_EQ(refusal_of_rows(sums, {dense({4, 3}, DType::kInt64)}, dense({4, 1}, DType::kInt64)),
            "fused_rows: step sum of int64; must be of floating elements of a row");
  const AttrGraph both{1, {{"sum", over_last(2), {0}}, {"exp", {}, {1}}}, {2}};
  EXPECT_EQ(refusal_of_rows(both, {scrambled({2, 4, 3})}, dense({2, 1, 1})),
            "fused_rows: an operand of (2, 4, 3) with strides (2, 6, 30): has no rows of 12 elements in lines; lay it "
            "out so");
  EXPECT_EQ(refusal_of_rows({1, {{"sum", over_last(1), {0}}, {"sub", {}, {0, 1}}}, {2}}, {dense({4, 3})},
                            dense({4, 3}, DType::kFloat64)),
            "fused_rows: body gives float32; its output is of float64");
}

}  // namespace
}  // namespace sluice
