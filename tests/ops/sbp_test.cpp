// Every placement an op declares: what two shards compute, put together, is what the whole computes.
#include <algorithm>

#include "graph/autodiff/tape.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"
#include "ops/op_cases.h"

namespace sluice::test {
namespace {

class SbpTest : public OpTest {
 protected:
  GradMode off{false};
};

constexpr int kShards = 2;

std::string row_str(const SbpRow& row) {
  std::string text;
  for (const Sbp& sbp : row.inputs) text += sbp.str() + " ";
  text += "->";
  for (const Sbp& sbp : row.outputs) text += " " + sbp.str();
  return text;
}

Value half(const Value& value, int axis, int shard) {
  const int64_t size = value.shape()[axis] / kShards;
  return ops::copy(ops::slice_axis(value, axis, shard * size, (shard + 1) * size));
}

// Parts that add up to the value.
Value part(const Value& value, int shard) {
  const Value first = from_doubles(value.type(), noise(numel(value.shape()), 9, -2, 3));
  return shard == 0 ? first : ops::sub(value, first);
}

bool divisible(const SbpRow& row, const std::vector<Value>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (row.inputs[i].kind != Sbp::Kind::kSplit || !inputs[i].defined()) continue;
    if (inputs[i].shape()[row.inputs[i].axis] % kShards != 0 || inputs[i].shape()[row.inputs[i].axis] == 0)
      return false;
  }
  return true;
}

TEST_P(SbpTest, ShardsMakeTheWhole) {
  ASSERT_NE(op().sbp, nullptr) << op().name << " has no placement rows";
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const Drawn drawn = draw(op(), s, {DType::kFloat64, {}, false});
    std::vector<TensorType> types;
    for (const Value& v : drawn.inputs) types.push_back(v.defined() ? v.type() : TensorType{});
    if (!op().variadic()) types.resize(op().inputs.size());
    const std::vector<Value> whole = drawn.run();
    for (const SbpRow& row : op().sbp(types, drawn.attrs)) {
      const std::string what = drawn.label + ", row " + row_str(row);
      ASSERT_GE(row.inputs.size(), drawn.inputs.size()) << what;
      ASSERT_EQ(row.outputs.size(), whole.size()) << what;
      if (!divisible(row, drawn.inputs)) continue;
      std::vector<std::vector<Value>> results;
      for (int shard = 0; shard < kShards; ++shard) {
        std::vector<Value> inputs = drawn.inputs;
        for (size_t i = 0; i < inputs.size(); ++i) {
          if (!inputs[i].defined()) continue;
          if (row.inputs[i].kind == Sbp::Kind::kSplit) inputs[i] = half(inputs[i], row.inputs[i].axis, shard);
          if (row.inputs[i].kind == Sbp::Kind::kPartialSum) inputs[i] = part(inputs[i], shard);
        }
        results.push_back(drawn.run(inputs));
      }
      std::vector<Value> joined;
      for (size_t o = 0; o < whole.size(); ++o) {
        const Value parts[] = {results[0][o], results[1][o]};
        switch (row.outputs[o].kind) {
          case Sbp::Kind::kSplit: joined.push_back(ops::concat(parts, row.outputs[o].axis)); break;
          case Sbp::Kind::kPartialSum: joined.push_back(ops::add(parts[0], parts[1])); break;
          case Sbp::Kind::kBroadcast: expect_same({parts[0]}, {parts[1]}, what); joined.push_back(parts[0]);
        }
      }
      const bool half = std::any_of(types.begin(), types.end(), [](const TensorType& t) {
        return is_floating(t.dtype) && dtype_size(t.dtype) == 2;
      });
      expect_close(joined, whole, half ? DType::kBFloat16 : DType::kFloat64, half ? 8 : 256, what);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, SbpTest, testing::ValuesIn(all_ops()), op_name);

}  // namespace
}  // namespace sluice::test
