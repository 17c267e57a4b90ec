#include "graph/nested.h"

#include <memory>

#include "graph/executor.h"
#include "plan/loop_program.h"
#include "plan/query.h"

namespace sluice {
namespace {

// The values that calls read, by their operands' numbers.
struct Operands {
  std::vector<TensorType> types;
  std::unique_ptr<bool[]> present;
};

Operands operands_of(const AttrCall& call, const OpDef& op, std::span<const TensorType> values) {
  check_input_count(op, call.operands.size());
  Operands operands;
  operands.types.resize(op.variadic() ? call.operands.size() : op.inputs.size());
  operands.present = std::make_unique<bool[]>(operands.types.size() + 1);
  for (size_t i = 0; i < call.operands.size(); ++i) {
    operands.present[i] = call.operands[i] != kNoOperand;
    if (operands.present[i]) operands.types[i] = values[static_cast<size_t>(call.operands[i])];
  }
  return operands;
}

// Memory of values, as far as windows look into it: bytes; none of windows.
void check_window(const AttrCall& call, const std::vector<uint64_t>& memory) {
  SLUICE_CHECK(call.operands.size() == 1 && call.results.size() == 1 && call.operands[0] != kNoOperand,
               "window: {} operands and {} results; has one of each", call.operands.size(), call.results.size());
  const int64_t offset = get_attr<int64_t>(call.attrs, "offset");
  const TensorSpec& spec = call.results[0];
  const size_t of = static_cast<size_t>(call.operands[0]);
  for (const int64_t stride : spec.strides)
    SLUICE_CHECK(stride >= 0, "window: strides {}; must not be negative", spec.strides.str());
  const int64_t item = static_cast<int64_t>(dtype_size(spec.dtype));
  SLUICE_CHECK(offset >= 0 && offset % item == 0, "window: offset {}; must be a multiple of its items' {} bytes",
               offset, item);
  SLUICE_CHECK(checked_add(static_cast<uint64_t>(offset), spec.extent_bytes()) <= memory[of] || numel(spec.shape) == 0,
               "window: ends {} bytes after the offset {}; its operand has {} bytes", spec.extent_bytes(), offset,
               memory[of]);
}

void check_results(const AttrCall& call, const OpDef& op, std::span<const TensorType> types) {
  SLUICE_CHECK(static_cast<int>(types.size()) == call.num_results(), "{}: gives {} values; the graph takes {}", op.name,
               types.size(), call.num_results());
  for (size_t i = 0; i < call.results.size(); ++i) {
    const TensorSpec& said = call.results[i];
    const TensorType type{said.dtype, said.shape};
    SLUICE_CHECK(type == types[i], "{}: result {} is said to be {}; it is {}", op.name, i, type.str(), types[i].str());
    SLUICE_CHECK(is_dense(said.shape, said.strides), "{}: result {} has strides {}; they must leave no gaps", op.name,
                 i, said.strides.str());
  }
}

}  // namespace

std::vector<TensorType> infer_nested(const AttrGraph& graph, Types inputs) {
  std::vector<TensorType> values(inputs.begin(), inputs.end());
  std::vector<uint64_t> memory;
  for (const TensorType& input : inputs) memory.push_back(checked_bytes(input.shape, dtype_size(input.dtype)));
  for (const AttrCall& call : graph.calls) {
    for (const TensorSpec& result : call.results)
      SLUICE_CHECK(result.strides.rank() == result.shape.rank(),
                   "{}: a result of shape {} has strides {}; one per axis", call.op, result.shape.str(),
                   result.strides.str());
    if (call.op == plan::kWindow) {
      check_window(call, memory);
      values.push_back({call.results[0].dtype, call.results[0].shape});
      memory.push_back(0);
      continue;
    }
    const OpDef& op = builtin_ops().get(call.op);
    const Operands in = operands_of(call, op, values);
    const std::vector<TensorType> out =
        infer_types(op, in.types, std::span(in.present.get(), in.types.size()), attrs_of_kernel(op, call.attrs));
    check_results(call, op, out);
    for (const TensorType& type : out) {
      values.push_back(type);
      memory.push_back(checked_bytes(type.shape, dtype_size(type.dtype)));
    }
  }
  return values;
}

std::vector<TensorType> output_types(const AttrGraph& graph, Types values) {
  std::vector<TensorType> types;
  for (const int output : graph.outputs) types.push_back(values[static_cast<size_t>(output)]);
  return types;
}

std::vector<Value> call_nested(const AttrGraph& graph, std::span<const Value> inputs) {
  std::vector<Value> values(inputs.begin(), inputs.end()), outputs;
  for (const AttrCall& nested : graph.calls) {
    const OpDef& op = builtin_ops().get(nested.op);
    std::vector<Value> operands;
    for (const int i : nested.operands) operands.push_back(i == kNoOperand ? Value() : values[static_cast<size_t>(i)]);
    for (Value& made : call(op, operands, order_attrs(op, nested.attrs))) values.push_back(std::move(made));
  }
  for (const int output : graph.outputs) outputs.push_back(values[static_cast<size_t>(output)]);
  return outputs;
}

Cost cost_of_nested(const AttrGraph& graph, Types values) {
  Cost sum;
  size_t next = static_cast<size_t>(graph.inputs);
  for (const AttrCall& call : graph.calls) {
    const Types out = values.subspan(next, static_cast<size_t>(call.num_results()));
    next += out.size();
    if (call.op == plan::kWindow) continue;
    const OpDef& op = builtin_ops().get(call.op);
    const Cost cost = cost_of(op, operands_of(call, op, values).types, out, attrs_of_kernel(op, call.attrs));
    sum.flops += cost.flops;
    sum.bytes += cost.bytes;
  }
  return sum;
}

Attrs attrs_of_kernel(const OpDef& op, NamedAttrs attrs) {
  const bool precision = op.precision != OpDef::Precision::kNone;
  std::erase_if(attrs, [&](const auto& attr) {
    return attr.first == plan::kWorkspaceLimit || attr.first == plan::kImplementation ||
           attr.first == plan::kDeterministic || (precision && attr.first == plan::kPrecision);
  });
  return order_attrs(op, attrs);
}

}  // namespace sluice
