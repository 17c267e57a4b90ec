// Elementwise ops, alone and fused: the expressions of base/scalar in loops over all elements.
#include <fmt/format.h>

#include "base/error.h"
#include "kernels/c/steps.h"
#include "kernels/cpu/strides/strided.h"

namespace sluice::c {
namespace {

constexpr int kMostOperands = kMostFusedInputs + kMostFusedOutputs;
using Nest = cpu::LoopNestOf<kMostOperands>;

void check_operands(const std::string& op, size_t operands, size_t wanted) {
  SLUICE_CHECK(operands == wanted, "{}: {} operands; needs {}", op, operands, wanted);
}

std::string cast_text(const std::string& value, DType from, DType to) {
  if (to == DType::kBool) return value + " != 0";
  // A float goes through int64, as an integer that does not fit wraps.
  if (is_floating(from) && !is_floating(to)) return fmt::format("(i64){}", value);
  return fmt::format("({}){}", compute_type(to), value);
}

}  // namespace

Step step(const std::string& op, const NamedAttrs& attrs, const std::vector<std::string>& values,
          const std::vector<DType>& dtypes, Shared& shared) {
  if (op == "copy" || op == "reorder") return {values.at(0), "", 0, dtypes.at(0)};
  if (op == "cast") {
    check_operands(op, values.size(), 1);
    const DType to = get_attr<DType>(attrs, "dtype");
    return {cast_text(values[0], dtypes[0], to), "", 0, to};
  }
  if (op == "where") {
    check_operands(op, values.size(), 3);
    return {fmt::format("{} ? {} : {}", values[0], values[1], values[2]), "", 0, dtypes[1]};
  }
  const ScalarOp* const scalar = find_scalar_op(op, attrs);
  SLUICE_CHECK_KIND(kUnsupported, scalar != nullptr, "{}: no form in C", op);
  check_operands(op, values.size(), static_cast<size_t>(scalar->inputs));
  const std::string operands = scalar->inputs == 2 ? values[0] + ", " + values[1] : values[0];
  const auto [bad, error] = shared.bad(*scalar, dtypes[0]);
  return {fmt::format("{}({})", shared.scalar(*scalar, dtypes[0]), operands),
          bad.empty() ? "" : fmt::format("{}({})", bad, operands), error,
          scalar->gives_bool ? DType::kBool : dtypes[0]};
}

Step rounded_step(const AttrCall& call, const std::vector<DType>& dtypes, Shared& shared) {
  std::vector<std::string> values;
  std::vector<DType> of;
  for (const int operand : call.operands) {
    values.push_back(fmt::format("v{}", operand));
    of.push_back(dtypes.at(static_cast<size_t>(operand)));
  }
  Step made = step(call.op, call.attrs, values, of, shared);
  made.value = fmt::format("({})({})", memory_type(made.dtype), made.value);
  return made;
}

std::string define(Lines& lines, size_t number, const Step& made) {
  if (!made.bad.empty()) lines.add(fmt::format("if ({}) return {};", made.bad, made.error));
  lines.add(fmt::format("const {} v{} = {};", compute_type(made.dtype), number, made.value));
  return fmt::format("v{}", number);
}

namespace {

std::string place(const Nest& nest, int operand) {
  Strides strides;
  std::vector<std::string> names;
  for (int axis = 0; axis < nest.outer_rank(); ++axis) {
    strides.push_back(nest.outer_stride(operand, axis));
    names.push_back(fmt::format("c{}", axis));
  }
  strides.push_back(nest.inner_stride(operand));
  names.emplace_back("c");
  return offset(strides, names);
}

// Loops over all elements. `body` is given the lines, in which the inputs of an element are v0, v1, ...
template <class Body>
std::string element_loops(const plan::KernelQuery& query, const Body& body) {
  std::vector<Strides> strides;
  for (const TensorSpec& in : query.inputs) strides.push_back(cpu::broadcast_strides(in, query.outputs.at(0).shape));
  for (const TensorSpec& out : query.outputs) strides.push_back(out.strides);
  SLUICE_CHECK_KIND(kUnsupported, strides.size() <= kMostOperands, "{}: {} operands; C has it for at most {}", query.op,
                    strides.size(), kMostOperands);
  // The operand that comes last says which order is walked.
  const Nest nest(query.outputs[0].shape, strides);
  Lines lines;
  if (nest.size() == 0) return "";
  for (int axis = 0; axis < nest.outer_rank(); ++axis) lines.loop(fmt::format("c{}", axis), nest.outer_dim(axis));
  lines.loop("c", nest.inner());
  for (size_t k = 0; k < query.inputs.size(); ++k)
    lines.add(fmt::format("const {} v{} = x{}[{}];", compute_type(query.inputs[k].dtype), k, k,
                          place(nest, static_cast<int>(k))));
  const std::vector<std::string> results = body(lines);
  for (size_t k = 0; k < query.outputs.size(); ++k)
    lines.add(fmt::format("y{}[{}] = ({}){};", k, place(nest, static_cast<int>(query.inputs.size() + k)),
                          memory_type(query.outputs[k].dtype), results.at(k)));
  lines.close_all();
  return lines.text();
}

std::string print_one(const plan::KernelQuery& query, Shared& shared) {
  std::vector<std::string> values;
  std::vector<DType> dtypes;
  for (const TensorSpec& in : query.inputs) {
    values.push_back(fmt::format("v{}", values.size()));
    dtypes.push_back(in.dtype);
  }
  return element_loops(query, [&](Lines& lines) -> std::vector<std::string> {
    return {define(lines, values.size(), step(query.op, query.attrs, values, dtypes, shared))};
  });
}

std::string print_fused(const plan::KernelQuery& query, Shared& shared) {
  const AttrGraph& steps = get_attr<AttrGraph>(query.attrs, "body");
  check_attr_graph(steps, query.inputs.size(), query.outputs.size());
  return element_loops(query, [&](Lines& lines) {
    std::vector<DType> dtypes;
    for (const TensorSpec& in : query.inputs) dtypes.push_back(in.dtype);
    for (const AttrCall& call : steps.calls) {
      const Step made = rounded_step(call, dtypes, shared);
      define(lines, dtypes.size(), made);
      dtypes.push_back(made.dtype);
    }
    std::vector<std::string> results;
    for (const int output : steps.outputs) results.push_back(fmt::format("v{}", output));
    return results;
  });
}

}  // namespace

void add_elementwise(Printers& printers) {
  for (const ScalarOp& op : scalar_ops())
    printers[op.name] = {.print = print_one, .in_place = {{0, 0}, {0, 1}}, .fuses = true};
  printers["cast"] = {.print = print_one, .fuses = true};
  printers["where"] = {.print = print_one, .in_place = {{0, 1}, {0, 2}}, .fuses = true};
  printers["copy"] = {.print = print_one};
  printers["reorder"] = {.print = print_one};
  Printer fused{.print = print_fused};
  for (int input = 0; input < kMostFusedInputs; ++input) fused.in_place.push_back({0, input});
  printers["fused"] = fused;
}

}  // namespace sluice::c
