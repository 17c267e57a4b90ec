// Products of matrices.
#include <fmt/format.h>

#include "base/error.h"
#include "kernels/c/steps.h"

namespace sluice::c {

const char* sum_type(DType dtype) {
  return is_floating(dtype) || dtype_size(dtype) > 4 ? compute_type(dtype) : "int32_t";
}

std::string product_sum(DType dtype) {
  if (is_floating(dtype)) return "a += v * w;";
  return dtype_size(dtype) > 4 ? "a = (i64)((u64)a + (u64)v * (u64)w);" : "a = (int32_t)((u32)a + (u32)v * (u32)w);";
}

namespace {

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

}  // namespace

void add_products(Printers& printers) { printers["matmul"] = {.print = print_matmul}; }

}  // namespace sluice::c
