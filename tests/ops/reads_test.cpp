// Tests that autograd keeps of a call what the rule reads for the gradients that are wanted, and nothing else.
#include "graph/autodiff/reads.h"

#include "graph/ops/movement.h"
#include "graph/tape.h"
#include "ops/op_cases.h"

namespace sluice::test {
namespace {

class ReadsTest : public OpTest {};

OperandReads reads_with(const OpDef& op, const Drawn& drawn, const std::vector<Value>& outputs, unsigned needs) {
  const size_t n = drawn.inputs.size();
  const std::unique_ptr<bool[]> wanted(new bool[n + 1]);
  for (size_t i = 0; i < n; ++i) wanted[i] = (needs >> i & 1) != 0;
  return reads_of_rule(op, drawn.inputs, drawn.attrs, outputs, {wanted.get(), n});
}

// Inputs that a gradient may be wanted of, as bits.
unsigned floating(const Drawn& drawn) {
  unsigned bits = 0;
  for (size_t i = 0; i < drawn.inputs.size() && i < 32; ++i)
    if (drawn.inputs[i].defined() && is_floating(drawn.inputs[i].dtype())) bits |= 1u << i;
  return bits;
}

bool within(const std::vector<bool>& few, const std::vector<bool>& many) {
  for (size_t i = 0; i < few.size(); ++i)
    if (few[i] && !many[i]) return false;
  return true;
}

// backward() may want fewer gradients than may be wanted when the call is recorded.
TEST_P(ReadsTest, FewerGradientsReadNothingElse) {
  const GradMode off(false);
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const Drawn drawn = draw(op(), s);
    const std::vector<Value> outputs = drawn.run();
    const unsigned all = floating(drawn);
    const OperandReads most = reads_with(op(), drawn, outputs, all);
    for (unsigned some = all; some != 0; some = (some - 1) & all) {
      const OperandReads reads = reads_with(op(), drawn, outputs, some);
      EXPECT_TRUE(within(reads.inputs, most.inputs) && within(reads.outputs, most.outputs))
          << drawn.label << ", gradients " << some;
    }
  }
}

std::weak_ptr<Storage> memory_of(const Value& value) {
  return value.defined() ? static_cast<const EagerImpl&>(*value.impl()).storage() : nullptr;
}

TEST_P(ReadsTest, WhatIsNotReadIsFreed) {
  if (op().view) return;  // its output is its input's memory
  for (size_t s = 0; s < op().samples.size(); ++s) {
    Drawn drawn = draw(op(), s);
    for (Value& input : drawn.inputs) {
      if (!input.defined()) continue;
      if (is_floating(input.dtype())) Tensor(input).set_requires_grad(true);
      input = ops::copy(input);  // whose rule reads nothing: none but this call's keeps it
    }
    std::vector<Value> outputs = drawn.run();
    std::shared_ptr<GradNode> node;
    for (const Value& output : outputs)
      if (output.requires_grad()) node = output.impl()->autograd->grad_fn;
    if (!node) continue;
    const OperandReads reads = reads_with(op(), drawn, outputs, floating(drawn));
    std::vector<std::weak_ptr<Storage>> inputs, results;
    for (const Value& input : drawn.inputs) inputs.push_back(memory_of(input));
    for (const Value& output : outputs) results.push_back(memory_of(output));
    std::vector<bool> defined;
    for (const Value& input : drawn.inputs) defined.push_back(input.defined());
    drawn.inputs.clear();
    outputs.clear();
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_EQ(!inputs[i].expired(), defined[i] && reads.inputs[i]) << drawn.label << ", input " << i;
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_EQ(!results[i].expired(), reads.outputs[i]) << drawn.label << ", output " << i;
    node->release();
    for (const auto& memory : inputs) EXPECT_TRUE(memory.expired()) << drawn.label << ", after release()";
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, ReadsTest, testing::ValuesIn(differentiable_ops()), op_name);

class ViewOpTest : public OpTest {};

std::vector<OpParam> view_ops() {
  std::vector<OpParam> views;
  for (OpParam op : all_ops())
    if (op->view) views.push_back(op);
  return views;
}

// Writing a view's own content back changes nothing; what is written is what the view then shows.
TEST_P(ViewOpTest, IsWrittenThroughByItsDefinition) {
  ASSERT_NE(op().unview, nullptr);
  const GradMode off(false);
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const Drawn drawn = draw(op(), s);
    const Value &base = drawn.inputs[0], view = drawn.run()[0];
    const auto bytes = [](const Value& v) { return numel(v.shape()) * static_cast<int64_t>(dtype_size(v.dtype())); };
    if (bytes(view) > bytes(base)) {  // shows elements more than once
      EXPECT_THROW(op().unview(base, drawn.attrs, view), Error) << drawn.label;
      continue;
    }
    EXPECT_EQ(to_bytes(op().unview(base, drawn.attrs, view)), to_bytes(base)) << drawn.label;
    const Value other = Tensor::full(view.type(), 1);
    const Value written = op().unview(base, drawn.attrs, other);
    ASSERT_EQ(written.type(), base.type()) << drawn.label;
    EXPECT_EQ(to_bytes(drawn.run({written})[0]), to_bytes(other)) << drawn.label;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, ViewOpTest, testing::ValuesIn(view_ops()), op_name);

}  // namespace
}  // namespace sluice::test
