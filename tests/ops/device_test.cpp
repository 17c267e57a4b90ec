// Every op with a kernel on the accelerator gives there what it gives on the cpu: in each of its dtypes, from operands
// that lie in order and from ones that are permuted. SLUICE_TEST_DEVICE names the device; sim:0 otherwise.
#include <cmath>

#include "graph/autodiff/tape.h"
#include "graph/ops/movement.h"
#include "ops/op_cases.h"
#include "runtime/engine.h"
#include "support/accelerator.h"
#include "tensor/graph_session.h"

namespace sluice::test {
namespace {

class DeviceTest : public OpTest {
 protected:
  void SetUp() override {
    eager.engine().device(accelerator());  // whose backend brings its kernels
    if (eager.engine().kernels().find(op().name, accelerator().kind) == nullptr) GTEST_SKIP() << "no kernel";
  }

  GradMode off{false};
};

Ints reversed_dims(int rank) {
  Ints dims;
  for (int i = rank; i-- > 0;) dims.push_back(i);
  return dims;
}

// The op on the accelerator. Permuted: its operands are views of tensors with the dims reversed.
std::vector<Value> run_on_accelerator(EagerExecutor& eager, const Drawn& drawn, bool permuted) {
  TraceScope trace(eager, drawn.op->name);
  std::vector<Value> traced;
  std::vector<Tensor> given;
  std::vector<std::pair<std::string, Value>> outputs;
  {
    const PlacementScope on({.device = accelerator(), .stream = {}});
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
  return {results.begin(), results.end()};
}

void check(EagerExecutor& eager, const Drawn& drawn, DType dtype, bool permuted) {
  // Neither side need be right to the last bit of a narrow dtype; float64 leaves less for the order of sums.
  const double factor = dtype == DType::kFloat32 || dtype == DType::kFloat64 ? 64 : 4;
  std::vector<Value> expected;
  try {
    expected = drawn.run();
  } catch (const Error&) {
    return;  // no such kernel on the cpu either, or values that it refuses
  }
  expect_close(run_on_accelerator(eager, drawn, permuted), expected, dtype, factor, drawn.label);
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
    try {
      inferred(drawn);
    } catch (const Error&) {
      drawn = draw(op(), s, {dtype, dtype, true});  // an op of mixed precision
    }
    check(eager, drawn, dtype, s % 2 == 0);
  }
  Drawn whole = draw(op(), 0, {DType::kFloat64, {}, false});
  for (Value& input : whole.inputs) {
    if (!input.defined() || input.dtype() != DType::kFloat64) continue;
    std::vector<double> values = to_doubles(input);
    for (double& v : values) v = std::floor(4 * v) == 0 ? 1 : std::floor(4 * v);  // nothing divides by zero
    input = Tensor(from_doubles(input.type(), values)).to(DType::kInt32);
  }
  try {
    inferred(whole);
  } catch (const Error&) {
    return;  // of floats alone
  }
  check(eager, whole, DType::kFloat64, false);
}

INSTANTIATE_TEST_SUITE_P(Ops, DeviceTest, testing::ValuesIn(all_ops()), op_name);

}  // namespace
}  // namespace sluice::test
