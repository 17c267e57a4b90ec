// Products of matrices, and convolutions.
#include <fmt/format.h>

#include "base/error.h"
#include "kernels/c/printer.h"

namespace sluice::c {
namespace {

// Integers of up to 32 bits are summed in 32.
const char* sum_type(DType dtype) {
  return is_floating(dtype) || dtype_size(dtype) > 4 ? compute_type(dtype) : "int32_t";
}

// Integers wrap, as they do on the cpu.
std::string product_sum(DType dtype) {
  if (is_floating(dtype)) return "a += v * w;";
  return dtype_size(dtype) > 4 ? "a = (i64)((u64)a + (u64)v * (u64)w);" : "a = (int32_t)((u32)a + (u32)v * (u32)w);";
}

std::string print_matmul(const plan::KernelQuery& query, Shared&) {
  const TensorSpec &a = query.inputs.at(0), &b = query.inputs.at(1), &y = query.outputs.at(0);
  const bool ta = get_attr<bool>(query.attrs, "transpose_a"), tb = get_attr<bool>(query.attrs, "transpose_b");
  const int batch = y.shape.rank() - 2;
  // The place of an operand's element: batch axes are counted from the last one, and those of size 1 repeat.
  const auto place = [&](const TensorSpec& spec, const char* row, const char* column, bool transposed) {
    std::vector<std::string> places;
    const int own = spec.shape.rank() - 2;
    for (int axis = 0; axis < own; ++axis)
      places.push_back(spec.shape[axis] == 1 ? "" : fmt::format("i{}", axis + batch - own));
    places.emplace_back(transposed ? column : row);
    places.emplace_back(transposed ? row : column);
    return offset(spec.strides, places);
  };
  const char* const type = sum_type(y.dtype);
  Lines lines;
  for (int axis = 0; axis < batch; ++axis) lines.loop(fmt::format("i{}", axis), y.shape[axis]);
  lines.loop("r", y.shape[batch]);
  lines.loop("c", y.shape[batch + 1]);
  lines.add(fmt::format("{} a = 0;", type));
  lines.loop("k", a.shape[a.shape.rank() - (ta ? 2 : 1)]);
  lines.add(fmt::format("const {} v = x0[{}], w = x1[{}];", type, place(a, "r", "k", ta), place(b, "k", "c", tb)));
  lines.add(product_sum(y.dtype));
  lines.close();
  lines.add(fmt::format("y0[{}] = ({})a;", place(y, "r", "c", false), memory_type(y.dtype)));
  lines.close_all();
  return lines.text();
}

std::string print_conv(const plan::KernelQuery& query, Shared&) {
  const TensorSpec &x = query.inputs.at(0), &w = query.inputs.at(1), &y = query.outputs.at(0);
  const Ints &stride = get_attr<Ints>(query.attrs, "stride"), &padding = get_attr<Ints>(query.attrs, "padding"),
             &dilation = get_attr<Ints>(query.attrs, "dilation");
  const int64_t groups = get_attr<int64_t>(query.attrs, "groups"), in_group = w.shape[1];
  const bool bias = query.inputs.size() > 2 && query.inputs[2].shape.rank() == 1;
  const int dims = y.shape.rank() - 2;
  const char* const type = sum_type(y.dtype);
  Lines lines;
  lines.loop("n", y.shape[0]);
  lines.loop("g", groups);
  lines.loop("o", y.shape[1] / groups);
  lines.add(fmt::format("const ptrdiff_t c = g * {} + o;", y.shape[1] / groups));
  std::vector<std::string> out = {"n", "c"}, in = {"n", fmt::format("(g * {} + k)", in_group)}, weight = {"c", "k"};
  for (int d = 0; d < dims; ++d) {
    lines.loop(fmt::format("i{}", d), y.shape[d + 2]);
    out.push_back(fmt::format("i{}", d));
    in.push_back(fmt::format("p{}", d));
    weight.push_back(fmt::format("j{}", d));
  }
  lines.add(fmt::format("{} a = {};", type, bias ? fmt::format("x2[c * {}]", query.inputs[2].strides[0]) : "0"));
  lines.loop("k", in_group);
  for (int d = 0; d < dims; ++d) {
    const size_t at = static_cast<size_t>(d);
    lines.loop(fmt::format("j{}", d), w.shape[d + 2]);
    lines.add(
        fmt::format("const ptrdiff_t p{0} = i{0} * {1} + j{0} * {2} - {3};", d, stride[at], dilation[at], padding[at]));
    if (padding[at] > 0) lines.add(fmt::format("if (p{0} < 0 || p{0} >= {1}) continue;", d, x.shape[d + 2]));
  }
  lines.add(fmt::format("const {} v = x0[{}], w = x1[{}];", type, offset(x.strides, in), offset(w.strides, weight)));
  lines.add(product_sum(y.dtype));
  for (int d = 0; d <= dims; ++d) lines.close();
  lines.add(fmt::format("y0[{}] = ({})a;", offset(y.strides, out), memory_type(y.dtype)));
  lines.close_all();
  return lines.text();
}

}  // namespace

void add_products(Printers& printers) {
  printers["matmul"] = {.print = print_matmul};
  printers["conv"] = {.print = print_conv};
}

}  // namespace sluice::c
