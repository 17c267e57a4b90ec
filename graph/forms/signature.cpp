#include "graph/forms/signature.h"

#include <array>
#include <charconv>

#include "graph/text_cursor.h"

namespace sluice {
namespace {

using graph::TextCursor;

struct KindNames {
  const char* schema;    // in signatures
  const char* expected;  // in errors, as torch says it
  const char* python;    // in stubs
};
constexpr std::array<KindNames, kNumArgKinds> kKinds = {{{"Tensor", "Tensor", "Tensor"},
                                                         {"Operand", "Tensor or Number", "Tensor | float"},
                                                         {"Scalar", "Number", "Tensor | float"},
                                                         {"int", "int", "int"},
                                                         {"float", "float", "float"},
                                                         {"bool", "bool", "bool"},
                                                         {"str", "str", "str"},
                                                         {"ScalarType", "dtype", "dtype"},
                                                         {"int[]", "tuple of ints", "Sequence[int]"},
                                                         {"Tensor[]", "tuple of Tensors", "Sequence[Tensor]"},
                                                         {"float[]", "tuple of floats", "Sequence[float]"}}};

const KindNames& names_of(ArgKind kind) { return kKinds[static_cast<size_t>(kind)]; }

void parse_type(TextCursor& cursor, SignatureParam* param) {
  const std::string_view base = cursor.word();
  bool known = false;
  for (int i = 0; i < kNumArgKinds && !known; ++i) {
    known = base == kKinds[i].schema;
    if (known) param->kind = static_cast<ArgKind>(i);
  }
  if (!known)
    cursor.fail("type '{}' is unknown; must be Tensor, Operand, Scalar, int, float, bool, str or ScalarType", base);
  const bool nullable = cursor.accept('?');
  if (cursor.accept('.')) {
    cursor.expect('.', "Tensor...");
    cursor.expect('.', "Tensor...");
    param->kind = ArgKind::kTensors;
    param->variadic = true;
  }
  if (cursor.accept('[')) {
    if (param->kind == ArgKind::kTensor)
      param->kind = ArgKind::kTensors;
    else if (param->kind == ArgKind::kInt)
      param->kind = ArgKind::kInts;
    else if (param->kind == ArgKind::kFloat)
      param->kind = ArgKind::kFloats;
    else
      cursor.fail("there are no lists of {}; only of Tensor, int and float", base);
    if (!cursor.accept(']')) {
      cursor.integer("length");
      param->single = true;
      cursor.expect(']', "length");
    }
    param->holes = nullable;
    param->nullable = cursor.accept('?');
  } else {
    param->nullable = nullable;
  }
}

Attr parse_number(TextCursor& cursor, bool floating) {
  const std::string_view text = cursor.number_text();
  const char* const end = text.data() + text.size();
  int64_t integer = 0;
  if (const auto r = std::from_chars(text.data(), end, integer); r.ec == std::errc() && r.ptr == end)
    return floating ? Attr(static_cast<double>(integer)) : Attr(integer);
  double number = 0;
  if (const auto r = std::from_chars(text.data(), end, number); r.ec != std::errc() || r.ptr != end)
    cursor.fail("default '{}' is no number; it must be None, True, False, a number, a string or a list", text);
  return number;
}

Attr parse_default(TextCursor& cursor, const SignatureParam& param) {
  if (cursor.peek() == '"') return cursor.string("default");
  if (cursor.accept('[')) {
    Ints ints;
    while (!cursor.accept(']')) {
      ints.push_back(cursor.integer("default"));
      cursor.accept(',');
    }
    return ints;
  }
  if (const char c = cursor.peek(); c == 'N' || c == 'T' || c == 'F') {
    const std::string_view word = cursor.word();
    if (word == "None") return Attr();
    if (word == "True" || word == "False") return word == "True";
    cursor.fail("default '{}' is unknown; it must be None, True, False, a number, a string or a list", word);
  }
  Attr number = parse_number(cursor, param.kind == ArgKind::kFloat);
  if (param.kind == ArgKind::kInts) return Ints{std::get<int64_t>(number)};
  return number;
}

void check_default(const TextCursor& cursor, const SignatureParam& param) {
  const Attr& value = param.default_value;
  const bool is[kNumArgKinds] = {
      false,
      false,
      std::holds_alternative<double>(value) || std::holds_alternative<int64_t>(value),
      std::holds_alternative<int64_t>(value),
      std::holds_alternative<double>(value),
      std::holds_alternative<bool>(value),
      std::holds_alternative<std::string>(value),
      false,
      std::holds_alternative<Ints>(value),
      false,
      false,
  };
  if (std::holds_alternative<NoAttr>(value) ? !param.nullable : !is[static_cast<size_t>(param.kind)])
    cursor.fail("default of '{}' is {}; must be of its type, {}", param.name, attr_str(value),
                arg_kind_name(param.kind));
}

void parse_params(TextCursor& cursor, Signature* signature) {
  bool keyword_only = false;
  cursor.expect('(', "parameters");
  while (!cursor.accept(')')) {
    if (cursor.accept('*')) {
      keyword_only = true;
    } else {
      SignatureParam param{.keyword_only = keyword_only};
      parse_type(cursor, &param);
      param.name = cursor.word();
      if (param.name.empty()) cursor.fail("parameter without a name: {}; a name must follow its type", cursor.rest());
      param.required = !cursor.accept('=');
      if (!param.required) {
        param.default_value = parse_default(cursor, param);
        check_default(cursor, param);
      }
      signature->params.push_back(std::move(param));
    }
    if (cursor.peek() != ')') cursor.expect(',', "parameters");
  }
}

ResultKind result_of(const TextCursor& cursor, const SignatureParam& type) {
  switch (type.kind) {
    case ArgKind::kTensor: return ResultKind::kTensor;
    case ArgKind::kTensors: return ResultKind::kTensors;
    case ArgKind::kBool: return ResultKind::kBool;
    case ArgKind::kInt: return ResultKind::kInt;
    case ArgKind::kFloat: return ResultKind::kFloat;
    case ArgKind::kInts: return ResultKind::kInts;
    default:
      cursor.fail("no function gives {}; only Tensor, Tensor[], a tuple, bool, int, float or int[]",
                  names_of(type.kind).schema);
  }
}

void parse_result(TextCursor& cursor, Signature* signature) {
  cursor.expect('-', "result");
  cursor.expect('>', "result");
  SignatureParam type;
  if (!cursor.accept('(')) {
    parse_type(cursor, &type);
    signature->result = result_of(cursor, type);
    return;
  }
  signature->result = ResultKind::kTuple;
  while (!cursor.accept(')')) {
    parse_type(cursor, &type);
    if (type.kind != ArgKind::kTensor) cursor.fail("a tuple has tensors only: got {}", names_of(type.kind).schema);
    signature->fields.emplace_back(cursor.word());
    if (cursor.peek() != ')') cursor.expect(',', "results");
  }
}

}  // namespace

int Signature::num_positional() const {
  int n = 0;
  for (const SignatureParam& param : params) n += !param.keyword_only;
  return n;
}

bool Signature::has_inplace() const {
  return !params.empty() && params.back().kind == ArgKind::kBool && params.back().name == "inplace";
}

std::string Signature::qualified() const { return module.empty() ? name : module + "." + name; }

Signature parse_signature(std::string_view text) {
  TextCursor cursor(text, "signature '" + std::string(text) + "'");
  Signature signature;
  for (signature.name = cursor.word(); cursor.accept('.'); signature.name = cursor.word())
    signature.module = signature.qualified();
  if (signature.name.empty()) cursor.fail("no name: {}; it must start with one", cursor.rest());
  signature.text = text.substr(signature.module.empty() ? 0 : signature.module.size() + 1);
  parse_params(cursor, &signature);
  parse_result(cursor, &signature);
  cursor.expect_end("result");
  return signature;
}

const char* arg_kind_name(ArgKind kind) { return names_of(kind).schema; }

std::string expected(const SignatureParam& param) {
  if (param.single) return param.kind == ArgKind::kFloats ? "float or tuple of floats" : "int or tuple of ints";
  if (param.variadic) return "Tensors, or one tuple of Tensors";
  return names_of(param.kind).expected;
}

std::string python_type(const SignatureParam& param) {
  const std::string text = param.holes ? "Sequence[int | None]" : names_of(param.kind).python;
  return (param.single ? (param.kind == ArgKind::kFloats ? "float | " : "int | ") + text : text) +
         (param.nullable || (param.single && param.holes) ? " | None" : "");
}

std::string python_default(const SignatureParam& param) {
  const Attr& value = param.default_value;
  if (std::holds_alternative<NoAttr>(value)) return "None";
  if (const bool* b = std::get_if<bool>(&value)) return *b ? "True" : "False";
  if (const std::string* s = std::get_if<std::string>(&value)) return "'" + *s + "'";
  if (const Ints* ints = std::get_if<Ints>(&value); ints && param.single && ints->size() == 1)
    return std::to_string((*ints)[0]);
  return attr_str(value);
}

}  // namespace sluice
