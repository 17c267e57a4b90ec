// Every op with a kernel on the accelerator gives there what it gives on the cpu: in each of its dtypes, from operands
// that lie in order and from ones that are permuted. SLUICE_TEST_DEVICE names the device; sim:0 otherwise.
#include <gmock/gmock.h>

#include <cmath>

#include "graph/executor.h"
#include "graph/ops/movement.h"
#include "graph/tape.h"
#include "ops/op_cases.h"
#include "runtime/session/engine.h"
#include "support/accelerator.h"
#include "support/error_of.h"
#include "tensor/session/graph_session.h"

namespace sluice::test {
namespace {

class DeviceTest : public OpTest {
 protected:
  void SetUp() override {
    eager.engine().device(accelerator());  // whose backend brings its kernels
    if (eager.engine().kernels().find(op().name, accelerator().kind) == nullptr) GTEST_SKIP() << "no kernel";
    if (op().samples.empty()) GTEST_SKIP() << "no samples";
  }

  GradMode off{false};
};

Ints reversed_dims(int rank) {
  Ints dims;
  for (int i = rank; i-- > 0;) dims.push_back(i);
  return dims;
}

// The op in a plan. Permuted: its operands are views of tensors with the dims reversed.
std::vector<Value> run_on(const DeviceId& device, EagerExecutor& eager, const Drawn& drawn, bool permuted = false) {
  TraceScope trace(eager, drawn.op->name);
  std::vector<Value> traced;
  std::vector<Tensor> given;
  std::vector<std::pair<std::string, Value>> outputs;
  {
    const PlacementScope on({.device = device, .stream = {}});
    for (const Value& input : drawn.inputs) {
      traced.emplace_back();
      if (!input.defined()) continue;
      const Ints dims = reversed_dims(permuted ? input.rank() : 0);
      given.push_back(dims.empty() ? Tensor(input) : Tensor(ops::permute(input, dims)).contiguous());
      const Tensor in = trace.add_input("in" + std::to_string(traced.size()), given.back().type());
      traced.back() = dims.empty() ? Value(in) : ops::permute(in, dims);
    }
    for (const Value& v : drawn.run(traced)) outputs.emplace_back("out" + std::to_string(outputs.size()), v);
  }
  GraphSession session(eager, trace.finish(outputs), {});
  const std::vector<Tensor> results = session.call(given);
  session.synchronize();  // its end would not wait for long
  return {results.begin(), results.end()};
}

// The op called now, on tensors there.
std::vector<Value> run_eagerly_on(const DeviceId& device, const Drawn& drawn, bool permuted = false) {
  std::vector<Value> there, back;
  for (const Value& input : drawn.inputs) {
    there.emplace_back();
    if (!input.defined()) continue;
    const Ints dims = reversed_dims(permuted ? input.rank() : 0);
    const Tensor given = dims.empty() ? Tensor(input) : Tensor(ops::permute(input, dims)).contiguous();
    there.back() = dims.empty() ? Value(given.to(device)) : ops::permute(given.to(device), dims);
  }
  const CreationScope made(device);
  for (const Value& output : drawn.run(there)) {
    EXPECT_EQ(output.device(), device) << drawn.label;
    back.push_back(Tensor(output).to(DeviceId{}));
  }
  return back;
}

void check(EagerExecutor& eager, const Drawn& drawn, DType dtype, bool permuted) {
  // Neither side need be right to the last bit of a narrow dtype; float64 leaves less for the order of sums.
  const double factor = dtype == DType::kFloat32 || dtype == DType::kFloat64 ? 64 : 4;
  const std::vector<Value> expected = drawn.run();
  expect_close(run_on(accelerator(), eager, drawn, permuted), expected, dtype, factor, drawn.label);
  expect_close(run_eagerly_on(accelerator(), drawn, permuted), expected, dtype, factor, drawn.label);
}

// No such kernel on the cpu either, or values that it refuses.
bool refused(const Drawn& drawn) {
  try {
    inferred(drawn);
    drawn.run();
    return false;
  } catch (const Error&) {
    return true;
  }
}

TEST_P(DeviceTest, Float32) {
  for (size_t s = 0; s < op().samples.size(); ++s) check(eager, draw(op(), s), DType::kFloat32, s % 2 == 1);
}

// A sample takes one of the other dtypes.
TEST_P(DeviceTest, OtherDtypes) {
  const DType floats[] = {DType::kFloat64, DType::kBFloat16, DType::kFloat16};
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const DType dtype = floats[(s + std::string_view(op().name).size()) % 3];
    Drawn drawn = draw(op(), s, {dtype, dtype, false});
    if (refused(drawn)) drawn = draw(op(), s, {dtype, dtype, true});  // an op of mixed precision
    if (!refused(drawn)) check(eager, drawn, dtype, s % 2 == 0);
  }
  Drawn whole = draw(op(), 0, {DType::kFloat64, {}, false});
  for (Value& input : whole.inputs) {
    if (!input.defined() || input.dtype() != DType::kFloat64) continue;
    std::vector<double> values = to_doubles(input);
    for (double& v : values) v = std::floor(4 * v) == 0 ? 1 : std::floor(4 * v);  // nothing divides by zero
    input = Tensor(from_doubles(input.type(), values)).to(DType::kInt32);
  }
  if (!refused(whole)) check(eager, whole, DType::kFloat64, false);
}

// A call that is no sample. Values lie in [0.1, 1.1), indices are 0 but for `bad`, the first one.
struct Call {
  const char* op;
  std::vector<Shape> shapes;
  Attrs attrs = {};
  int index = -1;  // which input is one
  double bad = 0;
};

Drawn drawn(const Call& call) {
  const OpDef& op = builtin_ops().get(call.op);
  Drawn d{&op, validate_attrs(op, call.attrs), {}, call.op};
  for (size_t i = 0; i < call.shapes.size(); ++i) {
    const bool index = call.index == static_cast<int>(i);
    std::vector<double> values = noise(numel(call.shapes[i]), i + 1, 0.1, 1.1);
    if (index) values.assign(values.size(), 0);
    if (index) values[0] = call.bad;
    d.inputs.push_back(from_doubles({index ? DType::kInt64 : DType::kFloat32, call.shapes[i]}, values));
  }
  return d;
}

// Beyond one block, one tile, one part of a long sum.
TEST(DeviceCalls, AreRightInManyParts) {
  EagerExecutor& eager = test_eager();
  const ExecutorScope scope(eager);
  const GradMode off{false};
  const Ints one = {1, 1}, none = {0, 0};
  for (const Call& call : {Call{"sum", {{3, 20000}}, {Ints{1}}},
                           {"mean", {{20000, 3}}, {Ints{0}}},
                           {"amax", {{2, 9000, 2}}, {Ints{1}}},
                           {"argmax", {{20000}}, {int64_t{0}}},
                           {"softmax", {{5, 3000}}},
                           {"log_softmax", {{4, 300, 70}}, {int64_t{1}}},
                           {"matmul", {{70, 2100}, {2100, 40}}},
                           {"matmul", {{2, 100, 70}, {2, 130, 70}}, {false, true}},
                           {"layer_norm", {{40, 700}, {700}, {700}}, {Ints{700}}},
                           {"layer_norm_backward", {{9000, 12}, {9000, 12}, {12}}, {Ints{12}}},
                           {"batch_norm_train", {{70, 3, 16, 16}, {3}, {3}}},
                           {"batch_norm_backward", {{70, 3, 16, 16}, {70, 3, 16, 16}, {3}, {3}, {3}}},
                           {"conv", {{3, 20, 16, 16}, {70, 20, 3, 3}}, {one, one, one}},
                           {"conv_weight_grad", {{8, 40, 18, 18}, {8, 6, 20, 20}}, {Ints{40, 6, 3, 3}, one, none, one}},
                           {"cross_entropy", {{9000, 5}, {9000}}, {}, 1}}) {
    check(eager, drawn(call), DType::kFloat32, false);
  }
}

TEST(DeviceCalls, FailAsOnTheCpu) {
  EagerExecutor& eager = test_eager();
  const ExecutorScope scope(eager);
  const GradMode off{false};
  for (const Call& call : {Call{"gather", {{3, 4}, {2, 4}}, {int64_t{0}}, 1, 7},
                           {"scatter", {{3, 4}, {2, 4}, {2, 4}}, {int64_t{0}}, 1, -1},
                           {"scatter_add", {{3, 4}, {3, 2}, {3, 2}}, {int64_t{1}}, 1, 4},
                           {"index_select", {{3, 4}, {2}}, {int64_t{1}}, 1, 4},
                           {"index_add", {{3, 4}, {2}, {2, 4}}, {int64_t{0}}, 1, 3},
                           {"embedding", {{3, 4}, {2}}, {}, 1, 3},
                           {"embedding_backward", {{2, 4}, {2}}, {int64_t{3}}, 1, -2},
                           {"cross_entropy", {{2, 3}, {2}}, {}, 1, 3},
                           {"cross_entropy_backward", {{}, {2, 3}, {2}}, {}, 2, 5}}) {
    const auto told = [&](const DeviceId& device) {
      const std::string error = error_of([&] { to_bytes(run_on(device, eager, drawn(call))[0]); });
      return error.substr(0, error.find("  ("));  // who it was
    };
    const std::string on_cpu = told(parse_device("cpu:0"));
    EXPECT_EQ(told(accelerator()), on_cpu);
    const std::string now = error_of([&] { run_eagerly_on(accelerator(), drawn(call)); });
    EXPECT_EQ(now.substr(0, on_cpu.size()), on_cpu);
    EXPECT_THAT(now, testing::HasSubstr(std::string(call.op) + ", call"));  // it was found late
    EXPECT_THAT(on_cpu, testing::HasSubstr("must be")) << call.op;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, DeviceTest, testing::ValuesIn(all_ops()), op_name);

}  // namespace
}  // namespace sluice::test
