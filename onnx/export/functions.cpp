// Entries of functions of floating numbers that ONNX has only in parts.
#include <cmath>
#include <limits>

#include "onnx/export/emission.h"

namespace sluice::onnx::exporting {
namespace {

using Names = std::vector<std::string>;

// Writes formulas: each call is a node.
class Formula {
 public:
  explicit Formula(const Emission& e) : e_(e) {}
  std::string operator()(const char* op, const Names& inputs) const { return e_.to.add1(op, inputs); }
  std::string number(double value) const { return e_.to.scalar(value, e_.result().dtype); }
  std::string where(const std::string& condition, const std::string& a, const std::string& b) const {
    return e_.to.add1("Where", {condition, a, b});
  }
  std::string is(const std::string& x, double value) const { return (*this)("Equal", {x, number(value)}); }
  std::string less(const std::string& x, double value) const { return (*this)("Less", {x, number(value)}); }
  // Operands in the dtype of the result.
  std::string operand(size_t i) const {
    const DType dtype = e_.result().dtype;
    return e_.type(i).dtype == dtype ? e_.inputs[i] : e_.to.cast(e_.inputs[i], dtype);
  }
  // `f`, but for infinite `x`, which is its own result: there parts of `f` would be no numbers.
  std::string unless_infinite(const std::string& x, const std::string& f) const {
    return where((*this)("IsInf", {x}), x, f);
  }

 private:
  const Emission& e_;
};

// A zero has the sign of the infinity that it divides to.
std::string is_negative(const Emission& e, const std::string& x, DType dtype) {
  const std::string zero = e.to.scalar(0, dtype);
  const std::string below = e.to.add1("Less", {x, zero});
  if (!is_floating(dtype)) return below;
  const std::string beneath = e.to.add1("Less", {e.to.add1("Reciprocal", {x}), zero});
  return e.to.add1("Or", {below, e.to.add1("And", {e.to.add1("Equal", {x, zero}), beneath})});
}

Names signbit(const Emission& e) {
  const DType dtype = e.type().dtype == DType::kBool ? DType::kInt32 : e.type().dtype;
  return {is_negative(e, dtype == e.type().dtype ? e.inputs[0] : e.to.cast(e.inputs[0], dtype), dtype)};
}

Names copysign(const Emission& e) {
  const Formula f(e);
  const std::string size = f("Abs", {f.operand(0)});
  return {f.where(is_negative(e, f.operand(1), e.result().dtype), f("Neg", {size}), size)};
}

Names angle_of_real(const Emission& e) {
  if (is_complex(e.type().dtype)) return {};
  const Formula f(e);
  const std::string x = f.operand(0), half_turn = f.where(f.less(x, 0), f.number(M_PI), f.number(0));
  return {is_floating(e.type().dtype) ? f.where(f("IsNaN", {x}), x, half_turn) : half_turn};
}

Names heaviside(const Emission& e) {
  const Formula f(e);
  const std::string x = f.operand(0);
  const std::string step = f.where(f("Greater", {x, f.number(0)}), f.number(1), f.number(0));
  return {f.where(f.is(x, 0), f.operand(1), step)};
}

// The larger one is taken out, so that no square is too large.
Names hypot(const Emission& e) {
  const Formula f(e);
  const std::string a = f("Abs", {f.operand(0)}), b = f("Abs", {f.operand(1)}), larger = f("Max", {a, b});
  const std::string divisor = f.where(f.is(larger, 0), f.number(1), larger);
  const auto square = [&](const std::string& x) {
    const std::string part = f("Div", {x, divisor});
    return f("Mul", {part, part});
  };
  return {f.unless_infinite(larger, f("Mul", {divisor, f("Sqrt", {f("Add", {square(a), square(b)})})}))};
}

Names ldexp(const Emission& e) {
  const Formula f(e);
  return {f("Mul", {f.operand(0), f("Pow", {f.number(2), f.operand(1)})})};
}

// The logarithm, to `base`, of the sum of two powers.
Emit log_of_sum(double base) {
  return [=](const Emission& e) -> Names {
    const Formula f(e);
    const std::string a = f.operand(0), b = f.operand(1), larger = f("Max", {a, b});
    const std::string apart = f("Neg", {f("Abs", {f("Sub", {a, b})})});
    const std::string power = f("Exp", {f("Mul", {apart, f.number(std::log(base))})});
    const std::string more = f("Div", {f("Log", {f("Add", {power, f.number(1)})}), f.number(std::log(base))});
    return {f.unless_infinite(larger, f("Add", {larger, more}))};
  };
}

// x times the logarithm of y + `more`; 0 where x is, whatever the logarithm.
Emit times_log(double more) {
  return [=](const Emission& e) -> Names {
    const Formula f(e);
    const std::string x = f.operand(0), y = f.operand(1);
    const std::string log = f("Log", {more == 0 ? y : f("Add", {y, f.number(more)})});
    const std::string zero_or = f.where(f.is(x, 0), f.number(0), f("Mul", {x, log}));
    return {f.where(f("IsNaN", {y}), y, zero_or)};
  };
}

Names entropy(const Emission& e) {
  const Formula f(e);
  const std::string x = f.operand(0), plain = f("Neg", {f("Mul", {x, f("Log", {x})})});
  const std::string below = f.where(f.less(x, 0), f.number(-std::numeric_limits<double>::infinity()), plain);
  return {f.where(f.is(x, 0), f.number(0), below)};
}

Names sinc(const Emission& e) {
  const Formula f(e);
  const std::string x = f.operand(0), none = f.is(x, 0), turn = f("Mul", {x, f.number(M_PI)});
  return {f.where(none, f.number(1), f("Div", {f("Sin", {turn}), f.where(none, f.number(1), turn)}))};
}

Names normal_distribution(const Emission& e) {
  const Formula f(e);
  const std::string erf = f("Erf", {f("Mul", {f.operand(0), f.number(M_SQRT1_2)})});
  return {f("Mul", {f("Add", {erf, f.number(1)}), f.number(0.5)})};
}

}  // namespace

void add_function_emits(Emits& all) {
  all["angle"] = angle_of_real;
  all["conj"] = [](const Emission& e) -> Names {
    if (is_complex(e.type().dtype)) return {};
    return {e.to.add1("Identity", e.inputs)};
  };
  all["copysign"] = copysign;
  all["entr"] = entropy;
  all["heaviside"] = heaviside;
  all["hypot"] = hypot;
  all["ldexp"] = ldexp;
  all["logaddexp"] = log_of_sum(M_E);
  all["logaddexp2"] = log_of_sum(2);
  all["ndtr"] = normal_distribution;
  all["signbit"] = signbit;
  all["sinc"] = sinc;
  all["xlog1py"] = times_log(1);
  all["xlogy"] = times_log(0);
}

}  // namespace sluice::onnx::exporting
