// The functions of base/scalar are written for any T. Here each type has its own, under names with the type in them; of
// float, C's mathematics are those that have the same bits everywhere, where base/scalar/portable.inc has them.
#include "kernels/c/shared.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/portable_math.h"
#include "kernels/c/printer.h"

namespace sluice::c {
namespace {

// The bits of a float, by the one way that C99 knows beside a call of memcpy().
constexpr const char* kBitsOfFloat =
    "static inline u32 bits_of_float(float x) {\n  union {\n    float value;\n    u32 bits;\n  } both;\n"
    "  both.value = x;\n  return both.bits;\n}\n";
constexpr const char* kFloatOfBits =
    "static inline float float_of_bits(u32 x) {\n  union {\n    float value;\n    u32 bits;\n  } both;\n"
    "  both.bits = x;\n  return both.value;\n}\n";

// Results that IEEE 754 defines to the last bit, so that all libraries agree.
constexpr std::string_view kExact[] = {"ceil",      "copysign", "fabs", "floor", "fmod",
                                       "nextafter", "rint",     "sqrt", "trunc"};

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Calls `word` with each name and what follows it; numbers and signs are `other`.
template <class Word, class Other>
void read(std::string_view text, const Word& word, const Other& other) {
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && (in_word(text[end]) || (text[end] == '.' && end > at))) ++end;
    if (end == at || std::isdigit(static_cast<unsigned char>(text[at])) != 0) {
      end = std::max(end, at + 1);
      other(text.substr(at, end - at));
    } else {
      word(std::string(text.substr(at, end - at)), end < text.size() && text[end] == '(');
    }
    at = end;
  }
}

bool has_word(std::string_view text, std::string_view wanted) {
  bool found = false;
  read(
      text, [&](const std::string& name, bool) { found = found || name == wanted; }, [](std::string_view) {});
  return found;
}

// Statements by which a compiler does not miss the parameters that an expression does not read.
std::string unread(std::string_view expression, int parameters) {
  std::string text;
  for (const char name : std::string_view("ab").substr(0, static_cast<size_t>(parameters)))
    if (!has_word(expression, std::string_view(&name, 1))) text += fmt::format("(void){}; ", name);
  return text;
}

// A body that the preprocessor has put on one line, on lines again.
std::string on_lines(std::string_view body) {
  std::string text;
  int depth = 1, brackets = 0;
  bool begins = true;
  for (size_t at = 0; at < body.size(); ++at) {
    const char c = body[at];
    if (begins && c == ' ') continue;
    if (c == '(') ++brackets;
    if (c == ')') --brackets;
    // A list of numbers stays on the line of its array.
    if (c == '{' && text.ends_with("= ")) {
      const size_t end = body.find('}', at);
      text += body.substr(at, end + 1 - at);
      at = end;
      continue;
    }
    if (c == '}') --depth;
    if (begins) text += std::string(static_cast<size_t>(2 * depth), ' ');
    text += c;
    if (c == '{') ++depth;
    begins = brackets == 0 && (c == ';' || c == '{' || c == '}');
    if (c == '}' && body.substr(at + 1).starts_with(" else")) begins = false;
    if (begins) text += '\n';
  }
  return text;
}

}  // namespace

std::pair<std::string, bool> Shared::named(const std::string& name, const std::string& type) {
  const auto [it, fresh] = names_.try_emplace({name, type}, type.empty() ? name : name + "_" + type);
  return {it->second, fresh};
}

std::string Shared::instance(const ScalarFunction& function, const std::string& type) {
  const auto [name, fresh] = named(function.name, type);
  if (!fresh) return name;
  const std::string body = written(function.body, type);
  functions_ += fmt::format("static inline {} {}{} {{\n{}}}\n", function.of_floats ? type : "i64", name,
                            written(function.parameters, type), on_lines(body));
  return name;
}

// What a call of `name` is called in C, for arguments of that type.
std::string Shared::called(const std::string& name, const std::string& type) {
  if (name == "bits_of_float" || name == "float_of_bits") {
    if (named(name, "").second) functions_ += name == "bits_of_float" ? kBitsOfFloat : kFloatOfBits;
    return name;
  }
  // The one that is asked for comes behind those that it calls.
  if (const auto functions = scalar_functions_of(name + "("); !functions.empty()) {
    const ScalarFunction* const function = functions.back();
    return instance(*function, function->of_floats ? type : "");
  }
  const ScalarFunction* const portable = type == "float" ? find_portable_function(name) : nullptr;
  if (portable != nullptr) return instance(*portable, type);
  const auto of_library = math_functions();
  if (std::find(of_library.begin(), of_library.end(), name) == of_library.end()) return name;
  const std::string own = name + (type == "float" ? "f" : "");
  if (std::find(std::begin(kExact), std::end(kExact), name) == std::end(kExact)) inexact_.insert(own);
  return own;
}

// Where a text computes in double, so do the functions that it calls.
std::string Shared::written(std::string_view text, const std::string& type) {
  const std::string inner = has_word(text, "double") ? "double" : type;
  std::string made;
  read(
      text, [&](const std::string& word, bool call) { made += word == "T" ? type
                                                              : call      ? called(word, inner)
                                                                          : word; },
      [&](std::string_view other) { made += other; });
  return made;
}

std::string Shared::scalar(const ScalarOp& op, DType operands) {
  const char* const expression = is_floating(operands) ? op.floating : op.integer;
  SLUICE_CHECK_KIND(kUnsupported, expression != nullptr, "{}: no form in C for {}; cast it first", op.name,
                    dtype_name(operands));
  const std::string type = compute_type(operands);
  const std::string suffix = *op.mode == '\0' ? "" : std::string("_") + op.mode;
  const auto [name, fresh] = named(fmt::format("op_{}{}", op.name, suffix), type);
  if (!fresh) return name;
  const std::string value = written(expression, type);
  functions_ +=
      fmt::format("static inline {0} {1}({2} a{3}) {{ {4}return {5}; }}\n", op.gives_bool ? "bool" : type, name, type,
                  op.inputs == 2 ? fmt::format(", {} b", type) : "", unread(expression, op.inputs), value);
  return name;
}

std::pair<std::string, int> Shared::bad(const ScalarOp& op, DType operands) {
  if (is_floating(operands) || op.bad == nullptr) return {"", 0};
  const auto [name, fresh] = named(fmt::format("bad_{}", op.name), compute_type(operands));
  if (fresh) {
    const std::string value = written(op.bad, compute_type(operands));
    functions_ += fmt::format("static inline bool {0}({1} a, {1} b) {{ {2}return {3}; }}\n", name,
                              compute_type(operands), unread(op.bad, 2), value);
  }
  return {name, error(scalar_error_text(op.name, op.error))};
}

std::string Shared::of_integers(const std::string& name) { return called(name, "i64"); }

void Shared::add(const std::string& name, const std::string& text) {
  if (named(name, "").second) functions_ += text;
}

int Shared::error(const std::string& text) {
  auto it = std::find(errors_.begin(), errors_.end(), text);
  if (it == errors_.end()) it = errors_.insert(errors_.end(), text);
  return static_cast<int>(it - errors_.begin()) + 1;
}

}  // namespace sluice::c
