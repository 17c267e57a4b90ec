// sum, mean, prod, amax, amin, any, all, argmax, argmin, cumsum.
#include "kernels/cpu/reduction/reduction.h"
#include "kernels/cuda/expressions.h"
#include "kernels/cuda/families.h"

namespace sluice::cuda {
namespace {

struct Kind {
  const char* op;
  const char* first;    // null: an element
  const char* combine;  // the op that joins values
  bool counts = false;
};
constexpr Kind kKinds[] = {
    {"sum", "0", "add"},           {"mean", "0", "add"},         {"prod", "1", "mul"},
    {"amax", nullptr, "maximum"},  {"amin", nullptr, "minimum"}, {"any", "0", "maximum", true},
    {"all", "1", "minimum", true},
};

// Offsets of outputs and of the elements of one, as functions; and which way memory runs.
bool add_axes(Writer& writer, const cpu::ReductionAxes& axes, const cpu::LoopNest& reduced) {
  using Axes = cpu::ReductionAxes;
  writer.add(index_function("from", axes.kept, Axes::kIn) + index_function("to", axes.kept, Axes::kOut) +
             index_function("inside_at", reduced, 0));
  return axes.kept.inner_stride(Axes::kIn) == 1 && axes.kept.inner() > 1 && reduced.inner_stride(0) != 1;
}

Generated reduction(const plan::KernelQuery& query) {
  const Kind* kind = kKinds;
  while (query.op != kind->op) ++kind;
  const cpu::ReductionAxes axes = cpu::reduction_axes(query);
  Writer writer(query);
  writer.compute(query.inputs[0].dtype);
  const bool by_column = add_axes(writer, axes, axes.reduced);
  const std::string join = expression_text(*find_scalar_op(kind->combine), query.inputs[0].dtype);
  writer.add(functions_for(join) + "typedef C T;\nstruct A { C v; };\n__device__ inline C joined(C a, C b) { return " +
             join + "; }\n__device__ inline A join(A a, A b) { return A{joined(a.v, b.v)}; }\n");
  const std::string element = "load(in0[from(o) + inside_at(i)])";
  const std::string result = query.op == "mean" ? fmt::format("total.v / (C){}", axes.reduced.size()) : "total.v";
  Generated generated;
  reduce(writer,
         {.outputs = axes.kept.size(),
          .length = axes.reduced.size(),
          .by_column = by_column,
          .first = kind->first == nullptr ? "" : fmt::format("A{{{}}}", kind->first),
          .take = fmt::format("A{{(C)({}{})}}", element, kind->counts ? " != 0" : ""),
          .finish = fmt::format("    store(out0 + to(o), {});\n", result)},
         generated);
  return generated;
}

// The first NaN wins, else the first of the extreme ones.
Generated arg_extremum(const plan::KernelQuery& query) {
  const cpu::ReductionAxes axes = cpu::reduction_axes(query);
  Writer writer(query);
  writer.compute(query.inputs[0].dtype);
  const bool by_column = add_axes(writer, axes, axes.reduced_in_order);
  writer.add(fmt::format(R"(struct A {{ C v; i64 at; }};
__device__ inline A join(A a, A b) {{
  const bool tie = a.v == b.v || (a.v != a.v && b.v != b.v);
  if (tie) return a.at < b.at ? a : b;
  return a.v != a.v || (b.v == b.v && a.v {} b.v) ? a : b;
}}
)",
                         query.op == "argmax" ? ">" : "<"));
  Generated generated;
  reduce(writer,
         {.outputs = axes.kept.size(),
          .length = axes.reduced.size(),
          .by_column = by_column,
          .take = "A{(C)load(in0[from(o) + inside_at(i)]), (i64)(i)}",
          .finish = "    store(out0 + to(o), total.at);\n",
          .size = 16},
         generated);
  return generated;
}

// A team goes along a line; a thread alone where lines are short, or many that lie next to each other. Sums are made in
// double, as on the cpu.
Generated cumsum(const plan::KernelQuery& query) {
  const TensorSpec &in = query.inputs[0], &out = query.outputs[0];
  const int dim = normalize_axis(get_attr<int64_t>(query.attrs, "dim"), in.shape.rank(), "cumsum");
  Shape lines = in.shape;
  if (in.shape.rank() > 0) lines[dim] = std::min<int64_t>(lines[dim], 1);
  const int64_t length = in.shape.rank() > 0 ? in.shape[dim] : 1, step = in.shape.rank() > 0 ? in.strides[dim] : 0;
  Writer writer(query);
  writer.compute(in.dtype);
  writer.add(fmt::format("typedef {} Total;\n", is_floating(in.dtype) ? "double" : "i64"));
  writer.add(index_function("from", lines, in.strides) + index_function("to", lines, out.strides));
  writer.constant("kFromStep", step);
  writer.constant("kToStep", in.shape.rank() > 0 ? out.strides[dim] : 0);
  constexpr int64_t kEnoughLines = 1 << 14;
  if (length < 32 || (step != 1 && numel(lines) >= kEnoughLines)) {
    writer.constant("kLength", length);
    return {{writer.each("", numel(lines), R"(    Total total = 0;
    for (Index k = 0; k < kLength; ++k) {
      total += (Total)load(in0[from(i) + k * kFromStep]);
      store(out0 + to(i) + k * kToStep, (C)total);
    }
)")}};
  }
  writer.add("struct A { Total v; };\n__device__ inline A join(A a, A b) { return A{a.v + b.v}; }\n");
  return {{scan(writer, {.lines = numel(lines),
                         .length = length,
                         .first = "A{0}",
                         .take = "A{(Total)load(in0[from(unit) + (i) * kFromStep])}",
                         .put = "      store(out0 + to(unit) + i * kToStep, (C)total.v);\n"})}};
}

}  // namespace

void add_reduction_kernels(KernelTable& table) {
  for (const Kind& kind : kKinds) add_generated(table, kind.op, reduction);
  add_generated(table, "argmax", arg_extremum);
  add_generated(table, "argmin", arg_extremum);
  add_generated(table, "cumsum", cumsum);
}

}  // namespace sluice::cuda
