// Entries of functions of single elements.
#include <cmath>
#include <limits>

#include "onnx/export/emission.h"

namespace sluice::onnx::exporting {
namespace {

using Names = std::vector<std::string>;
constexpr double kLog2 = 0.693147180559945309417, kLog10 = 2.302585092994045684018;

Emit plain(const char* op, int64_t opset = 17) {
  return [=](const Emission& e) -> Names {
    e.to.need(opset);
    return {e.to.add1(op, e.inputs)};
  };
}

// Only floating numbers change: others are whole.
Emit rounding(const char* op) {
  return
      [=](const Emission& e) -> Names { return {e.to.add1(is_floating(e.type().dtype) ? op : "Identity", e.inputs)}; };
}

std::string floating(const Emission& e) {
  return is_floating(e.type().dtype) ? e.inputs[0] : e.to.cast(e.inputs[0], DType::kFloat32);
}

// ONNX orders numbers, and bools are none.
Emit order(const char* op) {
  return [=](const Emission& e) -> Names {
    if (e.type().dtype != DType::kBool) return {e.to.add1(op, e.inputs)};
    return {e.to.add1(op, {e.to.cast(e.inputs[0], DType::kInt32), e.to.cast(e.inputs[1], DType::kInt32)})};
  };
}

std::string number(const Emission& e, double value) { return e.to.scalar(value, e.result().dtype); }

// Logic is of bools: other numbers count as whether they are not zero.
Emit logic(const char* op) {
  return [=](const Emission& e) -> Names {
    Names inputs;
    for (size_t i = 0; i < e.inputs.size(); ++i)
      inputs.push_back(e.type(i).dtype == DType::kBool ? e.inputs[i] : e.to.cast(e.inputs[i], DType::kBool));
    return {e.to.add1(op, inputs)};
  };
}

Names remainder(const Emission& e) {
  if (is_integral(e.type().dtype)) return {e.to.add1("Mod", e.inputs)};
  const std::string whole = e.to.add1("Floor", {e.to.add1("Div", e.inputs)});
  return {e.to.add1("Sub", {e.inputs[0], e.to.add1("Mul", {whole, e.inputs[1]})})};
}

Names floor_divide(const Emission& e) {
  if (!is_integral(e.type().dtype)) return {e.to.add1("Floor", {e.to.add1("Div", e.inputs)})};
  const std::string rest = e.to.add1("Mod", e.inputs);
  return {e.to.add1("Div", {e.to.add1("Sub", {e.inputs[0], rest}), e.inputs[1]})};
}

// The one that is a number, where the other is none.
Emit unless_nan(const char* op) {
  return [=](const Emission& e) -> Names {
    const std::string both = e.to.add1(op, e.inputs);
    if (!is_floating(e.type().dtype)) return {both};
    const std::string b = e.to.add1("Where", {e.to.add1("IsNaN", {e.inputs[1]}), e.inputs[0], both});
    return {e.to.add1("Where", {e.to.add1("IsNaN", {e.inputs[0]}), e.inputs[1], b})};
  };
}

Emit infinite(int64_t low, int64_t high) {
  return [=](const Emission& e) -> Names {
    return {e.to.add1("IsInf", {floating(e)}, {{"detect_negative", low}, {"detect_positive", high}})};
  };
}

Emit scaled_log(double by) {
  return [=](const Emission& e) -> Names {
    return {e.to.add1("Mul", {e.to.add1("Log", e.inputs), number(e, 1 / by)})};
  };
}

Names truncated(const Emission& e) {
  if (!is_floating(e.type().dtype)) return {e.to.add1("Identity", e.inputs)};
  const std::string size = e.to.add1("Floor", {e.to.add1("Abs", e.inputs)});
  return {e.to.add1("Mul", {e.to.add1("Sign", e.inputs), size})};
}

// The angle of (x, y), from that of their quotient.
Names angle(const Emission& e) {
  const DType d = e.result().dtype;
  const std::string &y = e.inputs[0], &x = e.inputs[1], zero = e.to.scalar(0, d);
  const auto pick = [&](const std::string& c, const std::string& a, const std::string& b) {
    return e.to.add1("Where", {c, a, b});
  };
  const std::string below = e.to.add1("Less", {y, zero}), left = e.to.add1("Less", {x, zero}),
                    none = e.to.add1("Equal", {x, zero});
  const std::string divisor = pick(none, e.to.scalar(1, d), x);
  const std::string plain = e.to.add1("Atan", {e.to.add1("Div", {y, divisor})});
  const std::string turn = pick(below, e.to.scalar(-M_PI, d), e.to.scalar(M_PI, d));
  const std::string off = pick(left, e.to.add1("Add", {plain, turn}), plain);
  const std::string up = e.to.add1("Mul", {e.to.add1("Sign", {y}), e.to.scalar(M_PI / 2, d)});
  return {pick(none, up, off)};
}

}  // namespace

void add_elementwise_emits(Emits& all) {
  for (const auto& [op, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"neg", "Neg"},         {"abs", "Abs"},
                                                                  {"sign", "Sign"},       {"exp", "Exp"},
                                                                  {"log", "Log"},         {"sqrt", "Sqrt"},
                                                                  {"sin", "Sin"},         {"cos", "Cos"},
                                                                  {"tan", "Tan"},         {"asin", "Asin"},
                                                                  {"acos", "Acos"},       {"atan", "Atan"},
                                                                  {"sinh", "Sinh"},       {"cosh", "Cosh"},
                                                                  {"tanh", "Tanh"},       {"asinh", "Asinh"},
                                                                  {"acosh", "Acosh"},     {"atanh", "Atanh"},
                                                                  {"erf", "Erf"},         {"relu", "Relu"},
                                                                  {"sigmoid", "Sigmoid"}, {"reciprocal", "Reciprocal"},
                                                                  {"copy", "Identity"},   {"where", "Where"},
                                                                  {"add", "Add"},         {"sub", "Sub"},
                                                                  {"mul", "Mul"},         {"div", "Div"},
                                                                  {"pow", "Pow"},         {"maximum", "Max"},
                                                                  {"minimum", "Min"},     {"clamp_min", "Max"},
                                                                  {"clamp_max", "Min"},   {"eq", "Equal"}})
    all[op] = plain(name);
  for (const auto& [op, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"bitwise_and", "BitwiseAnd"},
                                                                  {"bitwise_or", "BitwiseOr"},
                                                                  {"bitwise_xor", "BitwiseXor"},
                                                                  {"bitwise_not", "BitwiseNot"}})
    all[op] = [emit = plain(name, 18), word = plain(name + 7), logical = logic(name + 7)](const Emission& e) {
      return e.type().dtype == DType::kBool ? logical(e) : emit(e);
    };
  for (const auto& [op, name] : std::initializer_list<std::pair<const char*, const char*>>{
           {"lt", "Less"}, {"le", "LessOrEqual"}, {"gt", "Greater"}, {"ge", "GreaterOrEqual"}})
    all[op] = order(name);
  all["floor"] = rounding("Floor");
  all["ceil"] = rounding("Ceil");
  all["round"] = rounding("Round");
  all["sgn"] = plain("Sign");
  all["isnan"] = [](const Emission& e) -> Names { return {e.to.add1("IsNaN", {floating(e)})}; };
  all["isinf"] = infinite(1, 1);
  all["ne"] = [](const Emission& e) -> Names { return {e.to.add1("Not", {e.to.add1("Equal", e.inputs)})}; };
  all["logical_and"] = logic("And");
  all["logical_or"] = logic("Or");
  all["logical_xor"] = logic("Xor");
  all["logical_not"] = logic("Not");
  all["isposinf"] = infinite(0, 1);
  all["isneginf"] = infinite(1, 0);
  all["rsqrt"] = [](const Emission& e) -> Names { return {e.to.add1("Reciprocal", {e.to.add1("Sqrt", e.inputs)})}; };
  all["exp2"] = [](const Emission& e) -> Names { return {e.to.add1("Pow", {number(e, 2), e.inputs[0]})}; };
  all["expm1"] = [](const Emission& e) -> Names {
    return {e.to.add1("Sub", {e.to.add1("Exp", e.inputs), number(e, 1)})};
  };
  all["log1p"] = [](const Emission& e) -> Names {
    return {e.to.add1("Log", {e.to.add1("Add", {e.inputs[0], number(e, 1)})})};
  };
  all["log2"] = scaled_log(kLog2);
  all["log10"] = scaled_log(kLog10);
  all["erfc"] = [](const Emission& e) -> Names {
    return {e.to.add1("Sub", {number(e, 1), e.to.add1("Erf", e.inputs)})};
  };
  all["trunc"] = truncated;
  all["frac"] = [](const Emission& e) -> Names { return {e.to.add1("Sub", {e.inputs[0], truncated(e)[0]})}; };
  all["deg2rad"] = [](const Emission& e) -> Names { return {e.to.add1("Mul", {e.inputs[0], number(e, M_PI / 180)})}; };
  all["rad2deg"] = [](const Emission& e) -> Names { return {e.to.add1("Mul", {e.inputs[0], number(e, 180 / M_PI)})}; };
  all["fmod"] = [](const Emission& e) -> Names { return {e.to.add1("Mod", e.inputs, {{"fmod", int64_t{1}}})}; };
  all["remainder"] = remainder;
  all["floor_divide"] = floor_divide;
  all["fmax"] = unless_nan("Max");
  all["fmin"] = unless_nan("Min");
  all["atan2"] = angle;
  all["gelu"] = [](const Emission& e) -> Names {
    if (e.to.opset() < 20) return {};
    return {e.to.add1("Gelu", e.inputs, {{"approximate", e.s("approximate")}})};
  };
  all["cast"] = [](const Emission& e) -> Names {
    const DType from = e.type().dtype, to = e.result().dtype;
    if (from == DType::kBool || to != DType::kUInt8 || !is_floating(from)) return {e.to.cast(e.inputs[0], to)};
    return {e.to.cast(e.to.cast(e.inputs[0], DType::kInt32), to)};  // by way of a type that holds negative numbers
  };
}

}  // namespace sluice::onnx::exporting
