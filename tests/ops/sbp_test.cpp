// Every placement an op declares: what shards compute, put together, is what the whole computes. By hand, and as the
// compiler splits a graph over 2 and 4 devices.
#include <algorithm>
#include <set>

#include "compiler/sbp_infer.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/global.h"
#include "graph/ops/movement.h"
#include "graph/tape.h"
#include "ops/op_cases.h"
#include "tensor/session/graph_session.h"

namespace sluice::test {
namespace {

using compiler::WholeCall;

std::string row_str(const SbpRow& row) {
  std::string text;
  for (const Sbp& sbp : row.inputs) text += sbp.str() + " ";
  text += "->";
  for (const Sbp& sbp : row.outputs) text += " " + sbp.str();
  return text;
}

// A sample with the types and rows of its op.
struct Case {
  Drawn drawn;
  std::vector<Value> whole;
  std::vector<TensorType> types, outputs;
  std::unique_ptr<bool[]> present;
  std::vector<SbpRow> rows;

  Case(const OpDef& op, size_t sample) : drawn(draw(op, sample, {DType::kFloat64, {}, false})), whole(drawn.run()) {
    for (const Value& v : drawn.inputs) types.push_back(v.defined() ? v.type() : TensorType{});
    if (!op.variadic()) types.resize(op.inputs.size());
    present.reset(new bool[types.size() + 1]());
    for (size_t i = 0; i < drawn.inputs.size(); ++i) present[i] = drawn.inputs[i].defined();
    for (const Value& v : whole) outputs.push_back(v.type());
    rows = op.sbp(types, drawn.attrs);
  }
  WholeCall call() const { return {*drawn.op, drawn.attrs, types, {present.get(), types.size()}, outputs}; }
  std::string what(const SbpRow& row, int n) const {
    return fmt::format("{}, row {} over {} devices", drawn.label, row_str(row), n);
  }
  void expect_whole(const std::vector<Value>& got, const std::string& what) const {
    const bool half = std::any_of(types.begin(), types.end(),
                                  [](const TensorType& t) { return is_floating(t.dtype) && dtype_size(t.dtype) == 2; });
    expect_close(got, whole, half ? DType::kBFloat16 : DType::kFloat64, half ? 8 : 256, what);
  }
};

// Part `i` of what adds up to, or makes up, the value.
Value part(const Value& value, const Sbp& sbp, int n, int i) {
  if (sbp.kind == Sbp::Kind::kBroadcast) return value;
  if (sbp.kind == Sbp::Kind::kSplit) {
    const auto [start, stop] = part_of(value.shape()[sbp.axis], n, i);
    return ops::copy(ops::slice_axis(value, sbp.axis, start, stop));
  }
  const auto noisy = [&](int k) { return from_doubles(value.type(), noise(doubles_of(value.type()), 9 + k, -2, 3)); };
  if (i > 0) return noisy(i);
  Value rest = value;
  for (int k = 1; k < n; ++k) rest = ops::sub(rest, noisy(k));
  return rest;
}

class SbpTest : public OpTest {
 protected:
  GradMode off{false};
};

TEST_P(SbpTest, ShardsMakeTheWhole) {
  ASSERT_NE(op().sbp, nullptr) << op().name << " has no placement rows";
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const Case c(op(), s);
    for (const SbpRow& row : c.rows) {
      ASSERT_GE(row.inputs.size(), c.drawn.inputs.size()) << c.what(row, 2);
      ASSERT_EQ(row.outputs.size(), c.whole.size()) << c.what(row, 2);
      for (const int n : {2, 4}) {
        if (!compiler::can_split(c.call(), row, n)) continue;
        std::vector<std::vector<Value>> results;
        for (int i = 0; i < n; ++i) {
          std::vector<Value> inputs = c.drawn.inputs;
          for (size_t k = 0; k < inputs.size(); ++k)
            if (inputs[k].defined()) inputs[k] = part(inputs[k], row.inputs[k], n, i);
          results.push_back(call(op(), inputs, compiler::local_attrs(c.call(), row, n, i)));
        }
        std::vector<Value> joined;
        for (size_t o = 0; o < c.whole.size(); ++o) {
          std::vector<Value> parts;
          for (const auto& result : results) parts.push_back(result[o]);
          joined.push_back(parts[0]);
          if (row.outputs[o].kind == Sbp::Kind::kSplit) joined[o] = ops::concat(parts, row.outputs[o].axis);
          for (int i = 1; i < n; ++i) {
            if (row.outputs[o].kind == Sbp::Kind::kPartialSum) joined[o] = ops::add(joined[o], parts[i]);
            if (row.outputs[o].kind == Sbp::Kind::kBroadcast) expect_same({parts[0]}, {parts[i]}, c.what(row, n));
          }
        }
        c.expect_whole(joined, c.what(row, n));
      }
    }
  }
}

// Inputs that lie as a row wants them stay so: nothing travels but to the mesh and from it.
TEST_P(SbpTest, CompiledShardsMakeTheWhole) {
  if (op().effectful || &op() == &ops::to_global_op() || &op() == &ops::global_like_op()) return;  // make no shards
  const std::set<std::string> to_and_fro = {"scatter", "broadcast", "gather", "reduce", "fetch", "local"};
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const Case c(op(), s);
    for (const int n : {2, 4}) {
      const DeviceMesh mesh = parse_mesh(n == 2 ? "sim:0-1" : "sim:0-3");
      std::vector<SbpRow> rows;
      for (const SbpRow& row : c.rows)
        if (compiler::can_split(c.call(), row, n)) rows.push_back(row);
      TraceScope trace(eager, op().name);
      std::vector<Value> traced;
      std::vector<Tensor> given;
      for (const Value& input : c.drawn.inputs) {
        traced.emplace_back();
        if (!input.defined()) continue;
        traced.back() = trace.add_input("in" + std::to_string(traced.size()), input.type());
        given.push_back(input);
      }
      std::vector<std::pair<std::string, Value>> outputs;
      for (const SbpRow& row : rows) {
        std::vector<Value> laid = traced;
        for (size_t k = 0; k < laid.size(); ++k)
          if (laid[k].defined()) laid[k] = ops::to_global(laid[k], mesh, row.inputs[k]);
        for (const Value& v : c.drawn.run(laid)) outputs.emplace_back("out" + std::to_string(outputs.size()), v);
      }
      GraphSession session(eager, trace.finish(outputs));
      for (const Boxing& boxing : session.compiled().partition.boxings)
        EXPECT_TRUE(to_and_fro.contains(boxing.kind)) << c.drawn.label << ": " << boxing.kind << " " << boxing.from;
      const std::vector<Tensor> results = session.call(given);
      for (size_t r = 0, at = 0; r < rows.size(); ++r) {
        std::vector<Value> got;
        for (size_t o = 0; o < c.whole.size(); ++o) got.push_back(results[at++]);
        c.expect_whole(got, c.what(rows[r], n));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, SbpTest, testing::ValuesIn(all_ops()), op_name);

}  // namespace
}  // namespace sluice::test
