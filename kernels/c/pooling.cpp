// Pooling over windows of 1 to 3 spatial axes.
#include <fmt/format.h>

#include "base/error.h"
#include "kernels/c/printer.h"

namespace sluice::c {
namespace {

struct Windows {
  Ints size, stride, padding, dilation;
};

Windows windows_of(const plan::KernelQuery& query) {
  Windows windows{get_attr<Ints>(query.attrs, "kernel_size"),
                  get_attr<Ints>(query.attrs, "stride"),
                  get_attr<Ints>(query.attrs, "padding"),
                  {}};
  windows.dilation.assign(windows.size.size(), 1);
  for (const auto& [name, attr] : query.attrs)
    if (name == "dilation") windows.dilation = std::get<Ints>(attr);
  return windows;
}

std::vector<std::string> names(const char* name, int dims) {
  std::vector<std::string> places = {"n", "c"};
  for (int d = 0; d < dims; ++d) places.push_back(fmt::format("{}{}", name, d));
  return places;
}

// Loops over what a window has inside the input. `pN` is a place in it.
void inside(Lines& lines, const Windows& windows, const Shape& x) {
  for (int d = 0; d < x.rank() - 2; ++d) {
    const size_t at = static_cast<size_t>(d);
    lines.loop(fmt::format("j{}", d), windows.size[at]);
    lines.add(fmt::format("const ptrdiff_t p{0} = i{0} * {1} + j{0} * {2} - {3};", d, windows.stride[at],
                          windows.dilation[at], windows.padding[at]));
    lines.add(fmt::format("if (p{0} < 0 || p{0} >= {1}) continue;", d, x[d + 2]));
  }
}

void outputs(Lines& lines, const Shape& y) {
  lines.loop("n", y[0]);
  lines.loop("c", y[1]);
  for (int d = 0; d < y.rank() - 2; ++d) lines.loop(fmt::format("i{}", d), y[d + 2]);
}

std::string print_max(const plan::KernelQuery& query, Shared&) {
  const TensorSpec &x = query.inputs.at(0), &y = query.outputs.at(0);
  const int dims = x.shape.rank() - 2;
  const char* const type = compute_type(x.dtype);
  Lines lines;
  outputs(lines, y.shape);
  lines.add(fmt::format("{} a = 0;", type));
  lines.add("i64 place = -1;");
  inside(lines, windows_of(query), x.shape);
  lines.add(fmt::format("const {} v = x0[{}];", type, offset(x.strides, names("p", dims))));
  std::string flat = "p0";
  for (int d = 1; d < dims; ++d) flat = fmt::format("({}) * {} + p{}", flat, x.shape[d + 2], d);
  lines.add(fmt::format("if (place < 0 || v > a{}) {{ a = v; place = {}; }}", is_floating(x.dtype) ? " || v != v" : "",
                        flat));
  for (int d = 0; d < dims; ++d) lines.close();
  lines.add(fmt::format("y0[{}] = ({})a;", offset(y.strides, names("i", dims)), memory_type(y.dtype)));
  if (query.outputs.size() > 1)
    lines.add(fmt::format("y1[{}] = place;", offset(query.outputs[1].strides, names("i", dims))));
  lines.close_all();
  return lines.text();
}

// `count`: how many elements a window has, those inside, or, with padding, those up to the padding's end.
void count(Lines& lines, const plan::KernelQuery& query, const Shape& x) {
  const Windows windows = windows_of(query);
  const int64_t divisor = get_attr<int64_t>(query.attrs, "divisor_override");
  if (divisor != 0) return lines.add(fmt::format("const i64 count = {};", divisor));
  const bool padded = get_attr<bool>(query.attrs, "count_include_pad");
  std::string product = "1";
  for (int d = 0; d < x.rank() - 2; ++d) {
    const size_t at = static_cast<size_t>(d);
    const int64_t size = windows.size[at], end = padded ? x[d + 2] + windows.padding[at] : x[d + 2];
    lines.add(fmt::format("const i64 from{0} = i{0} * {1} - {2}, to{0} = from{0} + {3} < {4} ? from{0} + {3} : {4};", d,
                          windows.stride[at], windows.padding[at], size, end));
    product +=
        padded ? fmt::format(" * (to{0} - from{0})", d) : fmt::format(" * (to{0} - (from{0} > 0 ? from{0} : 0))", d);
  }
  lines.add(fmt::format("const i64 count = {};", product));
}

std::string print_mean(const plan::KernelQuery& query, Shared&) {
  const TensorSpec &x = query.inputs.at(0), &y = query.outputs.at(0);
  const int dims = x.shape.rank() - 2;
  const char* const type = compute_type(x.dtype);
  Lines lines;
  outputs(lines, y.shape);
  count(lines, query, x.shape);
  lines.add(fmt::format("{} a = 0;", type));
  inside(lines, windows_of(query), x.shape);
  lines.add(fmt::format("a += x0[{}];", offset(x.strides, names("p", dims))));
  for (int d = 0; d < dims; ++d) lines.close();
  lines.add(fmt::format("y0[{}] = a / ({})count;", offset(y.strides, names("i", dims)), type));
  lines.close_all();
  return lines.text();
}

// The gradient of each window is spread over what it has inside.
std::string print_mean_backward(const plan::KernelQuery& query, Shared&) {
  const TensorSpec &g = query.inputs.at(0), &x = query.outputs.at(0);
  const int dims = x.shape.rank() - 2;
  const char* const type = compute_type(x.dtype);
  Lines lines;
  lines.loops("i", x.shape);
  lines.add(fmt::format("y0[{}] = 0;", offset(x.strides, "i")));
  lines.close_all();
  outputs(lines, g.shape);
  count(lines, query, x.shape);
  lines.add(fmt::format("const {0} v = x0[{1}] / ({0})count;", type, offset(g.strides, names("i", dims))));
  inside(lines, windows_of(query), x.shape);
  lines.add(fmt::format("y0[{}] += v;", offset(x.strides, names("p", dims))));
  lines.close_all();
  return lines.text();
}

}  // namespace

void add_pooling(Printers& printers) {
  printers["max_pool"] = {.print = print_max};
  printers["max_pool_values"] = {.print = print_max};
  printers["avg_pool"] = {.print = print_mean};
  printers["avg_pool_backward"] = {.print = print_mean_backward};
}

}  // namespace sluice::c
