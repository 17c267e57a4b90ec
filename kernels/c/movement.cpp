// Elements in other places, and those made of nothing.
#include <fmt/format.h>

#include "base/error.h"
#include "kernels/c/printer.h"

namespace sluice::c {
namespace {

// A loop over an operand whose axes lie at other places of the output: axis k at `places[k]`.
void move(Lines& lines, const TensorSpec& in, const std::string& name, const TensorSpec& out,
          const std::vector<std::string>& places) {
  lines.loops("i", in.shape);
  lines.add(fmt::format("y0[{}] = {}[{}];", offset(out.strides, places), name, offset(in.strides, "i")));
  lines.close_all();
}

std::vector<std::string> same_places(int rank) {
  std::vector<std::string> places;
  for (int axis = 0; axis < rank; ++axis) places.push_back(fmt::format("i{}", axis));
  return places;
}

std::string print_concat(const plan::KernelQuery& query, Shared&) {
  const TensorSpec& y = query.outputs.at(0);
  const int dim = normalize_axis(get_attr<int64_t>(query.attrs, "dim"), y.shape.rank(), "concat");
  Lines lines;
  int64_t at = 0;
  for (size_t k = 0; k < query.inputs.size(); ++k) {
    std::vector<std::string> places = same_places(y.shape.rank());
    places[static_cast<size_t>(dim)] = fmt::format("(i{} + {})", dim, at);
    move(lines, query.inputs[k], fmt::format("x{}", k), y, places);
    at += query.inputs[k].shape[dim];
  }
  return lines.text();
}

std::string print_flip(const plan::KernelQuery& query, Shared&) {
  const TensorSpec& x = query.inputs.at(0);
  std::vector<std::string> places = same_places(x.shape.rank());
  for (const int64_t d : get_attr<Ints>(query.attrs, "dims")) {
    if (x.shape.rank() == 0) continue;
    const int axis = normalize_axis(d, x.shape.rank(), "flip");
    places[static_cast<size_t>(axis)] = fmt::format("({} - i{})", x.shape[axis] - 1, axis);
  }
  Lines lines;
  move(lines, x, "x0", query.outputs.at(0), places);
  return lines.text();
}

void fill(Lines& lines, const TensorSpec& out, const std::string& value) {
  lines.loops("i", out.shape);
  lines.add(fmt::format("y0[{}] = ({}){};", offset(out.strides, "i"), memory_type(out.dtype), value));
  lines.close_all();
}

std::string number(double value, DType dtype) {
  return dtype == DType::kBool ? (value != 0 ? "1" : "0") : literal(value, dtype);
}

std::string print_pad(const plan::KernelQuery& query, Shared&) {
  const TensorSpec &x = query.inputs.at(0), &y = query.outputs.at(0);
  const Ints &low = get_attr<Ints>(query.attrs, "low"), &interior = get_attr<Ints>(query.attrs, "interior");
  std::vector<std::string> places = same_places(x.shape.rank());
  for (size_t axis = 0; axis < places.size(); ++axis)
    places[axis] = fmt::format("(i{} * {} + {})", axis, interior.empty() ? 1 : interior[axis] + 1, low[axis]);
  Lines lines;
  fill(lines, y, number(get_attr<double>(query.attrs, "value"), y.dtype));
  move(lines, x, "x0", y, places);
  return lines.text();
}

std::string print_full(const plan::KernelQuery& query, Shared&) {
  Lines lines;
  fill(lines, query.outputs.at(0), number(get_attr<double>(query.attrs, "value"), query.outputs.at(0).dtype));
  return lines.text();
}

std::string print_iota(const plan::KernelQuery& query, Shared&) {
  const TensorSpec& y = query.outputs.at(0);
  const DType wide = is_floating(y.dtype) ? DType::kFloat64 : DType::kInt64;
  Lines lines;
  fill(lines, y,
       fmt::format("({} + ({})i0 * {})", literal(get_attr<double>(query.attrs, "start"), wide), compute_type(wide),
                   literal(get_attr<double>(query.attrs, "step"), wide)));
  return lines.text();
}

}  // namespace

void add_movement(Printers& printers) {
  printers["concat"] = {.print = print_concat};
  printers["flip"] = {.print = print_flip};
  printers["pad"] = {.print = print_pad};
  printers["full"] = {.print = print_full};
  printers["iota"] = {.print = print_iota};
}

}  // namespace sluice::c
