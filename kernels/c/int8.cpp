// int8_linear, and what it shares with int8_conv.
#include "kernels/c/int8.h"

#include <fmt/format.h>

#include "base/error.h"

namespace sluice::c {
namespace {

enum Input { kX, kWeight, kScale, kShift, kZero, kResidual, kResidualScale };

// Absent inputs have no shape; those that are given have at least one axis.
bool has(const plan::KernelQuery& query, size_t input) {
  return input < query.inputs.size() && query.inputs[input].shape.rank() > 0;
}

std::string print_linear(const plan::KernelQuery& query, Shared& shared) {
  const TensorSpec &x = query.inputs.at(kX), &w = query.inputs.at(kWeight), &y = query.outputs.at(0);
  const int last = x.shape.rank() - 1;
  Lines lines;
  add_int8_zero(lines, query);
  std::vector<std::string> from, to;
  for (int axis = 0; axis < last; ++axis) {
    lines.loop(fmt::format("i{}", axis), x.shape[axis]);
    from.push_back(fmt::format("i{}", axis));
  }
  to = from;
  from.emplace_back("k");
  to.emplace_back("c");
  lines.loop("c", w.shape[0]);
  lines.add("int32_t a = 0;");
  lines.loop("k", w.shape[1]);
  lines.add(fmt::format("a += {} * x1[{}];", int8_factor(query, offset(x.strides, from)),
                        offset(w.strides, std::vector<std::string>{"c", "k"})));
  lines.close();
  finish_int8(lines, query, shared, "c", "", offset(y.strides, to));
  lines.close_all();
  return lines.text();
}

}  // namespace

void add_int8_zero(Lines& lines, const plan::KernelQuery& query) {
  if (has(query, kZero)) lines.add("const i32 zero = x4[0];");
}

std::string int8_factor(const plan::KernelQuery& query, const std::string& place) {
  return has(query, kZero) ? fmt::format("(x0[{}] - zero)", place) : fmt::format("x0[{}]", place);
}

void finish_int8(Lines& lines, const plan::KernelQuery& query, Shared& shared, const std::string& channel,
                 const std::string& residual, const std::string& place) {
  const DType real = query.inputs.at(kScale).dtype, dtype = query.outputs.at(0).dtype;
  const char* const type = compute_type(real);
  const auto row = [&](size_t input) {
    return fmt::format("x{}[{} * {}]", input, channel, query.inputs[input].strides[0]);
  };
  lines.add(fmt::format("{0} r = ({0})a * {1};", type, row(kScale)));
  if (has(query, kShift)) lines.add(fmt::format("r = r + {};", row(kShift)));
  if (has(query, kResidual))
    lines.add(fmt::format("r = r + ({})x5[{}]{};", type, residual, has(query, kResidualScale) ? " * x6[0]" : ""));
  const auto apply = [&](const char* op) {
    lines.add(fmt::format("r = {}(r);", shared.scalar(*find_scalar_op(op), real)));
  };
  if (get_attr<std::string>(query.attrs, "activation") == "relu") apply("relu");
  if (!is_floating(dtype)) {
    apply("round");
    const bool is_signed = dtype == DType::kInt8;
    lines.add(fmt::format("r = r < {0} ? {0} : (r > {1} ? {1} : r);", is_signed ? -128 : 0, is_signed ? 127 : 255));
  }
  lines.add(fmt::format("y0[{}] = ({})r;", place, memory_type(dtype)));
}

void add_int8(Printers& printers) { printers["int8_linear"] = {.print = print_linear}; }

}  // namespace sluice::c
