// Chains of elementwise ops as one kernel. Every step's result is rounded as if it were stored, so that a chain gives
// the bits of its ops one by one.
#include "kernels/cuda/expressions.h"
#include "kernels/cuda/families.h"
#include "kernels/cuda/steps.h"

namespace sluice::cuda {

const char* const kRounding = R"(template <class D, class V> __device__ inline auto rounded(V v) {
  D stored;
  store(&stored, v);
  return load(stored);
}
)";

StepText text_of(const AttrCall& step, size_t number, const std::vector<DType>& dtypes) {
  const auto value = [&](size_t operand) { return fmt::format("v{}", step.operands[operand]); };
  const auto dtype_of = [&](size_t operand) { return dtypes[static_cast<size_t>(step.operands[operand])]; };
  const DType dtype = dtype_of(0);
  const size_t wanted = step.op == "cast" ? 1 : step.op == "where" ? 3 : step.operands.size();
  SLUICE_CHECK(step.operands.size() == wanted, "fused: step {} of {} operands; must have {}", step.op,
               step.operands.size(), wanted);
  if (step.op == "cast") {
    const DType to = get_attr<DType>(step.attrs, "dtype");
    return {"", to == DType::kBool ? value(0) + " != 0" : fmt::format("({}){}", compute_type(dtype), value(0)), to};
  }
  if (step.op == "where") return {"", fmt::format("{} ? {} : {}", value(0), value(1), value(2)), dtype_of(1)};
  const ScalarOp* op = find_scalar_op(step.op, step.attrs);
  const char* text = op == nullptr ? nullptr : expression_text(*op, dtype);
  SLUICE_CHECK_KIND(kUnsupported, text != nullptr && static_cast<size_t>(op->inputs) == step.operands.size(),
                    "fused: step {} of {} operands of {}: has no cuda form; run the steps one by one", step.op,
                    step.operands.size(), dtype_name(dtype));
  const bool two = op->inputs == 2;
  return {fmt::format("struct Step{} {{\n  typedef {} T;\n  typedef {} R;\n"
                      "  static __device__ inline R f(T a{}) {{ return {}; }}\n}};\n",
                      number, compute_type(dtype), op->gives_bool ? "bool" : "T", two ? ", T b" : "", text),
          fmt::format("Step{}::f({}{})", number, value(0), two ? ", " + value(1) : ""),
          op->gives_bool ? DType::kBool : dtype};
}

std::string definition(const StepText& step, size_t number) {
  return fmt::format("const {} v{} = rounded<{}>({});", compute_type(step.dtype), number, c_type(step.dtype),
                     step.call);
}

namespace {

Generated fused(const plan::KernelQuery& query) {
  LoopBody body;
  std::string functions;
  std::vector<DType> dtypes;
  for (size_t k = 0; k < query.inputs.size(); ++k) {
    dtypes.push_back(query.inputs[k].dtype);
    body.input_types.emplace_back(c_type(dtypes[k]));
    body.before += fmt::format("    const {} v{} = x{};\n", compute_type(dtypes[k]), k, k);
  }
  const AttrGraph& steps = get_attr<AttrGraph>(query.attrs, "body");
  check_attr_graph(steps, query.inputs.size(), 1);
  for (const AttrCall& step : steps.calls) {
    const StepText text = text_of(step, dtypes.size(), dtypes);
    functions += text.function;
    body.before += "    " + definition(text, dtypes.size()) + "\n";
    dtypes.push_back(text.dtype);
  }
  body.functions = functions_for(functions) + kRounding + functions;
  const DType result = dtypes[static_cast<size_t>(steps.outputs[0])];
  SLUICE_CHECK(result == query.outputs[0].dtype, "fused: body gives {}; its output is of {}", dtype_name(result),
               dtype_name(query.outputs[0].dtype));
  body.output_type = c_type(result);
  body.value = fmt::format("v{}", steps.outputs[0]);
  return {{loop_source(query, body)}};
}

}  // namespace

void add_fused_kernel(KernelTable& table) {
  KernelDef def;
  def.op = "fused";
  set_generated(def, fused);
  def.layouts = [](const plan::KernelQuery& query) {
    return plan::LayoutPreference{std::vector(query.inputs.size(), plan::Layout::kAny), {plan::Layout::kAny}};
  };
  for (int input = 0; input < kMostFusedInputs; ++input) def.in_place.push_back({0, input});
  table.add(DeviceKind::kCuda, std::move(def));
}

}  // namespace sluice::cuda
