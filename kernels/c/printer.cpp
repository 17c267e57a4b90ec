#include "kernels/c/printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"

namespace sluice::c {

const char* memory_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8: return "u8";
    case DType::kInt8: return "i8";
    case DType::kInt16: return "i16";
    case DType::kInt32: return "i32";
    case DType::kInt64: return "i64";
    case DType::kFloat32: return "f32";
    case DType::kFloat64: return "f64";
    default: break;
  }
  fail(ErrorKind::kUnsupported, "{}: no form in C; cast it to float32 first", dtype_name(dtype));
}

const char* compute_type(DType dtype) {
  memory_type(dtype);
  return dtype == DType::kFloat32 ? "float" : dtype == DType::kFloat64 ? "double" : "int64_t";
}

std::string literal(double value, DType dtype) {
  const bool single = dtype == DType::kFloat32;
  if (!is_floating(dtype)) return fmt::format("{}", static_cast<int64_t>(value));
  if (std::isnan(value)) return "NAN";
  if (std::isinf(value)) return value < 0 ? "-INFINITY" : "INFINITY";
  return fmt::format("{:a}{}", value, single ? "f" : "");
}

void Lines::add(const std::string& line) { text_ += std::string(static_cast<size_t>(2 * depth_), ' ') + line + "\n"; }
void Lines::open(const std::string& line) {
  add(line);
  ++depth_;
}
void Lines::close() {
  --depth_;
  add("}");
}
void Lines::close_all() {
  while (depth_ > 1) close();
}
void Lines::loop(const std::string& name, int64_t n) {
  open(fmt::format("for (ptrdiff_t {0} = 0; {0} < {1}; ++{0}) {{", name, n));
}
void Lines::loops(const std::string& name, const Shape& shape, const std::vector<int>& axes) {
  for (const int axis : axes) loop(fmt::format("{}{}", name, axis), shape[axis]);
}
void Lines::loops(const std::string& name, const Shape& shape) {
  for (int axis = 0; axis < shape.rank(); ++axis) loop(fmt::format("{}{}", name, axis), shape[axis]);
}

std::string offset(const Strides& strides, const std::string& name) {
  std::vector<std::string> places;
  for (int axis = 0; axis < strides.rank(); ++axis) places.push_back(fmt::format("{}{}", name, axis));
  return offset(strides, places);
}

std::string offset(const Strides& strides, const std::vector<std::string>& places) {
  std::string text;
  for (size_t axis = 0; axis < places.size(); ++axis) {
    const int64_t stride = strides[static_cast<int>(axis)];
    if (stride == 0 || places[axis].empty()) continue;
    const std::string term = stride == 1 ? places[axis] : fmt::format("{} * {}", places[axis], stride);
    text += (text.empty() ? "" : " + ") + term;
  }
  return text.empty() ? "0" : text;
}

const Printers& printers() {
  static const Printers all = [] {
    Printers made;
    add_elementwise(made);
    add_reductions(made);
    add_rows(made);
    add_products(made);
    add_convolutions(made);
    add_int8(made);
    add_pooling(made);
    add_movement(made);
    add_indexing(made);
    return made;
  }();
  return all;
}

}  // namespace sluice::c
