// Every way to run an op gives the same result: eager, planned, by its decomposition, from other strides, in other
// dtypes, on nothing.
#include <algorithm>
#include <cmath>

#include "graph/ops/creation.h"
#include "graph/ops/loops.h"
#include "graph/ops/movement.h"
#include "graph/tape.h"
#include "ops/op_cases.h"
#include "runtime/session/engine.h"
#include "runtime/session/session.h"
#include "support/memory_watch.h"
#include "tensor/session/graph_session.h"

namespace sluice::test {
namespace {

class ExecutionTest : public OpTest {
 protected:
  GradMode off{false};
};

TEST_P(ExecutionTest, GivesInferredTypes) {
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const Drawn drawn = draw(op(), s);
    const std::vector<TensorType> types = inferred(drawn);
    const std::vector<Value> outputs = drawn.run();
    ASSERT_EQ(outputs.size(), types.size()) << drawn.label;
    for (size_t i = 0; i < types.size(); ++i) EXPECT_EQ(outputs[i].type().str(), types[i].str()) << drawn.label;
  }
}

// A call as a graph, and what it is called with.
CapturedGraph traced(EagerExecutor& eager, const Drawn& drawn, std::vector<Tensor>& given) {
  TraceScope trace(eager, "call");
  std::vector<Value> inputs;
  for (size_t i = 0; i < drawn.inputs.size(); ++i) {
    inputs.emplace_back();
    if (!drawn.inputs[i].defined()) continue;
    inputs.back() = trace.add_input("in" + std::to_string(i), drawn.inputs[i].type());
    given.push_back(drawn.inputs[i]);
  }
  std::vector<std::pair<std::string, Value>> outputs;
  for (const Value& v : drawn.run(inputs)) outputs.emplace_back("out" + std::to_string(outputs.size()), v);
  return trace.finish(outputs);
}

TEST_P(ExecutionTest, PlannedEqualsEager) {
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const Drawn drawn = draw(op(), s);
    std::vector<Tensor> given;
    CapturedGraph captured = traced(eager, drawn, given);
    GraphSessionOptions options;
    options.compile.cores = eager.threads();
    const MemoryWatch watch(eager.engine(), {plan::Space{}});
    GraphSession session(eager, std::move(captured), options);
    EXPECT_EQ(watch.held_but_for(ledger_bytes(session.compiled().plan, true, false)), "") << drawn.label;
    const std::vector<Tensor> planned = session.call(given);
    expect_same(drawn.run(), {planned.begin(), planned.end()}, drawn.label);
  }
}

TEST_P(ExecutionTest, DecompositionEqualsKernel) {
  if (!op().decompose || !eager.engine().kernels().find(op().name, DeviceKind::kCpu)) return;
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const Drawn drawn = draw(op(), s);
    const std::vector<Value> outputs = drawn.run();
    std::vector<Value> inputs = drawn.inputs;
    if (!op().variadic()) inputs.resize(op().inputs.size());
    expect_close(op().decompose(inputs, drawn.attrs), outputs, DType::kFloat32, 64, drawn.label);
  }
}

// By primitive ops alone, however many decompositions that takes.
TEST_P(ExecutionTest, PrimitiveOpsGiveTheSame) {
  if (!op().decompose || op().random || op().host) return;
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const Drawn drawn = draw(op(), s);
    std::vector<Tensor> given;
    CapturedGraph captured = traced(eager, drawn, given);
    GraphSessionOptions options;
    options.compile.prims = true;
    GraphSession session(eager, std::move(captured), options);
    for (const graph::Node& node : session.compiled().graph.nodes())
      EXPECT_TRUE(node.op->decompose == nullptr || node.op == &ops::loop_op())
          << node.op->name << " of " << drawn.label;
    const std::vector<Tensor> planned = session.call(given);
    expect_close({planned.begin(), planned.end()}, drawn.run(), DType::kFloat32, 64, drawn.label);
  }
}

// The same values in every other place of a larger block, axes reversed.
Value scattered(const Value& value) {
  if (!value.defined() || value.rank() == 0) return value;
  Ints reversed, zeros(value.rank(), 0), twos(value.rank(), 2);
  Shape room;
  for (int i = value.rank(); i-- > 0;) reversed.push_back(i);
  for (int axis : std::vector<int>(reversed.begin(), reversed.end())) room.push_back(2 * value.shape()[axis]);
  const Value block = ops::full(room, 1, value.dtype());
  const Value view = ops::permute(ops::slice(block, zeros, room.vec(), twos), reversed);
  current_executor().assign(view, value);
  return view;
}

TEST_P(ExecutionTest, AnyStridesGiveTheSame) {
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const Drawn drawn = draw(op(), s);
    std::vector<Value> inputs;
    for (const Value& v : drawn.inputs) inputs.push_back(scattered(v));
    expect_close(drawn.run(inputs), drawn.run(), DType::kFloat32, 16, drawn.label);
  }
}

bool accepted(const Drawn& drawn) {
  try {
    inferred(drawn);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Against float64 on the same rounded inputs.
void check_dtype(const OpDef& op, DType dtype, double factor) {
  for (size_t s = 0; s < op.samples.size(); ++s) {
    const auto& inputs = op.samples[s].inputs;
    if (std::none_of(inputs.begin(), inputs.end(),
                     [](const SampleInput& i) { return !i.absent && i.dtype == DType::kFloat32; }))
      continue;
    const bool like_first_only = !accepted(draw(op, s, {dtype, dtype, false}));  // an op of mixed precision
    const Drawn narrow = draw(op, s, {dtype, dtype, like_first_only});
    if (dtype_size(dtype) == 2 && !accepted(narrow)) continue;  // of float32 and float64 alone, as factorizations are
    Drawn wide = narrow;
    for (Value& input : wide.inputs)
      if (input.defined() && is_floating(input.dtype())) input = Tensor(input).to(DType::kFloat64);
    expect_close(narrow.run(), wide.run(), dtype, factor, narrow.label);
  }
}
TEST_P(ExecutionTest, Float32) { check_dtype(op(), DType::kFloat32, 32); }
TEST_P(ExecutionTest, BFloat16) { check_dtype(op(), DType::kBFloat16, 4); }
TEST_P(ExecutionTest, Float16) { check_dtype(op(), DType::kFloat16, 4); }

// Integers that are accepted in place of floats give what float64 gives, if that is whole.
TEST_P(ExecutionTest, Integers) {
  for (size_t s = 0; s < op().samples.size(); ++s) {
    for (const DType dtype : {DType::kInt32, DType::kInt64}) {
      Drawn drawn = draw(op(), s, {DType::kFloat64, {}, false});
      std::vector<Value> wide = drawn.inputs;
      bool any = false;
      for (size_t i = 0; i < wide.size(); ++i) {
        if (!wide[i].defined() || wide[i].dtype() != DType::kFloat64) continue;
        std::vector<double> values = to_doubles(wide[i]);
        for (double& v : values) v = std::floor(4 * v) == 0 ? 1 : std::floor(4 * v);  // nothing divides by zero
        wide[i] = from_doubles(wide[i].type(), values);
        drawn.inputs[i] = Tensor(wide[i]).to(dtype);
        any = true;
      }
      if (!any) continue;
      try {
        inferred(drawn);
      } catch (const Error&) {
        continue;
      }
      std::vector<Value> got;
      try {
        got = drawn.run();
      } catch (const Error& error) {  // refused in words: a negative exponent, a dtype without a kernel
        EXPECT_EQ(std::string(error.what()).find(op().name), 0u) << error.what();
        continue;
      }
      const std::vector<Value> expected = drawn.run(wide);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t o = 0; o < got.size(); ++o) {
        const auto x = to_doubles(got[o]), y = to_doubles(expected[o]);
        ASSERT_EQ(x.size(), y.size());
        for (size_t k = 0; k < x.size(); ++k) {
          if (y[k] == std::floor(y[k]) && std::abs(y[k]) < 1e9) {
            ASSERT_NEAR(x[k], y[k], 1e-5 * std::abs(y[k])) << drawn.label << ", element " << k;
          }
        }
      }
    }
  }
}

// Inputs with nothing in them either run, to the inferred shapes, or are refused in words.
TEST_P(ExecutionTest, ZeroSize) {
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const auto& inputs = op().samples[s].inputs;
    if (inputs.empty() || inputs[0].shape.rank() == 0) continue;
    for (int axis = 0; axis < inputs[0].shape.rank(); ++axis) {
      Drawn drawn = draw(op(), s);
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!drawn.inputs[i].defined() || !(inputs[i].shape == inputs[0].shape)) continue;
        TensorType type = drawn.inputs[i].type();
        type.shape[axis] = 0;
        drawn.inputs[i] = Tensor::empty(type);
      }
      std::vector<TensorType> types;
      try {
        types = inferred(drawn);
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(op().name), std::string::npos) << error.what();
        continue;
      }
      std::vector<Value> outputs;
      try {
        outputs = drawn.run();
      } catch (const Error& error) {  // an index into nothing
        EXPECT_EQ(error.kind(), ErrorKind::kIndex) << error.what();
        continue;
      }
      for (size_t i = 0; i < types.size(); ++i) EXPECT_EQ(outputs[i].type().str(), types[i].str()) << drawn.label;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, ExecutionTest, testing::ValuesIn(all_ops()), op_name);

}  // namespace
}  // namespace sluice::test
