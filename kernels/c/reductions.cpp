// Reductions over any axes.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/c/steps.h"

namespace sluice::c {
namespace {

// Which axes are reduced, which are kept, and where the result of a place of the kept ones lies.
struct Axes {
  std::vector<int> reduced, kept;
  std::string out;
};

Axes axes_of(const plan::KernelQuery& query) {
  const Shape& shape = query.inputs.at(0).shape;
  Axes axes;
  std::vector<int64_t> dims;
  for (const auto& [name, attr] : query.attrs) {
    if (name != "dim") continue;
    if (const auto* list = std::get_if<Ints>(&attr)) dims = *list;
    if (const auto* one = std::get_if<int64_t>(&attr)) dims = {*one};
  }
  std::vector<bool> reduced(static_cast<size_t>(shape.rank()), dims.empty());
  for (const int64_t dim : dims)
    if (shape.rank() > 0) reduced[static_cast<size_t>(normalize_axis(dim, shape.rank(), query.op.c_str()))] = true;
  const bool keepdim = get_attr<bool>(query.attrs, "keepdim");
  std::vector<std::string> places;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool gone = reduced[static_cast<size_t>(axis)];
    (gone ? axes.reduced : axes.kept).push_back(axis);
    if (!gone)
      places.push_back(fmt::format("i{}", axis));
    else if (keepdim)
      places.emplace_back();
  }
  axes.out = offset(query.outputs.at(0).strides, places);
  return axes;
}

}  // namespace

Fold fold_of(const std::string& op, DType dtype, Shared& shared) {
  const bool floating = is_floating(dtype);
  if (op == "sum" || op == "mean") return {"0", "a + v"};
  if (op == "prod") return {"1", floating ? "a * v" : "(i64)((u64)a * (u64)v)"};
  if (op == "any") return {"0", "a | (v != 0)"};
  if (op == "all") return {"1", "a & (v != 0)"};
  const bool largest = op == "amax";
  const ScalarOp* const extremum = find_scalar_op(largest ? "maximum" : "minimum");
  const std::string end = floating ? "INFINITY" : largest ? "INT64_MIN" : "INT64_MAX";
  return {floating && largest ? "-INFINITY" : end, shared.scalar(*extremum, dtype) + "(a, v)"};
}

namespace {

// A sum of floats is one of the sums along its last axis, which keeps long ones near to what is right.
std::string print_reduce(const plan::KernelQuery& query, Shared& shared) {
  const TensorSpec& in = query.inputs.at(0);
  const Axes axes = axes_of(query);
  const Fold fold = fold_of(query.op, in.dtype, shared);
  const char* const type = query.op == "any" || query.op == "all" ? "i64" : compute_type(in.dtype);
  Lines lines;
  lines.loops("i", in.shape, axes.kept);
  lines.add(fmt::format("{} a = {};", type, fold.begin));
  const bool parts = query.op == "sum" && axes.reduced.size() > 1;
  const std::vector<int> outer(axes.reduced.begin(), axes.reduced.end() - (axes.reduced.empty() ? 0 : 1));
  lines.loops("i", in.shape, outer);
  if (parts) lines.add(fmt::format("{0} whole = a; a = 0;", type));
  if (!axes.reduced.empty()) lines.loops("i", in.shape, {axes.reduced.back()});
  lines.add(fmt::format("const {} v = x0[{}];", compute_type(in.dtype), offset(in.strides, "i")));
  lines.add(fmt::format("a = {};", fold.next));
  if (!axes.reduced.empty()) lines.close();
  if (parts) lines.add("a += whole;");
  for (size_t k = 0; k < outer.size(); ++k) lines.close();
  lines.add(fmt::format("y0[{}] = ({})a;", axes.out, memory_type(query.outputs[0].dtype)));
  lines.close_all();
  return lines.text();
}

// The first place of the extremum; NaN is beyond every number.
std::string print_place(const plan::KernelQuery& query, Shared&) {
  const TensorSpec& in = query.inputs.at(0);
  const Axes axes = axes_of(query);
  const char* const type = compute_type(in.dtype);
  Lines lines;
  lines.loops("i", in.shape, axes.kept);
  lines.add("i64 place = 0, at = 0;");
  lines.add(fmt::format("{} a = 0;", type));
  lines.loops("i", in.shape, axes.reduced);
  lines.add(fmt::format("const {} v = x0[{}];", type, offset(in.strides, "i")));
  const char* const beyond = query.op == "argmax" ? "v > a" : "v < a";
  const std::string better = is_floating(in.dtype) ? fmt::format("(a == a && (v != v || {}))", beyond) : beyond;
  lines.add(fmt::format("if (at == 0 || {}) {{ a = v; place = at; }}", better));
  lines.add("++at;");
  for (size_t k = 0; k < axes.reduced.size(); ++k) lines.close();
  lines.add(fmt::format("y0[{}] = place;", axes.out));
  lines.close_all();
  return lines.text();
}

std::string print_running_sum(const plan::KernelQuery& query, Shared&) {
  const TensorSpec &in = query.inputs.at(0), &out = query.outputs.at(0);
  const int rank = in.shape.rank();
  const int axis = rank == 0 ? 0 : normalize_axis(get_attr<int64_t>(query.attrs, "dim"), rank, "cumsum");
  const char* const type = compute_type(out.dtype);
  Lines lines;
  for (int other = 0; other < rank; ++other)
    if (other != axis) lines.loops("i", in.shape, {other});
  lines.add(fmt::format("{} a = 0;", type));
  if (rank > 0) lines.loops("i", in.shape, {axis});
  lines.add(fmt::format("a += x0[{}];", offset(in.strides, "i")));
  lines.add(fmt::format("y0[{}] = ({})a;", offset(out.strides, "i"), memory_type(out.dtype)));
  lines.close_all();
  return lines.text();
}

}  // namespace

void add_reductions(Printers& printers) {
  for (const char* op : {"sum", "prod", "amax", "amin"}) printers[op] = {.print = print_reduce, .fuses = true};
  for (const char* op : {"any", "all"}) printers[op] = {.print = print_reduce};
  printers["cumsum"] = {.print = print_running_sum};
  for (const char* op : {"argmax", "argmin"}) printers[op] = {.print = print_place};
}

}  // namespace sluice::c
