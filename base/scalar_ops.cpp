#include "base/scalar_ops.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace sluice {
namespace {

constexpr bool kLight = false, kHeavy = true;
constexpr ScalarError kNone = ScalarError::kNone, kDivisionByZero = ScalarError::kDivisionByZero;

// Each # stands before an argument itself, so that the text is what the table has and not what macros make of it.
#define FLOATS1(NAME, WEIGHT, ...) {#NAME, "", 1, #__VA_ARGS__, nullptr, false, WEIGHT, kNone, nullptr},
#define NUMBERS1(NAME, WEIGHT, FLOATS, ...) {#NAME, "", 1, #FLOATS, #__VA_ARGS__, false, WEIGHT, kNone, nullptr},
#define TEST1(NAME, FLOATS, ...) {#NAME, "", 1, #FLOATS, #__VA_ARGS__, true, kLight, kNone, nullptr},
#define FLOATS2(NAME, WEIGHT, ...) {#NAME, "", 2, #__VA_ARGS__, nullptr, false, WEIGHT, kNone, nullptr},
#define NUMBERS2(NAME, WEIGHT, FLOATS, ...) {#NAME, "", 2, #FLOATS, #__VA_ARGS__, false, WEIGHT, kNone, nullptr},
#define INTEGERS2(NAME, ...) {#NAME, "", 2, nullptr, #__VA_ARGS__, false, kLight, kNone, nullptr},
#define CHECKED2(NAME, WEIGHT, FLOATS, INTEGERS, ERROR, ...) \
  {#NAME, "", 2, #FLOATS, #INTEGERS, false, WEIGHT, ERROR, #__VA_ARGS__},
#define TEST2(NAME, ...) {#NAME, "", 2, #__VA_ARGS__, #__VA_ARGS__, true, kLight, kNone, nullptr},
#define VARIANT1(NAME, MODE, WEIGHT, ...) {#NAME, #MODE, 1, #__VA_ARGS__, nullptr, false, WEIGHT, kNone, nullptr},
#define VARIANT2(NAME, MODE, WEIGHT, ...) {#NAME, #MODE, 2, #__VA_ARGS__, nullptr, false, WEIGHT, kNone, nullptr},
#define COMPLEX1(NAME, WEIGHT, ...)
#define COMPLEX2(NAME, WEIGHT, ...)
#define COMPLEX_TEST1(NAME, ...)
#define COMPLEX_TEST2(NAME, ...)
#define REAL_OF1(NAME, WEIGHT, ...)
constexpr ScalarOp kOps[] = {
#include "base/scalar/unary.inc"
//
#include "base/scalar/binary.inc"
//
#include "base/scalar/comparison.inc"
//
#include "base/scalar/activation.inc"
//
#include "base/scalar/special.inc"
};
#include "base/scalar/undefine.inc"

#define UNARY(NAME)
#define BINARY(NAME)
#include "base/scalar/names.inc"
#undef COMPLEX1
#undef COMPLEX2
#undef COMPLEX_TEST1
#undef COMPLEX_TEST2
#undef REAL_OF1
#define COMPLEX_FORM(NAME, INPUTS, BOOL, WEIGHT, REAL, ...) \
  {#NAME, kComplexMode, INPUTS, #__VA_ARGS__, nullptr, BOOL, WEIGHT, kNone, nullptr, REAL},
#define COMPLEX1(NAME, WEIGHT, ...) COMPLEX_FORM(NAME, 1, false, WEIGHT, false, __VA_ARGS__)
#define COMPLEX2(NAME, WEIGHT, ...) COMPLEX_FORM(NAME, 2, false, WEIGHT, false, __VA_ARGS__)
#define COMPLEX_TEST1(NAME, ...) COMPLEX_FORM(NAME, 1, true, kLight, false, __VA_ARGS__)
#define COMPLEX_TEST2(NAME, ...) COMPLEX_FORM(NAME, 2, true, kLight, false, __VA_ARGS__)
#define REAL_OF1(NAME, WEIGHT, ...) COMPLEX_FORM(NAME, 1, false, WEIGHT, true, __VA_ARGS__)
constexpr ScalarOp kComplexOps[] = {
#include "base/scalar/unary.inc"
//
#include "base/scalar/binary.inc"
//
#include "base/scalar/comparison.inc"
//
#include "base/scalar/activation.inc"
//
#include "base/scalar/special.inc"
};
#include "base/scalar/undefine.inc"
#undef COMPLEX_FORM

#define FUNCTION(NAME, PARAMETERS, ...) {#NAME, #PARAMETERS, #__VA_ARGS__, true},
#define INTEGER_FUNCTION(NAME, PARAMETERS, ...) {#NAME, #PARAMETERS, #__VA_ARGS__, false},
constexpr ScalarFunction kFunctions[] = {
#include "base/scalar/fixed_point.inc"
//
#include "base/scalar/functions.inc"
};

// Is `name` called in `text`? A name that only ends or begins with it is another.
bool calls(std::string_view text, std::string_view name) {
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !in_name(text[at - 1])) && end < text.size() && text[end] == '(') return true;
  }
  return false;
}

}  // namespace

std::string scalar_error_text(std::string_view op, ScalarError error) {
  switch (error) {
    case ScalarError::kNone: break;
    case ScalarError::kDivisionByZero:
      return fmt::format("{}: integer division by zero; every divisor must be non-zero", op);
  }
  return fmt::format("{}: no error", op);
}

std::span<const ScalarOp> scalar_ops() { return kOps; }

const ScalarOp* find_scalar_op(std::string_view name, std::string_view mode) {
  const ScalarOp* any = nullptr;
  for (const ScalarOp& op : kOps) {
    if (name != op.name) continue;
    if (mode == op.mode) return &op;
    if (*op.mode == '\0') any = &op;
  }
  return any;
}

const ScalarOp* find_scalar_op(std::string_view name, const NamedAttrs& attrs) {
  const auto mode = std::find_if(attrs.begin(), attrs.end(),
                                 [](const auto& attr) { return std::holds_alternative<std::string>(attr.second); });
  return find_scalar_op(name, mode == attrs.end() ? std::string_view() : std::get<std::string>(mode->second));
}

const ScalarOp* find_complex_op(std::string_view name) {
  const auto op = std::find_if(std::begin(kComplexOps), std::end(kComplexOps),
                               [&](const ScalarOp& form) { return name == form.name; });
  return op == std::end(kComplexOps) ? nullptr : &*op;
}

std::vector<const ScalarFunction*> scalar_functions_of(std::string_view text) {
  std::string all(text);
  std::vector<const ScalarFunction*> needed;
  for (size_t i = std::size(kFunctions); i-- > 0;) {
    if (!calls(all, kFunctions[i].name)) continue;
    needed.push_back(&kFunctions[i]);
    all += kFunctions[i].body;
  }
  std::reverse(needed.begin(), needed.end());
  return needed;
}

}  // namespace sluice
