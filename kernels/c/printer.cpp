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

// Statements by which a compiler does not miss the parameters that an expression does not read.
static std::string unread(std::string_view expression, int parameters) {
  const auto letter = [&](size_t i) {
    return i < expression.size() && (std::isalnum(expression[i]) != 0 || expression[i] == '_');
  };
  std::string text;
  for (const char name : std::string_view("ab").substr(0, static_cast<size_t>(parameters))) {
    bool read = false;
    for (size_t i = 0; i < expression.size(); ++i)
      read = read || (expression[i] == name && !letter(i - 1) && !letter(i + 1));
    if (!read) text += fmt::format("(void){}; ", name);
  }
  return text;
}

Shared::Typed& Shared::typed(DType operands) { return types_[compute_type(operands)]; }

std::string Shared::scalar(const ScalarOp& op, DType operands) {
  const char* const expression = is_floating(operands) ? op.floating : op.integer;
  SLUICE_CHECK_KIND(kUnsupported, expression != nullptr, "{}: no form in C for {}; cast it first", op.name,
                    dtype_name(operands));
  const std::string type = compute_type(operands);
  Typed& typed = this->typed(operands);
  const std::string suffix = *op.mode == '\0' ? "" : std::string("_") + op.mode;
  const auto [it, added] =
      typed.names.try_emplace(std::string(op.name) + suffix, fmt::format("op_{}{}_{}", op.name, suffix, type));
  if (added) {
    typed.expressions.emplace_back(expression);
    typed.functions.push_back(fmt::format("static inline {} {}(T a{}) {{ {}return {}; }}\n",
                                          op.gives_bool ? "bool" : "T", it->second, op.inputs == 2 ? ", T b" : "",
                                          unread(expression, op.inputs), expression));
  }
  return it->second;
}

std::pair<std::string, int> Shared::bad(const ScalarOp& op, DType operands) {
  if (is_floating(operands) || op.bad == nullptr) return {"", 0};
  Typed& typed = this->typed(operands);
  const auto [it, added] =
      typed.names.try_emplace(fmt::format("{} is bad", op.name), fmt::format("bad_{}_int64_t", op.name));
  if (added)
    typed.functions.push_back(
        fmt::format("static inline bool {}(T a, T b) {{ {}return {}; }}\n", it->second, unread(op.bad, 2), op.bad));
  return {it->second, error(scalar_error_text(op.name, op.error))};
}

int Shared::error(const std::string& text) {
  auto it = std::find(errors_.begin(), errors_.end(), text);
  if (it == errors_.end()) it = errors_.insert(errors_.end(), text);
  return static_cast<int>(it - errors_.begin()) + 1;
}

namespace {

// The functions of <math.h> that expressions call have other names for float.
constexpr std::pair<const char*, int> kMath[] = {
#define MATH1(NAME) {#NAME, 1},
#define MATH2(NAME) {#NAME, 2},
#include "base/scalar/math.inc"
};

std::string generic_math(const std::string& functions) {
  std::string text;
  for (const auto& [name, operands] : kMath) {
    if (functions.find(fmt::format("{}(", name)) == std::string::npos) continue;
    const char* const more = operands == 2 ? ", y" : "";
    const char* const sum = operands == 2 ? " + (y)" : "";
    text += fmt::format("#undef {0}\n#define {0}(x{1}) _Generic((x){2}, float: {0}f, default: {0})(x{1})\n", name, more,
                        sum);
  }
  return text;
}

}  // namespace

// The functions of base/scalar are written for any T. Each type has its own, under names with the type in them.
std::string Shared::functions() const {
  std::string text;
  for (const auto& [type, typed] : types_) {
    std::string all;
    for (const std::string& expression : typed.expressions) all += expression + " ";
    std::string renamed, undone, own;
    for (const ScalarFunction* f : scalar_functions_of(all)) {
      renamed += fmt::format("#define {0} {0}_{1}\n", f->name, type);
      undone += fmt::format("#undef {}\n", f->name);
      own +=
          fmt::format("static inline {} {}{} {{ {} }}\n", f->of_floats ? "T" : "i64", f->name, f->parameters, f->body);
    }
    for (const std::string& function : typed.functions) own += function;
    text += fmt::format("\n#define T {}\n{}{}{}#undef T\n", type, renamed, own, undone);
  }
  return generic_math(text) + text;
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
    add_pooling(made);
    add_movement(made);
    add_indexing(made);
    return made;
  }();
  return all;
}

}  // namespace sluice::c
